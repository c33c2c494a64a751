"""The page about budgets says what was spent, when, by whom, and what is left."""

import re

import numpy as np
import pytest
from click.testing import CliRunner

import sordino
from sordino.cli import main
from sordino.kernel.events import Relation, gaussian_event
from sordino.ledger import address as owner
from sordino.report import ledger_html
from sordino.report.page import History
from sordino.values import at_least


def book(ledger, dataset_id, times=1, description="a mean"):
    event = gaussian_event(20.0, Relation.ADD_REMOVE)
    for _ in range(times):
        reserved = ledger.reserve(
            dataset_id,
            event,
            relation="add-remove",
            unit="record",
            certificate=(0.25, 1e-6),
            description=description,
        )
        reserved.settle()


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    opened = sordino.Ledger.open(tmp_path / "ledger.db")
    opened.create("ward <7>", sordino.BudgetPolicy(epsilon=2.0, delta=1e-5))
    opened.create("empty", sordino.BudgetPolicy(epsilon=1.0, delta=1e-6))
    monkeypatch.setenv("SORDINO_PERSON", "Ada")
    book(opened, "ward <7>", 2)
    monkeypatch.setenv("SORDINO_PERSON", "Emmy|Noether")
    book(opened, "ward <7>", description="<script>alert(1)</script>")
    return opened


def test_a_reservation_remembers_who_made_it(ledger):
    assert ledger.people("ward <7>") == {1: "Ada", 2: "Ada", 3: "EmmyNoether"}
    assert ledger.people("empty") == {}


def test_an_owner_without_a_person_is_still_known_by_its_process(monkeypatch):
    with_person = owner.this_process()
    without = with_person.rpartition("|")[0]
    assert not owner.is_gone(with_person)
    assert not owner.is_gone(without)
    assert owner.person_of(without) == ""
    gone = "|".join([*without.split("|")[:2], "999999999", "1", "Ada"])
    assert owner.is_gone(gone)


def test_the_steps_of_a_history_end_where_the_ledger_stands(ledger):
    history = History.read(ledger, "ward <7>")
    fractions = [step.fraction for step in history.steps]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0
    assert fractions[-1] == pytest.approx(ledger.spent("ward <7>").fraction)


def test_the_page_shows_people_parts_and_what_is_left(ledger):
    page = ledger_html(ledger)
    total = ledger.spent("ward <7>").fraction
    assert f"{200 * total / 3:.1f} % of ward &lt;7&gt;" in page
    assert "EmmyNoether" in page
    assert f"epsilon {at_least(ledger.remaining('ward <7>').epsilon)}" in page
    assert "Nothing was spent yet" in page
    assert "<script" not in page
    assert "empty" not in ledger_html(ledger, dataset_id="ward <7>")


def test_a_ledger_without_data_sets_has_a_page(tmp_path):
    assert "no data set yet" in ledger_html(sordino.Ledger.open(tmp_path / "new.db"))


def test_a_long_history_stays_a_small_page(ledger):
    ledger.create("busy", sordino.BudgetPolicy(epsilon=1000.0, delta=1e-3))
    book(ledger, "busy", 120)
    page = ledger_html(ledger)
    assert "80 older reservations are not shown" in page
    assert len(page) < 400_000


def test_the_command_writes_the_page_and_names_what_is_wrong(ledger, tmp_path):
    place = str(tmp_path / "ledger.db")
    out = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["ledger", "report", place, "--output", str(out)])
    assert done.exit_code == 0, done.output
    assert "Who spent it" in out.read_text("utf-8")
    failed = CliRunner().invoke(
        main, ["ledger", "report", place, "--output", str(tmp_path / "no.html"), "--dataset", "x"]
    )
    assert failed.exit_code != 0
    assert not (tmp_path / "no.html").exists()


def test_a_notebook_shows_a_ledger_as_a_table(ledger):
    shown = ledger._repr_html_()
    assert "ward &lt;7&gt;" in shown
    assert len(re.findall("<tr>", shown)) == 3


def test_the_page_says_where_epsilons_add_up_and_where_they_do_not(tmp_path):
    opened = sordino.Ledger.open(tmp_path / "both.db")
    opened.create("tight", sordino.BudgetPolicy(epsilon=1.0, delta=1e-6))
    opened.create("wide", sordino.BudgetPolicy(epsilon=9.0, delta=1e-5))
    x = np.arange(100.0)
    sordino.mean(x, epsilon=1.0, delta=1e-6, ledger=opened, dataset_id="tight")  # admitted on its certificate
    sordino.mean(x, epsilon=1.0, delta=1e-6, ledger=opened, dataset_id="wide")
    page = ledger_html(opened)
    assert "Of tight the epsilons of reservations add up plainly" in page
    assert "Elsewhere epsilons of single reservations do not add up" in page
    assert "add up plainly" not in ledger_html(opened, dataset_id="wide")
