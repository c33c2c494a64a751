"""Values that a user types: one module checks them, and says the name, the range and what it got."""

import numpy as np
import pytest

from sordino.errors import InvalidInputError
from sordino.values import among, check_flag, check_number, check_range, check_whole


def test_values_are_checked():
    assert among("kind", "a", ("a", "b")) == "a"
    assert check_range("size", 2, "(0, inf)") == 2.0
    assert check_whole("steps", 3.0) == 3
    with pytest.raises(InvalidInputError, match="kind"):
        among("kind", "c", ("a", "b"))
    for bad in (0, -1, float("inf"), float("nan"), True, "2", None):
        with pytest.raises(InvalidInputError, match="size"):
            check_range("size", bad, "(0, inf)")
    with pytest.raises(InvalidInputError, match=r"\(0, 5\]"):
        check_range("size", 6, "(0, 5]")
    for bad in (0, 2.5, True, "3", None, float("nan"), float("inf")):
        with pytest.raises(InvalidInputError, match="steps"):
            check_whole("steps", bad)
    with pytest.raises(InvalidInputError, match=r"\[1, 4\]"):
        check_whole("steps", 5, most=4)


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("[0, 1)", (0, 0.5, np.float32(0.25)), (-1e-9, 1, 1.0)),
        ("(0, 1]", (1e-9, 1), (0, 1.0001)),
        ("(0, inf)", (10**400 // 10**100, 3), (0, float("inf"), 10**400)),
        ("[0, 1]", (0, 1), ("0", True, None, float("nan"), np.array([0.5]))),
    ],
)
def test_an_interval_has_the_ends_that_its_brackets_say(interval, inside, outside):
    for value in inside:
        assert check_range("share", value, interval) == float(value)
    for value in outside:
        with pytest.raises(InvalidInputError, match="share"):
            check_range("share", value, interval)


def test_a_number_is_no_text_no_flag_and_no_nan():
    assert check_number("delta", np.float64(0.5)) == 0.5
    assert str(check_number("delta", -0.0)) == "0.0"
    for bad in ("1", True, float("nan"), None, 10**400, 1j):
        with pytest.raises(InvalidInputError, match="delta"):
            check_number("delta", bad)


def test_a_flag_is_true_or_false_or_their_numbers():
    assert [check_flag("split", value) for value in (True, np.False_, 1, np.int64(0))] == [
        True,
        False,
        True,
        False,
    ]
    for bad in (1.0, "yes", None, 2, np.array([1, 0])):
        with pytest.raises(InvalidInputError, match="split"):
            check_flag("split", bad)
