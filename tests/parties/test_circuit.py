"""The circuit computes what the law says, and no party's view tells anything about the noise."""

import asyncio
from collections import Counter

import numpy as np
import pytest
from tests.parties.arithmetic import Clear, Exhaustive, all_choices

from sordino.execute.parties.circuit import coarse_noise, joint_signs, noised_sum, one_hot
from sordino.execute.parties.law import CoarseLaw

LAWS = [CoarseLaw(), CoarseLaw(variance=3, fine=2, digits=3, largest=9), CoarseLaw.against(3)]


def _signs_of(uniforms, signs, law):
    shifts = np.arange(law.bits - 1, -1, -1)
    bits = np.array([[(int(u) >> int(s)) & 1 for u in uniforms] for s in shifts])
    return np.vstack([1 - 2 * bits, signs]).astype(object)


@pytest.mark.parametrize("law", LAWS)
def test_the_circuit_walks_the_table(law):
    public = np.random.default_rng(3)
    uniforms = public.integers(0, 2**law.bits, 300, dtype=np.uint64)
    near = np.array(
        [t + k for t in law.thresholds for k in (-1, 0, 1) if 0 <= t + k < 2**law.bits], np.uint64
    )
    uniforms = np.concatenate([uniforms, np.array(near, np.uint64)])
    signs = 1 - 2 * public.integers(0, 2, uniforms.size)
    clear = Clear()
    found = asyncio.run(coarse_noise(clear, _signs_of(uniforms, signs, law) % clear.modulus, law))
    expected = signs * law.magnitude(uniforms)
    assert np.array_equal(np.where(found > clear.modulus // 2, found - clear.modulus, found), expected)


def test_one_hot_marks_exactly_the_digit():
    digits = np.arange(16)
    bits = np.array([[(d >> s) & 1 for d in digits] for s in (3, 2, 1, 0)], dtype=object)
    found = asyncio.run(one_hot(Clear(), bits))
    assert np.array_equal(found[:, 0, :], np.eye(16, dtype=object))


def test_the_sum_holds_every_partys_values_and_the_noise_of_the_product_of_signs():
    law, public = CoarseLaw(digits=2, largest=14), np.random.default_rng(8)
    signs = [1 - 2 * public.integers(0, 2, (law.bits + 1, 5)) for _ in range(3)]
    values = [public.integers(-1000, 1000, 5) for _ in range(3)]

    class Three(Clear):
        async def share(self, mine):
            chosen = values if np.ndim(mine) == 1 else signs
            return [np.asarray(x, dtype=object) % self.modulus for x in chosen]

    engine = Three()
    opened = asyncio.run(noised_sum(engine, values[0], signs[0], law, 7))
    joint = np.prod(signs, axis=0)
    uniforms = [int("".join(str((1 - s) // 2) for s in column), 2) for column in joint[: law.bits].T]
    noise = 7 * joint[law.bits] * law.magnitude(uniforms)
    assert np.array_equal(opened % engine.modulus, (sum(values) + noise) % engine.modulus)


def _joint_law(party, own, fresh):
    """Count (what a party hears, the joint sign) over all coins of the others, its own being fixed."""
    p, others = 5, [i for i in range(3) if i != party]
    columns = all_choices([(-1, 1)] * 2 + [range(p)] * 6)
    sign = {i: columns[k] for k, i in enumerate(others)} | {party: np.full(columns[0].shape, own[0])}
    coins = {i: iter(columns[2 + 3 * k : 5 + 3 * k]) for k, i in enumerate(others)}
    coins[party] = iter([np.full(columns[0].shape, c) for c in own[1:]])
    engine = Exhaustive(p, coins, fresh)

    async def protocol():
        product = await joint_signs(engine, np.stack([sign[i] for i in range(3)]))
        return await engine.reveal(product)

    noise = asyncio.run(protocol())
    assert np.array_equal(noise, sign[0] * sign[1] * sign[2] % p)
    heard = zip(*(array.tolist() for array in engine.heard[party]))
    return Counter(zip(heard, noise.tolist()))


@pytest.mark.parametrize("party", [0, 1, 2])
@pytest.mark.parametrize("own", [(1, 0, 0, 0), (-1, 2, 4, 1), (1, 3, 3, 3)])
def test_a_partys_view_is_independent_of_the_joint_sign_in_the_field_of_five(party, own):
    counts = _joint_law(party, own, fresh=True)
    views = {view for view, _ in counts}
    assert len(views) == 5**6  # six messages, each uniform: nothing else was heard
    assert all(counts[view, 1] == counts[view, 4] == 2 for view in views)


def test_a_sharing_without_fresh_coins_is_caught_by_the_same_test():
    counts = _joint_law(0, (1, 0, 0, 0), fresh=False)
    views = {view for view, _ in counts}
    assert any(counts[view, 1] != counts[view, 4] for view in views)
