r"""Sums of gradients without any rounding, for noise that can be defended bit by bit.

A record's clipped gradient is truncated to a lattice of integers, and integers add up exactly. What is left
to show is that a record's row is a function of *this record alone*: matrix products of another shape may be
computed in another order, so a batch with one record less would move the last bits of all others. So
records are differentiated in blocks of one fixed size, filled up where they end, and before anything is
booked it is tested, bit by bit, that a row depends neither on its place in the block nor on its neighbours.
(On its place it may, by the address at which it starts: then each record stands there several times.) Where
it does, records are differentiated one at a time. A person is always differentiated alone.

Then the sum moves by one truncated contribution, of norm at most the clip: nothing has to be added to the
sensitivity.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from sordino.errors import SlowEngineWarning
from sordino.nn.engines import Engine
from sordino.nn.made_up import made_up, points
from sordino.nn.network import quiet_dropout
from sordino.nn.queries import Block, TorchGradient

_MOST = {"cpu": 32, "cuda": 512}
_ENTRIES = {"cpu": 1 << 26, "cuda": 1 << 30}  # float64 numbers held at once
_COPIES = (1, 2, 4, 16)
_SIZES = (1.0, 30.0)


def exact_block(engine: Engine, x: Tensor, y: Tensor, chunk: int) -> Block:
    """Return how records are differentiated: several at once where rows are alone, else one by one."""
    kind = engine.network.device.type
    most = min(_MOST.get(kind, 32), chunk, _ENTRIES.get(kind, 1 << 26) // max(1, engine.network.size))
    count = 1 << max(0, int(most).bit_length() - 1)
    for copies in _COPIES if count > 1 else ():
        block = Block(max(2, count // copies), copies)
        if rows_are_alone(engine, x, y, block):
            return block
    if count > 1:
        warnings.warn(
            "The last bits of a record's gradient depend on the records that are differentiated with it, so "
            "for secure_noise=True this is done one at a time, which is slow. torch.set_num_threads(1) or "
            "torch.use_deterministic_algorithms(True) may mend it.",
            SlowEngineWarning,
            stacklevel=4,
        )
    return Block(1)


def rows_are_alone(engine: Engine, x: Tensor, y: Tensor, block: Block) -> bool:
    """Tell whether rows are the same bits in every place of a block, beside whatever made-up records."""
    vector, query = points(engine.network)[1], TorchGradient(engine, 1.0, block)

    def parts(a: Tensor, b: Tensor) -> Tensor:
        return query.parts(engine.per_record(vector, block.filled(a), block.filled(b)))[:: block.copies]

    with quiet_dropout(engine.network.model):
        for size in _SIZES:
            inputs, targets = made_up(engine.network, x, y, block.count, size)
            rows = parts(inputs, targets)
            for turn in {1, block.count // 2, block.count - 1}:
                turned = parts(inputs.roll(turn, 0), targets.roll(turn, 0))
                if not torch.equal(turned.roll(-turn, 0), rows):
                    return False
            if not torch.equal(parts(inputs[:1], targets[:1]), rows[:1].expand_as(rows)):
                return False
    return True
