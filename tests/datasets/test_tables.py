"""The encoding uses declared levels and bounds only, and each row by itself."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.datasets import Category, Number, Schema, encode_table, read_table, schemas
from sordino.datasets.tables import raw_records

SCHEMA = Schema(
    (
        Number("age", 0, 100),
        Category("town", ("Rome", "Bonn")),
        Number("debt", 0, 1000, log=True),
        Number("rank", 2, 4, missing_column=True),
    )
)
NAMES = ("age", "town", "debt", "rank")


def _encode(*lines):
    return encode_table(read_table("\n".join(lines).encode(), NAMES), SCHEMA).toarray()


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


def test_repeated_lines_are_counted_as_often_as_they_occur():
    table = read_table(b"1, Rome, 2, 3\n4, Bonn, 5, 2\n1, Rome, 2, 3\n", NAMES)
    assert table.rows.tolist() == [0, 1, 0]
    assert len(table) == 3
    assert len(table.columns["age"]) == 2
    assert table.column("town").tolist() == [b"Rome", b"Bonn", b"Rome"]


def test_comments_and_empty_lines_are_left_out():
    assert len(read_table(b"|a comment\n\n1,Rome,2,3\n\n", NAMES)) == 1


@pytest.mark.parametrize("text", [b"1,Rome,2\n", b"1,Rome,2,3\n1,Rome\n", b"1,Rome,2,3,4\n"])
def test_lines_with_other_columns_are_refused(text):
    with pytest.raises(ValueError):
        read_table(text, NAMES)


def test_raw_records_keep_names_types_and_gaps():
    records = raw_records(read_table(b"7, Rome, ?, 3\n", NAMES), SCHEMA)
    assert records["age"].tolist() == [7]
    assert records["town"].tolist() == ["Rome"]
    assert np.isnan(records["debt"]).all()


_CELL = st.one_of(
    st.sampled_from(["?", "Rome", "Bonn", "Oslo", ""]), st.floats().map(repr), st.integers().map(str)
)
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
    ("schema", "columns", "features"),
    [("ADULT", 14, 104), ("KDDCUP99", 41, 122), ("DONOR_PVA", 47, 122)],
)
def test_declared_schemas_have_the_columns_of_the_papers(schema, columns, features):
    declared = getattr(schemas, schema)
    assert (len(declared.columns), declared.n_features) == (columns, features)
    assert len(set(declared.feature_names)) == features
    for column in declared.columns:
        if isinstance(column, Number):
            assert column.low < column.high
        else:
            assert len(set(column.levels)) == len(column.levels)


def test_the_kinds_of_attack_are_declared_once_each():
    assert len(set(schemas.KDD_LABELS)) == len(schemas.KDD_LABELS) == 40
    assert set(schemas.KDD_DOS) < set(schemas.KDD_LABELS)
