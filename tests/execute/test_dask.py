"""Fits on a cluster: the same models as here, the same refusals, and a ledger that tells the truth."""

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from scipy import sparse
from tests.execute.in_parts import as_csr, cluster, cut, small_data  # noqa: F401 - a fixture

import sordino
from sordino.errors import InvalidInputError, InvalidTypeError, SchemaError, UnsupportedError, WorkerError
from sordino.execute import dask_worker
from sordino.execute.dask import DaskExecutor, spread
from sordino.kernel import Curator, Gaussian, NoiseSource, Plan, Poisson, Relation, Release, SparseVector
from sordino.kernel.noise import seeded_noise_not_private
from sordino.ledger import Ledger
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient
from sordino.tables import Category, Number, Person, Target

pytestmark = pytest.mark.usefixtures("cluster")
X, NUMBERS, LABELS = small_data()
EDGES = [110, 200]
INF = float("inf")


def blocks(values):
    return [delayed(part) for part in cut(values, EDGES)]


def array(values):
    chunks = (110, 90, 100)
    return dask.array.from_array(values, chunks=(chunks, -1) if values.ndim == 2 else (chunks,))


def frame(values):
    made = pd.DataFrame(values, columns=[f"c{i}" for i in range(values.shape[1])])
    return dask.dataframe.from_pandas(made, npartitions=3)


def series(values):
    return dask.dataframe.from_pandas(pd.Series(values), npartitions=3)


KINDS = {
    "arrays": (array(X), array(LABELS)),
    "columns in chunks": (array(X).rechunk((60, 3)), array(LABELS)),
    "dataframe": (frame(X), series(LABELS)),
    "unknown chunks": (frame(X).to_dask_array(), series(LABELS)),
    "delayed blocks": (blocks(X), blocks(LABELS)),
    "targets here": (blocks(X), LABELS),
    "single precision": (array(X.astype(np.float32)).astype(np.float64), array(LABELS)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_in_dask_gives_the_model_of_the_same_data_here(kind):
    # The classes can be separated: without a penalty coefficients of 1e4 would carry eight digits only.
    made = sordino.LogisticRegression(epsilon=INF, data_norm=1.0, max_iter=4, alpha=0.1)
    rows, labels = KINDS[kind]
    here = X.astype(np.float32).astype(float) if kind == "single precision" else X
    expected = made.fit(here, LABELS).coef_.copy()
    there = made.fit(rows, labels)
    np.testing.assert_allclose(there.coef_, expected, rtol=1e-12, atol=1e-12)
    assert there.classes_.tolist() == ["no", "yes"]
    assert there.n_features_in_ == 8
    assert hasattr(there, "feature_names_in_") == (kind == "dataframe")


def test_futures_of_sparse_blocks_are_used_where_they_lie(cluster):  # noqa: F811
    sparse_rows = as_csr(X)
    futures = [cluster.submit(lambda part=part: part, pure=False) for part in cut(sparse_rows, EDGES)]
    made = sordino.SparseLinearRegression(
        epsilon=INF, data_norm=1.0, target_bound=1.0, n_nonzero_coefs=3, solver="ight", max_iter=5
    )
    expected = made.fit(sparse_rows, NUMBERS).coef_.copy()
    np.testing.assert_allclose(made.fit(futures, NUMBERS).coef_, expected, rtol=1e-12, atol=1e-12)


MODELS = {
    "auto": lambda: sordino.SparseLogisticRegression(data_norm=1.0, n_nonzero_coefs=3, max_iter=3),
    "sgd-ht": lambda: sordino.SparseLogisticRegression(
        data_norm=1.0, n_nonzero_coefs=3, solver="sgd-ht", max_iter=5, solver_options={"batch_size": 60}
    ),
    "frank-wolfe": lambda: sordino.SparseLogisticRegression(
        data_norm=1.0, solver="frank-wolfe", max_iter=3, n_nonzero_coefs=3
    ),
    "agd": lambda: sordino.LogisticRegression(data_norm=1.0, solver="agd", max_iter=3),
    "heavy": lambda: sordino.HeavyTailedClassifier(max_iter=3),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_private_fit_has_the_plan_and_the_certificate_of_the_fit_here(name):
    with seeded_noise_not_private(4, same_for_every_fit=True):
        there, again = (MODELS[name]().fit(blocks(X), blocks(LABELS)) for _ in range(2))
        here = MODELS[name]().fit(X, LABELS)
    assert np.array_equal(there.coef_, again.coef_)
    assert there.privacy_.epsilon == here.privacy_.epsilon
    assert there.privacy_.releases == here.privacy_.releases
    assert there.privacy_.public == here.privacy_.public


def test_unsupervised_models_and_statistics_agree_with_those_here():
    for made in (
        sordino.PCA(2, epsilon=INF, data_norm=1.0),
        sordino.PCA(2, epsilon=INF, data_norm=1.0, solver="power", random_state=0),
    ):
        expected = made.fit(X).components_.copy()
        np.testing.assert_allclose(np.abs(made.fit(array(X)).components_), np.abs(expected), atol=1e-9)
    made = sordino.PrivateStandardScaler(epsilon=INF, data_norm=1.0)
    expected = made.fit(X).scale_.copy()
    np.testing.assert_allclose(made.fit(array(X)).scale_, expected, rtol=1e-12)
    assert sordino.quantiles(array(NUMBERS), 0.5, epsilon=INF) == sordino.quantiles(NUMBERS, 0.5, epsilon=INF)
    ours, theirs = (sordino.mean(v, epsilon=INF) for v in (NUMBERS, series(NUMBERS)))
    assert ours == pytest.approx(theirs, rel=1e-12)
    assert sordino.variance(array(NUMBERS), epsilon=INF) == pytest.approx(
        sordino.variance(NUMBERS, epsilon=INF), rel=1e-12
    )
    assert sordino.mean(array(X), epsilon=INF).shape == (8,)


def test_weights_of_classes_and_records_lie_with_their_records():
    made = sordino.LogisticRegression(
        epsilon=INF,
        data_norm=1.0,
        solver="gd",
        max_iter=4,
        class_weight={"no": 1.0, "yes": 3.0},
        weight_bound=2.0,
    )
    weights = np.linspace(0.0, 3.0, len(X))
    expected = made.fit(X, LABELS, sample_weight=weights).coef_.copy()
    for given in (weights, array(weights), blocks(weights)):
        found = made.fit(array(X), array(LABELS), sample_weight=given).coef_
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    with pytest.raises(InvalidInputError, match="sample_weight as one finite number >= 0"):
        made.fit(array(X), array(LABELS), sample_weight=array(weights - 1.0))


def test_tables_with_a_schema_are_encoded_where_they_lie():
    table = pd.DataFrame({"age": 20 + 30 * np.abs(X[:, 0]), "ward": np.where(X[:, 1] > 0, "a", "b")})
    table["back"] = LABELS
    columns = [Number("age", 18, 100), Category("ward", ["a", "b"]), Target("back", levels=["no", "yes"])]
    there = dask.dataframe.from_pandas(table, npartitions=3)
    made = sordino.LogisticRegression(epsilon=INF, schema=sordino.Schema(columns), max_iter=4)
    expected = made.fit(table).coef_.copy()
    # hardly a record has an age of 79.5: a rounding of 1e-16 over the size of that column is 1e-11
    np.testing.assert_allclose(made.fit(there).coef_, expected, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(made.fit(there, there["back"]).coef_, expected, rtol=1e-12, atol=1e-11)
    assert made.coef_names_.size == made.coef_.shape[1]
    persons = sordino.Schema([*columns, Person("age")][1:])
    with pytest.raises(UnsupportedError, match="all rows in one place"):
        sordino.LogisticRegression(schema=persons).fit(there)
    table.loc[7, "back"] = "perhaps"
    with pytest.raises(SchemaError) as caught:
        made.fit(dask.dataframe.from_pandas(table, npartitions=3))
    assert "perhaps" not in str(caught.value)


def hostile(place, value):
    out = X.copy()
    out[place, 3] = value
    return out


REFUSED = {
    "nan in one block": (lambda: (array(hostile(250, np.nan)), array(LABELS)), "finite numbers"),
    "inf in one block": (lambda: (array(hostile(2, np.inf)), array(LABELS)), "finite numbers"),
    "texts": (lambda: (blocks(X.astype(str)), blocks(LABELS)), "not numbers"),
    "objects": (lambda: (blocks(X.astype(object)), blocks(LABELS[:, None].repeat(2, 1))), "another shape"),
    "complex": (lambda: (blocks(X + 1j), blocks(LABELS)), "not numbers"),
    "widths": (lambda: ([delayed(X), delayed(X[:, :3])], None), "one number of columns"),
    "flat blocks": (lambda: (blocks(NUMBERS), blocks(LABELS)), "another shape"),
    "no blocks": (lambda: ([delayed(X), X], blocks(LABELS)), "delayed or future blocks"),
    "a block twice": (lambda: ([delayed(X)] * 2, [delayed(LABELS)] * 2), "each given once"),
    "a label is missing": (lambda: (blocks(X), blocks(np.where(X[:, 0] > 0.5, None, LABELS))), "NaN"),
    "other lengths": (lambda: (blocks(X), [delayed(LABELS[:50])] * 3), "other lengths"),
    "fewer blocks": (lambda: (blocks(X), [delayed(LABELS)]), "one block of values for each"),
    "fewer targets here": (lambda: (blocks(X), LABELS[:-1]), "one value for each"),
    "fewer targets there": (lambda: (array(X), array(LABELS)[:-1]), "one value for each"),
    "no targets": (lambda: (blocks(X), None), "requires y"),
    "labels that are numbers": (lambda: (blocks(X), blocks(NUMBERS)), "label type: continuous"),
    "one class": (lambda: (blocks(X), blocks(np.zeros(len(X)))), "at least 2 classes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_here_is_refused_there_before_anything_is_booked(what, tmp_path):
    make, words = REFUSED[what]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.create("d", sordino.BudgetPolicy(epsilon=5.0, delta=1e-4))
        model = sordino.LogisticRegression(data_norm=1.0, ledger=ledger, dataset_id="d")
        with pytest.raises(InvalidInputError, match=words) as caught:
            model.fit(*make())
        assert caught.value.__context__ is None or caught.value.__suppress_context__
        assert ledger.history("d") == []


def test_labels_beyond_the_declared_classes_are_refused():
    with pytest.raises(InvalidInputError, match="among the 2 declared classes"):
        sordino.LogisticRegression(data_norm=1.0, classes=["no", "other"]).fit(blocks(X), blocks(LABELS))
    with pytest.raises(InvalidTypeError, match="numeric targets"):
        sordino.LinearRegression(data_norm=1.0, target_bound=1.0).fit(blocks(X), blocks(LABELS))


def test_what_needs_all_rows_in_one_place_says_so():
    owners = np.arange(len(X)) // 2
    with pytest.raises(UnsupportedError, match="all rows in one place"):
        sordino.LogisticRegression(data_norm=1.0).fit(array(X), array(LABELS), groups=owners)
    with pytest.raises(UnsupportedError, match="all rows in one place"):
        sordino.covariance(array(X))
    with pytest.raises(UnsupportedError, match="all rows in one place"):
        sordino.mean(array(NUMBERS), estimator="median-of-means")


def test_rows_that_are_not_finite_contribute_nothing_and_say_nothing():
    """The door refuses them; a block that changes behind it is bounded all the same."""
    rows, column = spread(blocks(X), blocks(NUMBERS))
    executor = rows.executor(column, 1.0, 0.0, None)
    assert executor.population == len(X)
    assert "0." not in repr(executor)


def asked(executor, release, params):
    plan = Plan({"r": release}, Relation.ADD_REMOVE, executor.population).at(1.3)
    return Curator(executor, plan, NoiseSource.seeded_not_private(1)).release("r", params)


def test_a_release_is_one_message_per_worker_whatever_the_number_of_parts(cluster, monkeypatch):  # noqa: F811
    rows, column = spread([delayed(part) for part in cut(X, list(range(20, 300, 20)))], NUMBERS)
    executor = rows.executor(column, 1.0, 0.0, None)
    sent, honest = [], dask_worker.forward_jobs
    monkeypatch.setattr(
        dask_worker, "forward_jobs", lambda rpc, jobs, *a: sent.append(jobs) or honest(rpc, jobs, *a)
    )
    monkeypatch.setattr(cluster, "submit", grumble)  # no task
    asked(executor, Release(GlmGradient(LOSSES["squared"], 0.7), Gaussian()), np.zeros(8))
    assert [len(jobs) for jobs in sent] == [1, 1]
    held = executor._groups.values()
    assert sorted(len(parts) for parts in held) == [7, 8]
    assert all(list(parts) == list(range(parts[0], parts[0] + len(parts))) for parts in held)


def test_a_lazy_step_sends_the_touched_columns_and_no_others(monkeypatch):
    wide = sparse.random_array(
        (300, 10**6), density=4e-6, format="csr", random_state=np.random.default_rng(0)
    )
    rows, column = spread([delayed(part) for part in cut(wide, EDGES)], NUMBERS)
    executor = rows.executor(column, 1.0, 0.0, None)
    sent, honest = [], DaskExecutor._branches
    monkeypatch.setattr(DaskExecutor, "_branches", lambda *a: sent.extend(honest(*a)) or sent)
    release = Release(GlmGradient(LOSSES["squared"], 0.7), Gaussian(), Poisson(0.5), lazy=True)
    asked(executor, release, SparseVector(np.array([5, 17]), np.ones(2), 10**6))
    vectors = [vector for nodes in sent for vector in nodes.values()]
    assert all(isinstance(vector, SparseVector) for vector in vectors)
    assert sum(vector.indices.size for vector in vectors) < wide.nnz + 2 * len(vectors)


# ---------------------------------------------------------------------------------------- failures


class Grumpy(Exception):
    """An error that quotes a record."""


def grumble(*_):
    raise Grumpy("record 17 has 4.2")


def test_an_error_on_a_worker_is_told_without_its_words_and_the_ledger_says_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_worker, "part_sum", grumble)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.create("d", sordino.BudgetPolicy(epsilon=5.0, delta=1e-4))
        model = sordino.LogisticRegression(data_norm=1.0, ledger=ledger, dataset_id="d")
        with pytest.raises(WorkerError, match="Grumpy") as caught:
            model.fit(blocks(X), blocks(LABELS))
        assert "4.2" not in str(caught.value)
        assert caught.value.__context__ is None
        assert [entry.status.value for entry in ledger.history("d")] == ["failed"]


def test_an_answer_that_counts_a_part_twice_is_not_released(monkeypatch):
    honest = DaskExecutor._branches

    def doubled(self, question, shares):
        found = honest(self, question, shares)
        return [*found, found[0]]

    monkeypatch.setattr(DaskExecutor, "_branches", doubled)
    with pytest.raises(sordino.errors.PlanError, match="repeated"):
        sordino.LogisticRegression(data_norm=1.0).fit(blocks(X), blocks(LABELS))


def test_an_interrupted_fit_leaves_no_task_behind(cluster, monkeypatch):  # noqa: F811
    rows, column = spread(blocks(X), blocks(NUMBERS))
    executor = rows.executor(column, 1.0, 0.0, None)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "sync", interrupted)
    cancelled = []
    monkeypatch.setattr(cluster, "cancel", lambda futures, **_: cancelled.extend(futures))
    with pytest.raises(KeyboardInterrupt):
        executor._cluster.results(executor._parts)
    assert cancelled == executor._parts
    assert executor._cluster.begun == []


def test_what_asks_for_an_array_is_told_that_the_rows_lie_elsewhere():
    rows, column = spread(blocks(X), blocks(NUMBERS))
    for ask in (np.asarray, lambda r: r[:3], lambda r: r @ np.ones(8), sordino.execute.LocalExecutor):
        with pytest.raises(UnsupportedError, match="all rows in one place"):
            ask(rows)
    rows.executor(column, 1.0, 0.0, None)
    with pytest.raises(sordino.errors.PlanError, match="Read the rows again"):
        rows.executor(column, 1.0, 0.0, None)


def test_without_a_client_the_error_says_how_to_make_one(monkeypatch):
    def nobody():
        raise ValueError("No clients found")

    monkeypatch.setattr("distributed.default_client", nobody)
    with pytest.raises(InvalidInputError, match=r"on_cluster"):
        sordino.LogisticRegression(data_norm=1.0).fit(blocks(X), blocks(LABELS))
