"""ONNX graphs answer as the models do, the clip of rows included."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("skl2onnx")
ort = pytest.importorskip("onnxruntime")

import sordino  # noqa: E402
from sordino.errors import UnsupportedError  # noqa: E402
from sordino.kernel import public_generator  # noqa: E402
from sordino.tables import Category, Date, Flag, Number, Ordinal, Target  # noqa: E402

X = public_generator(3).normal(size=(300, 4)).astype(np.float32)
FAR = (X * 50).astype(np.float32)  # every row is clipped
Y = np.where(X[:, 0] > 0, "yes", "no")
THREE = np.digitize(X[:, 0], [-0.5, 0.5])


def answers(model, rows):
    session = ort.InferenceSession(sordino.to_onnx(model).SerializeToString())
    return session.run(None, {"rows": rows})


@pytest.mark.parametrize("labels", [Y, THREE], ids=["two", "three"])
def test_labels_and_probabilities_agree(labels):
    model = sordino.LogisticRegression(4.0, data_norm=2.0).fit(X, labels)
    for rows in (X, FAR):
        found, shares = answers(model, rows)
        assert np.allclose(shares, model.predict_proba(rows), atol=1e-5)
        assert np.mean(found == model.predict(rows)) > 0.99  # ties of float32


def test_margins_of_a_support_vector_machine_agree():
    model = sordino.LinearClassifier(4.0, loss="squared_hinge", data_norm=2.0).fit(X, Y)
    found, _ = answers(model, FAR)
    assert np.mean(found == model.predict(FAR)) > 0.99


def test_numbers_and_components_agree():
    model = sordino.SparseLinearRegression(4.0, data_norm=2.0, target_bound=3.0).fit(X, X[:, 0])
    assert np.allclose(answers(model, FAR)[0].ravel(), model.predict(FAR), atol=1e-4)
    pca = sordino.PCA(2, epsilon=4.0, data_norm=2.0, whiten=True).fit(X)
    assert np.allclose(answers(pca, FAR)[0], pca.transform(FAR), atol=1e-4)


def test_numbers_stay_in_the_range_that_targets_have():
    model = sordino.LinearRegression(4.0, data_norm=2.0, target_bound=3.0).fit(X, 2 * X[:, 0])
    model.coef_ = 100 * model.coef_
    found = answers(model, FAR)[0].ravel()
    assert np.allclose(found, model.predict(FAR), atol=1e-3)
    assert {found.min(), found.max()} == {-3.0, 3.0}


def test_what_has_no_graph_is_refused():
    with pytest.raises(UnsupportedError, match="RowClipper"):
        sordino.to_onnx(sordino.RowClipper().fit(X))


def table_of(n, public):
    towns = np.array(["Bonn", "Rome", "Oslo", "", "?"])
    return pd.DataFrame(
        {
            "age": np.where(public.uniform(size=n) < 0.1, np.nan, public.uniform(-20, 130, n)),
            "paid": np.where(public.uniform(size=n) < 0.1, -9.0, public.uniform(0, 9000, n)),
            "size": public.uniform(0, 4, n),
            "town": towns[public.integers(0, 5, n)],
            "grade": np.array(["low", "mid", "high", "odd"])[public.integers(0, 4, n)],
            "smokes": np.array(["yes", "No", "TRUE", "0", "who knows"])[public.integers(0, 5, n)],
        }
    )


@pytest.mark.parametrize(
    "more", [{}, {"knots": 1, "pairs": False}, {"pairs": [("age", "town"), ("paid", "grade")]}]
)
def test_a_graph_takes_the_table_itself(more):
    public = public_generator(8)
    table = table_of(3000, public)
    schema = sordino.Schema(
        [
            Number("age", 0, 100),
            Number("paid", 0, 8000, log=True, missing=100.0),
            Number("size", 0, 4, knots=(1.0, 1.5)),
            Category("town", ["Bonn", "Rome"]),
            Ordinal("grade", ["low", "mid", "high"]),
            Flag("smokes"),
            Target("ill", levels=["no", "yes"]),
        ],
        markers=["", "?", "-9"],
    )
    ill = np.where(table["size"] + (table["town"] == "Bonn") > 2.5, "yes", "no")
    model = sordino.LogisticRegression(8.0, schema=schema, **more).fit(table.assign(ill=ill))
    session = ort.InferenceSession(sordino.to_onnx(model, tables=True).SerializeToString())
    numbers = {name: table[[name]].to_numpy(np.float32) for name in ("age", "paid", "size")}
    texts = {name: table[[name]].to_numpy(object) for name in ("town", "grade", "smokes")}
    assert np.allclose(session.run(None, numbers | texts)[1], model.predict_proba(table), atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
def test_a_table_with_dates_or_without_a_schema_has_no_such_graph():
    with pytest.raises(UnsupportedError, match="got no schema"):
        sordino.to_onnx(sordino.LogisticRegression(4.0, data_norm=2.0).fit(X, Y), tables=True)
    schema = sordino.Schema([Date("day", "2000-01-01", "2010-01-01"), Target("n", low=0, high=1)])
    days = pd.DataFrame({"day": ["2001-02-03"] * 50, "n": [0.5] * 50})
    with pytest.raises(UnsupportedError, match="got a date, column 'day'"):
        sordino.to_onnx(sordino.LinearRegression(4.0, schema=schema).fit(days), tables=True)
