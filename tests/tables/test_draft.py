"""A draft reads names and stored types, and no record."""

import pandas as pd
import pyarrow as pa
import pytest

from sordino import Schema
from sordino.errors import DataFileError, SchemaError
from sordino.tables import draft_schema


def lines_of(text, column):
    """Return the lines of a draft that belong to one column."""
    return text.split(f"[columns.{column}]\n")[1].split("\n\n")[0].splitlines()


def test_a_csv_file_gives_names_and_blanks(tmp_path):
    (tmp_path / "d.csv").write_text('age;"home town";ill\n39;a secret village;yes\n', "utf-8")
    text = draft_schema(tmp_path / "d.csv")
    assert "secret" not in text
    assert "39" not in text
    assert "Drafted from the header of d.csv. No record was read." in text
    assert lines_of(text, "age") == ['kind = ""', '# source = ""']
    with pytest.raises(SchemaError, match="'age': not declared yet: kind"):
        Schema.from_toml(text).require_known()
    filled = draft_schema(tmp_path / "d.csv", kinds={"age": "number", "ill": "target"}, rest="category")
    schema = Schema.from_toml(filled)
    assert [column.word for column in schema.columns] == ["number", "category", "target"]
    assert [column.name for column in schema.unknown] == ["age", "home town", "ill"]
    assert "# low =" in lines_of(filled, "age")


def test_the_draft_of_two_files_with_the_same_header_is_the_same(tmp_path):
    for name, rows in (("a", "1,2\n"), ("b", "x,\n" * 100)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "d.csv").write_text("age,town\n" + rows)
    assert draft_schema(tmp_path / "a" / "d.csv") == draft_schema(tmp_path / "b" / "d.csv")


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_types_come_from_what_the_file_states(tmp_path, ending):
    table = pa.table(
        {
            "age": [1, 2],
            "ok": [True, False],
            "day": pd.to_datetime(["2020-01-01", "2020-01-02"]),
            "word": ["secret", "other"],
            "level": pa.array(["secret", "b"]).dictionary_encode(),
        }
    )
    path = tmp_path / f"d.{ending}"
    if ending == "parquet":
        import pyarrow.parquet as parquet

        parquet.write_table(table, path)
    else:
        import pyarrow.feather as feather

        feather.write_feather(table, path)
    text = draft_schema(path)
    assert "stored types" in text
    assert "secret" not in text
    kinds = [lines_of(text, name)[0] for name in table.column_names]
    assert kinds == [f'kind = "{kind}"' for kind in ("number", "flag", "date", "", "category")]


def test_a_first_row_that_looks_like_a_record_is_refused_without_a_quote(tmp_path):
    (tmp_path / "adult.csv").write_text("39,State-gov,77516\n50,Private,83311\n")
    with pytest.raises(DataFileError, match="looks like a record") as caught:
        draft_schema(tmp_path / "adult.csv")
    assert "State-gov" not in str(caught.value)


def test_kinds_that_are_not_known_and_columns_that_are_not_there_are_refused(tmp_path):
    (tmp_path / "d.csv").write_text("age,ill\n1,2\n")
    with pytest.raises(SchemaError, match="got 'numeric'"):
        draft_schema(tmp_path / "d.csv", kinds={"age": "numeric"})
    with pytest.raises(SchemaError, match="got 'nothing'"):
        draft_schema(tmp_path / "d.csv", rest="nothing")
    with pytest.raises(SchemaError, match=r"'agee': d\.csv has no such column"):
        draft_schema(tmp_path / "d.csv", kinds={"agee": "number"})


@pytest.mark.parametrize("name", ["none.csv", "empty.csv", "cut.parquet", "odd.txt", "wide.csv"])
def test_a_file_that_cannot_be_drafted_is_named(tmp_path, name):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1abc")
    (tmp_path / "odd.txt").write_text("a,b\n")
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(1_000_000)) + "\n")
    with pytest.raises(DataFileError, match=name):
        draft_schema(tmp_path / name)


@pytest.mark.parametrize("person", [False, True])
def test_an_order_of_levels_is_drafted_where_no_persons_are(tmp_path, person):
    (tmp_path / "d.csv").write_text("id,how\na,low\n")
    text = draft_schema(tmp_path / "d.csv", kinds={"how": "target"} | ({"id": "person"} if person else {}))
    assert ("ordered = true" in text) is not person
    assert 'levels = ["no", "yes"]  # or, for a number, low = and high =' in text
