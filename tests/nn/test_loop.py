"""A loop of one's own ends where it was left, and says when it is given a gradient of the data."""

import warnings

import pytest
import torch
from tests.nn.helpers import blobs, perceptron, reading
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
    steps = reading(make_private(perceptron(), LOSS, blobs(), epsilon=3.0, delta=1e-4, steps=3))
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


@pytest.mark.parametrize("when", ["before the loop", "in it"])
def test_a_gradient_of_the_data_leaves_no_guarantee(when):
    """A loop that never asked for a step, and stepped along its own gradients, was called private."""
    model, (x, y) = perceptron(), blobs()
    steps = make_private(model, LOSS, (x, y), epsilon=3.0, steps=2)
    assert steps.privacy.is_private
    loop = iter(steps)
    if when == "in it":
        next(loop)
    with pytest.warns(PrivacyWarning, match="guarantees nothing"):
        LOSS(model(x), y).backward()
    assert not steps.privacy.is_private
    assert "a backward pass of the caller's own" in steps.privacy.guarantee
    loop.close()


def test_steps_that_are_let_go_watch_no_longer():
    model, (x, y) = perceptron(), blobs()
    make_private(model, LOSS, (x, y), epsilon=3.0, steps=2)
    LOSS(model(x), y).backward()  # warnings are errors


LOOPS = {
    "accumulation": lambda model: (torch.optim.SGD(model.parameters(), 0.1), lambda i: i % 4 == 3),
    "every other step": lambda model: (torch.optim.SGD(model.parameters(), 0.1), lambda i: i % 2 == 0),
    "other parameters": lambda model: (torch.optim.SGD(perceptron().parameters(), 0.1), lambda i: True),
}


@pytest.mark.parametrize("kind", LOOPS)
def test_a_release_that_is_thrown_away_is_said_once(kind):
    model = perceptron()
    optimizer, steps_at = LOOPS[kind](model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in make_private(model, LOSS, blobs(), epsilon=3.0, steps=8):
            if steps_at(i):
                optimizer.step()
    (said,) = [str(one.message) for one in caught if one.category is UserWarning]
    assert f"step {int(kind == 'every other step')} was paid for and thrown away" in said
    assert "raise batch_size" in said


def test_accumulation_of_accelerate_is_noticed():
    accelerate = pytest.importorskip("accelerate", reason="comes with the extra 'transformers'")
    model, around = perceptron(), accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = around.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    loop = iter(make_private(model, LOSS, blobs(), epsilon=3.0, steps=4))
    next(loop)
    with around.accumulate(model):
        optimizer.step()
    with pytest.warns(UserWarning, match="thrown away"):
        next(loop)


def test_an_ordinary_loop_is_silent():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in make_private(model, LOSS, blobs(), epsilon=3.0, steps=2):
            optimizer.step()
        LOSS(model(blobs()[0]), blobs()[1]).backward()  # the loop is over: the caller's own business
