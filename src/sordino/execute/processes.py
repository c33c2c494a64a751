"""Several processes that train one network over ``torch.distributed``: one batch, one noise, one booking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from sordino.errors import InvalidInputError, SordinoError, WorkerError
from sordino.kernel.arrays import Ints, Rows

_STOP = "stop"
_PIECE = 1 << 20  # numbers compared at once
_FINE, _FAILED, _DIFFERENT = 0, 1, 2


def join_processes(wanted: bool | None) -> Processes | None:
    """Return the processes of ``torch.distributed`` if it runs and ``wanted`` is not False, else None."""
    running = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    if wanted and not running:
        raise InvalidInputError(
            "Expected several processes of torch.distributed, found one. Start the program with torchrun and "
            "call torch.distributed.init_process_group() first."
        )
    return Processes() if running and wanted is not False else None


class Processes:
    """The processes of one training. The first draws batches and noise and keeps the books; all add up.

    Every process holds the whole data set, or can read it, and takes each so-many-th record of a batch. The
    sums go to the first, which adds the noise, and only what is released goes back.

    **Privacy.** The batch, the noise and the price are those of one process. All processes together are the
    curator: each sees records, and which of them are in a batch.
    """

    def __init__(self) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self._broken = self._amid = False
        with self._watch():
            self._control = dist.new_group(backend="gloo")

    @property
    def first(self) -> bool:
        """Whether this process keeps the books."""
        return self.rank == 0

    def require_agreement(self, facts: dict[str, Any]) -> None:
        """Refuse, in every process, to go on if one of them differs in something all must share."""
        everywhere: list[Any] = [None] * self.count
        with self._watch():
            dist.all_gather_object(everywhere, facts, group=self._control)
        for rank, other in enumerate(everywhere):
            wrong = [name for name in facts if other.get(name) != everywhere[0].get(name)]
            if wrong:
                self._broken = True
                raise InvalidInputError(
                    f"Expected the same training in all processes, got process {rank} with another "
                    f"{' and another '.join(wrong)} than the first. Build model, data and settings alike "
                    "everywhere: the same seed, the same order of the records."
                )

    def broadcast(self, message: Any = None) -> Any:
        """Return what the first process says; nobody else is listened to."""
        box = [message]
        with self._watch():
            dist.broadcast_object_list(box, 0, group=self._control)
        return box[0]

    def summed(
        self,
        question: str,
        params: Any,
        drawn: tuple[Rows, float | None],
        population: int,
        evaluate: Callable[[Rows, float | None], Tensor],
    ) -> Tensor:
        """Return the sum over the batch of the first process; other processes get that of their own rows."""
        same, (rows, spacing) = self.hear((question, fingerprint(params)), drawn)
        failure: Exception | None = None
        state, value = _DIFFERENT, torch.empty(0)
        if same:
            try:
                state, value = _FINE, evaluate(self.own(rows, population), spacing).contiguous()
            except Exception as error:
                state, failure = _FAILED, error
        self._all_fine(state, failure)
        with self._watch():
            dist.reduce(value, 0, group=self._group(value))
        return value

    def hear(self, asked: Any, said: Any) -> tuple[bool, Any]:
        """Return what the first process says of a question, and whether it asks the same one."""
        heard = self.broadcast((asked, said))
        self._amid = True
        if heard == _STOP:
            self._broken = True
            raise WorkerError("The first process has stopped this training. What was asked is spent.")
        return heard[0] == asked, heard[1]

    def own(self, rows: Rows, population: int) -> Ints:
        """Return the rows that this process computes: they are chosen by their numbers alone."""
        rows = np.arange(population) if rows is None else rows
        return rows[rows % self.count == self.rank]

    def most(self, number: int) -> int:
        """Return the largest of the numbers that the processes have."""
        largest = torch.tensor([number])
        with self._watch():
            dist.all_reduce(largest, dist.ReduceOp.MAX, group=self._control)
        return int(largest)

    @contextmanager
    def amid_passes(self, same: bool) -> Iterator[None]:
        """Let all processes run the same passes; one that fails amid them ends, and the others notice it."""
        self._all_fine(_FINE if same else _DIFFERENT, None)
        try:
            with self._watch():
                yield
        except BaseException:
            self._broken = True
            raise
        self._amid = False

    def shared(self, answer: Tensor) -> Tensor:
        """Return a released answer of the first process."""
        answer = answer.contiguous()
        with self._watch():
            dist.broadcast(answer, 0, group=self._group(answer))
        self._amid = False
        return answer

    def leave(self, failed: bool) -> None:
        """End the training here; the others are told if it failed between questions, else they notice."""
        if self._broken:
            return
        if not failed:
            dist.destroy_process_group(self._control)
        elif self.first and not self._amid:
            with suppress(WorkerError):
                self.broadcast(_STOP)

    def _all_fine(self, state: int, error: Exception | None) -> None:
        worst = self.most(state)
        if worst == _FINE:
            return
        self._broken = True
        if error is not None:
            raise error
        if worst == _DIFFERENT:
            raise WorkerError(
                "The processes of this training are not at the same point: their parameters or questions "
                "differ. Let every process make the same steps. The budget is spent."
            )
        raise WorkerError("Another process of this training failed, see there. The budget is spent.")

    def _group(self, value: Tensor) -> Any:
        return dist.group.WORLD if value.is_cuda else self._control

    @contextmanager
    def _watch(self) -> Iterator[None]:
        """Turn the loss of a process into a typed error."""
        try:
            yield
        except SordinoError:
            raise
        except RuntimeError as error:
            self._broken = True
            kind = type(error).__name__
        else:
            return
        raise WorkerError(
            f"A process of this training is gone or does not answer ({kind}). What was asked is spent; start "
            "all processes again, with resume if there is a checkpoint."
        )

    def __reduce__(self) -> Any:
        raise WorkerError("The processes of a training cannot be copied or pickled.")


def fingerprint(values: Any) -> int:
    """Return a number that two lists of tensors share if they are equal bit by bit, else hardly ever."""
    if isinstance(values, Tensor):
        flat = values.detach().contiguous().reshape(-1)
        return hash((tuple(values.shape), *map(_mix, flat.split(_PIECE))))
    return hash(tuple(fingerprint(one) for one in values))


def _mix(flat: Tensor) -> int:
    """Return a sum over the bits of a piece, each multiplied by a number for its place; integers wrap."""
    if not flat.numel():
        return 0
    bits = flat.view(torch.int32) if flat.element_size() == 4 else flat.view(torch.uint8)
    places = torch.arange(1, bits.numel() + 1, device=bits.device)
    mixed = (bits.long() + 0x9E3779B9) * (places * 0x5DEECE66D + 11)
    mixed = mixed ^ (mixed >> 29)
    return int((mixed * (places * 2 + 1)).sum())
