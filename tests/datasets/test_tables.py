"""The encoding uses declared levels and bounds only, and each row by itself."""

import math

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.datasets import REGISTRY, Category, Number, Schema, encode_table
from sordino.errors import InvalidInputError

SCHEMA = Schema(
    (
        Number("age", 0, 100),
        Category("town", ("Rome", "Bonn")),
        Number("debt", 0, 1000, log=True),
        Number("rank", 2, 4, missing_column=True),
    )
)
NAMES = ("age", "town", "debt", "rank")


def _frame(*lines):
    """Return a table of words, as a file without types gives it."""
    return pandas.DataFrame([line.split(", ") for line in lines], columns=list(NAMES))


def _encode(*lines):
    return encode_table(_frame(*lines), SCHEMA).toarray()


def test_numbers_are_scaled_by_their_bounds_and_levels_become_columns():
    rows = _encode("25, Bonn, 0, 3", "50, Rome, 1000, 2")
    assert rows.tolist() == [[0.25, 0, 1, 0, 0.5, 0], [0.5, 1, 0, 1, 0, 0]]
    assert SCHEMA.feature_names == (*("age", "town=Rome", "town=Bonn", "debt", "rank", "rank missing"),)


def test_a_logarithmic_column_is_log1p_over_log1p_of_the_bound():
    assert _encode("0, Rome, 31, 2")[0, 3] == pytest.approx(math.log(32) / math.log(1001))


def test_values_outside_the_bounds_are_clipped():
    rows = _encode("1e300, Rome, -5, 99", "-7, Rome, inf, -inf")
    assert rows[:, 0].tolist() == [1, 0]
    assert rows[:, 3].tolist() == [0, 1]
    assert rows[:, 4].tolist() == [1, 0]


def test_an_undeclared_level_and_a_missing_value_leave_zeros():
    rows = _encode("10, Oslo, ?, ?", "?, ?, , NA")
    assert rows.tolist() == [[0.1, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1]]


def test_other_columns_and_another_order_change_nothing():
    frame = pandas.DataFrame({"rank": [3], "id": ["x"], "debt": [0], "town": ["Bonn"], "age": [25]})
    assert encode_table(frame, SCHEMA).toarray().tolist() == [[0.25, 0, 1, 0, 0.5, 0]]


def test_rows_keep_their_places_whatever_the_index_of_the_frame():
    frame = _frame("25, Bonn, 0, 3", "50, Rome, 1000, 2").iloc[::-1]
    assert encode_table(frame, SCHEMA).toarray()[:, 0].tolist() == [0.5, 0.25]


def test_typed_columns_are_encoded_like_text():
    """Numbers as numbers, levels as a categorical, gaps as NaN or None."""
    typed = pandas.DataFrame(
        {
            "age": [25, 50],
            "town": pandas.Categorical(["Bonn", None]),
            "debt": [0.0, np.nan],
            "rank": pandas.array([3, None], dtype="Int64"),
        }
    )
    assert np.array_equal(encode_table(typed, SCHEMA).toarray(), _encode("25, Bonn, 0, 3", "50, ?, ?, ?"))


def test_a_word_in_a_column_of_numbers_counts_as_missing_and_is_not_shown():
    assert _encode("SECRET, Rome, 0, SECRET").tolist() == [[0, 1, 0, 0, 0, 1]]


def test_a_level_declared_twice_is_refused():
    with pytest.raises(InvalidInputError, match="each level of the column 'town' once"):
        Category("town", ("Rome", "Rome"))


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(InvalidInputError, match="lacks the declared columns town, rank"):
        encode_table({"age": [1], "debt": [2]}, SCHEMA)


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (0, math.inf), (math.nan, 1)])
def test_bounds_that_bound_nothing_are_refused(low, high):
    with pytest.raises(InvalidInputError, match="finite low < high for the column 'age'"):
        Number("age", low, high)


_TOWN = st.sampled_from(["Rome", "Bonn", "Oslo", "?"])
_NUMBER = st.one_of(st.just("?"), st.floats(allow_nan=False, width=32).map(repr))
_RECORD = st.tuples(_NUMBER, _TOWN, _NUMBER, _NUMBER).map(", ".join)


@given(st.lists(_RECORD, min_size=1, max_size=8))
def test_rows_stay_below_the_declared_norm_whatever_the_data(records):
    rows = _encode(*records)
    assert (rows >= 0).all()
    assert (rows <= 1).all()
    assert np.linalg.norm(rows, axis=1).max() <= SCHEMA.norm_bound + 1e-12


@given(st.lists(_RECORD, min_size=2, max_size=6))
def test_a_row_does_not_depend_on_the_other_rows(records):
    together = _encode(*records)
    alone = np.vstack([_encode(record) for record in records])
    assert np.array_equal(together, alone)


@pytest.mark.parametrize(
    ("name", "columns", "features"),
    [("adult", 14, 104), ("kddcup99", 41, 122), ("donor_pva", 47, 122)],
)
def test_declared_schemas_have_the_columns_of_the_papers(name, columns, features):
    declared = REGISTRY[name].schema
    assert (len(declared.columns), declared.n_features) == (columns, features)
    assert len(set(declared.feature_names)) == features
    for column in declared.columns:
        if isinstance(column, Number):
            assert column.low < column.high
        else:
            assert len(set(column.levels)) == len(column.levels)


def test_the_kinds_of_attack_are_declared_once_each():
    kinds = REGISTRY["kddcup99"].classes
    assert len(set(kinds)) == len(kinds) == 40
    first, last = REGISTRY["kddcup99"].targets["dos"].positive
    assert set(kinds[first : last + 1]) == {
        *("back", "land", "neptune", "pod", "smurf", "teardrop"),
        *("apache2", "mailbomb", "processtable", "udpstorm"),
    }
