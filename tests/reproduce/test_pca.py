"""Shang et al. as printed: rows whose largest entry is one, under a noise for rows of norm one."""

from __future__ import annotations

import numpy as np
import pytest

from sordino.literature import formulas
from sordino.literature.reproduce import pca


@pytest.mark.parametrize("epsilon", [0.1, 2.0])
@pytest.mark.parametrize("ratio", [14.0, 190.0])
def test_the_claim_of_longer_rows_has_a_noise_that_is_smaller_by_their_square(epsilon, ratio):
    noise = {
        "spca": lambda e: formulas.lssgd(e, pca.DELTA, population=1000, steps=1000),
        "vrpca": lambda e: formulas.vrpca(e, pca.DELTA, population=1000, steps=1000),
    }
    for solver, of in noise.items():
        claim = pca._claim(solver, epsilon, ratio)
        assert of(claim) == pytest.approx(of(epsilon) / ratio, rel=1e-9)


def test_rows_as_printed_have_a_largest_entry_of_one_and_know_their_longest_norm(monkeypatch):
    rows = np.array([[2.0, 2.0, 2.0, 2.0], [0.0, 5.0, 0.0, 0.0]])
    monkeypatch.setitem(pca._READ, "toy", lambda: (rows, np.array([0, 1]), 1))
    printed = pca._points("toy", None, True)
    assert printed.norm == pytest.approx(2.0)
    assert np.allclose(printed.rows * printed.norm, [[1.0] * 4, [0.0, 1.0, 0.0, 0.0]])
    assert np.allclose(np.linalg.norm(pca._points("toy").rows, axis=1), 1.0)


def test_the_smaller_noise_is_certified_for_the_rows_that_it_hides(monkeypatch):
    public = np.random.default_rng(0)
    rows = public.random((400, 30))
    monkeypatch.setitem(pca._READ, "toy", lambda: (rows, public.integers(0, 2, 400), 2))
    unit, printed = pca._points("toy", 400), pca._points("toy", 400, True)
    true, said = (pca._fit_printed(points, "gauss", 0, 0.1, pca._distance) for points in (unit, printed))
    assert said["replace-one"] > 5 * true["replace-one"]
    assert said["value"] < true["value"]
