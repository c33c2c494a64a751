"""The bounds of the tensor clip hold against float64, for float32 products and for coarser ones."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.kernel.clip import tensors as clip_tensors
from sordino.kernel.clip.tensors import (
    Contributions,
    clipped_rows,
    norms,
    row_factors,
    shortfall,
    weighted_rows,
)
from sordino.nn.network import INPUTS, product_inputs, without_autocast

torch.set_num_threads(1)
CPU = torch.device("cpu")


@settings(max_examples=80)
@given(st.integers(1, 700), st.floats(-45, 18), st.floats(0, 30), st.integers(0, 10**6))
def test_norms_are_bounds_from_above_and_close(length, exponent, spread, seed):
    generator = torch.Generator().manual_seed(seed)
    powers = 10.0 ** (exponent - spread * torch.rand(2, length, generator=generator))
    values = (torch.randn(2, length, generator=generator) * powers).float()
    part, lost = shortfall(values)
    exact, bounds = values.double().norm(dim=1), (norms(values).square() + lost).sqrt() * (1 + part)
    assert bool((bounds >= exact).all())
    assert bool((bounds <= exact * (1 + 3e-6) + math.sqrt(length) * 2.0**-62).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_a_row_without_a_norm_counts_zero(bad):
    rows = torch.tensor([[3.0, 4.0], [bad, bad]])
    assert row_factors(rows, 1.0).tolist() == pytest.approx([0.2, 0.0], rel=1e-5)
    assert clipped_rows(rows, 1.0).tolist() == pytest.approx([0.6, 0.8], rel=1e-5)


def test_a_small_row_is_kept_as_it_is():
    assert row_factors(torch.tensor([[0.3, 0.4], [0.0, 0.0]]), 1.0).tolist() == [1.0, 1.0]


def test_filled_rows_and_rows_of_factor_zero_are_not_read():
    rows = torch.tensor([[3.0, 4.0], [float("inf"), 1.0]])
    assert row_factors(rows[:1], 1.0, present=torch.zeros(1)).tolist() == [0.0]
    assert weighted_rows(rows, torch.tensor([1.0, 0.0])).tolist() == [3.0, 4.0]


def test_a_factor_below_the_normal_numbers_becomes_zero():
    rows = torch.full((1, 4), 5e18)
    assert float(row_factors(rows, 1e-18)) > 0
    contributions = Contributions(rows, join=torch.cat)
    contributions.add_rows(rows)
    assert float(contributions.factors(2.0**-60)) > 0
    contributions._rows[0] = torch.full((1, 1), 1e40, dtype=torch.float64)
    assert float(contributions.factors(1.0)) == 0.0


# --------------------------------------------------------------------------- products of positions


def rounded(values, bits):
    """The value with this many bits after the first: what a coarse matrix product reads."""
    scale = 2.0 ** (torch.frexp(values).exponent - 1).double()
    return (torch.round(values.double() / scale * 2.0**bits) / 2.0**bits * scale).float()


def records(places, inputs, outputs, seed, cancelling):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(3, 2, places, inputs, generator=generator)
    g = torch.randn(3, 2, places, outputs, generator=generator)
    if cancelling:  # the places of each pair undo each other, up to a small rest
        a[:, :, 1::2] = -a[:, :, : places - places % 2 : 2] * (1 + cancelling)
        g[:, :, 1::2] = g[:, :, : places - places % 2 : 2]
    return a, g


CASES = given(
    st.integers(1, 7),
    st.integers(1, 300),
    st.integers(1, 60),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 1e-2, 1e-4, 1e-6]),
)


def exact(a, g):
    return torch.einsum("bgto,bgti->bgoi", g.double(), a.double()).flatten(1)


@settings(max_examples=60)
@CASES
def test_gram_norms_are_bounds_from_above(places, inputs, outputs, seed, cancelling):
    a, g = records(places, inputs, outputs, seed, cancelling)
    found = Contributions(a, join=torch.cat)
    found.add_products(a, g)
    true, (squared, blurred, _) = exact(a, g).norm(dim=1), found.bounds()
    assert bool((squared.sqrt() * (1 + 2 * found._short) >= true).all())
    if not cancelling:
        assert bool(((squared.sqrt() + blurred.sqrt()) <= true * (1 + 1e-3)).all())


@settings(max_examples=60)
@given(st.integers(1, 6), st.integers(1, 200), st.integers(2, 50), st.integers(0, 10**6), st.booleans())
def test_norms_of_a_tied_table_are_bounds_from_above(places, inputs, outputs, seed, cancelling):
    """A table that is looked up and multiplied; where it cancels, the two uses undo each other."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, outputs, (3, places), generator=generator)
    hot = torch.nn.functional.one_hot(words, outputs).float()[:, None]
    a = torch.randn(3, 1, places, inputs, generator=generator)
    g = hot.clone() if cancelling else torch.randn(3, 1, places, outputs, generator=generator)
    rows = -a[:, 0] * (1 + 1e-5) if cancelling else torch.randn(3, places, inputs, generator=generator)
    found = Contributions(a, join=torch.cat)
    found.add_tied(a, g, words, rows)
    true = exact(torch.cat([a, rows[:, None]], 2), torch.cat([g, hot], 2)).norm(dim=1)
    squared, blurred, _ = found.bounds()
    assert bool((squared.sqrt() >= true).all())
    assert cancelling or bool(((squared.sqrt() + blurred.sqrt()) <= true * (1 + 1e-3)).all())


@settings(max_examples=60)
@CASES
@pytest.mark.parametrize(("bits", "p"), [(10, 2.0**-11), (7, 2.0**-8)])
def test_coarse_products_stay_below_the_clip(bits, p, places, inputs, outputs, seed, cancelling):
    """TF32 keeps 10 bits, bfloat16 keeps 7: both in the Gram matrices and in the sum."""
    a, g = records(places, inputs, outputs, seed, cancelling)
    a = 1e4 * a
    real = clip_tensors._products
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clip_tensors, "_products", lambda v, multiply: real(rounded(v, bits)))
        found = Contributions(a, p, torch.cat)
        found.add_products(a, g)
    factors = found.factors(0.3)[:, None, None, None]
    summed = exact(rounded(a, bits), rounded(factors * g, bits))
    assert float(summed.norm(dim=1).max()) <= 0.3


@settings(max_examples=60)
@CASES
def test_products_that_cut_stay_below_the_clip_if_they_are_scaled(places, inputs, outputs, seed, cancelling):
    """Units of a GPU cut float32 to eleven bits; over the middle of what that leaves, it is p of TF32."""
    a, g = records(places, inputs, outputs, seed, cancelling)

    def cut(values):
        short = (values.view(torch.int32) & -(1 << 13)).view(torch.float32).double()
        return (short @ short.transpose(-1, -2) / (1 - 2.0**-11) ** 2).float()

    found = Contributions(a, INPUTS["tf32"], torch.cat, cut)
    found.add_products(a, g)
    factors = found.factors(0.3)[:, None, None, None]
    assert float(exact(rounded(a, 10), rounded(factors * g, 10)).norm(dim=1).max()) <= 0.3


@settings(max_examples=60)
@CASES
def test_halves_stay_below_the_clip_where_units_truncate(places, inputs, outputs, seed, cancelling):
    """Products of bfloat16 are exact, each addition loses two units, and ``f g_t`` is rounded once more."""
    a, g = (part.bfloat16() for part in records(places, inputs, outputs, seed, cancelling))

    def truncated(left):
        right = left.transpose(-1, -2)
        lost = left.shape[-1] * 2.0**-23 * (left.double().abs() @ right.double().abs())
        return (left.double() @ right.double() - lost).float()

    found = Contributions(a.float(), 0.0, torch.cat, truncated)
    found.add_products(a, g)
    factors = found.factors(0.3)[:, None, None, None]
    summed = exact(a.float(), (factors * g.float()).bfloat16().float()).norm(dim=1)
    assert float(summed.max()) <= 0.3


def test_halves_are_bounded_only_if_the_clip_knows_of_them():
    """The twin takes them for float32: 1.0 times .3 over the norm is rounded up to bfloat16."""
    a, g, clip = torch.ones(1, 1, 2, 64).bfloat16(), torch.ones(1, 1, 2, 8).bfloat16(), 0.3
    a[0, 0, 1], over = a[0, 0, 1] / 2, []
    for part in ((a, g), (a.float(), g.float())):
        found = Contributions(a.float(), join=torch.cat)
        found.add_products(*part)
        for step in range(50):
            factors = found.factors(clip * (1 + step / 50))
            summed = exact(a.float(), (factors * g.float()).bfloat16().float())
            over.append(float(summed.norm()) > clip * (1 + step / 50))
    assert not any(over[:50])
    assert any(over[50:])


@pytest.mark.parametrize(("p", "holds"), [(0.0, False), (2.0**-8, True)])
def test_a_coarse_product_is_bounded_only_if_the_clip_knows_of_it(p, holds):
    """The twin is told that products are float32: 1.0038 and -1.0138 are rounded apart."""
    a = 1e4 * torch.tensor([1.0038, -1.0138])[None, None, :, None].expand(1, 1, 2, 200)
    g = torch.ones(1, 1, 2, 40)
    found = Contributions(a, p, torch.cat)
    found.add_products(a, g)
    summed = exact(rounded(a / 1e4, 7), rounded(found.factors(0.3) * g, 7)) * 1e4
    assert (float(summed.norm()) <= 0.3) is holds


def test_what_a_machine_may_flush_is_taken_off_a_small_clip():
    a, g = torch.full((1, 1, 1, 12), 1e18), torch.full((1, 1, 1, 7), 1e-15)
    clip, found = clip_tensors.LEAST_CLIP, Contributions(a, join=torch.cat)
    found.add_products(a, g)
    norm, lost = float(exact(a, g).norm()), 2.0**-126 * math.sqrt(7) * float(a.double().norm())
    assert lost > 0.05 * clip
    assert float(found.factors(clip)) * norm <= clip - lost


def test_what_the_sum_of_positions_blurs_is_added_to_the_norm():
    a, g = records(2, 64, 8, 0, 1e-6)
    a, found = 1e6 * a, Contributions(a, join=torch.cat)
    found.add_products(a, g)
    reach = (a.double().norm(dim=3) * g.double().norm(dim=3)).sum(dim=2).norm(dim=1)
    bounded = found.factors(0.3) * (found.bounds()[0].sqrt() + 4 * clip_tensors.UNIT * reach)
    assert float(bounded.max()) <= 0.3


def test_positions_whose_squares_overflow_are_bounded_by_their_reach():
    a, g = torch.full((1, 1, 2, 12), 1e17), torch.full((1, 1, 2, 7), 1e-10)
    found = Contributions(a, join=torch.cat)
    found.add_products(a, g)
    norm = float(exact(a, g).norm())
    assert 0.99 * 0.3 <= float(found.factors(0.3)) * norm <= 0.3


def test_matrices_whose_squares_overflow_are_bounded_by_their_traces():
    generator = torch.Generator().manual_seed(0)
    a, g = (torch.randn(4, 1, 3, 12, generator=generator) for _ in range(2))
    a, g = 1e11 * a, 1e-3 * g  # products of 1e23, whose squares are beyond float32
    found = Contributions(a, join=torch.cat)
    found.add_products(a, g)
    shares = found.factors(0.3) * exact(a, g).norm(dim=1)
    assert bool((shares <= 0.3).all())
    assert bool((shares >= 0.999 * 0.3).all())


def test_what_several_layers_read_is_multiplied_once_and_counts_for_each(monkeypatch):
    a, g = records(3, 20, 9, 0, 0.0)
    h = torch.randn_like(g)
    real, calls = clip_tensors._products, []
    monkeypatch.setattr(clip_tensors, "_products", lambda v, multiply: calls.append(v) or real(v))
    found = Contributions(a, join=torch.cat)
    for slopes in (g, h, g + h):
        found.add_products(a.view_as(a), slopes)
    true = torch.cat([exact(a, slopes) for slopes in (g, h, g + h)], dim=1).norm(dim=1)
    assert len(calls) == 4
    assert torch.allclose(found.bounds()[0].sqrt(), true, rtol=1e-3)
    assert bool((found.bounds()[0].sqrt() >= true).all())


# ------------------------------------------------------------------------------ what is in force


@pytest.mark.parametrize(
    ("setting", "inputs"), [("highest", 0.0), ("high", INPUTS["tf32"]), ("medium", 2.0**-8)]
)
def test_the_precision_in_force_is_read_when_it_is_used(setting, inputs):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(setting)
        assert product_inputs(CPU) == inputs
        assert product_inputs(torch.device("cuda")) >= inputs
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_switch_of_the_library_behind_torch_is_read(monkeypatch):
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    assert product_inputs(CPU) == 2.0**-8


def test_a_callers_autocast_does_not_reach_the_sum():
    rows = torch.full((1, 3), 1.0 + 2.0**-12)
    with torch.autocast("cpu", dtype=torch.bfloat16), without_autocast(CPU):
        assert (rows @ rows.T).dtype == torch.float32


def test_many_short_rows_are_measured_along_the_row():
    values = torch.arange(300, dtype=torch.float32).reshape(100, 3)
    torch.testing.assert_close(norms(values), values.double().norm(dim=1), rtol=1e-6, atol=0)


def test_a_long_tail_of_small_entries_is_not_lost_behind_large_ones():
    values = torch.full((1, 64 * 40_000), 1e-4)
    values[0, :64] = 1.0  # one by one, the squares of the others vanish beside these
    part, lost = shortfall(values)
    assert float(norms(values)) * (1 + part) + lost >= float(values.double().norm())
