"""`sordino split` keeps the rows of a person together, and `predict` passes ids on."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.cli.helpers import typed

import sordino
from sordino.kernel import public_generator
from sordino.tables import Number, Person, Target

SCHEMA = sordino.Schema(
    [Number("age", 0, 100), Person("who"), Target("ill", levels=["no", "yes"], missing="leave out")]
)


@pytest.fixture
def visits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    public = public_generator(0)
    age = public.uniform(0, 100, 2000).round(3)
    table = pd.DataFrame({"age": age, "who": [f"p{i // 4:03d}" for i in range(2000)]})
    table["ill"] = np.where(age > 60, "yes", "no")
    table.to_csv("visits.csv")
    table.to_parquet("visits.parquet")
    SCHEMA.write("visits.toml")
    return table


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_nobody_is_on_both_sides_and_nothing_is_lost(visits, ending):
    told = typed("split", f"visits.{ending}", "--schema", "visits.toml", "--train", f"a.{ending}",
                 "--test", f"b.{ending}")  # fmt: skip
    assert "350 persons in" in told
    read = pd.read_csv if ending == "csv" else pd.read_parquet
    a, b = read(f"a.{ending}"), read(f"b.{ending}")
    assert set(a["who"]).isdisjoint(b["who"])
    assert b["who"].nunique() == 150
    both = pd.concat([a, b])[["age", "who", "ill"]].sort_values(["who", "age"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(both, visits.sort_values(["who", "age"]).reset_index(drop=True))


def test_the_parts_of_a_csv_file_are_read_by_its_own_options(visits):
    words = ["Käse; Brot", 'says "no"']
    text = visits.assign(what=[words[i % 2] for i in range(len(visits))])
    text.to_csv("ours.csv", sep=";", decimal=",", encoding="latin-1", index=False)
    typed(
        "split", "ours.csv", "--person", "who", "--encoding", "latin-1", "--train", "a.csv", "--test", "b.csv"
    )
    kept = [pd.read_csv(f, sep=";", decimal=",", encoding="latin-1") for f in ("a.csv", "b.csv")]
    both = pd.concat(kept).sort_values(["who", "age"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(both, text.sort_values(["who", "age"]).reset_index(drop=True))
    text.to_csv("bare.csv", sep="|", header=False, index=False)
    bare = ("--no-header", "--delimiter", "|", "--train", "a.tsv", "--test", "c.csv")
    typed("split", "bare.csv", "--person", "x1", *bare)
    lines = [pd.read_csv(f, sep=s, header=None) for f, s in (("a.tsv", "\t"), ("c.csv", "|"))]
    assert [part.shape for part in lines] == [(1400, 4), (600, 4)]


def test_the_split_is_public_and_repeatable(visits):
    words = ("split", "visits.csv", "--person", "who", "--train", "a.csv", "--test", "b.csv", "--force")
    typed(*words)
    first = Path("b.csv").read_text()
    typed(*words)
    assert Path("b.csv").read_text() == first
    typed(*words, "--seed", "1")
    assert Path("b.csv").read_text() != first
    assert "no column 'whose'" in typed(*words[:3], "whose", *words[4:], code=3)
    typed(*words, "--share", "2", code=2)


def test_predictions_carry_the_ids(visits):
    typed("split", "visits.csv", "--schema", "visits.toml", "--train", "a.csv", "--test", "b.csv")
    typed("fit", "a.csv", "--schema", "visits.toml", "--epsilon", "4", "--output", "m.sordino")
    typed("predict", "m.sordino", "b.csv", "--output", "said.csv")
    rows = list(csv.DictReader(Path("said.csv").read_text().splitlines()))
    assert [row["who"] for row in rows] == pd.read_csv("b.csv")["who"].tolist()
    assert {row["prediction"] for row in rows} == {"no", "yes"}
    typed("predict", "m.sordino", "b.csv", "--id", "age", "--output", "said.csv", "--force")
    assert Path("said.csv").read_text().startswith("age,prediction\n")
