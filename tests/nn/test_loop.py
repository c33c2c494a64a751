"""A loop of one's own ends where it was left, and says when it is given a gradient of the data."""

import warnings

import pytest
import torch
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino.errors import PlanSpentError, PrivacyWarning
from sordino.ledger import BudgetPolicy, Ledger
from sordino.nn import make_private

LOSS = nn.CrossEntropyLoss()


def test_a_loop_that_was_left_does_not_go_on(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("toy", BudgetPolicy(epsilon=5.0, delta=1e-3))
    booked = {"ledger": ledger, "dataset_id": "toy", "epsilon": 3.0, "delta": 1e-4}
    steps = make_private(perceptron(), LOSS, blobs(), steps=5, **booked)
    for _ in steps:
        break
    with pytest.raises(PlanSpentError, match="begun before"):
        iter(steps)


def test_a_loop_is_begun_by_its_first_step_and_by_one_iterator_only():
    steps = make_private(perceptron(), LOSS, blobs(), epsilon=3.0, delta=1e-4, steps=3)
    first, second = iter(steps), iter(steps)  # Lightning asks for two, and uses the second
    assert list(second) == [0, 1, 2]
    with pytest.raises(PlanSpentError, match="begun before"):
        next(first)


@pytest.mark.parametrize("how", ["backward", "grad", "closure"])
def test_a_backward_pass_on_the_data_inside_the_loop_is_noticed(how):
    model, (x, y) = perceptron(), blobs()
    loss = {
        "backward": lambda: LOSS(model(x), y).backward(),
        "grad": lambda: torch.autograd.grad(LOSS(model(x), y), list(model.parameters())),
        "closure": lambda: torch.optim.LBFGS(model.parameters()).step(closure),
    }

    def closure():
        value = LOSS(model(x), y)
        value.backward()
        return value

    loop = iter(make_private(model, LOSS, (x, y), epsilon=3.0, steps=2))
    next(loop)
    with pytest.warns(PrivacyWarning, match="backward pass"):
        loss[how]()
    loop.close()


def test_an_ordinary_loop_is_silent():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in make_private(model, LOSS, blobs(), epsilon=3.0, steps=2):
            optimizer.step()
        LOSS(model(blobs()[0]), blobs()[1]).backward()  # the loop is over: the caller's own business
