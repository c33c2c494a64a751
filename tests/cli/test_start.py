"""The first hour: begin with a table, look at what is installed, complete commands, convert old files."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.helpers import named, table, typed, typed_json

import sordino
from sordino.cli import main, start
from sordino.parties.mpc.plan import FORMAT
from sordino.saving import about

KEPT = Path(__file__).parents[1] / "fixtures" / "0.1.0"


@pytest.fixture
def people(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = table()
    named(X).assign(y=y).to_csv("people.csv", index=False)
    return tmp_path


def test_a_stranger_types_what_init_says_and_has_a_report(people):
    told = typed_json("init", "people.csv", "--target", "y", "--epsilon", 4)
    assert told["next"][1:] == [
        "sordino split people.csv --schema people.toml --train people-train.csv --test people-test.csv",
        "sordino fit --config people.run.toml",
        "sordino evaluate people.sordino people-test.csv --config people.run.toml --epsilon 0.5 --output "
        "people-score.json",
        "sordino report people.sordino --ledger budget.db --dataset people --output people.html --scores "
        "people-score.json",
    ]
    blank = typed("schema", "check", "people.toml", code=3)
    assert "kind" in blank
    number = '[columns.{}]\nkind = "number"\nlow = -4\nhigh = 4\n'
    target = '[columns.y]\nkind = "target"\nof = "category"\nlevels = ["no", "yes"]\n'
    Path("people.toml").write_text("format = 1\n" + "".join(map(number.format, "abcd")) + target)
    for line in told["next"][1:]:
        typed(*line.split()[1:])
    assert Path("people.html").stat().st_size > 10_000
    with sordino.Ledger.open("budget.db") as book:
        assert [entry.status.value for entry in book.history("people")] == [
            "settled"
        ] * 5  # the model, its file and that of the score have lines of their own
        assert book.policy("people").epsilon == 4


def test_init_asks_for_what_is_missing_and_protects_persons(people):
    asked = typed("init", "--dataset", "others", stdin="people.csv\ny\na\n2\n")
    assert "The column that says whose a record is" in asked
    assert "others: epsilon 2, delta 1e-05 per person" in asked
    assert "per record" in typed("init", "--dataset", "third", stdin="people.csv\ny\n\n2\n")
    answered = typed("init", "--person", "a", stdin="people.csv\ny\n5\n")
    assert "epsilon 5" in answered
    assert "per person" in answered
    with sordino.Ledger.open("budget.db") as book:
        assert (book.policy("people").epsilon, book.policy("people").unit) == (5, "person")


def test_init_replaces_nothing_and_gives_no_second_budget(people):
    typed("init", "people.csv", "--target", "y", "--epsilon", 4)
    before = Path("people.toml").read_bytes()
    typed("init", "people.csv", "--target", "y", "--epsilon", 9, code=3)
    typed("init", "people.csv", "--target", "y", "--epsilon", 9, "--force", code=5)
    assert Path("people.toml").read_bytes() == before
    with sordino.Ledger.open("budget.db") as book:
        assert book.policy("people").epsilon == 4


def test_doctor_finds_everything_well_and_says_what_is_wrong(people, monkeypatch):
    typed("ledger", "create", "budget.db", "people", "--epsilon", 1, "--delta", 1e-5)
    found = {row["part"]: row for row in typed_json("doctor", "--ledger", "budget.db")}
    assert all(row["well"] for row in found.values())
    assert {"Sordino", "numpy", "noise", "compiled code", "extra tables", "GPU", "ledger"} <= set(found)
    monkeypatch.setattr(start.metadata, "requires", lambda name: ["numpy>=99", "nowhere>=1", "click<8,>=7"])
    result = CliRunner().invoke(main, ["doctor", "--ledger", "gone.db"], env={"COLUMNS": "300"})
    assert result.exit_code == 1
    assert result.output.count("WRONG") == 4
    for words in ("pip install 'numpy>=99'", "pip install 'nowhere>=1'", "sordino ledger create"):
        assert words in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell, tmp_path):
    text = typed("completion", shell)
    assert "_SORDINO_COMPLETE" in text
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True, timeout=60)


def test_old_models_are_converted_once_with_a_copy(tmp_path):
    file = shutil.copy(KEPT / "logistic.sordino", tmp_path)
    before = Path(file).read_bytes()
    assert about(file)["format"] == 1
    assert "from format 1" in typed("migrate", file)
    assert about(file)["format"] == 2
    assert about(file)["about"] == {"fixture": "logistic"}
    assert Path(f"{file}.v1.bak").read_bytes() == before
    assert "up to date" in typed("migrate", file)
    Path(file).write_bytes(before)
    assert "Move it away" in typed("migrate", file, code=3)


def test_other_files_are_recognised_and_strange_ones_refused(tmp_path):
    kinds = {"ledger.db": "ledger", "report.json": "report", "schema.toml": "schema"}
    kinds["ledger.json"] = "export of a ledger"
    files = [Path(shutil.copy(KEPT / name, tmp_path)) for name in kinds]
    rows = typed_json("migrate", *files)
    assert [row["kind"] for row in rows] == list(kinds.values())
    assert {row["done"] for row in rows} == {"up to date"}
    assert "sordino consortium plan" in typed("migrate", KEPT / "plan.json", code=3)
    new = tmp_path / "new.json"
    new.write_text(f'{{"consortium":"north and south","format":{FORMAT}}}')  # left to the reader of plans
    assert "sordino consortium plan" not in typed("migrate", new, code=3)
    typed("migrate", KEPT / "training", code=3)
    typed("migrate", KEPT / "expected.json", code=3)
    typed("migrate", tmp_path / "nowhere", code=3)


def test_init_where_nobody_can_be_asked_names_the_whole_command(folder):
    assert "Type: sordino init DATA --target COLUMN --epsilon 3" in typed("init", code=2, stdin="")
    assert "init people.csv --target COLUMN" in typed("init", "people.csv", code=2, stdin="")
    given = typed("init", "people.csv", "--target", "y", "--person", "a", code=2, stdin="")
    assert "Type: sordino init people.csv --target y --epsilon 3 --person a" in given.replace(
        "--delta 1e-05 ", ""
    )
    assert "protects nobody" in typed("init", "people.csv", "--target", "y", "--epsilon", "inf", code=3)
    assert not (folder / "people.toml").exists()


def test_a_file_that_migrate_refuses_does_not_stop_the_others(folder):
    (folder / "s.toml").write_text('format = 1\n[columns.a]\nkind = "ignored"\n')
    said = typed("migrate", "nowhere", "people.csv", "s.toml", code=3)
    assert "s.toml: schema, up to date" in said
    assert said.count("refused") == 2


def test_init_keeps_how_the_file_is_read_for_the_commands_that_follow(people):
    typed("init", "people.csv", "--target", "y", "--epsilon", 4, "--decimal", ",", "--format", "csv")
    kept = tomllib.loads(Path("people.run.toml").read_text())
    assert (kept["decimal"], kept["format"], "encoding" in kept) == (",", "csv", False)
    words = typed("fit", "--config", "people.run.toml", code=3)  # what is kept are options that fit has
    assert "schema" in words


def test_init_writes_no_password_down(people, monkeypatch):
    asked = []

    def opened(address, create=False):
        asked.append(address)
        return sordino.Ledger.open("budget.db", create=create)

    monkeypatch.setattr(start.shared, "open_ledger", opened)
    url = "postgresql://ada:secret@localhost/budgets"
    said = typed("init", "people.csv", "--target", "y", "--epsilon", 4, "--ledger", url)
    told = typed_json(
        "init", "people.csv", "--dataset", "others", "--target", "y", "--epsilon", 4, "--ledger", url
    )
    assert asked == [url, url]
    assert "on postgresql://ada@localhost/budgets" in said
    for text in (said, str(told), Path("people.run.toml").read_text()):
        assert "secret" not in text
