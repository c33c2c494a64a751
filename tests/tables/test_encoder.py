"""The encoder: what each kind of column becomes, one row at a time, within the declared norm."""

import pickle
from decimal import Decimal

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from tests.tables.helpers import SCHEMA, WORDY, hospital

from sordino import Schema, TableEncoder
from sordino.errors import InvalidInputError, InvalidTypeError, SchemaError
from sordino.tables import Category, Date, Flag, Number, Ordinal, Origin, Text
from sordino.tables.values import codes_of, frame_of, numbers_of


def encoded(column, values, **options):
    schema = Schema([column], **options)
    return TableEncoder(schema, sparse_output=False).fit().transform({column.name: values})


def test_a_number_is_clipped_and_shared_by_its_two_knots():
    out = encoded(Number("x", 0, 10, knots=3), [-4, 0, 2.5, 5, 9, 99, None, "abc", "7.5", np.inf, -np.inf])
    expected = [
        [1, 0, 0, 0],
        [1, 0, 0, 0],
        [0.5, 0.5, 0, 0],
        [0, 1, 0, 0],
        [0, 0.2, 0.8, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 1],
        [0, 0, 0, 1],
        [0, 0.5, 0.5, 0],
        [0, 0, 1, 0],
        [1, 0, 0, 0],
    ]
    np.testing.assert_allclose(out, expected, atol=1e-15)


def test_knots_of_unequal_distance_bend_where_they_say():
    out = encoded(Number("x", 0, 10, knots=(1.0, 2.0)), [0.5, 1.5, 6])
    np.testing.assert_allclose(out[:, :4], [[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]])


@pytest.mark.parametrize(
    ("rule", "row"), [("column", [0, 0, 1]), ("zero", [0, 0]), (2.5, [0.75, 0.25]), (99, [0, 1])]
)
def test_a_missing_number_follows_its_rule(rule, row):
    assert encoded(Number("x", 0, 10, missing=rule, knots=2), [None])[0].tolist() == row


def test_levels_get_a_column_each_and_others_share_one():
    out = encoded(Category("t", ["a", "b", "?"]), ["b", " a ", "c", None, "", "NA", "?", 3])
    assert out.argmax(axis=1).tolist() == [1, 0, 3, 4, 4, 4, 2, 3]
    assert out.sum(axis=1).tolist() == [1.0] * 8


def test_a_number_that_marks_a_gap_is_missing_whatever_its_type():
    column = Number("x", -10, 10, knots=1)
    for values in ([-9, 0], ["-9", "0"], np.array([-9.0, 0.0])):
        assert encoded(column, values, markers=["-9"]).tolist() == [[0, 1], [0.5, 0]]


@pytest.mark.parametrize(("rule", "row"), [("column", [0, 0, 1]), ("zero", [0, 0]), ("other", [0, 1])])
def test_a_missing_category_follows_its_rule(rule, row):
    assert encoded(Category("t", ["a"], missing=rule), [None])[0].tolist() == row


def test_whole_numbers_are_levels_whatever_their_type():
    column = Category("code", ["1", "2"])
    for values in ([1, 2, 3], [1.0, 2.0, None], ["1", "2", "9"], pd.Series([1, 2, None], dtype="Int64")):
        assert encoded(column, values)[:2].argmax(axis=1).tolist() == [0, 1]


def test_an_ordinal_keeps_its_order():
    out = encoded(Ordinal("s", [str(i) for i in range(9)]), ["0", "1", "8", "x", None])
    np.testing.assert_allclose(
        out,
        [
            [1, 0, 0, 0, 0, 0, 0],
            [0.5, 0.5, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 1, 0, 0],
            [0] * 5 + [1, 0],
            [0] * 6 + [1],
        ],
    )


def test_flags_are_understood_in_any_dress():
    out = encoded(Flag("f"), [True, "No", 1, 0.0, "T", "off", "maybe", None])
    assert out.tolist() == [[1, 0], [0, 0], [1, 0], [0, 0], [1, 0], [0, 0], [0, 1], [0, 1]]


def test_days_are_numbers_between_two_days():
    column = Date("d", "2020-01-01", "2020-01-11", knots=1)
    values = ["2020-01-01", "2020-01-06", "2031-01-01", "junk", None, "2019-01-01"]
    expected = [[0, 0], [0.5, 0], [1, 0], [0, 1], [0, 1], [0, 0]]
    np.testing.assert_allclose(encoded(column, values), expected)
    np.testing.assert_allclose(encoded(column, pd.to_datetime(values, errors="coerce")), expected)
    zoned = pd.to_datetime(values, errors="coerce").tz_localize("UTC")
    np.testing.assert_allclose(encoded(column, zoned), expected)


def test_knots_of_short_or_close_ranges_have_names_of_their_own():
    schema = Schema([Date("d", "2020-01-01", "2020-01-02"), Number("x", 1_000_000, 1_000_008)])
    names = TableEncoder(schema).fit().get_feature_names_out().tolist()
    assert len(set(names)) == len(names)
    assert names[:2] == ["d at 2020-01-01", "d at 2020-01-02"]


def test_words_are_hashed_and_bounded_together():
    out = encoded(Text("t", buckets=16), ["Cough and fever", "cough", "", None, "a b c d e f g h i j k l m"])
    assert out.shape == (5, 16)
    assert np.abs(out[2:4]).max() == 0.0
    assert np.square(out).sum(axis=1).max() <= 1 + 1e-12
    assert np.square(out[1]).sum() == pytest.approx(1.0)


def frames(table):
    yield table
    yield pl.from_pandas(table)
    yield pa.Table.from_pandas(table)
    yield table.to_dict("records")
    yield table.to_dict("list")
    yield table.astype({"town": "category", "stage": "category"})
    yield table.convert_dtypes()


def test_every_make_of_table_gives_the_same_rows():
    table = hospital(60)
    encoder = TableEncoder(SCHEMA, sparse_output=False).fit(table)
    expected = encoder.transform(table)
    for other in frames(table):
        np.testing.assert_array_equal(encoder.transform(other), expected)


def test_sparse_and_dense_rows_agree_and_sparse_ones_are_canonical():
    table = hospital(60).assign(complaint="back pain")
    dense = TableEncoder(WORDY, sparse_output=False).fit().transform(table)
    out = TableEncoder(WORDY, sparse_output=True, dtype=np.float32).fit().transform(table)
    np.testing.assert_allclose(out.toarray(), dense, rtol=1e-6)
    assert out.dtype == np.float32
    out = TableEncoder(SCHEMA, sparse_output=True).fit().transform(table.drop(columns="complaint"))
    again = sparse.csr_matrix((out.data, out.indices, out.indptr), shape=out.shape)
    assert again.has_canonical_format


def test_rows_are_sparse_where_that_takes_less_memory():
    levels = Schema([Category("t", [str(i) for i in range(50)])])
    assert sparse.issparse(TableEncoder(levels).fit().transform({"t": ["1"]}))
    numbers = Schema([Number("x", 0, 1, knots=1, missing="zero")])
    assert isinstance(TableEncoder(numbers).fit().transform({"x": [1]}), np.ndarray)


def test_names_and_originstell_what_each_column_stands_for():
    encoder = TableEncoder(SCHEMA).fit()
    names = encoder.get_feature_names_out().tolist()
    assert len(names) == len(set(names)) == len(encoder.origins) == encoder.transform(hospital(3)).shape[1]
    assert names[:7] == [
        "age at 0",
        "age at 25",
        "age at 50",
        "age at 75",
        "age at 100",
        "age (missing)",
        "dose",
    ]
    assert encoder.origins[names.index("town=Rome")] == Origin("town", "Rome")
    assert encoder.origins[names.index("town (other)")] == Origin("town", "other")
    assert encoder.n_features_in_ == 6


def test_each_row_depends_on_its_record_alone():
    table = hospital(50)
    encoder = TableEncoder(SCHEMA, sparse_output=False).fit()
    whole = encoder.transform(table)
    alone = np.vstack([encoder.transform(table.iloc[i : i + 1]) for i in range(50)])
    np.testing.assert_array_equal(whole, alone)


wild = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(10**400), 10**400),
    st.text(max_size=5),
    st.booleans(),
    st.sampled_from(["Bonn", "I", "yes", "2021-05-05", "1e400", "-0", 5e-324, 1e308, b"x", pd.NaT, pd.NA]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.fixed_dictionaries({c.name: wild for c in WORDY.features}), min_size=1, max_size=4))
def test_no_record_is_longer_than_the_schema_says_and_none_is_refused(records):
    encoder = TableEncoder(WORDY).fit()
    out = encoder.transform(records)
    assert out.shape == (len(records), len(encoder.origins))
    assert np.isfinite(out.data).all()
    assert np.square(out.toarray()).sum(axis=1).max() <= encoder.data_norm_**2 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        (Number("x", 0, 1), pd.to_datetime(["2020-01-01"]), "'x': the schema declares numbers"),
        (Number("x", 0, 1), pd.Series([1 + 2j]), "'x': the schema declares numbers"),
        (Date("x", "2020-01-01", "2021-01-01"), pd.Series([3.5]), "'x': the schema declares dates"),
        (Date("x", "2020-01-01", "2021-01-01"), pd.Series([20200101]), "'x': the schema declares dates"),
    ],
)
def test_a_type_that_does_not_fit_is_refused_by_name_and_without_values(column, values, words):
    with pytest.raises(SchemaError, match=words) as caught:
        encoded(column, values)
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("table", [np.eye(3), "data.csv", 3, pl.LazyFrame({"x": [1]})])
def test_what_is_no_table_is_refused(table):
    with pytest.raises(InvalidTypeError, match="Expected a table"):
        TableEncoder(Schema([Flag("x")])).fit().transform(table)


def test_columns_of_unequal_length_are_refused_without_a_quote():
    with pytest.raises(SchemaError, match="unequal length") as caught:
        TableEncoder(Schema([Flag("x")])).fit().transform({"x": [1, 2], "y": [1]})
    assert caught.value.__context__ is None


def test_an_empty_table_gives_no_rows():
    out = TableEncoder(SCHEMA).fit().transform(hospital(5).iloc[:0])
    assert out.shape[0] == 0


def test_the_encoder_refuses_what_is_no_schema_or_has_blanks():
    with pytest.raises(SchemaError, match=r"Expected a sordino\.Schema or its path, got dict"):
        TableEncoder({}).fit()
    with pytest.raises(SchemaError, match="'x': not declared yet: bounds"):
        TableEncoder(Schema([Number("x")])).fit()
    with pytest.raises(InvalidInputError, match="sparse_output"):
        TableEncoder(SCHEMA, sparse_output="yes").fit()
    with pytest.raises(InvalidInputError, match="dtype"):
        TableEncoder(SCHEMA, dtype=int).fit()


ODD = [
    None,
    np.nan,
    "",
    "?",
    "x" * 10_000,
    "-1e999",
    10**400,
    [1],
    {"a": 1},
    b"\xff",
    1 + 2j,
    True,
    object(),
    pd.NaT,
]


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("column", [c.name for c in WORDY.features])
def test_a_record_with_an_odd_value_does_not_change_how_the_others_are_read(column, value):
    table = hospital(12).assign(complaint="back pain").astype(object)
    encoder = TableEncoder(WORDY, sparse_output=False).fit()
    before = encoder.transform(table)
    table.at[3, column] = value
    after = encoder.transform(table)
    others = np.arange(12) != 3
    np.testing.assert_array_equal(after[others], before[others])
    assert np.isfinite(after).all()
    assert np.square(after[3]).sum() <= encoder.data_norm_**2 * (1 + 1e-12)


ALIKE = [
    (Category("c", ["1", "True"]), True, 1),
    (Category("c", ["1"]), 1 + 0j, 1),
    (Flag("c"), 1 + 0j, 1),
    (Number("c", 0, 2000), 1 + 2j, "1_000"),
    (Number("c", 0, 2000), 10**400, "1_000"),
    (Number("c", 0, 2000), Decimal("sNaN"), 7),
    (Category("c", ["7"]), Decimal("sNaN"), 7),
    (Date("c", "1900-01-01", "2100-01-01"), "2020-01-01T00:00:00.123456789", "9999-12-31"),
    (Date("c", "1900-01-01", "2100-01-01"), pd.Timestamp("2020-01-01").as_unit("ns"), "9999-12-31"),
]


@pytest.mark.parametrize(("column", "first", "other"), ALIKE)
def test_a_value_is_read_beside_another_as_it_is_alone(column, first, other):
    beside = encoded(column, [first, other, first])
    np.testing.assert_array_equal(beside[1], encoded(column, [other])[0])
    np.testing.assert_array_equal(beside[2], encoded(column, [first])[0])


def test_an_encoder_that_was_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        TableEncoder(SCHEMA).transform(hospital(3))


def test_a_column_without_a_single_value_is_missing_throughout():
    for column in WORDY.features:
        out = TableEncoder(Schema([column]), sparse_output=False).fit()
        rows = out.transform(pd.DataFrame({column.name: [np.nan, np.nan]}))
        assert (rows[0] == rows[1]).all()
        assert rows[0].sum() == (1.0 if column.missing == "column" else 0.0)


def test_an_encoder_can_be_cloned_and_pickled():
    encoder = TableEncoder(SCHEMA).fit()
    assert clone(encoder).schema == SCHEMA
    back = pickle.loads(pickle.dumps(encoder))
    assert (back.transform(hospital(9)) != encoder.transform(hospital(9))).nnz == 0


def test_texts_and_doubles_of_arrow_read_as_those_of_pandas():
    texts = pa.chunked_array([["a", None, " b"], ["", "a", "ü"]])
    numbers, gaps = pa.chunked_array([[1.0, -0.0], [np.inf, 2.5, 3.0, 4.0]]), [1.0, None, 2.0, 3.0, None, 4.0]
    table = pa.table({"t": texts, "x": numbers, "g": pa.array(gaps)})
    here, there = frame_of(table), frame_of(table.to_pandas())
    rows = np.array([4, 0, 1])
    for a, b in ((here, there), (here.take(rows), there.take(rows))):
        for levels in (("a", "b"), ("ü",)):
            read = [codes_of(frame.column("t"), levels, frozenset({""})) for frame in (a, b)]
            np.testing.assert_array_equal(*read)
        for name in "xg":
            np.testing.assert_array_equal(*(numbers_of(name, frame.column(name)) for frame in (a, b)))
    assert isinstance(here.column("t"), np.ndarray)
    assert len(frame_of(table.slice(0, 0)).column("t")) == 0
