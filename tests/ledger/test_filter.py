"""The filter: its orders, its budgets and what it admits, without any database."""

import math
from decimal import Decimal

import pytest
from dp_accounting import dp_event as dp
from hypothesis import given
from hypothesis import strategies as st

from sordino.accounting.conversions import gaussian_epsilon, gaussian_multiplier
from sordino.errors import BudgetExceededError, InvalidInputError, PolicyMismatchError
from sordino.kernel.events import Relation, gaussian_event, laplace_event, pure_event, zcdp_event
from sordino.ledger import Account, BudgetPolicy, Charge, FilterMode, RenyiFilter
from sordino.ledger.account import charge_of, check_certificate, pure_epsilon
from sordino.ledger.policy import gaussian_order, price

AR, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE

policies = st.builds(
    BudgetPolicy, epsilon=st.floats(1e-3, 60), delta=st.floats(1e-12, 0.1), relation=st.just(AR)
)


def charged(account, event, certificate=(0.5, 1e-6), relation=AR):
    return charge_of(event, relation, account.filter.orders, certificate)


@given(policies)
def test_the_shares_of_delta_add_up_to_at_most_the_policys(policy):
    chosen = RenyiFilter.for_policy(policy)
    assert math.fsum(chosen.deltas) <= policy.delta
    assert list(chosen.orders) == sorted(set(chosen.orders))
    assert chosen.orders[-1] == math.inf
    assert chosen.deltas[-1] == 0


@given(policies)
def test_a_budget_filled_to_the_brim_converts_to_at_most_epsilon(policy):
    chosen = RenyiFilter.for_policy(policy)
    for order, delta, budget in zip(
        chosen.orders, chosen.deltas, chosen.budgets(policy.epsilon), strict=True
    ):
        assert budget > 0
        if order < math.inf:
            # Canonne, Kamath, Steinke 2020, Proposition 12, solved for delta.
            log_delta = (order - 1) * (budget - policy.epsilon + math.log1p(-1 / order))
            assert log_delta - math.log(order) <= math.log(delta)
        else:
            assert budget == pytest.approx(policy.epsilon, rel=1e-11)


def test_the_conversion_is_dp_accountings():
    from dp_accounting import rdp

    for order, delta, total in ((18.0, 8e-6, 0.3), (3.3, 1e-7, 2.0), (200.0, 1e-9, 0.05)):
        expected, _ = rdp.compute_epsilon([order], [total], delta)
        assert total + price(order, delta) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (1.0, 1e-6), (4.0, 1e-5), (10, 1e-7)])
def test_gaussian_plans_get_most_of_what_the_best_order_alone_would_give(epsilon, delta):
    account = Account.opened(BudgetPolicy(epsilon, delta))
    best = gaussian_order(epsilon, delta)
    alone = (epsilon - price(best, delta)) / best
    budgets = account.filter.budgets(epsilon)
    rho = max(b / a for a, b in zip(account.filter.orders, budgets) if a < math.inf)
    assert 0.94 < rho / alone <= 1


@given(policies)
def test_no_gaussian_that_breaks_the_policy_is_admitted_by_the_renyi_filter(policy):
    account = Account.opened(policy)
    limit = gaussian_multiplier(policy.epsilon, policy.delta)
    charge = charged(account, gaussian_event(limit * 0.999, AR), (policy.epsilon * 1.01, 0.0))
    with pytest.raises(BudgetExceededError):
        account.book(charge)


@given(policies, st.lists(st.floats(2.0, 200.0), min_size=1, max_size=30))
def test_what_was_admitted_is_within_the_policy_by_the_exact_accountant(policy, multipliers):
    account, precision = Account.opened(policy), 0.0
    for multiplier in multipliers:
        try:
            account = account.book(charged(account, gaussian_event(multiplier, AR), (math.inf, 0.0)))
        except BudgetExceededError:
            continue
        precision += multiplier**-2
    assert account.mode is not FilterMode.BASIC
    if precision:
        assert gaussian_epsilon(math.sqrt(precision), policy.delta) <= policy.epsilon


def test_an_order_once_dead_is_never_used_again():
    policy = BudgetPolicy(1.0, 1e-5)
    account = Account(policy, RenyiFilter((10.0, 20.0), (5e-6, 5e-6)))
    first, second = account.filter.budgets(1.0)
    account = account.book(Charge((first + 1, 0.0), math.inf, 0.0))
    with pytest.raises(BudgetExceededError):
        account.book(Charge((0.0, second * 1.001), math.inf, 0.0))
    assert account.book(Charge((0.0, second * 0.999), math.inf, 0.0)).count == 2


def test_a_plan_calibrated_to_exactly_the_policy_fits_once():
    policy = BudgetPolicy(1.0, 1e-5)
    account = Account.opened(policy)
    event = gaussian_event(gaussian_multiplier(1.0, 1e-5), AR)
    booked = account.book(charged(account, event, (1.0, 1e-5)))
    assert booked.mode is FilterMode.BASIC
    with pytest.raises(BudgetExceededError, match="are booked of"):
        booked.book(charged(booked, gaussian_event(1e5, AR), (1e-9, 0.0)))


def test_basic_mode_adds_certificates_exactly():
    account = Account.opened(BudgetPolicy(1.0, 1e-5))
    unproven = (math.inf,) * len(account.filter.orders)
    for _ in range(10):
        account = account.book(Charge(unproven, 0.1, 1e-6))
    assert account.mode is FilterMode.BASIC
    assert (account.epsilon, account.delta) == (Decimal("1.0"), Decimal("0.00001"))
    for more in (Charge(unproven, 1e-12, 0.0), Charge(unproven, 0.0, 1e-300)):
        with pytest.raises(BudgetExceededError):
            account.book(more)


def test_a_certificate_does_not_help_once_the_renyi_filter_guards():
    account = Account.opened(BudgetPolicy(1.0, 1e-5))
    account = account.book(charged(account, gaussian_event(100.0, AR)))
    assert account.mode is FilterMode.RENYI
    with pytest.raises(BudgetExceededError, match="RDP filter"):
        account.book(charged(account, gaussian_event(1.0, AR), (1e-3, 1e-9)))


def test_pure_plans_add_up_without_loss():
    account = Account.opened(BudgetPolicy(1.0, 1e-5))
    for _ in range(4):
        account = account.book(charged(account, laplace_event(4.0), (0.25, 0.0)))
    assert account.mode is FilterMode.RENYI
    assert account.renyi[-1] == pytest.approx(1.0)


def test_a_pure_budget_takes_pure_plans_only():
    account = Account.opened(BudgetPolicy(1.0, 0.0))
    account = account.book(charged(account, pure_event(0.4), (0.4, 0.0)))
    with pytest.raises(BudgetExceededError):
        account.book(charged(account, gaussian_event(100.0, AR), (0.01, 1e-9)))
    with pytest.raises(BudgetExceededError):
        Account.opened(BudgetPolicy(1.0, 0.0)).book(charged(account, gaussian_event(100.0, AR), (0.01, 1e-9)))


def test_no_noise_needs_a_budget_of_infinity():
    no_noise = dp.NonPrivateDpEvent()
    tight = Account.opened(BudgetPolicy(50.0, 1e-5))
    with pytest.raises(BudgetExceededError):
        tight.book(charged(tight, no_noise, (math.inf, 0.0)))
    loose = Account.opened(BudgetPolicy(math.inf, 1e-5))
    for event in (no_noise, gaussian_event(3.0, AR), no_noise):
        loose = loose.book(charged(loose, event, (math.inf, 0.0)))
    assert loose.count == 3
    assert loose.fraction == 0


def test_a_lie_about_the_certificate_is_found():
    account = Account.opened(BudgetPolicy(1.0, 1e-5))
    true = gaussian_epsilon(0.5, 1e-5)
    check_certificate(gaussian_event(2.0, AR), AR, Charge((), true, 1e-5))
    for event, claim in (
        (gaussian_event(2.0, AR), (true * 0.99, 1e-5)),
        (dp.NonPrivateDpEvent(), (0.5, 1e-5)),
        (pure_event(0.5), (0.4, 0.0)),
        (gaussian_event(2.0, AR), (5.0, 0.0)),
    ):
        with pytest.raises(InvalidInputError, match="certifies"):
            check_certificate(event, AR, charged(account, event, claim))


@pytest.mark.parametrize(
    ("event", "relation", "expected"),
    [
        (dp.SelfComposedDpEvent(laplace_event(4.0), 3), AR, 0.75),
        (dp.ComposedDpEvent([laplace_event(4.0), pure_event(0.3)]), RO, 0.55),
        (dp.PoissonSampledDpEvent(0.1, laplace_event(0.5)), AR, math.log1p(0.1 * math.expm1(2))),
        (dp.PoissonSampledDpEvent(0.1, laplace_event(0.5)), RO, 2.0),
        (dp.PoissonSampledDpEvent(0.1, pure_event(900.0)), AR, 900.0),
        (dp.NoOpDpEvent(), AR, 0.0),
        (gaussian_event(5.0, AR), AR, math.inf),
        (zcdp_event(0.1), AR, math.inf),
    ],
)
def test_the_pure_epsilon_of_an_event(event, relation, expected):
    assert pure_epsilon(event, relation) == pytest.approx(expected, rel=1e-12)


def test_an_event_without_a_curve_costs_infinity_not_zero():
    account = Account.opened(BudgetPolicy(1.0, 1e-5, RO))
    event = dp.PoissonSampledDpEvent(0.1, laplace_event(0.5))
    charge = charged(account, event, (2.0, 0.0), RO)
    assert set(charge.renyi) == {2.0}  # unknown to the curve, but pure
    unknown = dp.PoissonSampledDpEvent(0.1, zcdp_event(0.1))
    assert set(charged(account, unknown, (1.0, 1e-6), RO).renyi) == {math.inf}


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": "1"},
        {"epsilon": True},
        {"epsilon": None},
        {"delta": 1.0},
        {"delta": -1e-9},
        {"delta": math.nan},
        {"relation": "swap"},
        {"unit": ""},
        {"unit": 3},
        {"unit": " person"},
        {"unit": "a\0b"},
    ],
)
def test_a_policy_out_of_range_is_refused(arguments):
    with pytest.raises(InvalidInputError):
        BudgetPolicy(**{"epsilon": 1.0, "delta": 1e-5, **arguments})


@pytest.mark.parametrize(
    "certificate", [(1.0,), 1.0, None, (-1.0, 0.0), (1.0, 1.0), (1.0, -1e-9), (math.nan, 0.0), "ab"]
)
def test_a_certificate_out_of_range_is_refused(certificate):
    with pytest.raises(InvalidInputError):
        charge_of(gaussian_event(2.0, AR), AR, (10.0, math.inf), certificate)


@pytest.mark.parametrize(("relation", "unit"), [("replace-one", "person"), ("add-remove", "record")])
def test_another_relation_or_unit_is_not_converted(relation, unit):
    policy = BudgetPolicy(1.0, 1e-5, "add-remove", "person")
    with pytest.raises(PolicyMismatchError):
        policy.require(relation, unit)
    policy.require("add-remove", "person")


@pytest.mark.parametrize(
    ("orders", "deltas"),
    [((), ()), ((2.0,), ()), ((1.0,), (1e-6,)), ((2.0,), (0.0,)), ((math.nan,), (1e-6,))],
)
def test_a_filter_without_proof_is_refused(orders, deltas):
    with pytest.raises(InvalidInputError):
        RenyiFilter(orders, deltas)
