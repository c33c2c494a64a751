"""Long work shows how far it is: never a loss, never a trial of a private search."""

import io

import numpy as np
import pytest

import sordino
from sordino.errors import InvalidInputError
from sordino.kernel import public_generator
from sordino.runs import task as progress
from sordino.runs.task import patience, stopping

X = public_generator(2).normal(size=(200, 3))
Y = X[:, 0] > 0


def model(**more):
    return sordino.LogisticRegression(2.0, solver="gd", max_iter=4, data_norm=2.0, **more)


def test_a_callback_is_told_every_step():
    seen = []
    with sordino.progress(callback=lambda *facts: seen.append(facts)):
        model().fit(X, Y)
    model().fit(X, Y)
    assert seen == [("LogisticRegression (gd)", done, 4) for done in (1, 2, 3, 4)]


def test_a_callback_that_fails_ends_the_fit_and_the_ledger_says_so(tmp_path):
    def stop(description, done, total):
        raise KeyboardInterrupt

    book = str(tmp_path / "budget.db")
    with sordino.Ledger.open(book) as ledger:
        ledger.create("people", sordino.BudgetPolicy(5.0, 1e-3))
    with pytest.raises(KeyboardInterrupt), sordino.progress(callback=stop):
        model(ledger=book, dataset_id="people").fit(X, Y)
    with sordino.Ledger.open(book) as ledger:
        entry = ledger.history("people")[0]
    assert (entry.status.value, entry.reason) == ("failed", "KeyboardInterrupt")


def test_the_trials_of_a_search_are_silent():
    seen = []
    search = sordino.PrivateSearchCV(
        sordino.LogisticRegression(data_norm=2.0, solver="gd", penalty="ridge", max_iter=4, verbose=1),
        {"alpha": [0.1, 0.2]},
        3.0,
    )
    with sordino.progress(callback=lambda *facts: seen.append(facts)):
        search.fit(X, Y)
    assert seen == []


def test_what_is_no_function_is_refused():
    with pytest.raises(InvalidInputError, match="function"), sordino.progress(callback="print"):
        pass


def test_a_pipe_gets_one_line_a_minute(monkeypatch):
    clock, pipe = iter(np.arange(0, 1000, 25.0)), io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(progress.sys, "stderr", pipe)
    assert list(progress.track(iter("abcdefgh"), 8, "training", True)) == list("abcdefgh")
    assert pipe.getvalue().splitlines() == [
        "training: 3 of 8 steps in 75 s",
        "training: 6 of 8 steps in 150 s",
    ]


def test_a_terminal_gets_a_bar_and_silence_is_silent(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    list(progress.track(iter("ab"), 2, "training", True))
    shown = capsys.readouterr()
    assert "training" in shown.err
    assert "100%" in shown.err
    assert shown.out == ""
    list(progress.track(iter("ab"), 2, "training", 0))
    assert capsys.readouterr().err == ""


def test_a_wish_to_stop_is_heard_between_two_steps():
    steps = stopping(iter(range(5)))
    assert [next(steps), next(steps)] == [0, 1]
    patience.ask()  # during the work on a step
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    assert (patience.runs, patience.asked) == (0, False)


def test_a_wish_during_the_last_step_is_heard_by_this_run_and_not_by_the_next():
    steps = stopping(iter([1]))
    next(steps)
    patience.ask()
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    left = stopping(iter([1, 2]))
    next(left)
    patience.ask()
    left.close()
    assert list(stopping(iter([1, 2]))) == [1, 2]


def test_a_wish_without_a_run_or_a_second_one_is_heard_at_once():
    with pytest.raises(KeyboardInterrupt):
        patience.ask()
    steps = stopping(iter(range(3)))
    next(steps)
    patience.ask()
    with pytest.raises(KeyboardInterrupt):
        patience.ask()
    with pytest.raises(KeyboardInterrupt):
        next(steps)
