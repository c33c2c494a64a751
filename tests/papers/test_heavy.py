"""DPODME, DPHDME, DP-SCO and sparse optimisation run as printed and report what they certify."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import sordino
from sordino.accounting import certify
from sordino.errors import InvalidInputError, NotPrivateWarning
from sordino.kernel import Relation
from sordino.kernel.events import compose_events, laplace_event, pure_event, repeat_event
from sordino.literature import formulas

RNG = np.random.default_rng(0)
X = RNG.standard_t(3, size=(2000, 4))
Y = X @ np.array([1.0, 0.0, -1.0, 0.0])


def told(make):
    """Return what is made, and check that it warns."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = make()
    assert any(issubclass(w.category, NotPrivateWarning) for w in said)
    return made


def regressor(**options):
    settings = {
        "fit_intercept": False,
        "noise": "paper",
        "solver_options": {"step_size": 0.1},
        "moment_bound": 10.0,
    }
    return sordino.HeavyTailedRegressor(1.0, 1e-5, relation="replace-one", **{**settings, **options})


def test_dpodme_certifies_what_the_classical_gaussian_gives():
    """H1 of the privacy notes: .751 for a replaced record, .353 for one added or removed."""
    for relation, expected in (("replace-one", 0.75098), ("add-remove", 0.35257)):
        found = told(
            lambda r=relation: sordino.mean(X[:, 0], 1.0, 1e-5, moment_bound=3.0, noise="paper", relation=r)
        )
        assert found.privacy.epsilon == pytest.approx(expected, rel=1e-3)
        assert found.privacy.paper_claim.epsilon == 1.0
        assert "DPODME" in found.privacy.paper_claim.formula


def test_dpodme_truncates_at_the_printed_threshold():
    n, u, xi = 2000, 3.0, 0.05
    found = told(lambda: sordino.mean(X[:, 0], 1.0, 1e-5, moment_bound=u, noise="paper"))
    level = u * n / (math.log(1 / xi) * math.sqrt(math.log(1.25 / 1e-5)))
    assert found.threshold == pytest.approx(math.sqrt(level))


def test_dphdme_has_the_same_certificate_and_more_noise():
    found = told(
        lambda: sordino.mean(
            X, 1.0, 1e-5, moment_bound=3.0, noise="paper", estimator="median-of-means", relation="replace-one"
        )
    )
    assert found.privacy.epsilon == pytest.approx(0.75098, rel=1e-3)
    assert "DPHDME" in found.privacy.paper_claim.formula
    assert np.asarray(found).shape == (4,)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"solver": "convex", "max_iter": 10}, 0.0543),  # H3: advanced composition, loose
        ({"max_iter": 10}, 0.75098),  # fresh chunks: one release per record
        ({"max_iter": 10, "noise": "paper: as listed"}, 2.69),  # all records with the budget of a chunk
    ],
)
def test_dp_sco_certifies_its_printed_noise(options, expected):
    model = told(lambda: regressor(**options).fit(X, Y))
    assert model.privacy_.epsilon == pytest.approx(expected, rel=5e-3)
    assert model.coef_.shape == (4,)


def test_algorithm_5_certifies_the_printed_peeling():
    model = told(lambda: regressor(n_nonzero_coefs=2, max_iter=5).fit(X, Y))
    noise = formulas.peeling(1.0, 1e-5, sparsity=2)
    scale = formulas.paper_noise(Relation.REPLACE_ONE, "", select=noise).multipliers["select"]
    event = compose_events([repeat_event(pure_event(2 / scale), 2), repeat_event(laplace_event(scale), 2)])
    assert model.privacy_.epsilon == pytest.approx(
        certify(event, 1e-5, Relation.REPLACE_ONE).epsilon, rel=1e-3
    )
    assert model.privacy_.epsilon < 1.0
    assert np.count_nonzero(model.coef_) <= 2


def test_the_linear_solver_runs_algorithm_5_too():
    model = told(
        lambda: sordino.SparseLinearRegression(
            1.0, 1e-5, solver="heavy-tailed", n_nonzero_coefs=2, noise="paper", fit_intercept=False,
            data_norm=5.0, target_bound=5.0, solver_options={"clip_norm": 3.0}, max_iter=5,
            relation="replace-one",
        ).fit(X, Y)
    )  # fmt: skip
    assert model.privacy_.epsilon < 1.0
    assert "algorithm 5" in model.privacy_.paper_claim.formula


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"solver_options": None}, "step_size"),
        ({"moment_bound": "auto"}, "moment_bound or threshold"),
        ({"noise": "paper: other"}, "as listed"),
        ({"noise": "printed"}, "sound"),
        ({"solver": "convex", "noise": "paper: as listed"}, "strongly-convex"),
        ({"n_nonzero_coefs": 2, "fit_intercept": True}, "intercept"),
        ({"epsilon": math.inf}, "finite epsilon"),
    ],
)
def test_what_the_printed_forms_need_is_named(options, said):
    model = regressor(**{k: v for k, v in options.items() if k != "epsilon"})
    model.set_params(epsilon=options.get("epsilon", 1.0))
    with pytest.raises(InvalidInputError, match=said):
        model.fit(X, Y)


def test_dpodme_needs_single_numbers_and_a_bound():
    with pytest.raises(InvalidInputError, match="median-of-means"):
        sordino.mean(X, 1.0, 1e-5, moment_bound=3.0, noise="paper")
    with pytest.raises(InvalidInputError, match="moment_bound"):
        sordino.mean(X[:, 0], 1.0, 1e-5, noise="paper")
