"""Tables beside scikit-learn: frames out of the encoder, pipelines, ONNX, and epsilon in every text."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline

import sordino
from sordino.kernel import public_generator
from sordino.tables import Category, Number, Target

SCHEMA = sordino.Schema(
    [Number("age", 0, 100), Category("sex", ["f", "m"]), Target("ill", levels=["no", "yes"])]
)


def people(n=2000):
    public = public_generator(0)
    age = public.uniform(0, 100, n)
    sex = np.array(["f", "m"])[public.integers(0, 2, n)]
    return pd.DataFrame({"age": age, "sex": sex, "ill": np.where(age > 60, "yes", "no")})


def test_the_encoder_gives_frames():
    table = people()
    encoder = sordino.TableEncoder(SCHEMA)
    plain = encoder.fit_transform(table)
    frame = sordino.TableEncoder(SCHEMA).set_output(transform="pandas").fit_transform(table)
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == encoder.get_feature_names_out().tolist()
    assert np.array_equal(frame.to_numpy(), plain.toarray() if hasattr(plain, "toarray") else plain)
    with config_context(transform_output="pandas"):
        assert isinstance(encoder.transform(table), pd.DataFrame)


def test_the_encoder_stands_in_a_pipeline():
    table = people()
    model = sordino.LogisticRegression(4.0, data_norm=1.5, classes=["no", "yes"])
    chain = make_pipeline(sordino.TableEncoder(SCHEMA), model).fit(table, table["ill"])
    assert chain.score(table, table["ill"]) > 0.9
    assert sordino.pipeline_privacy(chain).is_private


@pytest.mark.parametrize("numbers", [False, True])
def test_a_model_of_tables_is_a_graph_of_encoded_rows(numbers):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("skl2onnx")
    table = people().assign(pay=lambda t: t["age"] / 4)
    if numbers:
        schema = sordino.Schema([*SCHEMA.columns[:2], Target("pay", "number", low=0, high=30)])
        model = sordino.LinearRegression(4.0, schema=schema).fit(table.drop(columns="ill"))
    else:
        model = sordino.LogisticRegression(4.0, schema=SCHEMA).fit(table.drop(columns="pay"))
    graph = sordino.to_onnx(model)
    session = runtime.InferenceSession(graph.SerializeToString())
    rows = model.encoder_.transform(table[["age", "sex"]])
    rows = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float32)
    said = session.run(None, {"rows": rows})[0]
    truth = model.predict(table[["age", "sex"]])
    if numbers:
        assert np.allclose(said.ravel(), truth, atol=1e-3)
    else:
        assert (said == truth).mean() > 0.999
    assert any(prop.key == "columns" and "sex=m" in prop.value for prop in graph.metadata_props)


def test_epsilon_stands_in_every_text():
    table = people()
    assert repr(sordino.LogisticRegression()) == "LogisticRegression(epsilon=1.0)"
    assert "epsilon=0.5" in repr(sordino.LogisticRegression(0.5, solver="gd"))
    assert repr(sordino.PCA(2, epsilon=2.0)).count("epsilon") == 1
    assert repr(sordino.PrivateSearchCV(sordino.LinearRegression(), {"alpha": [1.0]})).startswith(
        "PrivateSearchCV(epsilon="
    )
    count = sordino.count(table["age"] > 50)
    assert "epsilon = 0.999" in repr(count)
    assert str(count) == str(float(count))
    found = sordino.count(table["sex"], levels=["f", "m"])
    assert repr(found).startswith("PrivateTable(count by group, epsilon=0.999")
    assert "epsilon" in repr(found.privacy)
