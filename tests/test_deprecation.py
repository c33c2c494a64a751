"""What goes says so first, and still works."""

import pytest

from sordino.deprecation import deprecated, renamed_parameters


@deprecated("halved", "0.3")
def half(number):
    return number / 2


@renamed_parameters("0.3", strength="alpha")
def penalised(number, *, alpha=1.0):
    return number * alpha


def test_a_name_that_goes_warns_at_the_caller_and_works():
    with pytest.warns(FutureWarning, match=r"half goes in version 0\.3\. Use halved") as seen:
        assert half(4) == 2
    assert seen[0].filename == __file__


def test_an_old_parameter_is_translated_with_a_warning():
    assert penalised(3, alpha=2.0) == 6.0
    with pytest.warns(FutureWarning, match="'strength' is called 'alpha'"):
        assert penalised(3, strength=2.0) == 6.0


def test_both_names_at_once_are_refused():
    with pytest.warns(FutureWarning), pytest.raises(TypeError, match="same parameter"):
        penalised(3, strength=2.0, alpha=1.0)
