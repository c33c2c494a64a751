"""The most important cells of the page on behaviour, and proof that its checks can fail."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.bars import Bar, save
from benchmarks.behaviour import EPSILONS, judged
from benchmarks.behaviour_designs import DESIGNS, SUBJECTS
from docs.figures.behaviour import PAGE, RESULT, bars, cells_of, page

from sordino import SparseLinearRegression
from sordino.testing import seeded_noise_not_private

pytestmark = pytest.mark.statistical
N = 1000


def score(subject, design, epsilon, seed=0):
    with seeded_noise_not_private(seed):
        return SUBJECTS[subject].score(epsilon, DESIGNS[design](N, seed))["score"]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_few_rows_and_little_budget_are_not_far_below_a_constant(subject):
    for seed in range(2):
        constant = SUBJECTS[subject].constant(DESIGNS["few rows"](N, seed))
        assert score(subject, "few rows", 0.3, seed) >= constant - 0.12


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("design", ["times 1,000", "times 1e-3", "sorted"])
def test_units_and_order_do_not_change_how_good_a_model_is(subject, design):
    assert abs(score(subject, design, 10.0) - score(subject, "plain", 10.0)) < 0.05


@pytest.mark.parametrize("subject", SUBJECTS)
def test_without_noise_a_model_is_as_good_as_that_of_scikit_learn(subject):
    plain = SUBJECTS[subject].plain(DESIGNS["plain"](N, 0))
    assert score(subject, "plain", math.inf) > plain - 0.03


def made_up(**changes):
    """Return scores that hold every check, but for some changes to those of the plain design."""
    good = {"score": 0.8, "worst": 0.3, "plain": 0.81}
    found = {name: {e: dict(good) for e in EPSILONS} for name in DESIGNS}
    for epsilon, cell in changes.pop("plain", {}).items():
        found["plain"][epsilon] |= cell
    for name, cell in changes.items():
        found[name] = dict.fromkeys(EPSILONS, good | cell)
    return found


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"plain": {3.0: {"score": 0.7}}}, "does not fall in epsilon"),
        ({"plain": {0.1: {"worst": -5e13}}}, "worst, above the constant"),
        ({"plain": {math.inf: {"plain": 0.9}}}, "behind scikit-learn without noise"),
        ({"sorted": {"score": 0.6}}, "as good as plain"),
        ({"four times the rows": {"score": 0.7}}, "does not fall in n"),
        ({"plain": {1.0: {"log loss": 3.0, "slope": 1.0}}}, "log loss above the constant's"),
        ({"plain": {1.0: {"log loss": -0.1, "slope": 0.5}}}, "calibration slope"),
    ],
)
def test_a_check_fails_where_it_should_and_only_there(changes, check):
    assert all(cell.holds for cell in judged("good", SUBJECTS["PCA"], made_up()))
    failed = {cell.check for cell in judged("bad", SUBJECTS["PCA"], made_up(**changes)) if not cell.holds}
    assert check in failed


def test_the_page_is_made_from_the_kept_results_and_shows_failures_in_red():
    result = json.loads(RESULT.read_text("utf-8"))
    assert PAGE.read_text("utf-8") == page(result)
    failed = [cell for cell in cells_of(result) + bars() if not cell["holds"]]
    assert bool(failed) == ("color:#c62828" in PAGE.read_text("utf-8"))
    assert np.isfinite([cell["found"] for cell in cells_of(result) if cell["holds"]]).all()


def test_a_bar_that_does_not_hold_says_why_and_cannot_be_kept_without(tmp_path):
    assert all(bar["why"] for bar in bars() if not bar["holds"])
    missed = Bar(1, "a length", "<= 1", "2", "one fit", holds=False)
    with pytest.raises(ValueError, match="a length"):
        save(tmp_path / "lengths.json", "python", [missed])
    save(tmp_path / "lengths.json", "python", [replace(missed, why="noise")])
    kept = json.loads((tmp_path / "lengths.json").read_text("utf-8"))["bars"]
    assert [(bar["why"], bar["holds"]) for bar in kept] == [("noise", False)]


def test_sparse_models_keep_their_support_where_second_moments_begin_to_be_asked():
    """At n epsilon = 100 sqrt d noise hides the moments; ranked by them, columns were chosen by chance."""
    found = []
    for seed in range(8):
        public = np.random.default_rng(seed)
        X = public.uniform(-1, 1, (1000, 20))
        y = X[:, :3] @ [1.0, -1.5, 2.0] + public.normal(size=1000).clip(-3, 3)
        with seeded_noise_not_private(seed):
            model = SparseLinearRegression(
                0.5, 1e-6, n_nonzero_coefs=3, data_norm=20**0.5, target_bound=9.0
            ).fit(X, y)
        found.append((model.coef_[:3] != 0).mean())
    assert np.mean(found) > 0.75  # .46 before; .9 just below that epsilon
