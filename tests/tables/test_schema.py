"""What may be declared, and how it is written down."""

import datetime
import math
import time
from dataclasses import replace

import pandas as pd
import pytest
from tests.tables.helpers import SCHEMA, WORDY, hospital

import sordino
from sordino.errors import InvalidInputError, SchemaError
from sordino.kernel import Relation
from sordino.runs import Price
from sordino.tables import Category, Date, Flag, Ignored, Number, Ordinal, Person, Schema, Target, Text

PRICE = Price(0.2, 1e-6, Relation.ADD_REMOVE, "record", "a receipt")


def test_a_schema_survives_its_file(tmp_path):
    WORDY.write(tmp_path / "schema.toml")
    back = Schema.read(tmp_path / "schema.toml")
    assert back == WORDY
    assert back.digest == WORDY.digest
    assert sordino.Schema is Schema


def test_a_file_with_a_byte_order_mark_is_read(tmp_path):
    (tmp_path / "schema.toml").write_bytes(b"\xef\xbb\xbf" + SCHEMA.to_toml().encode())
    assert Schema.read(tmp_path / "schema.toml") == SCHEMA


def test_every_kind_of_column_and_every_field_survive_the_text():
    columns = [
        Number("a b", -1.5, 2, "kg", 0.5, "a paper", knots=(0.0, 1.0)),
        Number("later"),
        Category('quote " and é', ["1", "x\ny", ""], "other", "s"),
        Category("unknown"),
        Ordinal("o", [1, 2.0, "3"]),
        Flag("f", "zero"),
        Date("d", datetime.date(1900, 1, 1), "2000-02-29", knots=2),
        Text("t", 16, "zero", "free"),
        Target("y", "number", low=0, high=1, unit="m"),
        Person("id", "registry"),
        Ignored("n"),
    ]
    schema = Schema(columns, markers=["-9"], learned=[PRICE, replace(PRICE, epsilon=math.inf, receipt="")])
    assert Schema.from_toml(schema.to_toml()) == schema
    assert schema.columns[4].levels == ("1", "2", "3")


def test_the_digest_changes_with_every_declaration():
    others = [
        Schema([*SCHEMA.columns[1:]]),
        Schema([Number("age", 0, 99, unit="years", source="admission form"), *SCHEMA.columns[1:]]),
        Schema(SCHEMA.columns, markers=["-9"]),
        Schema(SCHEMA.columns, learned=[PRICE]),
    ]
    assert len({schema.digest for schema in (SCHEMA, *others)}) == 5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Number("age", 90, 17), r"'age': low = 90 is above high = 17. Swap"),
        (lambda: Number("age", 5, 5), "'age': low and high are too close"),
        (lambda: Number("age", -1e308, 1e308), "'age': low and high are too close or too far"),
        (lambda: Number("age", 0, float("inf")), "'age': high is not a finite number"),
        (lambda: Number("age", 0, "9"), "'age': high is not a finite number, got str"),
        (lambda: Number("age", 0), "'age': high is not a finite number"),
        (lambda: Number("age", 0, 10**400), "'age': high is not a finite number"),
        (lambda: Number("age", True, 2), "'age': low"),
        (lambda: Number("age", 0, 9, knots=0), "'age': knots"),
        (lambda: Number("age", 0, 9, knots=(3, 2)), "'age': knots do not rise"),
        (lambda: Number("age", 0, 9, knots=(3, 12)), "'age': knots do not rise"),
        (lambda: Number("age", 0, 9, missing="drop"), "'age': the rule for missing"),
        (lambda: Number("age", 0, 9, missing=float("nan")), "'age': missing is not a finite"),
        (lambda: Number("age", 0, 9, unit=3), "'age': unit is int"),
        (lambda: Number("age", 0, 9, source=3), "'age': source is int"),
        (lambda: Number("", 0, 9), "name of a column"),
        (lambda: Number(3, 0, 9), "name of a column"),
        (lambda: Category("town", "Bonn"), "'town': levels are not a list"),
        (lambda: Category("town", ["a", " a"]), "'town': a level is declared twice"),
        (lambda: Category("town", [1, "1"]), "'town': a level is declared twice"),
        (lambda: Category("town", [["a"]]), "'town': a level is not a text"),
        (lambda: Category("town", map(str, range(200_000))), "'town': expected 1 to 100000 levels"),
        (lambda: Category("town", []), "'town': expected 1 .* got 0. List them, or leave out levels and"),
        (lambda: Ordinal("stage", []), r"'stage': expected 2 .* got 0. List them\.$"),
        (lambda: Target("y", levels=[]), "'y': expected 2 .* got 0. List them, or"),
        (lambda: Ordinal("stage", ["I"]), "'stage': expected 2"),
        (lambda: Date("day", "2020-02-30", "2021-01-01"), "'day': low is not a date"),
        (lambda: Date("day", "2022-01-01", "2021-01-01"), "'day': low = .* Swap"),
        (lambda: Text("words", buckets=1), "'words': buckets"),
        (lambda: Target("y", levels=["one"]), "'y': expected 2"),
        (lambda: Target("y", kind="flag"), "'y': a target is a category or a number"),
        (lambda: Target("y", "number", levels=["a", "b"]), "'y': a target that is a number"),
        (lambda: Target("y", "category", low=0, high=1), "'y': a target that is a category has levels only"),
        (lambda: Schema([Flag("a"), Flag("a")]), "'a': it is declared twice"),
        (lambda: Schema([Target("a"), Target("b")]), "at most one target"),
        (lambda: Schema([Person("a"), Person("b")]), "at most one person"),
        (lambda: Schema([]), "Expected 1 to"),
        (lambda: Schema("age"), "Expected columns as a list"),
        (lambda: Schema(["age"]), "Expected columns as a list"),
        (lambda: Schema([Flag("a")], markers=[3]), "markers of missing values"),
        (lambda: Schema([Flag("a")], learned="epsilon = 1"), "Expected learned as a list"),
    ],
)
def test_a_false_declaration_names_column_rule_and_remedy(make, words):
    with pytest.raises(SchemaError, match=words):
        make()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "format = 1\n[columns.age]\nkind = 'number'\nlo = 3",
            "'age': 'lo' is not known for a number. Known",
        ),
        ("format = 1\n[columns.age]\nkind = 'numeric'", "'age': its kind is not known. Write one of number"),
        ("format = 1\n[columns.age]\nlow = 3", "'age': its kind is not known"),
        ("format = 1\n[columns.age]\nkind = ''\nlow = 3", "'age': 'low' is not known for a"),
        ("format = 1\n[columns]\nage = 3", "'age': it is not a table"),
        ("format = 1\n[columns.age]\nkind='flag'\n[columns.age]\nkind='flag'", "not TOML"),
        ("format = 2\n[columns.age]\nkind = 'flag'", "format = 1"),
        ("format = 1", "no columns"),
        ("format = 1\nrows = 3\n[columns.age]\nkind='flag'", "got rows"),
        ("format = 1\nmarkers = 'NA'\n[columns.age]\nkind='flag'", "markers as a list"),
        (
            "format = 1\n[columns.d]\nkind='date'\nlow = 2020-01-01T10:00:00\nhigh = 2021-01-01",
            "'d': low is a time",
        ),
        ("format = 1\n[columns.c]\nkind='category'\nlevels = []", "'c': expected 1 .* got 0. List them"),
        ("format = 1\nlearned = 3\n[columns.age]\nkind='flag'", "learned as tables"),
        ("format = 1\nlearned = [3]\n[columns.age]\nkind='flag'", "learned: Expected the price"),
        (
            "format = 1\nlearned = [{epsilon=-1, delta=0, relation='add-remove', unit='record'}]\n"
            "[columns.age]\nkind='flag'",
            "learned: .* got epsilon = -1",
        ),
        (
            "format = 1\nlearned = [{epsilon='x', delta=0, relation='add-remove', unit='record'}]\n"
            "[columns.age]\nkind='flag'",
            "learned: .* as numbers",
        ),
        ("{", "not TOML"),
        ("", "format = 1"),
    ],
)
def test_a_broken_file_says_where(text, words):
    with pytest.raises(SchemaError, match=words):
        Schema.from_toml(text)


def test_a_file_that_is_not_there_or_not_text_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidInputError, match=r"schema\.toml"):
        Schema.read(tmp_path / "schema.toml")
    (tmp_path / "latin.toml").write_bytes("é".encode("latin-1"))
    with pytest.raises(SchemaError, match="UTF-8"):
        Schema.read(tmp_path / "latin.toml")


def test_a_schema_with_blanks_says_what_to_fill_in():
    with pytest.raises(SchemaError, match=r"'age': not declared yet: bounds .* schema learn"):
        Schema([Number("age")]).require_known()
    with pytest.raises(SchemaError, match="'town': not declared yet: levels"):
        Schema([Flag("f"), Category("town")]).require_known()
    with pytest.raises(SchemaError, match="at least one column"):
        Schema([Target("y", levels=["a", "b"])]).require_known()


def test_columns_that_are_missing_or_not_declared_are_named():
    table = hospital()
    with pytest.raises(SchemaError, match="lacks the column 'town'"):
        SCHEMA.checked(table.drop(columns="town"))
    with pytest.raises(SchemaError, match="has the column 'extra', which the schema does not declare"):
        SCHEMA.checked(table.assign(extra=1))
    with pytest.raises(SchemaError, match="'age' is in the table twice"):
        SCHEMA.checked(pd.concat([table, table[["age"]]], axis=1))
    with pytest.raises(SchemaError, match="names of all columns as texts"):
        SCHEMA.checked(table.rename(columns={"age": 3}))


def test_a_table_may_lack_what_a_model_does_not_see():
    SCHEMA.checked(hospital().drop(columns=["ill", "note"]))
    with pytest.raises(SchemaError, match="lacks the column 'ill'"):
        SCHEMA.checked(hospital().drop(columns=["ill"]), target=True)


def test_a_million_columns_are_refused_in_a_short_message():
    names = tuple(f"c{i}" for i in range(1_000_000))
    start = time.perf_counter()
    with pytest.raises(SchemaError, match="and 999995 more, which the schema does not declare") as caught:
        Schema([Ignored("another")]).check_names(names)
    assert len(str(caught.value)) < 400
    assert time.perf_counter() - start < 20


def test_split_gives_features_labels_and_persons():
    schema = Schema([*SCHEMA.columns, Person("who")])
    table = hospital(6).assign(
        who=["a", "b", "a", "c", "b", "a"], ill=[" yes", "no", "no", "yes ", "no", "yes"]
    )
    X, y, groups = schema.split(table)
    assert list(X.columns) == [column.name for column in schema.features]
    assert y.tolist() == ["yes", "no", "no", "yes", "no", "yes"]
    assert groups.tolist() == [0, 1, 0, 2, 1, 0]
    X, y, groups = schema.split(table.drop(columns=["who", "ill"]))
    assert y is None
    assert groups is None


def test_numbers_to_predict_are_clipped_to_their_bounds():
    schema = Schema([Flag("f"), Target("y", "number", low=-1, high=2)])
    assert schema.split({"f": [0, 1, 1], "y": [-7, 0.5, 9]})[1].tolist() == [-1.0, 0.5, 2.0]


@pytest.mark.parametrize("label", ["perhaps", None, ""])
def test_a_label_that_is_not_declared_is_refused_without_being_named(label):
    table = hospital(20)
    table.loc[3, "ill"] = label
    with pytest.raises(
        SchemaError, match="'ill': a record has a target that is missing or not declared"
    ) as caught:
        SCHEMA.split(table)
    assert "perhaps" not in str(caught.value)
    assert 'write missing = "leave out" for the target' in str(caught.value)
    assert caught.value.__context__ is None


def test_a_record_without_a_person_is_refused():
    schema = Schema([Flag("f"), Person("who")])
    with pytest.raises(SchemaError, match=r"'who': .*a known person for every record.*leave it out"):
        schema.split({"f": [1, 0], "who": ["a", None]})


@pytest.mark.parametrize("who", [["7", " 7"], ["7", 7], [7.5, "7.5"]])
def test_ids_that_may_be_one_person_under_two_spellings_are_refused(who):
    schema = Schema([Flag("f"), Person("who")])
    with pytest.raises(SchemaError, match="'who': Expected a known person"):
        schema.split({"f": [1, 1], "who": who})
    assert schema.split({"f": [1] * 3, "who": [7, 7.0, 8]})[2].tolist() == [0, 0, 1]


def test_a_schema_is_written_as_a_whole_or_not_at_all(tmp_path):
    (tmp_path / "s.toml").mkdir()
    with pytest.raises(InvalidInputError, match=r"Cannot write 's\.toml'"):
        SCHEMA.write(tmp_path / "s.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


def test_the_report_of_a_wide_table_stays_readable():
    schema = Schema([Flag(f"f{i}") for i in range(1000)])
    assert len(schema.facts) == 202
    assert schema.facts[-1] == "and 800 more columns, see the schema"


def test_the_report_gets_a_line_for_each_column_with_its_source():
    lines = SCHEMA.facts
    assert len(lines) == 1 + len(SCHEMA.columns)
    assert "column 'age': number in [0, 100] years (admission form)" in lines
    assert "column 'stage': ordinal, 3 levels: I, II, III (source not stated)" in lines
    facts = Schema(SCHEMA.columns, learned=[replace(PRICE, epsilon=0.12341)]).facts
    assert facts[1] == (
        "the schema was learned from records: epsilon = 0.1235, delta = 1e-06, add-remove one record; "
        "it comes on top of every fit"
    )


def test_a_price_in_words_is_refused():
    text = "format = 1\nlearned = 'epsilon = 0.1, delta = 1e-06'\n[columns.age]\nkind = 'flag'"
    with pytest.raises(SchemaError, match="Expected learned as tables"):
        Schema.from_toml(text)


def test_a_flag_says_what_becomes_of_other_words():
    assert "all else missing" in Flag("sex").describe()
    assert Flag("sex").misfits(pd.Series(["male", "yes", "N"]), frozenset())[1].tolist() == [1, 0, 0]
