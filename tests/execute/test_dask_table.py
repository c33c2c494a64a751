"""Each row of the table in docs/scale.md: it runs on a cluster as it does here, or is refused unbooked."""

from pathlib import Path

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from sklearn.linear_model import LogisticRegression as Plain
from tests.execute.in_parts import as_csr, cluster, cut, small_data  # noqa: F401 - a fixture

import sordino
from sordino.elsewhere import pack, unpack
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.noise import seeded_noise_not_private
from sordino.ledger import Ledger
from sordino.tables import Category, Number, Person, Target

pytestmark = pytest.mark.usefixtures("cluster")
X, NUMBERS, LABELS = small_data(240)
WARD = np.where(X[:, 3] > 0.1, "north", np.where(X[:, 4] > 0.2, "south", "elsewhere"))
EDGES = [70, 70, 150]
INF = float("inf")
PUBLIC = {"epsilon": INF, "data_norm": 1.0}
WARDS = ["north", "south"]


def there(values):
    """Return values in Dask, in four blocks of which one is empty."""
    return dask.array.concatenate([dask.array.from_array(part, chunks=-1) for part in cut(values, EDGES)])


def blocks(values):
    return [delayed(part) for part in cut(values, EDGES)]


def here(values):
    return values


TABLE = pd.DataFrame(
    {"age": 20 + 30 * np.abs(X[:, 0]), "ward": WARD, "owner": np.arange(len(X)) // 2, "back": LABELS}
)
COLUMNS = [Number("age", 18, 100), Category("ward", WARDS), Target("back", levels=["no", "yes"])]


def classifier(**options):
    return sordino.SparseLogisticRegression(**PUBLIC, n_nonzero_coefs=3, **options)


def tabled(frame, *persons):
    schema = sordino.Schema([*COLUMNS, *persons])
    # No curves: a line and its hats are alike, which makes 1e-8 of a rounding.
    made = sordino.LogisticRegression(
        epsilon=INF, schema=schema, knots=1, pairs=[("age", "ward")], max_iter=3
    )
    model = made.fit(frame)
    score = sordino.private_score(model, frame, epsilon=INF)
    # margins, not coefficients: no ridge weighs on levels, so rounding decides that of a level nobody has
    margins = np.asarray(model.decision_function(frame))
    return [margins, float(score), np.asarray(model.predict(frame)) == "yes"]


def frame_of(put):
    return TABLE if put is here else dask.dataframe.from_pandas(TABLE, npartitions=3)


def predictions(put):
    model = sordino.LogisticRegression(**PUBLIC, max_iter=3).fit(X, LABELS)
    axes = sordino.PCA(2, **PUBLIC).fit(X)
    asks = (model.predict_proba, model.decision_function, axes.transform, lambda v: model.predict(v) == "yes")
    found = [ask(put(X)) for ask in asks]
    assert all(isinstance(f, dask.array.Array if put is there else np.ndarray) for f in found)
    return [np.asarray(f) for f in found]


def by_groups(put):
    groups = sordino.group_by(
        {"ward": put(WARD), "x": put(X[:, 0])}, levels={"ward": WARDS}, edges={"x": [-1, 0, 1]}
    )
    limits = {"epsilon": INF, "bounds": (-1.0, 1.0)}
    return [
        groups.count(INF).value,
        groups.sum(put(NUMBERS), **limits).value,
        groups.mean(put(NUMBERS), **limits).value,
        groups.quantile(put(NUMBERS), 0.5, resolution=8, **limits).value,
    ]


def scores(put):
    model = sordino.LogisticRegression(**PUBLIC, max_iter=3).fit(X, LABELS)
    line = sordino.LinearRegression(**PUBLIC, target_bound=1.0, max_iter=3).fit(X, NUMBERS)
    names = ("accuracy", "balanced_accuracy", "log_loss", "auc")
    found = [
        float(sordino.private_score(model, put(X), put(LABELS), metric=name, epsilon=INF)) for name in names
    ]
    return [found, float(sordino.private_score(line, put(X), put(NUMBERS), epsilon=INF))]


RUNS = {
    "gradients on all records or on batches": lambda put: [
        classifier(solver="ight", max_iter=3).fit(put(X), put(LABELS)).coef_,
        sordino.LogisticRegression(**PUBLIC, solver="agd", max_iter=3).fit(put(X), put(LABELS)).coef_,
    ],
    "differences of gradients": lambda put: (
        classifier(solver="svrg-ht", max_iter=2, solver_options={"batch_size": 240, "sampling": "fixed"})
        .fit(put(X), put(LABELS))
        .coef_
    ),
    "moments and sizes of `auto`": lambda put: classifier(max_iter=3).fit(put(X), put(LABELS)).coef_,
    "Gram matrices of `PCA`": lambda put: sordino.PCA(2, **PUBLIC).fit(put(X)).explained_variance_,
    "power iterations of `PCA`": lambda put: (
        sordino.PCA(2, **PUBLIC, solver="power", random_state=0).fit(put(X)).explained_variance_
    ),
    "column moments of `PrivateStandardScaler`": lambda put: (
        sordino.PrivateStandardScaler(**PUBLIC).fit(put(X)).scale_
    ),
    "truncated sums of `HeavyTailedRegressor` and `HeavyTailedClassifier`": lambda put: [
        sordino.HeavyTailedRegressor(epsilon=INF, max_iter=2).fit(put(X), put(NUMBERS)).coef_,
        sordino.HeavyTailedClassifier(epsilon=INF, max_iter=2).fit(put(X), put(LABELS)).coef_,
    ],
    "`mean` and `variance`": lambda put: [
        sordino.mean(put(NUMBERS), INF),
        sordino.variance(put(NUMBERS), INF),
        sordino.mean(put(X), INF),
    ],
    "rank trees of `quantiles`": lambda put: sordino.quantiles(put(NUMBERS), [0.2, 0.5], INF),
    "`histogram`": lambda put: sordino.histogram(put(NUMBERS), [-1, 0, 0.5, 1], INF).value,
    "`count` and `crosstab`": lambda put: [
        float(sordino.count(put(X[:, 0] > 0), INF)),
        sordino.count(put(WARD), INF, levels=WARDS).value,
        np.asarray(sordino.crosstab(put(WARD), put(LABELS), INF, levels=(WARDS, ["no", "yes"]))),
    ],
    "counts, sums, means and quantiles of `group_by`": by_groups,
    "`private_score`": scores,
    "`predict`, `predict_proba`, `decision_function`, `transform`": predictions,
    "dataframes with a `schema` in `fit`, `private_score` and `predict`": lambda put: tabled(
        frame_of(put).drop(columns="owner")
    ),
}

OWNERS = np.arange(len(X)) // 2
KEPT = {"epsilon": 0.5, "dataset_id": "d"}
REFUSED = {
    "persons: `groups` or a `Person` in the schema": [
        lambda ledger: sordino.LogisticRegression(**KEPT, data_norm=1.0, ledger=ledger).fit(
            there(X), there(LABELS), groups=OWNERS
        ),
        lambda ledger: sordino.count(there(X[:, 0] > 0), **KEPT, groups=OWNERS, ledger=ledger),
        lambda ledger: sordino.private_score(
            Plain().fit(X, LABELS), there(X), there(LABELS), **KEPT, groups=OWNERS, ledger=ledger
        ),
        lambda ledger: tabled(frame_of(there), Person("owner")),
    ],
    '`mean(estimator="median-of-means")`': [
        lambda ledger: sordino.mean(there(NUMBERS), **KEPT, estimator="median-of-means", ledger=ledger)
    ],
    "pairs of records in `covariance`": [lambda ledger: sordino.covariance(there(X), **KEPT, ledger=ledger)],
    '`solver="two-stage"` and `"transfer"`': [
        lambda ledger, solver=solver: sordino.SparseLinearRegression(
            **KEPT, data_norm=1.0, target_bound=1.0, n_nonzero_coefs=3, solver=solver, ledger=ledger
        ).fit(there(X), there(NUMBERS))
        for solver in ("two-stage", "transfer")
    ],
    "splits of `PrivateSearchCV`": [
        lambda ledger: sordino.PrivateSearchCV(
            sordino.LogisticRegression(data_norm=1.0), {"max_iter": [3, 5]}, **KEPT, ledger=ledger
        ).fit(there(X), there(LABELS))
    ],
}


def rows_of_the_page():
    """Return what docs/scale.md says: True for what runs, by the words before any bracket."""
    text = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    lines = text.partition("| asked | of rows in Dask |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines]
    return {what.split(" (`")[0]: said.startswith("runs") for what, said in cells}


def test_the_page_has_the_rows_that_are_asked_here():
    assert rows_of_the_page() == {**dict.fromkeys(RUNS, True), **dict.fromkeys(REFUSED, False)}


@pytest.mark.parametrize("what", RUNS)
def test_what_runs_gives_the_answer_of_the_same_rows_here(what):
    ours, wanted = (found if isinstance(found, list) else [found] for found in map(RUNS[what], (there, here)))
    for found, expected in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("what", REFUSED)
def test_what_needs_all_rows_in_one_place_is_refused_before_it_is_booked(what, tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.create("d", sordino.BudgetPolicy(epsilon=5.0, delta=1e-4))
        for ask in REFUSED[what]:
            with pytest.raises(UnsupportedError, match="one place"):
                ask(ledger)
        assert ledger.history("d") == []


# ------------------------------------------------------------------------------ hostile and in detail


@pytest.mark.parametrize(
    "kind", [there, blocks, lambda v: dask.dataframe.from_pandas(pd.Series(v), npartitions=3)]
)
def test_columns_of_every_kind_are_counted(kind):
    table = sordino.group_by(kind(WARD), levels=WARDS)
    assert table.count(INF).value.tolist() == [(level == WARD).sum() for level in WARDS]
    wanted = sordino.group_by(WARD, levels=WARDS).mean(NUMBERS, INF, bounds=(-1, 1)).value
    np.testing.assert_allclose(table.mean(kind(NUMBERS), INF, bounds=(-1, 1)).value, wanted, rtol=1e-12)


def test_the_keys_may_be_a_dataframe():
    frame = dask.dataframe.from_pandas(TABLE[["ward", "back"]], npartitions=3)
    declared = {"ward": WARDS, "back": ["yes"]}
    found = sordino.group_by(frame, levels=declared).count(INF).value
    assert np.array_equal(found, sordino.group_by(TABLE[["ward", "back"]], levels=declared).count(INF).value)


def test_a_private_table_has_the_report_of_the_same_table_here():
    with seeded_noise_not_private(3, same_for_every_fit=True):
        ours, again, wanted = (
            sordino.histogram(put(NUMBERS), [-1, 0, 1], 0.5) for put in (there, there, here)
        )
        score, plain = (
            sordino.private_score(Plain().fit(X, LABELS), put(X), put(LABELS), epsilon=0.5)
            for put in (there, here)
        )
    assert np.array_equal(ours.value, again.value)
    for a, b in ((ours.privacy, wanted.privacy), (score.privacy, plain.privacy)):
        assert (a.epsilon, a.releases, a.public) == (b.epsilon, b.releases, b.public)


def first(values, value):
    out = values.astype(object)
    out[100] = value
    return out


LINE = sordino.LinearRegression(epsilon=INF, data_norm=1.0, target_bound=1.0, max_iter=2).fit(X, NUMBERS)
SMALL = Plain().fit(X[:, :3], LABELS)
BAD = {
    "a block twice": (lambda: sordino.count([delayed(WARD)] * 2, levels=WARDS), "each given once"),
    "columns of two lengths": (
        lambda: sordino.crosstab(there(WARD), there(LABELS)[:-1], levels=(WARDS, ["no"])),
        "one length",
    ),
    "other partitions": (
        lambda: sordino.crosstab(blocks(WARD), [delayed(LABELS)], levels=(WARDS, ["no"])),
        "as many blocks",
    ),
    "blocks of other lengths": (
        lambda: sordino.crosstab(blocks(WARD), blocks(LABELS)[::-1], levels=(WARDS, ["no"])),
        "one length",
    ),
    "keys there, numbers here": (
        lambda: sordino.group_by(there(WARD), levels=WARDS).mean(NUMBERS, bounds=(-1, 1)),
        "all columns in Dask",
    ),
    "keys here, numbers there": (
        lambda: sordino.group_by(WARD, levels=WARDS).mean(there(NUMBERS), bounds=(-1, 1)),
        "one number per record",
    ),
    "a gap": (
        lambda: sordino.group_by(there(WARD), levels=WARDS).mean(
            there(first(NUMBERS, np.nan)), bounds=(-1, 1)
        ),
        "finite numbers",
    ),
    "texts among numbers": (
        lambda: sordino.histogram(there(first(NUMBERS, "4.2x")), [0, 1]),
        "Expected numbers",
    ),
    "neither yes nor no": (lambda: sordino.count(there(NUMBERS.astype(complex))), "True and False"),
    "no records": (lambda: sordino.count([delayed(WARD[:0])], levels=WARDS), "at least 1"),
    "labels here": (lambda: sordino.private_score(SMALL, there(X[:, :3]), LABELS), "all columns in Dask"),
    "no labels": (lambda: sordino.private_score(SMALL, there(X[:, :3])), "Expected y"),
    "numbers for labels": (
        lambda: sordino.private_score(SMALL, there(X[:, :3]), there(NUMBERS)),
        "labels of the type",
    ),
    "too many columns": (lambda: sordino.private_score(SMALL, there(X), there(LABELS)), "features"),
    "rows to predict are not finite": (
        lambda: LINE.predict(there(np.full((240, 8), np.inf))),
        "finite numbers",
    ),
    "rows to predict have other columns": (lambda: LINE.predict(there(X[:, :3])), "expecting 8 features"),
    "nothing to predict": (lambda: LINE.predict([delayed(X[:0])]), "at least one row"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_is_told_in_our_words_without_a_value(what):
    ask, words = BAD[what]
    with pytest.raises(InvalidInputError, match=words) as caught:
        ask()
    assert "4.2" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_a_model_that_looks_at_other_rows_is_not_scored():
    class Nosy(Plain):
        def predict(self, rows):
            return np.where(rows[:, 0] > rows[:, 0].mean(), "yes", "no")

    with pytest.raises(UnsupportedError, match="alone than among others"):
        sordino.private_score(Nosy().fit(X, LABELS), there(X), there(LABELS))


def test_a_model_is_sent_without_its_ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.create("d", sordino.BudgetPolicy(epsilon=5.0, delta=1e-4))
        model = sordino.LogisticRegression(data_norm=1.0, ledger=ledger, dataset_id="d").fit(X, LABELS)
        assert unpack(pack([model]))[0].ledger is None
        wanted = model.predict(X)
        assert model.ledger is ledger
    (tmp_path / "ledger.db").unlink()
    assert np.array_equal(np.asarray(model.predict(there(X))), wanted)


def test_sparse_rows_are_transformed_into_blocks_that_fit_takes():
    clipper = sordino.RowClipper(data_norm=0.5).fit(X)
    found = clipper.transform(blocks(as_csr(X)))
    made = classifier(solver="ight", max_iter=3)
    wanted = made.fit(clipper.transform(as_csr(X)), LABELS).coef_.copy()
    np.testing.assert_allclose(made.fit(found, LABELS).coef_, wanted, rtol=1e-12, atol=1e-14)


def test_a_model_that_was_not_fitted_says_so_here():
    with pytest.raises(Exception, match="not fitted"):
        sordino.LogisticRegression(data_norm=1.0).predict(there(X))
