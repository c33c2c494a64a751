"""No command writes onto what it reads, or twice onto one place; each case destroyed a file before.

A page replaced the model that had been paid for, an export the ledger that it was made from, with status 0.
"""

import os

import numpy as np
import pytest
from tests.cli.helpers import FIT, table, typed, write_csv

import sordino
from sordino.ledger import Ledger

BOOKED = ("--ledger", "k.db", "--dataset", "d")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "d.csv", *table(200))
    typed("ledger", "create", "k.db", "d", "--epsilon", 9, "--delta", 1e-4)
    typed("fit", "d.csv", *FIT, "--classes", "no,yes", "--output", "m.sordino")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "d.csv", *FIT, "--output", "new", "--report", "new"),
        ("fit", "d.csv", *FIT, "--output", "new", "--report", "../{}/new"),
        ("tune", "d.csv", *FIT, "--grid", "max_iter=[5]", "--output", "new", "--report", "new"),
        ("pca", "d.csv", "--epsilon", 1, "--output", "new", "--report", "new"),
        ("fit", "d.csv", *FIT, "--output", "d.csv", "--force"),
        ("fit", "d.csv", *FIT, "--output", "k.db", "--force", *BOOKED),
        ("fit", "d.csv", *FIT, "--output", "k.db-wal", "--force", *BOOKED),
        ("fit", "d.csv", *FIT, "--output", "soft", "--force", *BOOKED),
        ("fit", "d.csv", *FIT, "--output", "hard", "--force", *BOOKED),
        ("fit", "d.csv", *FIT, "--output", "run.toml", "--force", "--config", "run.toml"),
        ("fit", "d.csv", "--schema", "s.toml", "--epsilon", 1, "--output", "s.toml", "--force"),
        ("predict", "m.sordino", "d.csv", "--output", "d.csv", "--force"),
        ("predict", "m.sordino", "d.csv", "--output", "m.sordino", "--force"),
        ("evaluate", "m.sordino", "d.csv", "--target", "y", "--public", "--output", "m.sordino", "--force"),
        ("intervals", "m.sordino", "d.csv", "--target", "y", "--epsilon", 1, "--report", "d.csv", "--force"),
        ("report", "m.sordino", "--output", "m.sordino", "--force"),
        ("report", "m.sordino", "--output", "k.db", "--force", "--ledger", "k.db"),
        ("report", "m.sordino", "--output", "s.json", "--force", "--scores", "s.json"),
        ("schema", "draft", "d.csv", "--output", "d.csv", "--force"),
        ("schema", "learn", "s.toml", "d.csv", "--epsilon", 1, "--output", "s.toml", "--force"),
        ("ledger", "export", "k.db", "--output", "k.db"),
        ("ledger", "report", "k.db", "--output", "k.db"),
        ("consortium", "plan", "--config", "run.toml", "--output", "run.toml"),
    ],
)
def test_an_output_that_is_an_input_or_another_output_is_refused(folder, words):
    (folder / "run.toml").write_text("epsilon = 2.0\n")
    (folder / "s.toml").write_text("")
    (folder / "s.json").write_text("{}")
    os.symlink("k.db", "soft")
    os.link("k.db", "hard")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    said = typed(*(str(word).format(folder.name) for word in words), code=3)
    assert "Expected another place for --" in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with Ledger.open("k.db", create=False) as book:
        assert not book.history("d")


def test_places_apart_are_no_trouble(folder):
    typed("fit", "d.csv", *FIT, "--classes", "no,yes", *BOOKED, "--output", "n", "--report", "n.html")
    typed("ledger", "export", "k.db", "--output", "k.json")
    assert sordino.load("n").n_features_in_ == 4
    with Ledger.open("k.db", create=False) as book:
        assert book.spent("d").reservations == 1


def test_a_model_without_names_takes_no_columns_with_names(folder):
    """It took them by their order, whatever they were called."""
    X, y = table(200)
    np.savetxt("bare.csv", np.column_stack([X, y == "yes"]), fmt="%.3f", delimiter=",")
    numbers = ("--model", "linear", "--target", "x4", "--epsilon", 2, "--set", "data_norm=3")
    typed("fit", "bare.csv", "--no-header", *numbers, "--output", "bare.sordino")
    write_csv(folder / "rows.csv", X)
    np.savetxt("rows", X, delimiter=",")
    assert "columns have names" in typed("predict", "bare.sordino", "rows.csv", code=3)
    judged = ("evaluate", "bare.sordino", "d.csv", "--public", "--target", "y")
    assert "columns have names" in typed(*judged[:2], "rows.csv", *judged[3:5], "d", code=3)
    said = typed("predict", "bare.sordino", "rows", "--format", "csv", "--no-header")
    assert len(said.splitlines()) == 201


def test_a_ledger_in_a_folder_that_is_not_there_ends_with_the_status_of_ledgers(folder):
    said = typed("fit", "d.csv", *FIT, "--output", "n", "--ledger", "nowhere/k.db", "--dataset", "d", code=5)
    assert "does not exist" in said


def test_a_search_needs_values_and_shows_how_sure_its_score_is(folder):
    """An empty list ended with status 70, and a score of 1.0397 was shown without its interval."""
    words = ("tune", "d.csv", *FIT, "--classes", "no,yes", "--output", "t.sordino")
    assert "holds no candidate" in typed(*words, "--grid", "alpha=[]", code=3)
    said = typed(*words, "--grid", "alpha=[0.1]")
    line = next(line for line in said.splitlines() if line.startswith("noisy score "))
    score, low, high = map(
        float,
        line.removeprefix("noisy score (accuracy): ")
        .replace(", 95 % interval", "")
        .replace("to", "")
        .split(),
    )
    assert 0 <= low <= score <= high <= 1


def test_statistics_of_a_file_without_a_header_go_by_the_numbers_of_its_columns(folder):
    np.savetxt("bare.csv", table(200)[0], delimiter=",")
    said = typed(
        "stats", "mean", "bare.csv", "--no-header", "--column", "x1", "--bounds=-3,3", "--epsilon", 1
    )
    assert "mean" in said
    said = typed(
        "stats", "mean", "bare.csv", "--no-header", "--column", "x9", "--bounds=-3,3", "--epsilon", 1, code=3
    )
    assert "x9" in said


def test_a_score_of_a_model_for_persons_asks_for_owners_as_a_file_has_them(folder):
    """The message said `pass groups=range(n)`, which nobody can type."""
    X, y = table(200)
    np.savez("p.npz", X=X, y=1 * (y == "yes"), groups=np.arange(200) // 2)
    np.savez("q.npz", X=X, y=1 * (y == "yes"))
    how = ("--model", "logistic", "--set", "data_norm=3", "--classes", "0,1", "--epsilon", 2)
    typed("fit", "p.npz", *how, "--output", "p.sordino")
    said = typed("evaluate", "p.sordino", "q.npz", "--epsilon", 1, code=3)
    assert "NPZ file with X, y and groups" in said
    assert "range(n)" not in said
    typed("evaluate", "p.sordino", "p.npz", "--epsilon", 1)
