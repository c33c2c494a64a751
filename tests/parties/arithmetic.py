"""Secret sharing in one process: in the clear, or all parties' shares at once for every choice of coins."""

import itertools

import numpy as np


class Clear:
    """One party that shares with nobody: the circuit in the clear."""

    def __init__(self, modulus=2**61 - 1, parties=()):
        self.modulus, self.parties = modulus, parties

    async def share(self, mine):
        return [np.asarray(x, dtype=object) % self.modulus for x in (mine, *self.parties)]

    async def reduce(self, product):
        return product % self.modulus

    async def reveal(self, secret):
        return secret

    async def coin(self, mine):
        return mine


class Exhaustive:
    """Three parties over a small field; arrays are (party, choice), one choice for each way the coins fall.

    ``coins`` yields arrays of uniform coefficients; ``heard[j]`` collects what party j receives.
    """

    def __init__(self, modulus, coins, fresh=True):
        self.modulus, self.coins, self.fresh = modulus, coins, fresh
        self.heard = {0: [], 1: [], 2: []}

    def _split(self, value, sender):
        slope = next(self.coins[sender]) if self.fresh else 0 * value
        shares = np.stack([(value + slope * x) % self.modulus for x in (1, 2, 3)])
        for receiver in range(3):
            if receiver != sender:
                self.heard[receiver].append(shares[receiver])
        return shares

    async def share(self, mine):
        return [self._split(mine[i] % self.modulus, i) for i in range(3)]

    async def reduce(self, product):
        # 3, -3, 1 interpolate a polynomial of degree two at zero from its values at 1, 2, 3.
        parts = [w * self._split(product[i] % self.modulus, i) for i, w in enumerate((3, -3, 1))]
        return sum(parts) % self.modulus

    async def reveal(self, secret):
        return (2 * secret[0] - secret[1]) % self.modulus


def all_choices(ranges):
    """Return one array per range; together they run through all combinations."""
    return [np.array(column, dtype=np.int64) for column in zip(*itertools.product(*ranges))]
