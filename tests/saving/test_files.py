"""A saved model comes back as it was; nothing in its file is run, and what is no model is refused."""

import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import skops.io
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import sordino
from sordino.errors import InvalidInputError, ModelFileError, UnsupportedError
from sordino.kernel import public_generator
from sordino.saving import about, files
from sordino.saving.files import ESTIMATORS
from sordino.solvers.heavy.learners import L2Ball

X = public_generator(3).normal(size=(300, 4))
Y = np.where(X[:, 0] > 0, "yes", "no")
Z = X[:, 0]
IMAGES = np.tile(X[:8], 64)
MODELS = {
    "LogisticRegression": lambda: sordino.LogisticRegression(2.0, data_norm=3.0, classes=["no", "yes"]).fit(
        X, Y
    ),
    "LinearClassifier": lambda: sordino.LinearClassifier(2.0, loss="squared_hinge", data_norm=3.0).fit(X, Y),
    "OrderedLogisticRegression": lambda: sordino.OrderedLogisticRegression(
        2.0, data_norm=3.0, classes=["few", "some", "all"]
    ).fit(X, np.array(["few", "some", "all"])[np.searchsorted([-0.5, 0.5], Z)]),
    "LinearRegression": lambda: sordino.LinearRegression(2.0, data_norm=3.0, target_bound=3.0).fit(X, Z),
    "SparseLogisticRegression": lambda: sordino.SparseLogisticRegression(
        2.0, n_nonzero_coefs=2, data_norm=3.0, class_weight={"no": 0.5}
    ).fit(X, Y),
    "SparseLinearRegression": lambda: sordino.SparseLinearRegression(
        2.0, data_norm=3.0, target_bound=3.0
    ).fit(X, Z),
    "HeavyTailedRegressor": lambda: sordino.HeavyTailedRegressor(
        2.0, solver_options={"constraint": L2Ball(2.0)}
    ).fit(X, Z),
    "HeavyTailedClassifier": lambda: sordino.HeavyTailedClassifier(2.0).fit(X, Y),
    "TruncatedMean": lambda: sordino.TruncatedMean(2.0).fit(X),
    "MedianOfMeans": lambda: sordino.MedianOfMeans(8.0).fit(X),
    "PCA": lambda: sordino.PCA(2, epsilon=2.0, data_norm=3.0).fit(X),
    "PrivateStandardScaler": lambda: sordino.PrivateStandardScaler(2.0, data_norm=3.0).fit(X),
    "PrivateColumnWeights": lambda: sordino.PrivateColumnWeights(2.0, data_norm=3.0).fit(X),
    "ScatteringTransformer": lambda: sordino.ScatteringTransformer(scales=1, shape=(16, 16)).fit(IMAGES),
    "RowClipper": lambda: sordino.RowClipper(data_norm=2.0).fit(X),
    "PrivateSearchCV": lambda: sordino.PrivateSearchCV(
        sordino.LogisticRegression(data_norm=3.0, penalty="ridge"),
        {"alpha": [1e-3, 1e-1]},
        2.0,
        random_state=np.random.default_rng(1),
    ).fit(X, Y),
}


def outputs(model):
    """Return what a model answers."""
    for name in ("predict_proba", "predict", "transform"):
        if hasattr(model, name):
            return getattr(model, name)(X if model.n_features_in_ == 4 else IMAGES)
    return model.location_


@pytest.mark.filterwarnings("ignore::sordino.errors.PrivacyWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_with_its_answers_its_parameters_and_its_report(name, tmp_path):
    model = MODELS[name]()
    file = sordino.save(model, tmp_path / "model.sordino")
    again = sordino.load(file)
    assert type(again) is type(model)
    assert np.array_equal(outputs(again), outputs(model))
    skipped = ("random_state", "estimator")
    kept = {k: v for k, v in model.get_params(deep=False).items() if k not in skipped}
    assert {k: v for k, v in again.get_params(deep=False).items() if k not in skipped} == kept
    assert set(vars(again)) == set(vars(model))
    if hasattr(model, "privacy_"):
        assert again.privacy_ == model.privacy_
        assert again.privacy_.status == "unverified copy"
        copy = model.privacy_.to_dict() | {"status": "unverified copy"}
        assert about(file)["report"] == json.loads(json.dumps(copy))


def test_every_public_estimator_has_a_form_in_a_file():
    kinds = [getattr(sordino, name) for name in sordino.__all__]
    public = {k.__name__ for k in kinds if isinstance(k, type) and issubclass(k, BaseEstimator)}
    nets = {"NeuralClassifier", "NeuralRegressor"}
    assert public | nets == set(ESTIMATORS)
    assert public - {"TableEncoder"} <= set(MODELS)  # tests/tables saves one: it takes tables


def test_a_pipeline_keeps_its_steps_and_states_the_price_of_all_of_them(tmp_path):
    scaler = sordino.PrivateStandardScaler(1.0, data_norm=3.0)
    pipeline = make_pipeline(
        scaler, sordino.RowClipper(data_norm=2.0), sordino.LogisticRegression(1.0, data_norm=2.0)
    ).fit(X, Y)
    file = sordino.save(pipeline, tmp_path / "p.sordino")
    again = sordino.load(file)
    assert np.array_equal(again.predict_proba(X), pipeline.predict_proba(X))
    assert about(file)["report"]["epsilon"] == sordino.pipeline_privacy(pipeline).epsilon
    assert about(file)["report"]["epsilon"] > pipeline[-1].privacy_.epsilon


def test_names_of_columns_and_what_the_owner_noted_are_kept(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["age", "größe", "c", "d"])
    model = sordino.LogisticRegression(2.0, data_norm=3.0).fit(frame, Y)
    file = model.save(tmp_path / "m.sordino", about={"config": {"epsilon": 2.0}})
    assert list(sordino.load(file).feature_names_in_) == list(frame.columns)
    assert about(file)["about"] == {"config": {"epsilon": 2.0}}
    with pytest.raises(InvalidInputError, match="about"):
        model.save(file, about={"fit": object()})
    assert about(file)["about"] == {"config": {"epsilon": 2.0}}, "a refused save leaves the old file"


def test_the_address_of_the_ledger_stays_out_of_the_file(tmp_path):
    book = tmp_path / "secret-place.db"
    with sordino.Ledger.open(book) as ledger:
        ledger.create("people", sordino.BudgetPolicy(5.0, 1e-4))
    model = sordino.PCA(1, epsilon=1.0, data_norm=3.0, ledger=str(book), dataset_id="people").fit(X)
    file = model.save(tmp_path / "m.sordino")
    with zipfile.ZipFile(file) as archive:
        assert not [name for name in archive.namelist() if b"secret-place" in archive.read(name)]
    assert sordino.load(file).dataset_id == "people"


def test_infinite_budgets_and_whole_numbers_survive(tmp_path):
    model = sordino.LogisticRegression(float("inf"), data_norm=3, max_iter=5, solver="gd").fit(X, Y)
    again = sordino.load(model.save(tmp_path / "m.sordino"))
    assert again.epsilon == float("inf")
    assert again.privacy_.status == "not private (no noise)"
    assert type(again.max_iter) is int


# ----------------------------------------------------------------------------------------- what is refused


def member_replaced(file, name, change):
    """Write the file again with one member changed."""
    with zipfile.ZipFile(file) as archive:
        content = {entry: archive.read(entry) for entry in archive.namelist()}
    content[name] = change(content[name])
    with zipfile.ZipFile(file, "w") as archive:
        for entry, data in content.items():
            archive.writestr(entry, data)


@pytest.fixture
def saved(tmp_path):
    return MODELS["LogisticRegression"]().save(tmp_path / "model.sordino")


def test_a_file_of_a_newer_version_says_so(saved):
    facts = {"format": files.FORMAT + 1, "version": "7.0"}
    member_replaced(saved, "sordino.json", lambda text: json.dumps(json.loads(text) | facts).encode())
    with pytest.raises(ModelFileError, match=r"written by Sordino 7\.0.*Upgrade"):
        sordino.load(saved)


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


@pytest.mark.parametrize("content", [b"", b"PK", pickle.dumps(Trap()), b"\x00" * 1000])
def test_a_file_that_is_no_model_is_refused_and_not_run(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.sordino").write_bytes(content)
    with pytest.raises(ModelFileError, match="damaged"):
        sordino.load("bad.sordino")
    assert not (tmp_path / "trapped").exists()


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ModelFileError, match="nowhere"):
        sordino.load("nowhere.sordino")


def test_every_truncation_of_a_file_is_refused(saved):
    whole = saved.read_bytes()
    for cut in range(0, len(whole), len(whole) // 23):
        saved.write_bytes(whole[:cut])
        with pytest.raises(ModelFileError):
            sordino.load(saved)


class Foreign(BaseEstimator):
    def fit(self, X, y=None):
        self.fitted_ = True
        return self


MEMBER = {"kind": "skops", "member": "0.skops"}


def forged(path, tree):
    """Write a file with this tree and an honest description."""
    kept = []
    tree = json.dumps(tree, default=lambda value: kept.append(value) or MEMBER)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.json", tree)
        archive.writestr("sordino.json", json.dumps({"format": files.FORMAT, "version": "1"}))
        for value in kept:
            archive.writestr(MEMBER["member"], skops.io.dumps(value))
    return path


def test_foreign_types_are_named_and_refused_in_both_directions(tmp_path):
    model = Foreign().fit(X)
    with pytest.raises(UnsupportedError, match="Foreign"):
        sordino.save(model, tmp_path / "f.sordino")
    assert not (tmp_path / "f.sordino").exists()
    with pytest.raises(ModelFileError, match="Foreign"):
        sordino.load(forged(tmp_path / "g.sordino", {"kind": "foreign", "object": model}))


def test_functions_of_the_caller_are_refused(tmp_path):
    pipeline = make_pipeline(FunctionTransformer(public_rule), MODELS["LogisticRegression"]())
    with pytest.raises(UnsupportedError):
        sordino.save(pipeline.fit(X, Y), tmp_path / "f.sordino")


def public_rule(rows):
    return rows


ESTIMATOR = {"kind": "estimator", "class": "PCA", "params": {}, "state": {}, "weights": None, "made_by": None}


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"kind": "eval"}, "kind 'eval'"),
        ({**ESTIMATOR, "class": "Popen"}, "'Popen'"),
        ({**ESTIMATOR, "params": {"shell": True}}, "shell"),
        ({**ESTIMATOR, "state": {"__class__": "x"}}, "__class__"),
        ({**ESTIMATOR, "state": {"transform": "x"}}, "transform"),
        ({**ESTIMATOR, "state": {"solver": "x"}}, "solver"),
        ({"kind": "set", "class": "Path", "fields": {}}, "'Path'"),
        ({"kind": "estimator"}, "damaged"),
    ],
)
def test_a_forged_tree_is_refused(tmp_path, tree, words):
    with pytest.raises(ModelFileError, match=words):
        sordino.load(forged(tmp_path / "f.sordino", tree))


def test_a_forged_report_that_states_too_little_is_refused(saved, tmp_path):
    report = about(saved)["report"] | {"epsilon": 0.01}
    tree = {**ESTIMATOR, "state": {"privacy_": {"kind": "report", "text": json.dumps(report)}}}
    with pytest.raises(InvalidInputError, match="cannot state less"):
        sordino.load(forged(tmp_path / "f.sordino", tree))


def test_a_file_that_unpacks_without_end_is_refused(tmp_path):
    file = tmp_path / "bomb.sordino"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("sordino.json", json.dumps({"format": 1, "version": "1"}))
        archive.writestr("model.json", b"0" * (80 << 20))
    with pytest.raises(ModelFileError, match="unpacks to"):
        sordino.load(file)


def test_a_model_that_is_not_fitted_is_not_saved(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        sordino.LogisticRegression().save(tmp_path / "m.sordino")


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelFileError, match="nowhere"):
        MODELS["RowClipper"]() and sordino.save(MODELS["RowClipper"](), tmp_path / "nowhere" / "m.sordino")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "0.npy",
            b"\x93NUMPY\x01\x00" + b"v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (9,)}",
        ),
        ("0.npy", None),
        ("0.exe", b"x"),
        ("../0.npy", b""),
    ],
)
def test_a_damaged_or_unknown_member_is_refused(tmp_path, name, content):
    tree = {**ESTIMATOR, "state": {"mean_": {"kind": name.rpartition(".")[2], "member": name}}}
    file = forged(tmp_path / "f.sordino", tree)
    if content is not None:
        with zipfile.ZipFile(file, "a") as archive:
            archive.writestr(name, content)
    with pytest.raises(ModelFileError, match="damaged"):
        sordino.load(file)


def test_an_array_of_pickles_is_refused_and_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = {**ESTIMATOR, "state": {"mean_": {"kind": "npy", "member": "0.npy"}}}
    with (
        zipfile.ZipFile(forged(tmp_path / "f.sordino", tree), "a") as archive,
        archive.open("0.npy", "w") as to,
    ):
        np.save(to, np.array([Trap()], dtype=object), allow_pickle=True)
    with pytest.raises(ModelFileError, match="damaged"):
        sordino.load("f.sordino")
    assert not (tmp_path / "trapped").exists()


def test_models_of_our_own_are_saved_and_loaded_without_skops(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_skops", lambda: pytest.fail("skops was asked"))
    model = MODELS["PCA"]()
    again = sordino.load(model.save(tmp_path / "m.sordino"))
    assert np.array_equal(again.components_, model.components_)
