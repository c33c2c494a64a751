"""Prices of trainings and of models, and the list of public data sets."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.cli.helpers import table, typed, typed_json

import sordino
from sordino.cli import program as exits
from sordino.cli import shared as show
from sordino.cli.program import main

TRAINING = ("--rows", 5000, "--batch-size", 100, "--epochs", 4, "--delta", 1e-5)


def test_noise_and_epsilon_answer_each_other():
    noise = typed_json("account", "noise", "--epsilon", 2, *TRAINING)
    assert noise["steps"] == 200
    epsilon = typed_json("account", "epsilon", "--noise", noise["noise_multiplier"], *TRAINING)
    assert epsilon["epsilon"] == pytest.approx(noise["epsilon"])
    assert "200 steps of 100 of 5000 records" in typed("account", "epsilon", "--noise", 1, *TRAINING)


def test_epochs_or_steps_but_not_both():
    words = ("account", "epsilon", "--noise", 1, "--rows", 100)
    assert "--epochs or --steps" in typed(*words, code=2)
    assert "--epochs or --steps" in typed(*words, "--epochs", 1, "--steps", 1, code=2)
    assert typed_json(*words, "--steps", 3)["batch_size"] == 100
    assert "batch size" in typed(*words, "--steps", 3, "--batch-size", 1000, code=3)


def test_models_together_cost_what_their_events_compose_to(tmp_path):
    X, y = table()
    files = []
    for number in range(3):
        model = sordino.LogisticRegression(1.0, 1e-5, data_norm=3.0).fit(X, y)
        files.append(model.save(tmp_path / f"{number}.sordino"))
    found = typed_json("account", "models", *files)
    assert len(found["models"]) == 3
    assert 1.0 < found["together"]["epsilon"] < 3.0
    assert "together" in typed("account", "models", *files)
    clipper = sordino.save(sordino.RowClipper().fit(X), tmp_path / "c.sordino")
    assert "no report" in typed("account", "models", clipper, code=3)


def test_a_guarantee_is_printed_rounded_up():
    found = SimpleNamespace(epsilon=1.00001, delta=1.0001e-6)
    assert show.bound(found) == "epsilon 1.001, delta 1.001e-06"


def test_data_sets_are_listed_and_described():
    assert "adult" in typed("datasets")
    assert "CC BY 4.0" in typed("datasets", "adult")
    assert typed_json("datasets", "adult")[0]["shapes"]["train"] == [32561, 14]
    assert "Known are" in typed("datasets", "nothing", code=3)


def test_every_status_has_words_and_every_error_a_status():
    from sordino import errors

    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert codes == set(exits.WORDS)
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.SordinoError)]
    assert {exits.status_of(kind("x")) for kind in kinds} <= codes
    assert exits.status_of(errors.BudgetExceededError("x")) == exits.BUDGET
    assert exits.status_of(errors.LedgerLockedError("x")) == exits.LEDGER


def test_the_shell_can_complete_commands_and_options():
    from click.shell_completion import BashComplete

    complete = BashComplete(main, {}, "sordino", "_SORDINO_COMPLETE")
    assert {"fit", "inspect"} <= {item.value for item in complete.get_completions([], "")}
    assert {item.value for item in complete.get_completions(["fit"], "--mo")} == {"--model"}
    assert "logistic" in {item.value for item in complete.get_completions(["fit", "--model"], "")}


def test_the_page_on_the_command_line_has_the_statuses_word_for_word():
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text("utf-8")
    for code, words in exits.WORDS.items():
        assert f"| {code} | {words} |" in page


def test_ledgers_answer_in_json(tmp_path):
    book = tmp_path / "budget.db"
    typed("ledger", "create", book, "people", "--epsilon", 2, "--delta", 1e-5)
    X, y = table()
    sordino.LogisticRegression(1.0, data_norm=3.0, ledger=book, dataset_id="people").fit(X, y)
    (found,) = typed_json("ledger", "list", book)
    assert found == typed_json("ledger", "show", book, "people")
    assert found["reservations"] == 1
    assert found["budget"] == {"epsilon": 2.0, "delta": 1e-5}
    entry, _ = typed_json("ledger", "history", book, "people")  # the digest of the model has a line
    assert entry["status"] == "settled"
