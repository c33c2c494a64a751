"""Claim 6: a run resumed with another dataset_id released from that data set and booked nothing on it."""

import pytest
import torch
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino.errors import PlanError
from sordino.ledger import BudgetPolicy, Ledger
from sordino.nn import Trainer


class Stop(Exception):
    pass


def trainer(path, ledger, dataset_id):
    booked = {"ledger": ledger, "dataset_id": dataset_id, "checkpoint": path, "checkpoint_every": 1}
    return Trainer(
        perceptron(), nn.CrossEntropyLoss(), epsilon=3.0, delta=1e-4, steps=4, batch_size=30, **booked
    )


def test_a_run_of_one_data_set_is_not_resumed_on_another(tmp_path, monkeypatch):
    ledger = Ledger.open(tmp_path / "ledger.db")
    for name in "AB":
        ledger.create(name, BudgetPolicy(epsilon=5.0, delta=1e-3))
    x, y = blobs()
    with monkeypatch.context() as patch:
        patch.setattr("sordino.nn.session.Session.due", lambda self: (_ for _ in ()).throw(Stop()))
        with pytest.raises(Stop):
            trainer(tmp_path / "run", ledger, "A").fit(x, y)
    with pytest.raises(PlanError, match="'A', not on 'B'"):
        trainer(tmp_path / "run", ledger, "B").resume(torch.flip(x, (0,)), y)
    assert ledger.history("B") == []
