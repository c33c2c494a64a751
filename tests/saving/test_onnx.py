"""ONNX graphs answer as the models do, the clip of rows included."""

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
ort = pytest.importorskip("onnxruntime")

import sordino  # noqa: E402
from sordino.errors import UnsupportedError  # noqa: E402
from sordino.kernel import public_generator  # noqa: E402

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
