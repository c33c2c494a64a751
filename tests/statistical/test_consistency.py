"""Defaults keep up with the plain ways on designs that nobody tuned on: see benchmarks/consistency.py."""

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import consistency
from benchmarks.consistency import ALLOWED, Verdict, draw_design, judge, seeds


def failures(designs, largest, fits=3):
    """Return the lines of the designs on which the default is not where it should be."""
    found = [judge(draw_design(seed, largest), fits) for seed in seeds(designs, False, consistency.MONTH)]
    return [v for v in found if not v.holds]


def test_defaults_are_nearly_never_worse_than_the_best_plain_way():
    failed = failures(50, 5_000)
    assert len(failed) <= math.ceil(ALLOWED * 50), "\n".join(v.name for v in failed)


@pytest.mark.long
def test_defaults_are_nearly_never_worse_than_the_best_plain_way_on_all_designs():
    failed = failures(200, 100_000)
    assert len(failed) <= ALLOWED * 200, "\n".join(v.name for v in failed)


def test_a_design_follows_from_its_seed_and_no_record_exceeds_what_is_declared():
    for seed in seeds(20, True, ""):
        design, again = draw_design(seed, 300), draw_design(seed, 300)
        assert np.array_equal(design.X, again.X)
        assert np.array_equal(design.y, again.y)
        assert np.sqrt((design.X**2).sum(axis=1)).max() <= design.data_norm
        assert np.abs(design.y).max() <= design.target_bound
    assert not set(seeds(200, True, "")) & set(seeds(200, False, consistency.MONTH))


@pytest.fixture(scope="module")
def judged():
    """A design with its honest verdict, and its fits: each follows from its seed and is made once."""
    designs = (draw_design(seed, 6_000) for seed in seeds(40, True, ""))
    design = next(d for d in designs if d.classes == 0 and d.y.size > 5000 and d.y.mean() > 0)
    known, fit = {}, consistency.fit

    def honest(design, seed, **options):
        key = (seed, *options.items())
        if key not in known:
            known[key] = fit(design, seed, **options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistency, "fit", honest)
        return design, judge(design), honest


@pytest.mark.parametrize("twin", ["an offset", "noise"])
def test_a_default_that_stays_biased_or_noisy_is_caught(twin, judged, monkeypatch):
    design, verdict, honest = judged

    def broken(design, seed, **options):
        found = honest(design, seed, **options)
        if options:
            return found
        shift = design.y.std() * (0.5 if twin == "an offset" else (-1.0) ** seed)
        return found - shift

    assert verdict.holds
    monkeypatch.setattr(consistency, "fit", broken)
    verdict = judge(design)
    assert verdict.regrets
    assert verdict.below_floor


def test_the_plain_ways_are_right_where_noise_is_small():
    design = next(d for d in map(draw_design, seeds(40, True, "")) if d.classes == 0 and d.y.size > 5000)
    easy = replace(design, epsilon=1e4)
    rng = np.random.default_rng(0)
    assert consistency.score(easy, consistency.private_mean(easy, rng)) == pytest.approx(0.0, abs=0.01)
    found = consistency.score(easy, consistency.sufficient_statistics(easy, rng))
    assert found == pytest.approx(consistency.plain(easy), abs=0.02)


def test_a_verdict_that_regrets_nothing_holds():
    row = Verdict("d", 0.5, 0.0, 0.4, 0.4, 0.5, -0.1, 0.01, False, False)
    assert row.holds
    assert not replace(row, regrets=True).holds
    assert not replace(row, below_floor=True).holds
