"""Stepwise sums, the sums on disk and a replay of the history are the same numbers."""

import json
import math

import pytest
from dp_accounting import dp_event as dp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger.helpers import AR

from sordino.accounting.calibration import rdp_curve
from sordino.errors import BudgetExceededError, InvalidInputError, LedgerCorruptError
from sordino.kernel.events import gaussian_event, laplace_event, pure_event, tilt_event, zcdp_event
from sordino.ledger import Account, BudgetPolicy, Ledger
from sordino.ledger.account import charge_of
from sordino.ledger.ledger import replay
from sordino.ledger.store import from_json, to_json

leaves = st.one_of(
    st.builds(gaussian_event, st.floats(3.0, 300.0), st.just(AR)),
    st.builds(laplace_event, st.floats(5.0, 300.0)),
    st.builds(pure_event, st.floats(1e-4, 0.3)),
    st.builds(zcdp_event, st.floats(1e-6, 0.05)),
    st.builds(tilt_event, st.floats(3.0, 300.0), st.floats(0.0, 0.1), st.just(AR)),
    st.builds(dp.PoissonSampledDpEvent, st.floats(0.01, 0.9), st.builds(dp.GaussianDpEvent, st.just(4.0))),
    st.just(dp.NonPrivateDpEvent()),
)
events = st.one_of(
    leaves,
    st.builds(dp.SelfComposedDpEvent, leaves, st.integers(1, 20)),
    st.builds(lambda parts: dp.ComposedDpEvent(parts), st.lists(leaves, max_size=3)),
)


@settings(max_examples=25)
@given(
    st.lists(events, max_size=12),
    st.floats(0.3, 5.0),
    st.sampled_from([0.0, 1e-7, 1e-5]),
)
def test_steps_sums_and_replay_agree(tmp_path_factory, history, epsilon, delta):
    path = tmp_path_factory.mktemp("replay") / "ledger.sqlite"
    policy = BudgetPolicy(epsilon, delta)
    with Ledger.open(path) as ledger:
        ledger.create("survey", policy)
        stepwise = Account.opened(policy)
        for event in history:
            certificate = (math.inf, 0.0)
            try:
                ledger.reserve("survey", event, relation=AR, unit="record", certificate=certificate)
            except BudgetExceededError:
                continue
            stepwise = stepwise.book(charge_of(event, AR, stepwise.filter.orders, certificate))
        stored, entries = ledger.account("survey"), ledger.history("survey")
        assert stored == stepwise == replay(stored, entries)
        assert ledger.verify().difference == 0
        _compare_with_one_composition(stored, entries)
        document = ledger.to_json()
    assert to_json(from_json(document)) == document


def _compare_with_one_composition(account, entries):
    """The sum of the curves is the curve of the composition, wherever there is one."""
    finite = [order for order in account.filter.orders if order < math.inf]
    if not finite or not entries:
        return
    whole = rdp_curve(dp.ComposedDpEvent([entry.event for entry in entries]), AR, finite)
    for total, one in zip(account.renyi, whole, strict=False):
        assert total == pytest.approx(one, rel=1e-9, abs=1e-12)


def _damage(document, change):
    data = json.loads(document)
    change(data["datasets"][0])
    return json.dumps(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["spent_renyi"].__setitem__(0, d["spent_renyi"][0] * 0.5),
        lambda d: d.update(spent_epsilon="0.1"),
        lambda d: d.update(reservations=1),
        lambda d: d["history"][1]["charges"].__setitem__(0, 0.0),
        lambda d: d["history"][1].update(sequence=3),
        lambda d: d["history"][1].update(dataset_id="other"),
        lambda d: d.update(epsilon=0.01),
    ],
)
def test_a_replay_finds_what_was_changed(sqlite_path, tmp_path, change):
    with Ledger.open(sqlite_path) as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-5))
        for multiplier in (30.0, 40.0):
            event = gaussian_event(multiplier, AR)
            ledger.reserve("survey", event, relation=AR, unit="record", certificate=(0.2, 1e-6)).settle()
        document = _damage(ledger.to_json(), change)
    with Ledger.open(tmp_path / "other.sqlite") as other, pytest.raises(LedgerCorruptError):
        other.import_json(document)


def test_a_replay_finds_a_certificate_that_was_made_smaller(sqlite_path, tmp_path):
    from sordino.accounting.conversions import gaussian_multiplier

    with Ledger.open(sqlite_path) as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-5))
        event = gaussian_event(gaussian_multiplier(1.0, 1e-5), AR)
        ledger.reserve("survey", event, relation=AR, unit="record", certificate=(1.0, 1e-5))

        def change(dataset):
            dataset.update(spent_epsilon="0.5")
            dataset["history"][0].update(epsilon=0.5)

        document = _damage(ledger.to_json(), change)
    expected = pytest.raises(LedgerCorruptError, match="claims less")
    with Ledger.open(tmp_path / "other.sqlite") as other, expected:
        other.import_json(document)


def test_a_certificate_of_almost_nothing_is_neither_booked_nor_imported(tmp_path):
    event, stated = gaussian_event(20.0, AR), {"relation": AR, "unit": "record"}
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-6))
        with pytest.raises(InvalidInputError, match="accountant certifies"):
            ledger.reserve("survey", event, **stated, certificate=(1e-9, 1e-30))
        assert ledger.history("survey") == []
        ledger.reserve("survey", event, **stated, certificate=(0.5, 1e-6))

        def change(dataset):
            dataset.update(spent_epsilon="1E-9", spent_delta="1E-30")
            dataset["history"][0].update(epsilon=1e-9, delta=1e-30)

        document = _damage(ledger.to_json(), change)
    with Ledger.open(tmp_path / "other.sqlite") as other, pytest.raises(LedgerCorruptError):
        other.import_json(document)
