"""A private training loop of one's own, with any optimiser of torch."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sordino.errors import InvalidInputError, PlanSpentError, PrivacyWarning
from sordino.nn.data import source_of
from sordino.nn.network import Loss, Network
from sordino.nn.session import Session, open_session, together
from sordino.nn.trainer import trainer_of

# what concerns the steps of a trainer, and a loop of one's own does by itself
_OF_TRAINERS = {
    "optimizer", "optimizer_options", "learning_rate", "schedule", "weight_decay", "smoothing", "projection",
    "average", "validation", "validate_every", "callbacks", "verbose",
}  # fmt: skip


class PrivateSteps:
    """The steps of a loop of one's own: each sets ``.grad`` of the model to a released gradient.

    ``privacy`` is the report. A backward pass of the caller's own that reaches the model before the loop has
    ended is noted there, and then nothing is guaranteed.
    """

    quiet = False  # whether the loop is known to use what a step sets: its first learning rate may be zero

    def __init__(self, session: Session, network: Network, model: nn.Module, steps: int) -> None:
        self._session, self._network, self._model, self._steps = session, network, model, steps
        self._begun = self._ended = False
        self.privacy = session.report
        self._stop_watching = _watch(self, network.own(model).values())

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[int]:
        """Return the steps; loops that only ask for an iterator, as Lightning does twice, begin nothing."""
        if self._begun:
            raise self._spent_error()
        return self._release_steps()

    def end(self, steps: Iterator[int]) -> None:
        """End a loop that was begun, as a trainer does: what is left of it stays spent."""
        self._ended = True
        if self._begun:
            next(steps, None)

    def _spent_error(self) -> PlanSpentError:
        return PlanSpentError(
            "This loop was begun before, and what was left of it is spent: the ledger has closed it. "
            "Call make_private again, with a budget of its own."
        )

    def _release_steps(self) -> Iterator[int]:
        if self._begun:
            raise self._spent_error()
        self._begun = True
        network = self._network
        before = released = torch.empty(0)
        try:
            with self._session as session:
                for step in range(self._steps):
                    point = network.flat(self._model)
                    if not self.quiet and torch.equal(point, before) and released.any():
                        self.quiet = True
                        warnings.warn(_THROWN_AWAY.format(step=step - 1), UserWarning, stacklevel=2)
                    before = point
                    released = session.curator.release("gradient", point)
                    network.set_gradients(self._model, released)
                    yield step
                    if self._ended:
                        break
        finally:
            self._stop_watching()

    def note_gradient(self) -> None:
        """Note, once, that a backward pass has reached the model."""
        if not self.privacy.unpaid:
            self.privacy = self.privacy.with_unpaid("a backward pass of the caller's own")
            warnings.warn(
                "A backward pass has reached the model inside a private loop, or before it began. If its "
                "loss reads the data, this gradient has neither clip nor noise: the report now guarantees "
                "nothing. Use the .grad that each step sets; an optimiser with a closure (LBFGS) cannot be "
                "used. Differentiate public records on a copy of the model.",
                PrivacyWarning,
                stacklevel=3,
            )


_THROWN_AWAY = (
    "The gradient of step {step} was paid for and thrown away: no parameter has moved since. Each step sets "
    ".grad anew, so call optimizer.step() after every one, and zero_grad() never or after it; an optimiser "
    "of other parameters moves none of these. To accumulate gradients raise batch_size: one step then "
    "releases a larger batch, in blocks of chunk_size records. (steps.quiet = True if the loop reads .grad.)"
)


def _watch(steps: PrivateSteps, parameters: Iterable[Tensor]) -> Callable[[], Any]:
    """Tell the steps of backward passes that reach these parameters, until what is returned is called."""
    whom = weakref.ref(steps)

    def note(gradient: Tensor) -> None:
        if (found := whom()) is not None:
            found.note_gradient()

    own = list(parameters)
    handles = [p.register_hook(note) for p in own]
    handles += [p.register_post_accumulate_grad_hook(note) for p in own]  # which FSDP calls for shards
    return weakref.finalize(steps, lambda: [handle.remove() for handle in handles])


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
    A backward pass of the caller's own that reaches the parameters before the loop has ended (also in a
    closure) is warned about, and the report then guarantees nothing.
    """
    trainer = trainer_of(model, loss, settings)
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
