"""Claim 22: a checkpoint edited to an eighth of its noise was resumed and reported "private" (true 56.9)."""

import pytest
import torch
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino.errors import CalibrationError, PlanError
from sordino.nn import Trainer
from sordino.nn.data import source_of
from sordino.runs.promise import at_multipliers, digest_of

RUN = {"epsilon": 1.0, "delta": 1e-4, "steps": 4, "batch_size": 30, "checkpoint_every": 1}


def edit(trainer, change):
    """Change the noise and every hash of it, in the checkpoint and in its journal, as a forger would."""
    content = torch.load(trainer.checkpoint, weights_only=True)
    saved = content["run"]
    saved["multipliers"] = {name: change * m for name, m in saved["multipliers"].items()}
    solver, task, _, _ = trainer._made(source_of(blobs()))
    honest = saved["digest"]
    saved["digest"] = digest_of(at_multipliers(solver.plan(task), saved["multipliers"]))
    torch.save(content, trainer.checkpoint)
    journal = trainer.checkpoint.with_name("run.journal")
    journal.write_text(journal.read_text().replace(honest, saved["digest"]))


LESS, MORE = CalibrationError, PlanError


@pytest.mark.parametrize(("change", "error"), [(0.125, LESS), (0.9, LESS), (8.0, MORE)])
def test_a_run_whose_noise_was_edited_is_refused(tmp_path, monkeypatch, change, error):
    trainer = Trainer(perceptron(), nn.CrossEntropyLoss(), checkpoint=tmp_path / "run", **RUN)
    with monkeypatch.context() as patch:
        patch.setattr("sordino.nn.session.Session.due", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            trainer.fit(*blobs())
    edit(trainer, change)
    with pytest.raises(error, match="certifies epsilon"):
        trainer.resume(*blobs())
