"""Sentinels: values planted in the data, in names and in addresses come out in no text, pickle or ledger.

Each planted number is looked for as text, in several notations, and as raw bytes in double and single
precision.
"""

import logging
import pickle
import struct
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline

import sordino
from sordino.errors import UndeclaredBoundWarning
from sordino.testing import seeded_noise_not_private

N, D = 80, 3
PLANTED = {"X": 0.48213957160482917, "y": 0.73914682053917284, "weights": 0.61739285046128397}
PERSON, WORD, PASSWORD = "person-8c41e0", "word-77aa19", "pw-e93b5d"
URL = f"postgresql://ada:{PASSWORD}@127.0.0.1:1/budgets"


def data():
    public = np.random.default_rng(0)
    X = public.normal(size=(N, D))
    X[7, 1] = PLANTED["X"]
    y = X[:, 0] / 4
    y[7] = PLANTED["y"]
    weights = np.full(N, 0.5)
    weights[7] = PLANTED["weights"]
    groups = np.array([f"{PERSON}-{i // 2}" for i in range(N)])
    return X, y, (X[:, 0] > 0).astype(int), groups, weights


def needles():
    """Return what is looked for: digits and bytes of each planted number, and the planted words."""
    out = [PERSON.encode(), WORD.encode(), PASSWORD.encode()]
    for value in PLANTED.values():
        out += [
            repr(value).encode(),
            f"{value:.8f}".encode(),
            f"{value:.7g}".encode(),
            f"{value:.6e}".encode(),
        ]
        out += [struct.pack("<d", value), struct.pack(">d", value), struct.pack("<f", value)]
    return out


def leaks(*haystacks):
    """Return the needles that are in one of the texts or byte strings."""
    found = []
    for hay in haystacks:
        raw = hay if isinstance(hay, bytes) else str(hay).encode()
        found += [needle for needle in needles() if needle in raw]
    return found


def test_the_search_finds_what_is_planted():
    X, *_ = data()
    assert leaks(repr(X.tolist()))
    assert leaks(pickle.dumps(X))
    assert leaks(X.astype(np.float32).tobytes())
    assert leaks(f"no route to {URL}")
    assert not leaks("0.4821", pickle.dumps(np.ones(3)))


FITS = {
    "SparseLogisticRegression": lambda m, X, y, c, g, w: m.fit(X, c),
    "SparseLinearRegression": lambda m, X, y, c, g, w: m.fit(X, y, sample_weight=w),
    "LogisticRegression": lambda m, X, y, c, g, w: m.fit(X, c, groups=g),
    "LinearClassifier": lambda m, X, y, c, g, w: m.fit(X, c, sample_weight=w),
    "OrderedLogisticRegression": lambda m, X, y, c, g, w: m.fit(X, c),
    "LinearRegression": lambda m, X, y, c, g, w: m.fit(X, y, sample_weight=w, groups=g),
    "HeavyTailedRegressor": lambda m, X, y, c, g, w: m.fit(X, y),
    "HeavyTailedClassifier": lambda m, X, y, c, g, w: m.fit(X, c),
    "PCA": lambda m, X, y, c, g, w: m.fit(X),
    "PrivateStandardScaler": lambda m, X, y, c, g, w: m.fit(X),
    "PrivateColumnWeights": lambda m, X, y, c, g, w: m.fit(X),
    "RowClipper": lambda m, X, y, c, g, w: m.fit(X),
    "TruncatedMean": lambda m, X, y, c, g, w: m.fit(X),
    "MedianOfMeans": lambda m, X, y, c, g, w: m.fit(X),
}


@pytest.fixture
def ledger(tmp_path):
    """Return a ledger for records and persons, and its folder."""
    made = sordino.Ledger.open(tmp_path / "budget.sqlite")
    made.create("ward", sordino.BudgetPolicy(50.0, 1e-2))
    made.create("persons", sordino.BudgetPolicy(50.0, 1e-2, unit="person"))
    return made


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", FITS)
def test_a_fitted_model_its_report_its_log_and_its_ledger_hold_no_value_of_the_data(
    name, kind, ledger, tmp_path, caplog, capfd
):
    if kind is sparse.csr_matrix and name in ("TruncatedMean", "MedianOfMeans"):
        kind = np.asarray
    X, y, labels, groups, weights = data()
    place = "persons" if name in ("LogisticRegression", "LinearRegression") else "ward"
    booked = {} if name == "RowClipper" else {"ledger": ledger, "dataset_id": place}
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = FITS[name](getattr(sordino, name)(**booked), kind(X), y, labels, groups, weights)
    if booked:
        model.set_params(ledger=None)
    texts = [repr(model), model._repr_html_(), pickle.dumps(model), caplog.text, *capfd.readouterr()]
    texts += [str(w.message) for w in caught]
    if booked:
        report = model.privacy_
        texts += [repr(report), str(report), report.to_json(), report.to_html()]
        texts += [ledger.to_json(), repr(ledger), repr(ledger.history(place))]
    ledger.close()
    files = [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
    assert files
    assert not leaks(*texts, *files)


@pytest.mark.parametrize("name", ["mean", "variance", "covariance", "quantiles"])
def test_a_released_statistic_holds_no_value_of_the_data(name):
    X, *_ = data()
    found = getattr(sordino, name)(X, *([0.5] if name == "quantiles" else []))
    assert not leaks(repr(found), pickle.dumps(found), found.privacy.to_json(), repr(found.privacy))


def test_pipelines_and_searches_hold_no_value_of_the_data():
    X, y, labels, *_ = data()
    pipe = make_pipeline(sordino.PrivateStandardScaler(), sordino.LogisticRegression()).fit(X, labels)
    report = sordino.pipeline_privacy(pipe)
    model = sordino.LinearRegression()
    search = sordino.PrivateSearchCV(model, {"max_iter": [3, 4]}, mean_trials=2.0).fit(X, y)
    texts = [
        pickle.dumps(pipe),
        repr(pipe),
        report.to_json(),
        pickle.dumps(search),
        search.privacy_.to_json(),
    ]
    assert not leaks(*texts)


def error_of(call):
    """Return what a call raises, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None


def chain_of(error):
    """Return the texts of an error and of all that stands behind it, suppressed or not."""
    out = []
    while error is not None:
        out.append(repr(error))
        error = error.__cause__ or error.__context__
    return out


def broken():
    """Return inputs that are refused, each with something planted in it."""
    X, y, _, groups, weights = data()
    words = X.astype(object)
    words[7, 1] = WORD
    hole = np.where(PLANTED["X"] == X, np.inf, X)
    said = np.array([WORD] * N)
    return {
        "one dimension": ((X[:, 1], y), {}),
        "three dimensions": ((X[None], y), {}),
        "complex": ((X * 1j, y), {}),
        "words": ((words, y), {}),
        "a hole": ((hole, y), {}),
        "words as targets": ((X, said), {}),
        "objects as targets": ((X, np.array([{WORD: PLANTED["y"]}] * N)), {}),
        "complex targets": ((X, y * 1j), {}),
        "two targets": ((X, np.c_[y, y]), {}),
        "short": ((X, y[:-1]), {}),
        "ragged": (([[PLANTED["X"]], [PLANTED["X"], 1.0]], y[:2]), {}),
        "short groups": ((X, y), {"groups": groups[:-1]}),
        "square groups": ((X, y), {"groups": np.c_[groups, groups]}),
        "missing groups": ((X, y), {"groups": np.array([None, *groups[1:]], dtype=object)}),
        "objects as groups": ((X, y), {"groups": np.array([{PERSON: 1}] * N)}),
        "mixed groups": ((X, y), {"groups": np.array([3, *groups[1:]], dtype=object)}),
        "negative weights": ((X, y), {"sample_weight": -weights}),
        "words as weights": ((X, y), {"sample_weight": said}),
        "short weights": ((X, y), {"sample_weight": weights[:-1]}),
    }


@pytest.mark.parametrize("case", broken())
@pytest.mark.parametrize("name", ["LinearRegression", "SparseLinearRegression", "LogisticRegression"])
def test_what_is_refused_is_refused_without_showing_it(name, case):
    (X, y), extra = broken()[case]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        error = error_of(lambda: getattr(sordino, name)().fit(X, y, **extra))
    assert isinstance(error, sordino.errors.SordinoError | None)
    assert not leaks(*chain_of(error), *(str(w.message) for w in caught))


@pytest.mark.parametrize("method", ["predict", "score"])
@pytest.mark.parametrize("name", ["LinearRegression", "LogisticRegression", "HeavyTailedRegressor"])
def test_a_model_refuses_new_rows_without_showing_them(name, method):
    X, _, labels, *_ = data()
    model = getattr(sordino, name)().fit(X, labels)
    for case in ("one dimension", "words", "a hole", "complex", "words as targets", "objects as targets"):
        (rows, targets), _ = broken()[case]
        arguments = (rows, targets) if method == "score" else (rows,)
        assert not leaks(*chain_of(error_of(lambda: getattr(model, method)(*arguments))))  # noqa: B023


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
def test_names_of_columns_are_shown_in_no_error():
    pandas = pytest.importorskip("pandas")
    X, y, *_ = data()
    model = sordino.LinearRegression().fit(pandas.DataFrame(X, columns=["a", "b", "c"]), y)
    with pytest.raises(sordino.errors.InvalidInputError) as caught:
        model.predict(pandas.DataFrame(X, columns=["a", "b", WORD]))
    assert not leaks(*chain_of(caught.value))


@pytest.mark.parametrize("name", [n for n in FITS if n != "RowClipper"] + ["mean", "quantiles"])
def test_a_ledger_that_cannot_be_reached_does_not_tell_its_password(name, caplog):
    pytest.importorskip("psycopg")
    X, y, labels, groups, weights = data()
    caplog.set_level(logging.DEBUG)
    if name in FITS:
        made = getattr(sordino, name)(ledger=URL, dataset_id="ward")
        error = error_of(lambda: FITS[name](made, X, y, labels, groups, weights))
    else:
        asked = [0.5] if name == "quantiles" else []
        error = error_of(lambda: getattr(sordino, name)(X, *asked, ledger=URL, dataset_id="ward"))
    assert isinstance(error, sordino.errors.SordinoError)
    assert not leaks(*chain_of(error), caplog.text)


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
def test_seeded_models_hold_no_value_either():
    X, y, *_ = data()
    with seeded_noise_not_private(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UndeclaredBoundWarning)
        assert not leaks(pickle.dumps(sordino.LinearRegression().fit(X, y)))
