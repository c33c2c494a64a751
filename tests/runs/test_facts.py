"""What is assumed to be public is said by whoever knows it, and no words decide what a page says of it."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import sordino
from sordino.errors import InvalidInputError
from sordino.report import report_html
from sordino.report.run_page import WORDS
from sordino.runs import PrivacyReport
from sordino.runs.report import Booked, Fact, Source
from sordino.tables import Number, Schema, Target

X = np.linspace(-1.0, 1.0, 600)[:, None]
HOSTILE = "of people seen in 2010, the default; records without it are left out (learned: at school)"


def schema(**target):
    return Schema(
        [Number("age", low=-1.0, high=1.0, source=HOSTILE), Target("ill", levels=["no", "yes"], **target)]
    )


def table():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"age": X[:, 0], "ill": np.where(X[:, 0] > 0, "yes", "no")})


def said_of(page, start):
    row = next(row for row in page.split("<tr>") if row.startswith(f"<td>{start}"))
    return row.partition('says so">')[2].partition("<")[0]


def test_a_sentence_that_somebody_typed_for_a_column_decides_nothing():
    """By its words the column was read off the data, and records were left out of a count that has all."""
    model = sordino.LogisticRegression(1.0, schema=schema()).fit(table())
    page = report_html(model, person="Ada")
    assert said_of(page, "column &#39;age&#39;") == "declared by Ada"
    assert "taken for public: number of records: 600. " in page
    assert "A record without a target is left out" not in page
    gaps = sordino.LogisticRegression(1.0, schema=schema(missing="leave out")).fit(table())
    assert "A record without a target is left out" in report_html(gaps)
    score = sordino.private_score(gaps, table(), epsilon=1.0)
    assert "A record without a target is left out" in report_html(score)


def test_a_model_with_more_columns_than_records_does_not_protect_its_columns():
    """The caution on delta took the largest number that a line began with, that of the columns."""
    wide = np.zeros((500, 3000))
    report = sordino.LogisticRegression(
        1.0, 1e-3, data_norm=1.0, classes=[0, 1], solver="gd", max_iter=2
    ).fit(wide, np.arange(500) % 2).privacy_  # fmt: skip
    assert report.warning is None
    assert "at least 1/n" in replace(report, delta=2e-3).warning


def test_a_target_bound_that_no_column_declares_is_the_default():
    plain = Schema([Number("age", low=-1.0, high=1.0)])
    with pytest.warns(sordino.errors.UndeclaredBoundWarning):
        model = sordino.LinearRegression(1.0, schema=plain).fit(table()[["age"]], X[:, 0])
    (fact,) = (fact for fact in model.privacy_.public if fact.startswith("target_bound"))
    assert fact == "target_bound = 1, the default (targets are clipped to it)"
    assert fact.origin is Source.DEFAULT


def test_facts_keep_what_they_know_through_files_and_copies():
    model = sordino.LogisticRegression(1.0, schema=schema(missing="leave out")).fit(table())
    report = model.privacy_
    known = [vars(fact) for fact in report.public]
    assert known[0] == {"origin": "counted", "units": 600, "leaves_out": False, "most": 0}
    for again in (
        PrivacyReport.from_json(report.to_json()),
        pickle.loads(pickle.dumps(report)),
        copy.deepcopy(report),
    ):
        assert [vars(fact) for fact in again.public] == known
        assert again.public == report.public


@pytest.mark.parametrize("facts", [[], [{"origin": "heaven"}], [{"what": "x"}], [{"units": "many"}], "x"])
def test_a_file_whose_facts_say_what_no_fact_knows_is_refused(facts):
    report = sordino.count(X[:, 0] > 0, epsilon=1.0).privacy
    data = {**report.to_dict(), "facts": facts}
    with pytest.raises(InvalidInputError):
        PrivacyReport.from_dict(data)


def test_a_file_of_an_older_version_is_read_without_guessing():
    data = replace(sordino.mean(X[:, 0], epsilon=1.0).privacy, delta=2e-3).to_dict()
    del data["facts"]
    data["public"] = ["number of records: 600", "class labels: those seen in y", "column 'a': x (learned: y)"]
    report = PrivacyReport.from_dict(data)
    assert [fact.origin for fact in report.public] == [Source.COUNTED, Source.SEEN, Source.OLD]
    assert "at least 1/n" in report.warning
    assert said_of(report_html(report), "column &#39;a&#39;") == "not stated: an older version wrote the file"


def test_a_page_has_words_for_every_source():
    assert {*WORDS["who"]} == {*Source, "unmarked"}


def test_bounds_that_were_learned_are_not_said_to_be_declared_by_somebody():
    pandas = pytest.importorskip("pandas")
    ages = pandas.DataFrame({"age": 40 + 20 * np.repeat(X[:, 0], 10)})
    learned = sordino.tables.learn_schema(Schema([Number("age")]), ages, epsilon=1.0, delta=1e-6).schema
    (column,) = learned.columns
    assert {fact.origin for fact in learned.facts} == {Source.LEARNED}
    mean = sordino.mean(ages["age"].to_numpy(), epsilon=1.0, bounds=column)
    assert mean.privacy.public[-1].origin is Source.LEARNED
    assert mean.privacy.public[-1].startswith("bounds = ")


@pytest.mark.parametrize(
    "booked",
    [
        Booked("mean"),
        Booked("mean, receipt of a parcel, private"),
        Booked("learn_schema", "0123456789abcdef", "private"),
        Booked("learn_schema", "0123456789abcdef", "seeded (not private)", seeded=True),
        Booked("a run", seeded=True),
        Booked("a run", most=12),
        Booked("a run", "0123456789abcdef", "private", seeded=True, most=12),
    ],
)
def test_a_reservation_is_read_as_it_was_written(booked):
    assert Booked.read(str(booked)) == booked


def test_a_line_that_says_nothing_of_itself_was_declared():
    assert Fact.of("the grid").origin is Source.DECLARED
    assert Fact.of("the grid").mark == {}
    assert Fact.number_of("record", 3).mark == {"origin": "counted", "units": 3}
