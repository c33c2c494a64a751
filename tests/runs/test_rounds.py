"""The rounds of a federation on disk: paid before the first, spent before they are computed, never twice."""

import fcntl
import json
import os
from dataclasses import dataclass

import pytest
from tests.runs.helpers import ask_of, memory, plan_of

import sordino
from sordino.errors import PlanError, PlanSpentError
from sordino.runs import RoundBook
from sordino.runs import journal as module


@dataclass(frozen=True)
class Recipe:
    digest: str = "agreed"
    rounds: int = 4


@pytest.fixture
def ledger(tmp_path):
    book = sordino.Ledger.open(tmp_path / "budget.db")
    book.create("ward", sordino.BudgetPolicy(epsilon=6.0, delta=1e-3))
    return book


def book_of(folder, ledger=None, rounds=4):
    ask = ask_of(ledger=ledger, dataset_id=None if ledger is None else "ward")
    return RoundBook(folder, ask, Recipe(rounds=rounds), plan_of(times=8))


def statuses(ledger):
    return [entry.status.value for entry in ledger.history("ward")]


def played(book, run="one"):
    """Play a round; return its number and how many answers it got."""
    with book.turn(run) as turn:
        curator = turn.curate(memory(), 2)
        answers = 0
        try:
            for _ in range(3):
                curator.release("total")
                answers += 1
        except PlanError:
            pass
        return turn.attempt, answers


def test_rounds_are_handed_out_in_order_and_each_starts_behind_the_ones_before(tmp_path):
    book = book_of(tmp_path)
    # A round may ask what is left of the plan: eight answers in all, two of them spent by each round before.
    found = [played(book) for _ in range(4)]
    assert [attempt for attempt, _ in found] == [0, 1, 2, 3]
    assert found[-1][1] == 2
    assert book.rounds_begun == 4


def test_after_the_last_round_the_ledger_is_settled_and_nothing_is_handed_out(tmp_path, ledger):
    book = book_of(tmp_path / "book", ledger)
    for number in range(4):
        played(book)
        assert statuses(ledger) == (["settled"] if number == 3 else ["reserved"])
    with pytest.raises(PlanSpentError, match="paid for 4 rounds"), book.turn("one"):
        pass
    assert book.rounds_begun == 4


def test_a_round_that_crashed_is_spent(tmp_path, ledger):
    book = book_of(tmp_path / "book", ledger)
    with pytest.raises(KeyboardInterrupt), book.turn("one"):
        raise KeyboardInterrupt
    assert statuses(ledger) == ["reserved"]
    assert played(book)[0] == 1


def test_closing_settles_the_ledger_and_ends_the_run(tmp_path, ledger):
    book = book_of(tmp_path / "book", ledger)
    played(book)
    book.close("another")  # not its run
    assert statuses(ledger) == ["reserved"]
    book.close("one")
    assert statuses(ledger) == ["settled"]
    with pytest.raises(PlanSpentError, match="closed"), book.turn("one"):
        pass
    book.close("one")  # a second time changes nothing
    assert (tmp_path / "book" / "rounds").read_text() == "1\nclosed\n"


def test_closing_a_run_whose_rounds_are_spent_adds_nothing(tmp_path, ledger):
    book = book_of(tmp_path / "book", ledger)
    for _ in range(4):
        played(book)
    book.close("one")
    assert "closed" not in (tmp_path / "book" / "rounds").read_text()
    assert statuses(ledger) == ["settled"]


def test_closing_where_nothing_began_makes_no_folder(tmp_path):
    book_of(tmp_path / "none").close("one")
    assert not (tmp_path / "none").exists()


def test_another_run_needs_a_ledger(tmp_path, ledger):
    book = book_of(tmp_path / "alone")
    played(book)
    with pytest.raises(PlanError, match="another run"), book.turn("two"):
        pass
    both = book_of(tmp_path / "booked", ledger)
    played(both, "one")
    assert played(both, "two")[0] == 0
    assert statuses(ledger) == ["reserved", "reserved"]


def test_a_crash_while_another_run_begins_never_hands_out_the_rounds_of_the_first_again(
    tmp_path, ledger, monkeypatch
):
    book = book_of(tmp_path / "book", ledger)
    played(book, "one")
    played(book, "one")

    def crash(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.Journal, "clear", crash)
        with pytest.raises(KeyboardInterrupt), book.turn("two"):
            pass
    assert played(book, "two")[0] == 2  # its first rounds are lost, and nothing of the first run is had again
    assert len(statuses(ledger)) == 2
    assert played(book, "one")[0] == 0  # a run of its own,
    assert len(statuses(ledger)) == 3  # which is paid for


def test_a_line_that_was_cut_off_by_a_crash_is_no_round_and_is_cut_away(tmp_path):
    book = book_of(tmp_path)
    played(book)
    with open(tmp_path / "rounds", "ab") as file:
        file.write(b"2")  # a crash before the line was whole: nothing of that round was released
    assert book.rounds_begun == 1
    played(book)
    assert (tmp_path / "rounds").read_text() == "1\n2\n"


def test_the_line_of_a_round_is_on_disk_before_the_round_is_handed_out(tmp_path, monkeypatch):
    written, sync = [], os.fsync

    def noted(handle):
        written.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    monkeypatch.setattr(module.os, "fsync", noted)
    with book_of(tmp_path).turn("one"):
        assert (tmp_path / "rounds").read_text() == "1\n"
        assert written[-1].endswith("/rounds")
    names = [os.path.basename(name) for name in written]
    assert {"run.json.new", "rounds", tmp_path.name} <= set(names)


def test_files_and_folder_are_the_owners_alone(tmp_path):
    book = book_of(tmp_path / "deep" / "book")
    played(book)
    assert (tmp_path / "deep" / "book").stat().st_mode & 0o777 == 0o700
    for name in ("rounds", "run.json"):
        assert (tmp_path / "deep" / "book" / name).stat().st_mode & 0o777 == 0o600


def test_two_processes_cannot_play_at_once(tmp_path):
    book = book_of(tmp_path)
    played(book)
    with open(tmp_path / "rounds", "a+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(PlanError, match="Another process"), book.turn("one"):
            pass
    assert book.rounds_begun == 1


def test_a_folder_of_another_format_or_without_its_journal_is_refused(tmp_path):
    book = book_of(tmp_path)
    played(book)
    text = json.loads((tmp_path / "run.json").read_text())
    assert text["format"] == 3
    (tmp_path / "run.json").write_text(json.dumps({**text, "format": 2}))
    with pytest.raises(PlanError, match="format 3"), book.turn("one"):
        pass
    (tmp_path / "run.json").write_text(json.dumps(text))
    (tmp_path / "rounds").unlink()
    with pytest.raises(PlanError, match="no journal"), book.turn("one"):
        pass


def test_no_handle_stays_open(tmp_path):
    book = book_of(tmp_path, rounds=4)
    played(book)
    before = len(os.listdir("/proc/self/fd"))
    played(book)
    played(book)
    assert len(os.listdir("/proc/self/fd")) <= before
