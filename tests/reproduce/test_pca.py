"""Shang et al. as printed: rows whose largest entry is one, under a noise for rows of norm one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp

from sordino.accounting import certify
from sordino.accounting.conversions import gaussian_epsilon
from sordino.kernel import Relation
from sordino.kernel.events import compose_events, poisson_event, repeat_event
from sordino.literature import formulas
from sordino.literature import pca as of_texts
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


@pytest.mark.parametrize(("method", "rounds"), [("Gaussian", 1), ("MOD-SULQ", 1), ("PPI", 5)])
def test_the_noise_of_a_text_method_is_that_of_two_rows_a_root_of_two_apart(method, rounds):
    std = of_texts.text_noise(method, 0.5, 1000, rounds)
    assert 0.99 * 0.5 < gaussian_epsilon(math.sqrt(2 * rounds) / std, pca.DELTA) <= 0.5


def test_two_unit_rows_and_their_products_with_a_basis_are_a_root_of_two_apart_at_most():
    public = np.random.default_rng(3)
    basis = np.linalg.qr(public.normal(size=(6, 3)))[0]
    for _ in range(200):
        x, y = (v / np.linalg.norm(v) for v in public.normal(size=(2, 6)))
        moved = np.outer(x, x) - np.outer(y, y)
        assert np.linalg.norm(moved) <= math.sqrt(2) + 1e-12
        assert np.linalg.norm(moved[np.triu_indices(6)]) <= math.sqrt(2) + 1e-12
        assert np.linalg.norm(moved @ basis) <= math.sqrt(2) + 1e-12


def test_a_step_of_the_texts_stochastic_methods_pays_for_all_that_a_record_moves():
    n, rounds, epsilon = 300, 2, 0.5
    spca, vrpca = (of_texts.text_noise(m, epsilon, n, rounds) for m in ("DP-SPCA", "DP-VRPCA"))
    drawn = repeat_event(poisson_event(1 / n, dp.GaussianDpEvent(spca)), n * rounds)
    assert certify(drawn, pca.DELTA, Relation.REPLACE_ONE).epsilon <= epsilon
    # The two parts of a step's noise: one hides a difference of norm 2, one the snapshot of each step.
    difference, snapshot = math.sqrt(2 / 3) * vrpca, math.sqrt(1 / 3) * vrpca
    drawn = repeat_event(poisson_event(1 / n, dp.GaussianDpEvent(difference / 2)), n * rounds)
    always = repeat_event(dp.GaussianDpEvent(snapshot / (math.sqrt(2) / n / 2)), n * rounds)
    both = certify(compose_events([drawn, always]), pca.DELTA, Relation.REPLACE_ONE).epsilon
    assert 0.9 * epsilon < both <= epsilon


@pytest.mark.parametrize("method", list(pca.METHODS))
def test_without_noise_the_texts_methods_find_the_axes(monkeypatch, method):
    public = np.random.default_rng(1)
    rows = public.normal(size=(400, 8)) * 3.0 ** -np.arange(8)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(rows.T @ rows / 400)
    monkeypatch.setattr(of_texts, "text_noise", lambda *_: 0.0)
    basis = of_texts.text_axes(values, vectors, 400, 2, method, 1.0, max(pca.ROUNDS[method]), 0)
    assert np.linalg.norm(basis.T @ vectors[:, -2:]) ** 2 == pytest.approx(2.0, abs=1e-3)
