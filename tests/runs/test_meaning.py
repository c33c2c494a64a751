"""What is said of a guarantee is never less than what it allows."""

import pytest

from sordino.accounting.trade_off import worst_trade_off
from sordino.runs import report as meaning


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.1, 0.5, 1.0, 3.0, 8.0, 11.0, 40.0, float("inf")])
def test_percentages_are_rounded_up(epsilon):
    share = meaning.guess(worst_trade_off(epsilon, 1e-6))
    said = float(meaning.percent(share).removesuffix(" %"))
    assert 100 * share - 1e-8 <= said <= 100 * share + 0.1


def test_one_half_and_nothing_stay_as_they_are():
    assert [meaning.percent(share) for share in (0.0, 0.5, 1.0)] == ["0.0 %", "50.0 %", "100 %"]
