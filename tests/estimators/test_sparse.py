"""The sparse estimators from the outside: scikit-learn's rules, the guarantee, the ledger."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import check_estimator

from sordino import BudgetPolicy, Ledger, SparseLinearRegression, SparseLogisticRegression
from sordino.errors import BudgetExceededError, NotPrivateWarning, PrivacyWarning
from sordino.testing import seeded_noise_not_private

SPARSE_SOLVERS = (
    "ight",
    "sgd-ht",
    "svrg-ht",
    "scsg-ht",
    "transfer",
    "frank-wolfe",
    "two-stage",
    "peeled",
    "coordinate",
)


def with_solvers(estimators, solvers, short):
    """Return every estimator with every solver; all but a few solvers are long.

    What these checks try is the door of an estimator; odd rows meet every solver in tests/replay each time.
    """
    return [
        pytest.param(
            estimator(solver=solver),
            id=f"{estimator.__name__}-{solver}",
            marks=() if solver in short else pytest.mark.long,
        )
        for estimator in estimators
        for solver in solvers
    ]


ESTIMATORS = with_solvers(
    (SparseLogisticRegression, SparseLinearRegression), ("auto", *SPARSE_SOLVERS), ("auto", "ight")
)

# Fresh noise makes two fits differ: these checks compare two fits. With the same test seed for every
# fit they pass (test above), so noise is the only reason.
NOISE_DIFFERS = dict.fromkeys(
    (
        "check_classifier_data_not_an_array",
        "check_regressor_data_not_an_array",
        "check_supervised_y_2d",
        "check_fit_idempotent",
        "check_regressors_int",
        "check_classifiers_classes",
        "check_sample_weights_invariance",
        "check_readonly_memmap_input",
    ),
    "two fits on the same data differ by their noise; that is the privacy",
)
# What differential privacy makes impossible, whatever the noise.
NOT_PRIVATE = {
    "check_sample_weight_equivalence_on_dense_data": "two records may move the model twice as far as one; "
    "one record of weight two may not",
    "check_sample_weight_equivalence_on_sparse_data": "two records may move the model twice as far as one; "
    "one record of weight two may not",
    "check_all_zero_sample_weights_error": "an error would tell that no record has a positive weight",
}
ONE_STEP = {"check_class_weight_classifiers": "it sets max_iter, which this solver does not read"}


def impossible(estimator):
    return NOT_PRIVATE | (ONE_STEP if estimator.solver == "two-stage" else {})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_scikit_learn_check_passes_when_the_noise_is_the_same(estimator):
    with seeded_noise_not_private(1, same_for_every_fit=True):
        check_estimator(estimator, expected_failed_checks=impossible(estimator))


# What differing noise changes is the estimator's and not the solver's: two solvers, and all of them at night.
WITH_REAL_NOISE = [
    pytest.param(
        *one.values, id=one.id, marks=() if one.id.endswith(("-auto", "-ight")) else pytest.mark.long
    )
    for one in ESTIMATORS
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", WITH_REAL_NOISE)
def test_scikit_learn_checks_pass_with_real_noise_but_for_those_that_compare_two_fits(estimator):
    results = check_estimator(estimator, on_fail=None, expected_failed_checks=impossible(estimator))
    failed = {r["check_name"] for r in results if r["status"] == "failed"}
    assert failed <= NOISE_DIFFERS.keys()


def classes_apart(n=600, d=8, seed=0):
    public = np.random.default_rng(seed)
    X = public.normal(size=(n, d)) / np.sqrt(d)
    return X, (X[:, 0] - X[:, 1] > 0).astype(int)


def test_the_report_tells_what_was_certified_and_what_was_public():
    X, y = classes_apart()
    privacy = SparseLogisticRegression(epsilon=0.7, delta=1e-6, solver="sgd-ht").fit(X, y).privacy_
    assert 0.99 * 0.7 < privacy.epsilon <= 0.7
    assert privacy.delta == 1e-6
    assert privacy.status == "private"
    public = " ".join(privacy.public)
    assert "600" in public
    assert "data_norm" in public
    assert "assumed public" in public
    assert json.loads(privacy.to_json())["relation"] == "add-remove"


def test_declared_classes_are_not_listed_as_assumed():
    X, y = classes_apart()
    privacy = SparseLogisticRegression(classes=[0, 1]).fit(X, y).privacy_
    assert not any("assumed" in line for line in privacy.public)


def test_replace_one_needs_twice_the_noise_of_add_remove():
    X, y = classes_apart()
    stds = []
    for relation in ("add-remove", "replace-one"):
        model = SparseLogisticRegression(
            solver="ight", relation=relation, solver_options={"clip_norm": 0.7}
        ).fit(X, y)
        release = model.privacy_.releases[0]
        stds.append(release.noise_multiplier * (0.7 if relation == "add-remove" else 1.4))
    assert stds[1] == pytest.approx(2 * stds[0], rel=0.02)


def test_two_fits_differ_and_two_test_seeded_fits_do_not():
    X, y = classes_apart()
    model = SparseLogisticRegression(n_nonzero_coefs=3)
    assert not np.array_equal(clone(model).fit(X, y).coef_, clone(model).fit(X, y).coef_)
    coefs = []
    for _ in range(2):
        with seeded_noise_not_private(3):
            fitted = clone(model).fit(X, y)
        assert fitted.privacy_.status == "seeded (not private)"
        coefs.append(fitted.coef_)
    assert np.array_equal(*coefs)


def test_random_state_does_not_seed_the_noise():
    X, y = classes_apart()
    coefs = [SparseLogisticRegression(random_state=0).fit(X, y).coef_ for _ in range(2)]
    assert not np.array_equal(*coefs)


@pytest.mark.parametrize("solver", ["ight", "sgd-ht"])
def test_infinite_epsilon_is_the_plain_algorithm(solver):
    X, y = classes_apart()
    rows = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    # Mirrored records: the best intercept is zero, so it does not matter that only we penalise it.
    both, labels = np.vstack([rows, -rows]), np.concatenate([y, 1 - y])
    plain = LogisticRegression(C=1 / (0.01 * len(labels)), tol=1e-10, max_iter=1000).fit(both, labels)
    batch = len(labels) if solver == "sgd-ht" else None
    model = SparseLogisticRegression(
        epsilon=np.inf,
        solver=solver,
        alpha=0.01,
        max_iter=800,
        solver_options={"step_size": 2.0, "batch_size": batch},
    ).fit(both, labels)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-3)
    assert not model.privacy_.is_private


def test_infinite_epsilon_regression_agrees_with_ridge():
    public = np.random.default_rng(4)
    X = public.normal(size=(300, 5))
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = np.clip(X @ [0.5, 0, -0.4, 0, 0.1], -1, 1)
    model = SparseLinearRegression(
        epsilon=np.inf,
        solver="ight",
        alpha=0.1,
        fit_intercept=False,
        max_iter=500,
        solver_options={"step_size": 1.0, "clip_norm": 10.0},
    ).fit(X, y)
    plain = Ridge(alpha=0.1 * len(y), fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-6)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "float32", "int", "bool", "read-only", "fortran"])
def test_every_kind_of_matrix_gives_the_same_model(kind):
    public = np.random.default_rng(0)
    X, y = (public.random((200, 6)) < 0.4).astype(float), public.integers(0, 2, 200)
    kinds = {
        "csr": sparse.csr_matrix,
        "csc": sparse.csc_matrix,
        "coo": sparse.coo_array,
        "float32": lambda a: a.astype(np.float32),
        "int": lambda a: a.astype(int),
        "bool": lambda a: a.astype(bool),
        "fortran": np.asfortranarray,
    }
    other = X.copy()
    if kind == "read-only":
        other.setflags(write=False)
    else:
        other = kinds[kind](X)
    fits = []
    for data in (X, other):
        with seeded_noise_not_private(5):
            fits.append(SparseLogisticRegression(epsilon=4.0, n_nonzero_coefs=3).fit(data, y).coef_)
    np.testing.assert_allclose(*fits, rtol=1e-6, atol=1e-9)


def test_the_intercept_is_never_thresholded():
    X, _ = classes_apart()
    model = SparseLogisticRegression(epsilon=50.0, n_nonzero_coefs=1).fit(X, (X[:, 0] > -0.3).astype(int))
    assert len(model.support_) == 1
    assert model.intercept_[0] != 0


def test_several_classes_are_clipped_together():
    X, y = classes_apart()
    y = y + 2 * (X[:, 2] > 0)
    model = SparseLogisticRegression(
        epsilon=20.0, solver="ight", n_nonzero_coefs=12, max_iter=60, solver_options={"step_size": 4.0}
    ).fit(X, y)
    assert model.coef_.shape == (4, 8)
    assert np.count_nonzero(model.coef_) == 12
    assert model.privacy_.releases[0].sensitivity.startswith("1.458")  # sqrt 2 x 1.031, once for all classes
    assert model.score(X, y) > 0.6
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_pandas_names_pipelines_and_cloning_work():
    import pandas as pd

    X, y = classes_apart()
    frame = pd.DataFrame(X, columns=[f"gene {i}" for i in range(8)])
    pipe = make_pipeline(Normalizer().set_output(transform="pandas"), SparseLogisticRegression(epsilon=5.0))
    pipe.fit(frame, y)
    assert list(pipe[-1].feature_names_in_) == list(frame.columns)
    assert clone(pipe).get_params()["sparselogisticregression__epsilon"] == 5.0


def test_skops_round_trip_keeps_the_model_and_its_report():
    import skops.io as sio

    X, y = classes_apart()
    model = SparseLogisticRegression(epsilon=2.0).fit(X, y)
    data = sio.dumps(model)
    again = sio.loads(data, trusted=sio.get_untrusted_types(data=data))
    assert np.array_equal(model.predict(X), again.predict(X))
    assert again.privacy_.epsilon == model.privacy_.epsilon


def test_a_large_delta_warns():
    X, y = classes_apart()
    with pytest.warns(PrivacyWarning, match="at least 1/n"):
        SparseLogisticRegression(delta=0.01).fit(X, y)


def test_the_default_delta_depends_on_n_only():
    X, y = classes_apart()
    assert SparseLogisticRegression().fit(X, y).privacy_.delta == 1e-5
    assert SparseLogisticRegression().fit(np.tile(X, (50, 1)), np.tile(y, 50)).privacy_.delta == 0.1 / 30_000


@pytest.mark.parametrize("solver", ["ight", "sgd-ht"])
def test_secure_noise_lies_on_a_lattice_and_fits_as_well(solver):
    X, y = classes_apart(4000)
    options = {"epsilon": 8.0, "solver": solver, "max_iter": 30, "solver_options": {"step_size": 4.0}}
    plain = SparseLogisticRegression(**options).fit(X, y).score(X, y)
    secure = SparseLogisticRegression(**options, secure_noise=True).fit(X, y)
    assert abs(plain - secure.score(X, y)) < 0.08
    assert "lattice" in secure.privacy_.releases[0].mechanism


def test_a_fit_is_booked_before_and_settled_after(tmp_path):
    X, y = classes_apart()
    ledger = Ledger.open(tmp_path / "budget.db")
    ledger.create("ward", BudgetPolicy(epsilon=2.0, delta=1e-4))
    SparseLogisticRegression(epsilon=1.0, delta=1e-5, ledger=ledger, dataset_id="ward").fit(X, y)
    entry, _ = ledger.history("ward")  # the model has a line of its own
    assert entry.status == "settled"
    with pytest.raises(BudgetExceededError):
        SparseLogisticRegression(epsilon=2.0, delta=1e-5, ledger=ledger, dataset_id="ward").fit(X, y)
    assert len(ledger.history("ward")) == 2


def test_a_failing_fit_stays_spent(tmp_path, monkeypatch):
    from sordino.solvers.sparse import Ight

    def broken(self, curator, problem):
        curator.release("gradient", np.zeros(problem.shape))
        raise MemoryError
        yield

    monkeypatch.setattr(Ight, "run", broken)
    X, y = classes_apart()
    ledger = Ledger.open(tmp_path / "budget.db")
    ledger.create("ward", BudgetPolicy(epsilon=1.0, delta=1e-5))
    with pytest.raises(MemoryError):
        SparseLogisticRegression(solver="ight", delta=1e-5, ledger=ledger, dataset_id="ward").fit(X, y)
    assert ledger.history("ward")[-1].status == "failed"
    with pytest.raises(BudgetExceededError):
        SparseLogisticRegression(solver="ight", delta=1e-5, ledger=ledger, dataset_id="ward").fit(X, y)


@pytest.mark.parametrize(("solver", "epsilon"), [("ight", 10.0), ("sgd-ht", 2.0)])
def test_paper_noise_reports_the_epsilon_it_really_gives(solver, epsilon):
    X, y = classes_apart()
    with pytest.warns(NotPrivateWarning, match="claims epsilon"):
        model = SparseLogisticRegression(epsilon=epsilon, delta=1e-3, solver=solver, noise="paper").fit(X, y)
    assert model.privacy_.paper_claim.epsilon == epsilon
    assert model.privacy_.epsilon != pytest.approx(epsilon, rel=0.02)
