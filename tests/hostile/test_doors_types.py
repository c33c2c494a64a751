"""The doors of types: the declared type of a column decides, never its values; refusals are in our words."""

import datetime
from decimal import Decimal

import numpy as np
import pytest
from tests.cli.helpers import typed

import sordino
from sordino import errors
from sordino.tables import Category, Number, Person, Schema, Target

BOOKED = ("--ledger", "b.db", "--dataset", "people")
FIT = ("--model", "logistic", "--set", "data_norm=1", "--classes", "0,1", "--epsilon", 2, "--output", "m")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    typed("ledger", "create", "b.db", "people", "--epsilon", 5, "--delta", 1e-3)
    return tmp_path


def floating(kind):
    """Return the numbers 0, 1 and a missing one as a floating-point column of some make."""
    numbers = [0.0, 1.0, float("nan")] * 20
    if kind == "numpy":
        return np.array(numbers, dtype=np.float32)
    if kind == "polars":
        return pytest.importorskip("polars").Series([0.0, 1.0, None] * 20)
    if kind == "arrow":
        return pytest.importorskip("pyarrow").array(numbers)
    if kind == "torch":
        return pytest.importorskip("torch").tensor(numbers)
    if kind == "dask":
        return pytest.importorskip("dask.array").from_array(np.array(numbers))
    return pytest.importorskip("pandas").Series(numbers, dtype=kind)


@pytest.mark.parametrize("kind", ["numpy", "float64", "Float64", "polars", "arrow", "torch", "dask"])
def test_door_49_a_count_of_a_floating_point_column_is_refused_by_its_type(kind, tmp_path):
    """A column of incomes was counted as about 0 records, without a word, and paid for."""
    column = floating(kind)
    with sordino.Ledger.open(tmp_path / "b.db") as book:
        book.create("people", sordino.BudgetPolicy(epsilon=5.0, delta=1e-3))
    with pytest.raises(errors.InvalidInputError, match=r"floating-point.*levels"):
        sordino.count(column, epsilon=1.0, ledger=tmp_path / "b.db", dataset_id="people")
    with sordino.Ledger.open(tmp_path / "b.db") as book:
        assert book.spent("people").reservations == 0


def test_door_49_what_the_refusal_names_is_counted():
    numbers = np.array([0.0, 1.0] * 500)
    assert abs(sordino.count(numbers == 1, epsilon=1e3) - 500) < 1
    assert abs(sordino.count(numbers, levels=[1.0], epsilon=1e3)[1.0] - 500) < 1
    polars = pytest.importorskip("polars")  # whole numbers with gaps, which NumPy makes floats of
    assert abs(sordino.count(polars.Series([1, None] * 500), epsilon=1e3) - 500) < 1


def wide_numbers():
    polars = pytest.importorskip("polars")
    if not hasattr(polars, "Int128"):
        pytest.skip("this polars has no Int128")
    values = [7_654_321 + i for i in range(60)]
    return polars.DataFrame({"a": polars.Series(values, dtype=polars.Int128), "b": [0.5] * 60})


X = np.ones((60, 2))
OWNED = Schema([Person("a"), Number("b", 0, 9), Target("y", levels=["0", "1"])])


def classifier(**settings):
    return sordino.LogisticRegression(1.0, 1e-5, **settings)


@pytest.mark.parametrize(
    "ask",
    [
        lambda t: classifier(data_norm=1.0, classes=[0, 1]).fit(t, np.arange(60) % 2),
        lambda t: classifier(data_norm=1.0, classes=[0, 1]).fit(X, np.arange(60) % 2, groups=t["a"]),
        lambda t: sordino.mean(t["a"], epsilon=1.0, bounds=(0, 1)),
        lambda t: sordino.histogram(t["a"], [0, 1, 2], epsilon=1.0),
        lambda t: sordino.count(t["a"], epsilon=1.0),
        lambda t: sordino.TableEncoder(Schema([Number("a", 0, 9), Number("b", 0, 9)])).fit(t).transform(t),
        lambda t: sordino.TableEncoder(Schema([Category("a", ["1"]), Number("b", 0, 9)])).fit(t).transform(t),
        lambda t: classifier(schema=OWNED).fit(t.with_columns(y=t["b"].cast(str))),
    ],
    ids=["matrix", "groups", "mean", "histogram", "count", "number", "category", "person"],
)  # fmt: skip
def test_door_50_integers_of_128_bits_are_refused_in_our_words(ask):
    """Polars' InvalidOperationError, or Arrow's "Invalid or unsupported format string: '_pli128'"."""
    with pytest.raises(errors.InvalidTypeError, match=r"128.*Float64.*String") as told:
        ask(wide_numbers())
    assert "7654321" not in str(told.value)


@pytest.mark.parametrize("door", ["person", "groups", "target", "classes"])
def test_door_51_a_signalling_nan_is_refused_in_our_words(door):
    """Decimal's InvalidOperation came through, from pandas, scikit-learn and NumPy."""
    odd = [Decimal("sNaN"), *(Decimal(i % 2) for i in range(59))]
    y, labels = np.arange(60) % 2, np.array(odd, dtype=object)
    table = {"a": odd, "b": [0.5] * 60, "y": [str(i) for i in y]}
    model = classifier(data_norm=1.0, classes=[Decimal("sNaN"), 1] if door == "classes" else [0, 1])
    fit = {
        "person": lambda: classifier(schema=OWNED).fit(table),
        "groups": lambda: model.fit(X, y, groups=labels),
        "target": lambda: model.fit(X, labels),
        "classes": lambda: model.fit(X, y),
    }[door]
    with pytest.raises(errors.InvalidInputError, match="Expected"):
        fit()


@pytest.mark.parametrize(
    "command",
    [
        ("fit", "d.parquet", "--target", "y", *FIT),
        ("stats", "mean", "d.parquet", "--column", "seen", "--bounds", "0,1", "--epsilon", 1),
        ("pca", "d.parquet", "--components", 1, "--epsilon", 1, "--output", "m"),
    ],
    ids=["fit", "stats", "pca"],
)
@pytest.mark.parametrize("kind", [datetime.date(2020, 2, 29), datetime.datetime(2020, 2, 29, 1), b"29"])
def test_door_52_a_column_of_dates_among_numbers_is_named(folder, command, kind):
    """The file was said to be "cut off, damaged, or of another format"."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame({"seen": [kind] * 50, "a": np.arange(50.0), "y": np.arange(50) % 2}).to_parquet(
        "d.parquet"
    )
    said = typed(*command, *BOOKED, code=3)
    assert "column 'seen'" in said
    assert "numbers were declared" in said
    assert "schema" in said
    assert "29" not in said


def test_door_52_a_libsvm_index_of_any_size_is_beyond_the_declared_columns(folder):
    """An index of 20 digits was said to be a record longer than 16 MiB with an open quote."""
    rows = "".join(f"{i % 2} 1:0.5 2:1\n" for i in range(50))
    told = []
    for index in (4, 10**10, 10**20):
        (folder / "x.svm").write_text(f"{rows}1 {index}:1\n")
        told.append(typed("fit", "x.svm", "--features", 3, *FIT, *BOOKED, code=3))
    assert "beyond the number of columns that was declared" in told[0]
    assert len(set(told)) == 1
