"""A private training loop of one's own, with any optimiser of torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sordino.errors import InvalidInputError, PlanSpentError, PrivacyWarning
from sordino.nn.data import source_of
from sordino.nn.network import Loss, Network
from sordino.nn.session import Session, open_session, together
from sordino.nn.trainer import Trainer

# what concerns the steps of a trainer, and a loop of one's own does by itself
_OF_TRAINERS = {
    "optimizer", "optimizer_options", "learning_rate", "schedule", "weight_decay", "smoothing", "projection",
    "average", "validation", "validate_every", "callbacks", "verbose",
}  # fmt: skip


class PrivateSteps:
    """The steps of a loop of one's own: each sets ``.grad`` of the model to a released gradient."""

    quiet = False  # whether the loop is known to use what a step sets: its first learning rate may be zero

    def __init__(self, session: Session, network: Network, model: nn.Module, steps: int) -> None:
        self._session, self._network, self._model, self._steps = session, network, model, steps
        self._begun = self._ended = False
        self.privacy = session.report

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[int]:
        """Return the steps; loops that only ask for an iterator, as Lightning does twice, begin nothing."""
        if self._begun:
            raise self._spent()
        return self._released()

    def end(self, steps: Iterator[int]) -> None:
        """End a loop that was begun, as a trainer does: what is left of it stays spent."""
        self._ended = True
        if self._begun:
            next(steps, None)

    def _spent(self) -> PlanSpentError:
        return PlanSpentError(
            "This loop was begun before, and what was left of it is spent: the ledger has closed it. "
            "Call make_private again, with a budget of its own."
        )

    def _released(self) -> Iterator[int]:
        if self._begun:
            raise self._spent()
        self._begun = True
        network, own = self._network, self._network.own(self._model)
        before = torch.empty(0)
        with self._session as session, _watching(own.values()):
            for step in range(self._steps):
                point = network.flat(self._model)
                unmoved = step == 1 and not self.quiet and torch.equal(point, before)
                if unmoved and not any(p.grad is not None and p.grad.any() for p in own.values()):
                    warnings.warn(
                        "The gradient of the first step was thrown away and no parameter has moved. Each "
                        "step sets .grad anew: leave out optimizer.zero_grad(), or call it after "
                        "optimizer.step().",
                        UserWarning,
                        stacklevel=2,
                    )
                before = point
                released = session.curator.release("gradient", point)
                network.set_gradients(self._model, released)
                yield step
                if self._ended:
                    break


@contextmanager
def _watching(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Warn, once, when a backward pass reaches parameters whose gradients are to be released ones."""
    said = list[bool]()

    def note(gradient: Tensor) -> None:
        if not said:
            said.append(True)
            warnings.warn(
                "A backward pass has reached the model inside a private loop. If its loss reads the data, "
                "this gradient has neither clip nor noise, and the report does not cover what is made of it. "
                "Use the .grad that each step sets; an optimiser with a closure (LBFGS) cannot be used.",
                PrivacyWarning,
                stacklevel=2,
            )

    own = list(parameters)
    handles = [p.register_hook(note) for p in own]
    handles += [p.register_post_accumulate_grad_hook(note) for p in own]  # which FSDP calls for shards
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def make_private(
    model: nn.Module, loss: Loss, data: Any, *, groups: Any = None, **settings: Any
) -> PrivateSteps:
    """Return the steps of a private training loop with any ``torch.optim`` optimiser.

    Each step draws a Poisson batch, sets ``p.grad`` of the model's own parameters to the noisy mean of
    clipped gradients, and yields its number. What the loop does with ``.grad`` is free.

    Parameters
    ----------
    model, loss : the module, which is trained in place, and its criterion.
    data : (inputs, targets), a data set or a loader.
    groups : the owner of each record; then persons are sampled and clipped, see :class:`Trainer`.
    settings : those of :class:`Trainer` that concern the releases: epsilon, delta, batch_size, epochs or
        steps, clip_norm, engine, chunk_size, relation, unit, ledger, dataset_id and so on.

    **Privacy.** Holds for the whole transcript as long as the loop looks at the data only through ``.grad``.
    A backward pass of the caller's own that reaches the parameters (also in a closure) is warned about.
    """
    trainer = Trainer(model, loss, **settings)
    if trainer.optimizer == "srm" or trainer.checkpoint is not None:
        raise InvalidInputError("Expected settings of a plain loop. Use Trainer for srm and checkpoints.")
    unused = sorted(_OF_TRAINERS & settings.keys())
    if unused:
        raise InvalidInputError(
            f"Expected settings of the releases, got {', '.join(unused)}: the loop and its optimiser are "
            "yours, so nobody would look at them. Set them there, or use Trainer."
        )
    made = trainer._prepare(source_of(data).with_owners(groups))
    network = made.task.engine.network
    made = replace(made, notes=(*made.notes, "the update rule is the caller's"))
    session = together(made, lambda: open_session(made, "make_private"))
    return PrivateSteps(session, network, model, session.curator.plan.releases["gradient"].times)
