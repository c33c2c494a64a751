"""Budgets and events with extreme numbers are answered or refused by type."""

import pytest
from dp_accounting import dp_event as dp

from sordino.accounting import certify, solve_scale
from sordino.errors import SordinoError
from sordino.kernel.events import Relation
from sordino.ledger import BudgetPolicy, Ledger

ADD = Relation.ADD_REMOVE


@pytest.mark.parametrize("delta", [-0.0, 5e-324, 1e-300, 1 - 2.0**-53])
@pytest.mark.parametrize("epsilon", [1e-300, 1.0, 1e300])
def test_every_budget_can_be_set_and_read_back(tmp_path, epsilon, delta):
    policy = BudgetPolicy(epsilon, delta)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.create("survey", policy)
        assert ledger.policy("survey") == policy
        assert ledger.spent("survey").fraction == 0
        assert ledger.verify().datasets == 1


@pytest.mark.parametrize("multiplier", [1e-99, 1e-4, 1e200])
@pytest.mark.parametrize("rate", [1e-300, 0.01, 1 - 1e-12])
def test_every_poisson_batch_is_certified_from_above(multiplier, rate):
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier))
    epsilon = certify(event, 1e-6, ADD).epsilon
    if multiplier == 1e-4 and rate == 0.01:
        assert epsilon > 1e6  # a record that is drawn is seen
    assert epsilon >= 0


@pytest.mark.parametrize("epsilon", [1e-300, 1e300])
def test_an_epsilon_out_of_reach_is_a_typed_error(epsilon, tmp_path, monkeypatch):
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
    with pytest.raises(SordinoError):
        solve_scale(lambda z: dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), 10), epsilon, 1e-6, ADD)
