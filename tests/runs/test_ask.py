"""What a user asks for is checked where it enters, and a ledger's address never shows."""

import linecache
import math
import warnings

import numpy as np
import pytest

import sordino
from sordino.errors import InvalidInputError, PrivacyWarning
from sordino.runs import Ask


def test_delta_is_a_tenth_of_one_over_n_and_never_above_1e_5():
    assert Ask.checked(1.0, None, 2000).delta == 1e-5
    assert Ask.checked(1.0, None, 10**6).delta == pytest.approx(1e-7)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), "one", True, None, 1j])
def test_an_epsilon_that_is_none_is_refused(epsilon):
    with pytest.raises(InvalidInputError, match="epsilon"):
        Ask.checked(epsilon, 1e-6, 100)


@pytest.mark.parametrize("delta", [0.0, 1.0, 1.5, -0.1, float("nan"), "small"])
def test_a_delta_outside_zero_and_one_is_refused(delta):
    with pytest.raises(InvalidInputError, match="delta"):
        Ask.checked(1.0, delta, 100)


def test_a_delta_of_one_over_n_is_warned_about_at_the_line_that_fits():
    doors = [
        lambda: sordino.mean(np.arange(100.0), 1.0, 0.01, bounds=(0, 99)),
        lambda: sordino.PrivateStandardScaler(1.0, 0.01, data_norm=1.0).fit(np.eye(100)),
        lambda: sordino.LogisticRegression(1.0, 0.01, data_norm=1.0).fit(np.eye(100), np.arange(100) % 2),
    ]
    for door in doors:  # however many calls of our own lie between
        with pytest.warns(PrivacyWarning, match=r"delta = 0\.01 is at least 1/n") as said:
            door()
        assert "lambda: sordino." in linecache.getline(__file__, said[0].lineno)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ask.checked(1.0, 0.0099, 100)
        Ask.checked(math.inf, 0.01, 100)  # nothing is promised


def test_a_ledger_and_a_data_set_come_together():
    for one in ({"ledger": "x.db"}, {"dataset_id": "a"}):
        with pytest.raises(InvalidInputError, match="together"):
            Ask.checked(1.0, 1e-6, 100, **one)


def test_an_address_is_opened_and_a_ledger_is_taken_as_it_is(tmp_path):
    book = sordino.Ledger.open(tmp_path / "a.db")
    assert Ask(1.0, 1e-6, book, "a").open_ledger() is book
    assert Ask(1.0, 1e-6).open_ledger() is None
    opened = Ask(1.0, 1e-6, str(tmp_path / "a.db"), "a").open_ledger()
    assert isinstance(opened, sordino.Ledger)
    assert isinstance(Ask(1.0, 1e-6, tmp_path / "a.db", "a").open_ledger(), sordino.Ledger)


def test_the_address_of_a_ledger_is_not_shown():
    assert "secret" not in repr(Ask(1.0, 1e-6, "postgresql://user:secret@host/db", "a"))
