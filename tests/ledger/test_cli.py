"""`sordino ledger`, as a person types it."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.ledger.helpers import gaussian, reserve

from sordino.cli import main
from sordino.cli.ledger import ledger as group
from sordino.ledger import Ledger
from sordino.values import at_least, at_most

WIDE = {"COLUMNS": "200"}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run():
    def call(*arguments, code=0):
        result = CliRunner().invoke(main, ["ledger", *map(str, arguments)], env=WIDE)
        assert result.exit_code == code, result.output
        return result.output

    return call


@pytest.fixture
def filled(run, sqlite_path):
    """Return a ledger with one settled and one failed reservation."""
    run("create", sqlite_path, "survey", "--epsilon", 1, "--delta", 1e-5, "--unit", "person")
    with Ledger.open(sqlite_path) as ledger:
        reserve(ledger, unit="person", description="first [bold]fit[/bold]").settle()
        reserve(ledger, unit="person").fail("no memory")
    return sqlite_path


def test_a_budget_is_created_once(run, sqlite_path):
    arguments = "create", sqlite_path, "survey", "--epsilon", 2, "--delta", 1e-6
    assert "epsilon 2, delta 1e-06 per record, add-remove" in run(*arguments)
    assert "set once" in run(*arguments, code=5)
    assert Ledger.open(sqlite_path).policy("survey").epsilon == 2.0


def test_a_bad_budget_makes_no_file(run, sqlite_path):
    assert "epsilon > 0" in run("create", sqlite_path, "x", "--epsilon", 0, "--delta", 0, code=3)
    assert "relation" in run(
        "create", sqlite_path, "x", "--epsilon", 1, "--delta", 0, "--relation", "swap", code=2
    )
    assert not Path(sqlite_path).exists()


def test_show_says_what_is_spent_and_left_and_the_tight_figure(run, filled):
    output = run("show", filled, "survey")
    with Ledger.open(filled) as ledger:
        spent, left = ledger.spent("survey"), ledger.remaining("survey")
        tight = ledger.nonadaptive("survey").epsilon
    for expected in (
        "one person, add-remove",
        f"{spent.fraction:.1%} in 2 reservation(s)",
        f"epsilon {at_least(left.epsilon)}",
        f"epsilon {at_most(tight)} (gaussian (exact)",
    ):
        assert expected in re.sub(r"\s+", " ", output)
    assert "gaussian (exact)" not in run("show", filled, "survey", "--no-tight")


def test_history_lists_every_reservation_with_its_status(run, filled):
    first, second = run("history", filled, "survey").strip().splitlines()[-2:]
    assert first.split()[0] == "1"
    assert "settled" in first
    assert "first [bold]fit[/bold]" in first
    assert "failed (no memory)" in second


def test_list_names_every_data_set(run, filled):
    run("create", filled, "other", "--epsilon", 3, "--delta", 0, "--relation", "replace-one")
    output = run("list", filled)
    assert "survey" in output
    assert "replace-one" in output


def test_an_export_can_be_imported_elsewhere(run, filled, tmp_path):
    document, twin = tmp_path / "export.json", tmp_path / "twin.sqlite"
    run("export", filled, "--output", document)
    assert json.loads(run("export", filled)) == json.loads(document.read_text("utf-8"))
    assert "Imported: survey" in run("import", twin, document)
    assert run("export", twin, "--dataset", "survey") == run("export", filled)
    assert "already" in run("import", twin, document, code=5)


def test_an_edited_export_leaves_no_ledger_behind(run, filled, tmp_path):
    found = json.loads(run("export", filled))
    (tmp_path / "edited.json").write_text(json.dumps(found).replace('"sequence": 2', '"sequence": 7'))
    (tmp_path / "none.json").write_text("{}")
    for document in ("edited.json", "none.json"):
        result = CliRunner().invoke(
            main, ["ledger", "import", str(tmp_path / "new.db"), str(tmp_path / document)]
        )
        assert result.exit_code != 0
        assert not list(tmp_path.glob("new.db*"))


def test_verify_replays_and_labels_crashed_reservations(run, filled):
    assert "Sound: 2 reservation(s) of 1 data set(s)" in run("verify", filled)
    with Ledger.open(filled) as ledger:
        reserve(ledger, gaussian(), unit="person")
    assert "0 reservation(s) marked" in run("verify", filled, "--mark-crashed")


@pytest.mark.parametrize("command", ["list", "show", "history", "export", "verify"])
def test_looking_at_a_ledger_that_is_not_there_is_an_error_in_words(run, sqlite_path, command):
    arguments = ["survey"] if command in ("show", "history") else []
    assert "There is no ledger at" in run(command, sqlite_path, *arguments, code=5)
    assert not Path(sqlite_path).exists()


def test_every_command_and_option_is_documented():
    page = (ROOT / "docs" / "ledger.md").read_text("utf-8")
    for name, command in group.commands.items():
        assert f"sordino ledger {name} " in page
        for parameter in command.params:
            for option in [o for o in parameter.opts if o.startswith("--")]:
                assert option in page, f"{name} {option} is not documented"


def test_a_budget_without_end_is_said_to_protect_nobody(run, sqlite_path):
    assert "protects nobody" in run("create", sqlite_path, "x", "--epsilon", "inf", "--delta", 1e-6)


def test_a_page_or_an_export_that_has_no_place_ends_with_3(run, filled):
    for words in (("export", filled), ("report", filled)):
        assert "no folder" in run(*words, "--output", "/nowhere/page", code=3)


def test_what_is_left_is_rounded_down_and_what_is_spent_up():
    assert (at_least(0.99975), at_most(0.99975)) == ("0.9997", "0.9998")
    assert (at_least(1.23e-7, 2), at_most(1.23e-7, 2), at_least(float("inf"))) == (
        "1.2e-07",
        "1.3e-07",
        "inf",
    )
