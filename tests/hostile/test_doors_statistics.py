"""The doors of statistics: prices of learned columns, levels that are numbers, whose record counts."""

import numpy as np
import pandas
import pytest
from tests.cli.helpers import typed, typed_json

import sordino
from sordino import errors
from sordino.kernel.noise import seeded_noise_not_private as seeded_noise
from sordino.runs.report import Status
from sordino.tables import Category, Number, Person, learn_schema

WARDS = sordino.Schema([Number("age"), Category("ward"), Person("id")])


def wards():
    return pandas.DataFrame(
        {"age": np.arange(1200) % 90, "ward": ["north", "south"] * 600, "id": np.arange(1200)}
    )


def test_door_06_and_53_statistics_of_a_learned_column_have_its_price():
    """`stats` called learned levels "declared", and the price was dropped."""
    with seeded_noise(2):
        schema = learn_schema(WARDS, wards(), 3.0).schema
    age, ward = schema.columns[:2]
    table = sordino.group_by({"ward": wards()["ward"]}, levels={"ward": ward}, groups=wards()["id"])
    found = [
        table.count(),
        table.mean(wards()["age"], bounds=age),
        sordino.count(wards()["ward"], levels=ward),
    ]
    found += [f(wards()["age"], epsilon=1.0, bounds=age) for f in (sordino.mean, sordino.variance)]
    found += [sordino.quantiles(wards()["age"], 0.5, bounds=age)]
    found += [sordino.covariance(wards()[["age", "age"]], epsilon=1.0, bounds=age)]
    for result in found:
        assert result.privacy.learned == schema.learned
        alike = result.privacy.unit == "person"  # for whom the schema was learned
        assert result.privacy.status == ("seeded (not private)" if alike else Status.APART)
    assert "levels of ward: 2 learned" in found[0].privacy.public


def test_door_06_sordino_stats_and_evaluate_have_the_price_of_a_learned_schema(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wards().to_csv("wards.csv", index=False)
    learn_schema(WARDS, wards(), 4.0).schema.write("wards.toml")
    words = ("wards.csv", "--schema", "wards.toml", "--epsilon", 1)
    for asked in (("count", "--by", "ward"), ("mean", "--column", "age"), ("quantile", "--column", "age")):
        privacy = typed_json("stats", asked[0], *words, *asked[1:])["privacy"]
        assert [price["status"] for price in privacy["learned"]] == ["private"]
        assert privacy["status"] == "unverified copy"  # the file says it, and proves nothing
        assert not any("levels of ward" in line and "declared" in line for line in privacy["public"])
        assert "comes on top" in typed("stats", asked[0], *words, *asked[1:])


def test_door_18_levels_that_are_numbers_are_counted(tmp_path, monkeypatch):
    """`--levels 'f=[0,1]'` counted 0 of 3,058: numbers are not text."""
    monkeypatch.chdir(tmp_path)
    frame = pandas.DataFrame({"f": [0, 1, 1, 2] * 500, "b": [True, False] * 1000})
    frame.to_csv("f.csv", index=False)
    frame.astype({"f": float}).to_parquet("f.parquet")
    for file in ("f.csv", "f.parquet"):
        with seeded_noise(1):
            rows = typed_json(
                "stats", "count", file, "--column", "f", "--levels", "f=[0, 1]", "--epsilon", 4
            )["rows"]
        assert [row["f"] for row in rows] == ["0", "1"]
        assert [row["count"] for row in rows] == pytest.approx([500, 1000], abs=20)
    assert "as the file spells them" in typed(
        "stats", "count", "f.csv", "--column", "b", "--levels", "b=[true, false]", "--epsilon", 4, code=2
    )
    for column, levels in ((frame["f"].to_numpy(), ["0", "1"]), (frame["f"].to_numpy().astype(str), [0, 1])):
        with pytest.raises(errors.InvalidInputError, match="of the kind that the column has"):
            sordino.count(column, levels=levels)
    with seeded_noise(1):
        assert sordino.count(frame["f"], 4.0, levels=Category("f", [0, 1])).value[1] == pytest.approx(
            1000, abs=20
        )


def test_door_18_statistics_of_persons_do_not_say_all_records(tmp_path, monkeypatch):
    """`stats` printed "all records" where it counts persons."""
    monkeypatch.chdir(tmp_path)
    wards().to_csv("wards.csv", index=False)
    sordino.Schema([Number("age", 0, 100), Person("id")]).write("persons.toml")
    words = ("stats", "mean", "wards.csv", "--column", "age", "--epsilon", 1)
    said = typed(*words, "--schema", "persons.toml")
    assert "all records" not in said
    assert "all persons" in said
    assert "Note: each person counts once, split evenly over all rows." in said
    notes = typed_json(*words, "--schema", "persons.toml")["privacy"]["notes"]
    assert "each person counts once, split evenly over all rows" in notes
    assert "all records" in typed(*words, "--bounds", "0,100")


def test_the_markers_of_a_schema_are_gaps_in_statistics_too(tmp_path, monkeypatch):
    """-9 stands for a missing age: a statistic took it for a number."""
    monkeypatch.chdir(tmp_path)
    pandas.DataFrame({"age": [50, -9] * 1000}).to_csv("ages.csv", index=False)
    pandas.DataFrame({"age": [50.0, -9.0] * 1000}).to_parquet("ages.parquet")
    sordino.Schema([Number("age", 0, 100)], markers=["", "-9"]).write("ages.toml")
    for file in ("ages.csv", "ages.parquet"):
        with seeded_noise(1):
            (row,) = typed_json(
                "stats", "mean", file, "--column", "age", "--schema", "ages.toml", "--epsilon", 8
            )["rows"]
        assert row["mean"] == pytest.approx(50, abs=1)
