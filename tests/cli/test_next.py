"""Whoever is refused or stopped is told what to type next, by every command and of every error."""

import math
import re
import shlex
from pathlib import Path

import click
import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.dummy import DummyClassifier
from tests.cli.helpers import FIT, typed, write_csv

import sordino
from sordino import errors
from sordino.cli import main, program
from sordino.cli.shared import RUNNING
from sordino.errors import BudgetExceededError
from sordino.estimators.metrics import outlook
from sordino.ledger import BudgetPolicy, Ledger
from sordino.tables import Target

ERRORS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.SordinoError)
]
VALUES = {"ledger": "b.db", "dataset": "d", "schema": "s.toml", "data": "d.csv"}


def leaves(command=main, path=("sordino",)):
    """Yield all commands with their paths."""
    for name, part in command.commands.items():
        if isinstance(part, click.Group):
            yield from leaves(part, (*path, name))
        else:
            yield part, (*path, name)


def context_of(command, path):
    context = None
    for name in path[:-1]:
        context = click.Context(main, info_name=name, parent=context)
    known = {p.name: VALUES[p.name] for p in command.params if p.name in VALUES}
    context = click.Context(command, info_name=path[-1], parent=context)
    context.params = known
    context.meta[RUNNING] = context
    return context


def is_typed(line):
    """Tell whether a line is a command of ours that exists."""
    words = shlex.split(line.removeprefix("Next: "))
    command = main
    assert words.pop(0) == "sordino", line
    while isinstance(command, click.Group) and words[0] != "--help":
        command = command.commands[words.pop(0)]
    return all("{" not in word for word in words)


@pytest.mark.parametrize("kind", [*ERRORS, KeyboardInterrupt, RuntimeError, click.UsageError])
def test_every_error_of_every_command_ends_with_the_command_to_type(kind):
    for command, path in leaves():
        context = context_of(command, path)
        error = kind("Wrong.")
        if kind is click.UsageError:
            error.ctx = context
        with pytest.raises(click.ClickException) as caught, program.in_words(context):
            raise error
        assert is_typed(caught.value.message.splitlines()[-1]), (kind, path)


def test_an_error_that_ends_with_a_command_has_no_second_one(folder):
    said = typed("fit", "people.csv", *FIT, "--ledger", "no.db", "--dataset", "d", "--output", "m", code=5)
    assert said.splitlines()[-1].endswith("no.db DATASET --epsilon 3 --delta 1e-5")
    said = typed("fit", "people.csv", "--schema", "no.toml", "--epsilon", 1, "--output", "m", code=3)
    assert said.splitlines()[-1].endswith("sordino schema draft DATA --output no.toml")
    said = typed("fit", "people.csv", "--output", "m", code=2)
    assert said.endswith("Next: sordino fit --help\n")


def stopped_after(action):
    """Return what a command says that is stopped after an action."""
    with (
        pytest.raises(click.ClickException) as caught,
        program.in_words(click.Context(main, info_name="sordino")),
    ):
        interrupt(action)
    return caught.value.message


def interrupt(action):
    action()
    raise KeyboardInterrupt


def test_who_stops_a_command_hears_what_was_reserved_by_it(tmp_path):
    assert "Stopped. Nothing was reserved on a ledger." in stopped_after(lambda: None)
    with Ledger.open(tmp_path / "b.db") as ledger:
        ledger.create("d", BudgetPolicy(4.0, 1e-4))
        place = {"delta": 1e-6, "data_norm": 1.0, "ledger": ledger, "dataset_id": "d"}
        model = sordino.PCA(1, epsilon=3, **place)
        said = stopped_after(lambda: model.fit(np.repeat(np.eye(3) / 2, [900, 50, 50], axis=0)))
        assert "Stopped. What was reserved stays booked: 1 of d (epsilon 2.99" in said

        def refused():
            with pytest.raises(BudgetExceededError):
                sordino.PCA(1, epsilon=9, **place).fit(np.eye(50, 3))

        assert "Stopped. Nothing was reserved on a ledger." in stopped_after(refused)


def test_the_epsilon_that_would_fit_fits_and_says_why_it_is_above_the_budget(tmp_path):
    X = np.repeat(np.eye(3) / 2, [900, 50, 50], axis=0)
    with Ledger.open(tmp_path / "b.db") as ledger:
        ledger.create("d", BudgetPolicy(4.0, 1e-4))
        place = {"delta": 1e-6, "data_norm": 1.0, "ledger": ledger, "dataset_id": "d"}
        with pytest.raises(BudgetExceededError, match=r"smaller delta than the budget's 0\.0001") as caught:
            sordino.PCA(1, epsilon=9, **place).fit(X)
        words = str(caught.value)
        found = float(words.partition("about epsilon ")[2].split()[0])
        own = float(words.partition("at which this is epsilon ")[2].split(")")[0])
        assert own <= 4.0 < found
        sordino.PCA(1, epsilon=found, **place).fit(X)
        assert ledger.spent("d").reservations == 1
        with pytest.raises(BudgetExceededError):
            sordino.PCA(1, epsilon=0.5, **place).fit(X)


SCHEMA = """format = 1
[columns.a]
kind = ""
[columns.b]
kind = "number"
[columns.y]
kind = "target"
"""


def test_a_fit_names_all_blanks_and_a_file_that_is_not_there(folder):
    Path("s.toml").write_text(SCHEMA)
    said = typed("fit", "no.csv", "--schema", "s.toml", "--epsilon", 1, "--output", "m", code=3)
    assert all(f"'{column}': " in said for column in "aby")
    assert "Nor is there a file no.csv." in said


def test_a_draft_and_a_check_keep_the_file_its_options_and_the_ledger(folder, booked):
    write_csv(folder / "p.csv", np.zeros((4, 4)), ["no"] * 4)
    said = typed("schema", "draft", "p.csv", "--delimiter", ",", "--output", "s.toml")
    assert said.endswith("Next: sordino schema check s.toml p.csv --delimiter ,\n")
    text = 'format = 1\n[columns.y]\nkind = "target"\nlevels = ["no", "yes"]\n'
    text += "".join(f'[columns.{c}]\nkind = "number"\nlow = 0\nhigh = 1\n' for c in "abcd")
    Path("s.toml").write_text(text)
    said = typed("schema", "check", "s.toml", "p.csv", *booked)
    assert (
        "Next: sordino split p.csv --schema s.toml --train people-train.csv --test people-test.csv\n" in said
    )
    fit = "sordino fit people-train.csv --schema s.toml --epsilon 1 --ledger budget.db --dataset people"
    assert f"Then: {fit}" in said
    write_csv(folder / "people-train.csv", np.zeros((4, 4)), ["no"] * 4)
    assert f"Next: {fit}" in typed("schema", "check", "s.toml", "people-train.csv", *booked)


def test_inspect_and_evaluate_say_of_an_edited_model_that_the_ledger_knows_another(folder, model, booked):
    said = typed("inspect", model, *booked[:2])
    assert "private, confirmed by ledger budget.db, reservation 1: releases, model and file" in said
    edited = sordino.load(model)
    edited.coef_ = -edited.coef_
    edited.save("e.sordino", about=sordino.saving.about(model)["about"])
    denied = "releases confirmed by ledger budget.db, reservation 1; "
    denied += "this model is NOT the one that the ledger knows"
    assert f"unverified copy, {denied}" in typed("inspect", "e.sordino", *booked[:2])
    score = ("people.csv", "--target", "y", *booked, "--epsilon", 1)
    assert f"Note: {denied}." in typed("evaluate", "e.sordino", *score)
    assert denied not in typed("evaluate", model, *score)
    typed("report", "e.sordino", *booked[:2], "--output", "e.html", code=1)
    assert denied in Path("e.html").read_text("utf-8")


def test_what_comes_next_names_a_budget_of_the_unit_that_the_schema_protects(folder):
    """`split` and `check` led to a fit that nobody booked, and to a budget of records for persons."""
    (folder / "v.csv").write_text(
        "who,x,y\n" + "".join(f"p{i},{i % 7},{i % 3}\n" for i in range(60)), "utf-8"
    )
    made = "sordino ledger create LEDGER NAME --epsilon 3 --delta 1e-5 --unit"
    drafted = typed("schema", "draft", "v.csv", "--person", "who", "--output", "v.toml")
    assert f"{made} person" in drafted
    for person, unit in (('[columns.who]\nkind = "person"\n', "person"), ("", "record")):
        number = '[columns.x]\nkind = "number"\nlow = 0\nhigh = 6\n'
        target = '[columns.y]\nkind = "target"\nlow = 0\nhigh = 2\n'
        ignored = "" if person else '[columns.who]\nkind = "ignored"\n'
        (folder / "v.toml").write_text(f"format = 1\n{person}{ignored}{number}{target}", "utf-8")
        split = ("split", "v.csv", "--schema", "v.toml", "--train", "a.csv", "--test", "b.csv", "--force")
        for words in (("schema", "check", "v.toml"), split):
            said = typed(*words)
            assert f"{made} {unit}; then add --ledger LEDGER --dataset NAME" in said
            assert "the R2 of a score known to +-0.2 if the standard deviation of y is" in said
    booked = ("--ledger", "b.db", "--dataset", "v")
    typed("ledger", "create", "b.db", "v", "--epsilon", 3, "--delta", 1e-5)
    assert "To have it booked" not in typed("schema", "check", "v.toml", *booked)
    said = typed("fit", "a.csv", "--schema", "v.toml", "--epsilon", 1, *booked, "--output", "m.sordino")
    assert said.startswith("With 42 records and epsilon 1, noise leaves")
    assert "So few tell little between such bounds." in said.splitlines()[0]


class Half(RegressorMixin, BaseEstimator):
    """Says half of what x is beyond 2: an R2 of .75 of targets that are x."""

    def predict(self, X):
        return 2.0 + (X[:, 0] - 2.0) / 2.0


@pytest.mark.parametrize(("n", "epsilon"), [(3000, 1.0), (20_000, 0.5)])
def test_what_is_said_of_a_score_beforehand_holds(n, epsilon):
    words = outlook(sordino.Schema([Target("y", "number", low=0, high=10)]), n, epsilon)
    least = float(re.search(r"deviation of y is ([\d.]+)", words)[1])
    assert least < 2.0
    y = np.where(np.arange(n) % 2, 2.0 + least, 2.0 - least)
    score = sordino.private_score(Half(), y[:, None], y, bounds=(0, 10), epsilon=epsilon)
    assert 0.04 < (score.interval[1] - score.interval[0]) / 2 < 0.25
    wider = np.where(np.arange(n) % 2, 2.0 + least / 3, 2.0 - least / 3)
    score = sordino.private_score(Half(), wider[:, None], wider, bounds=(0, 10), epsilon=epsilon)
    assert math.isnan(score) or score.interval[1] - score.interval[0] > 0.8
    words = outlook(sordino.Schema([Target("y", levels=["a", "b"])]), n, epsilon)
    said = float(re.search(r"known to \+-([\d.]+)\.$", words)[1])
    model = DummyClassifier().fit([[0.0], [0.0], [0.0]], [0, 1, 1])
    score = sordino.private_score(model, y[:, None], np.arange(n) % 2, metric="accuracy", epsilon=epsilon)
    assert (score.interval[1] - score.interval[0]) / 2 == pytest.approx(said, rel=0.1)
