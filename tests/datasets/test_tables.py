"""The tables of the registry are encoded as in the papers: lines, and zeros for what is not declared."""

import math

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino import Schema, TableEncoder
from sordino.datasets import REGISTRY
from sordino.errors import SchemaError
from sordino.tables import Category, Number

SCHEMA = Schema(
    [
        Number("age", 0, 100, knots=1, missing="zero"),
        Category("town", ("Rome", "Bonn"), missing="zero", other="zero"),
        Number("debt", 0, 1000, knots=1, missing="zero", log=True),
        Number("rank", 2, 4, knots=1),
    ]
)
NAMES = ("age", "town", "debt", "rank")


def _frame(*lines):
    """Return a table of words, as a file without types gives it."""
    return pandas.DataFrame([line.split(", ") for line in lines], columns=list(NAMES))


def _encode(*lines):
    return TableEncoder(SCHEMA, sparse_output=False).fit_transform(_frame(*lines))


def test_numbers_are_scaled_by_their_bounds_and_levels_become_columns():
    rows = _encode("25, Bonn, 0, 3", "50, Rome, 1000, 2")
    assert rows.tolist() == [[0.25, 0, 1, 0, 0.5, 0], [0.5, 1, 0, 1, 0, 0]]
    names = TableEncoder(SCHEMA).fit().get_feature_names_out().tolist()
    assert names == ["age", "town=Rome", "town=Bonn", "debt", "rank", "rank (missing)"]


def test_a_logarithmic_column_is_log1p_over_log1p_of_the_bound():
    assert _encode("0, Rome, 31, 2")[0, 3] == pytest.approx(math.log(32) / math.log(1001))


def test_the_knots_of_a_logarithmic_column_are_spaced_by_powers():
    schema = Schema([Number("pay", 10, 1009, knots=4, log=True)])
    encoder = TableEncoder(schema, sparse_output=False).fit()
    assert encoder.get_feature_names_out().tolist()[:4] == [
        "pay at 10",
        "pay at 19",
        "pay at 109",
        "pay at 1009",
    ]
    rows = encoder.transform({"pay": [10, 19, 109, 1009, -1e300, 1e300, math.sqrt(1000) + 9]})
    assert rows[:6, :4] == pytest.approx(np.eye(4)[[0, 1, 2, 3, 0, 3]])
    assert rows[6, 1:3] == pytest.approx([0.5, 0.5])
    again = Schema.from_toml(schema.to_toml())
    assert again == schema
    assert "logarithmic scale" in again.facts[1]


def test_values_outside_the_bounds_are_clipped():
    rows = _encode("1e300, Rome, -5, 99", "-7, Rome, inf, -inf")
    assert rows[:, 0].tolist() == [1, 0]
    assert rows[:, 3].tolist() == [0, 1]
    assert rows[:, 4].tolist() == [1, 0]


def test_an_undeclared_level_and_a_missing_value_leave_zeros():
    rows = _encode("10, Oslo, ?, ?", "?, ?, , NA")
    assert rows.tolist() == [[0.1, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1]]
    assert "others count as none" in Schema.from_toml(SCHEMA.to_toml()).facts[2]


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (Category, {"other": "drop"}, "rule for other levels"),
        (Category, {"other": "zero", "missing": "other"}, "rule for missing values"),
        (Number, {"log": 1}, "log is int"),
    ],
)
def test_rules_that_are_not_known_are_refused(kind, options, words):
    with pytest.raises(SchemaError, match=words):
        kind("x", **options)


_TOWN = st.sampled_from(["Rome", "Bonn", "Oslo", "?"])
_NUMBER = st.one_of(st.just("?"), st.floats(allow_nan=False, width=32).map(repr))
_RECORD = st.tuples(_NUMBER, _TOWN, _NUMBER, _NUMBER).map(", ".join)


@given(st.lists(_RECORD, min_size=1, max_size=8))
def test_rows_stay_below_the_declared_norm_whatever_the_data(records):
    rows = _encode(*records)
    assert (rows >= 0).all()
    assert (rows <= 1).all()
    assert np.linalg.norm(rows, axis=1).max() <= SCHEMA.data_norm + 1e-12


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
    names = TableEncoder(declared).fit().get_feature_names_out()
    assert (len(declared.columns), len(names), len(set(names))) == (columns, features, features)
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
