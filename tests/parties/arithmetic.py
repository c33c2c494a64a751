"""Secret sharing in one process: in the clear, or all parties' shares at once for every choice of coins."""

import itertools

import numpy as np

from sordino.errors import PartyError
from sordino.execute.parties.engine import joint_noise, valid_total
from sordino.execute.parties.field import Field


class Clear:
    """One party that shares with nobody: the circuit in the clear."""

    def __init__(self, parties=()):
        self.field, self.parties = Field(), parties
        self.modulus = self.field.modulus

    async def share(self, mine, coins=()):
        return [self.field.array(x) for x in (mine, *self.parties)]

    async def reduce(self, product):
        return product

    async def reveal(self, secret):
        return secret

    async def coin(self, mine):
        return mine

    def blame(self, what, party):
        return PartyError(f"party {party} {what}")


class Five(Field):
    """The integers modulo 5, with the splitting and combining of the field that members use."""

    dtype, modulus = np.int64, 5

    def array(self, values):
        return np.asarray(values) % 5

    def add(self, left, right):
        return (left + right) % 5

    def multiply(self, left, right):
        return left * right % 5

    def blend(self, values, factor, rest):
        return (values * factor + rest) % 5


class Exhaustive:
    """Three parties over the field of five; arrays are (party, choice), a choice for each way the coins fall.

    ``coins`` yields arrays of uniform coefficients; ``heard[j]`` collects what party j receives. Shares are
    split and combined by the code that real members run.
    """

    def __init__(self, coins, fresh=True):
        self.field, self.coins, self.fresh = Five(), coins, fresh
        self.modulus = self.field.modulus
        self.heard = {0: [], 1: [], 2: []}

    def _split(self, value, sender):
        self.field.draw = lambda count, noise: (
            next(self.coins[sender]) if self.fresh else 0 * value.reshape(-1)
        )
        shares = np.stack(self.field.split(value.reshape(-1), 1, range(1, 4), None))
        for receiver in range(3):
            if receiver != sender:
                self.heard[receiver].append(shares[receiver])
        return shares.reshape(3, *value.shape)

    async def share(self, mine):
        return [self._split(mine[i] % self.modulus, i) for i in range(3)]

    async def reduce(self, product):
        return self.field.combine({i + 1: self._split(product[i] % self.modulus, i) for i in range(3)})

    async def reveal(self, secret):
        return self.field.combine({1: secret[0], 2: secret[1]})


def all_choices(ranges):
    """Return one array per range; together they run through all combinations."""
    return [np.array(column, dtype=np.int64) for column in zip(*itertools.product(*ranges))]


async def noised_sum(engine, values, draw):
    """Open ``sum of everybody's values + step * G`` and nothing else."""
    numbers, coarse = engine.field, await joint_noise(engine, draw)
    total = await valid_total(engine, values, draw)
    return await engine.reveal(numbers.add(total, numbers.multiply(coarse, numbers.array(draw.step))))
