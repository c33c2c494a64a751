"""The circuit computes what the law says, and no party's view tells anything about the noise."""

import asyncio
import contextlib
import hashlib
from collections import Counter

import numpy as np
import pytest
from tests.parties.arithmetic import Clear, Exhaustive, all_choices, noised_sum

from sordino.errors import PartyError
from sordino.execute.parties import engine as circuit
from sordino.execute.parties.engine import (
    COLUMNS,
    SOUNDNESS,
    CoarseLaw,
    Draw,
    Wires,
    coarse_noise,
    field_elements,
    joint_signs,
    one_hot,
    open_proven,
    plain_signs,
    with_proof,
)
from sordino.execute.parties.field import Field, lagrange

LAWS = [CoarseLaw(), CoarseLaw(variance=3, fine=2, digits=3, largest=9), CoarseLaw.against(3)]


def _keyed(engine):
    return asyncio.run(Wires.draw(engine, b"secret", b"coin", np.ones(1, int)))


def _wire(wires, plain):
    plain = wires.numbers.array(plain)
    return np.stack([plain, wires.numbers.multiply(plain, wires.random[0])])


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
    wires = _keyed(clear)
    found, tag = asyncio.run(coarse_noise(wires, _wire(wires, _signs_of(uniforms, signs, law)), law))
    assert np.array_equal(tag, clear.field.multiply(found, wires.random[0]))
    assert np.array_equal(clear.field.signed(found), signs * law.magnitude(uniforms))


def test_one_hot_marks_exactly_the_digit():
    digits = np.arange(16)
    bits = np.array([[(d >> s) & 1 for d in digits] for s in (3, 2, 1, 0)], dtype=object)
    wires = _keyed(Clear())
    found, tag = asyncio.run(one_hot(wires, _wire(wires, bits)))
    assert np.array_equal(found[:, 0, :], np.eye(16))
    assert tag[:, 0, :].tolist() == (np.eye(16, dtype=int).astype(object) * int(wires.random[0])).tolist()


class Three(Clear):
    """The other two share what they like, and the last one may bend a product."""

    def __init__(self, values, signs, bent=None):
        super().__init__()
        self.values, self.signs, self.bent, self.products = values, signs, bent, 0

    async def share(self, mine, coins=()):
        if len(coins) > 1:  # values and a mask
            return [np.append(self.field.array(x), mine[-1:]) for x in self.values]
        proofs = [with_proof(x, b"%d" % i, self.field).reshape(-1) for i, x in enumerate(self.signs)]
        return [np.concatenate([mine[:3], proof]) for proof in proofs]

    async def reduce(self, product):
        self.products += 1
        if self.products == self.bent:
            product = product.copy()
            product.reshape(-1)[-1] = (int(product.reshape(-1)[-1]) + 1) % self.modulus
        return product


def _draw(law, signs):
    return Draw(7, signs, law, b"secret", b"coin")


def _shared(law, width=5):
    public = np.random.default_rng(8)
    signs = [1 - 2 * public.integers(0, 2, (law.bits + 1, width)) for _ in range(3)]
    return [public.integers(-1000, 1000, width) for _ in range(3)], signs


SMALL = CoarseLaw(digits=2, largest=14)


@pytest.mark.parametrize("wrong", [0, 2, -3, (2**61 - 2) // 2])
@pytest.mark.parametrize("rows", [slice(None), slice(3, 4), slice(-1, None)])
def test_a_member_that_shares_something_else_than_signs_is_refused(wrong, rows):
    values, signs = _shared(SMALL)
    signs[2][rows, 1:2] = wrong
    with pytest.raises(PartyError, match="party 2 failed the sign check"):
        asyncio.run(noised_sum(Three(values, signs), values[0], _draw(SMALL, signs[0])))


def test_a_bent_product_anywhere_is_refused():
    values, signs = _shared(SMALL)
    honest = Three(values, signs)
    asyncio.run(noised_sum(honest, values[0], _draw(SMALL, signs[0])))
    assert honest.products >= 8
    for number in range(1, honest.products + 1):
        with pytest.raises(PartyError, match="check"):
            asyncio.run(noised_sum(Three(values, signs, number), values[0], _draw(SMALL, signs[0])))


def _opened(secret=b"secret", shift=0, wrong=False, bent=None):
    """Return everything that is opened before the answer."""
    values, signs = _shared(SMALL)
    values[1] = values[1] + shift
    if wrong:
        signs[2][-1] = 0
    engine, seen = Three(values, signs, bent), []

    async def reveal(secret):
        seen.append(secret.tolist())
        return secret

    engine.reveal = reveal
    with contextlib.suppress(PartyError):
        asyncio.run(noised_sum(engine, values[0], Draw(7, signs[0], SMALL, secret, b"coin")))
    return seen


def test_what_is_opened_for_the_proof_is_masked_by_what_nobody_knows():
    (key, one, *_), zeros, _ = _opened()
    (other_key, other, *_), _, _ = _opened(b"another")
    assert zeros == [0]
    assert one != other
    assert key != other_key
    assert _opened(shift=1)[0][1] == one  # the noise is drawn before there are values
    assert len(_opened(wrong=True)) == 1  # and then nothing more
    with_error, error = _opened(bent=2), _opened(b"another", bent=2)
    assert with_error[1] != error[1]  # an error is opened times a number that nobody knows
    assert len(with_error) == 2


def _check(*proofs):
    """Return the values of polynomials that a check of these proofs opens, by party and row."""
    clear, seen = Clear(), []
    nothing = clear.field.array(np.zeros(0, int))

    async def reveal(secret):
        seen.append(secret)
        return secret

    clear.reveal = reveal
    asyncio.run(open_proven(clear, list(proofs), b"seed", nothing, clear.field.array(0), nothing))
    return seen[0][1 : -len(proofs)].reshape(len(proofs), -1)


def test_the_mask_of_a_row_decides_what_is_opened_of_it_whatever_its_signs(monkeypatch):
    """At the point of a coin each value of f is any number, whatever the signs: some mask leads to it."""
    field = Field()
    signs = 1 - 2 * np.random.default_rng(4).integers(0, 2, (2, COLUMNS))
    proofs = [with_proof(one, b"secret", field) for one in signs]
    assert all(np.array_equal(plain_signs(p, (COLUMNS,)), field.array(s)) for p, s in zip(proofs, signs))
    first, second = _check(*proofs).ravel()
    assert first != second
    drawn = int(field_elements(b"seed" + b"point", 1, field)[0])
    slope = lagrange(field.modulus, range(COLUMNS + 1), COLUMNS + 1 + drawn % (field.modulus - COLUMNS - 1))[
        0
    ]
    mask = (int(proofs[0][0, 0]) + (int(second) - int(first)) * pow(slope, -1, field.modulus)) % field.modulus
    elements = circuit.field_elements

    def chosen(seed, count, numbers):
        return numbers.array([mask]) if seed == b"chosen" + b"masks" else elements(seed, count, numbers)

    monkeypatch.setattr(circuit, "field_elements", chosen)
    assert _check(with_proof(signs[0], b"chosen", field)).ravel().tolist() == [second]


@pytest.mark.parametrize("column", [0, 1, COLUMNS, COLUMNS + 1, 2 * COLUMNS + 1])
def test_a_proof_with_another_number_at_any_place_is_refused(column):
    field = Field()
    proof = with_proof(np.ones(45, int), b"secret", field)
    assert proof.shape == (3, 2 * COLUMNS + 2)
    _check(proof, proof)
    wrong = proof.copy()
    wrong[1, column] = (int(wrong[1, column]) + 1) % field.modulus
    with pytest.raises(PartyError, match="party 1 failed the sign check"):
        _check(proof, wrong)


def test_as_many_signs_as_fill_rows_are_shared_as_they_are():
    field = Field()
    assert np.array_equal(
        with_proof(np.full(2 * COLUMNS, -1), b"s", field)[:, 1 : COLUMNS + 1],
        field.array([[-1] * COLUMNS] * 2),
    )


def test_coefficients_of_the_proof_are_spread_over_the_whole_field():
    field, modulus = Field(), 2**61 - 1
    found = field_elements(b"seed", 2000, field)
    assert all(0 <= x < modulus for x in found)
    assert len(set(found)) == 2000
    assert 0.45 < sum(float(x) for x in found) / 2000 / modulus < 0.55
    assert list(found) != list(field_elements(b"sead", 2000, field))


def test_the_expansion_of_a_coin_is_written_down():
    """Members of one run must get the same numbers, whatever machine they have."""
    stream = hashlib.shake_256(b"seed").digest(8 * 2 * 3)
    words = [int.from_bytes(stream[8 * i : 8 * i + 8], "little") for i in range(6)]
    expected = [((words[i] << 64) + words[3 + i]) % (2**61 - 1) for i in range(3)]
    assert field_elements(b"seed", 3, Field()).tolist() == expected
    assert 2.0**-56 < SOUNDNESS <= 2.0**-55


def test_the_sum_holds_every_partys_values_and_the_noise_of_the_product_of_signs():
    law = SMALL
    values, signs = _shared(law)
    engine = Three(values, signs)
    opened = asyncio.run(noised_sum(engine, values[0], _draw(law, signs[0])))
    joint = np.prod(signs, axis=0)
    uniforms = [int("".join(str((1 - s) // 2) for s in column), 2) for column in joint[: law.bits].T]
    noise = 7 * joint[law.bits] * law.magnitude(uniforms)
    assert np.array_equal(engine.field.signed(opened), sum(values) + noise)


def _joint_law(party, own, fresh):
    """Count (what a party hears, the joint sign) over all coins of the others, its own being fixed."""
    p, others = 5, [i for i in range(3) if i != party]
    columns = all_choices([(-1, 1)] * 2 + [range(p)] * 6)
    sign = {i: columns[k] for k, i in enumerate(others)} | {party: np.full(columns[0].shape, own[0])}
    coins = {i: iter(columns[2 + 3 * k : 5 + 3 * k]) for k, i in enumerate(others)}
    coins[party] = iter([np.full(columns[0].shape, c) for c in own[1:]])
    engine = Exhaustive(coins, fresh)

    async def protocol():
        shared = await engine.share(np.stack([sign[i] for i in range(3)]))
        product = await joint_signs(lambda a, b: engine.reduce(a * b % p), shared)
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
