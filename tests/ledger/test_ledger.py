"""What a ledger promises, on both databases."""

import copy
import dataclasses
import json
import math
import os
import pickle
import threading

import pytest
from dp_accounting.dp_event import SelfComposedDpEvent
from tests.ledger.helpers import AR, gaussian, reserve

from sordino.accounting.calibration import certify
from sordino.accounting.conversions import gaussian_multiplier
from sordino.errors import (
    BudgetExceededError,
    DatasetExistsError,
    InvalidInputError,
    LedgerCorruptError,
    LedgerError,
    LedgerVersionError,
    PolicyMismatchError,
    UnknownDatasetError,
    UnsupportedError,
)
from sordino.kernel.events import pure_event
from sordino.ledger import BudgetPolicy, FilterMode, Ledger, Status
from sordino.ledger.store import save


def nested(depth):
    """Return an event tree that the codec would write but not read."""
    event = gaussian()
    for _ in range(depth):
        event = SelfComposedDpEvent(event, 1)
    return event


def exhaust(ledger, event, **arguments):
    """Reserve until the budget is gone; return how often it went well."""
    for count in range(10_000):
        try:
            reserve(ledger, event, **arguments)
        except BudgetExceededError:
            return count
    raise AssertionError("the budget never ends")


def test_a_reservation_is_there_for_everybody_when_reserve_returns(ledger, address):
    reserve(ledger, description="first fit", plan_digest="abc")
    with Ledger.open(address) as other:
        (entry,) = other.history("survey")
    assert (entry.sequence, entry.status) == (1, Status.RESERVED)
    assert (entry.description, entry.plan_digest, entry.finished_at) == ("first fit", "abc", "")
    assert entry.event == gaussian()
    assert (entry.epsilon, entry.delta) == (0.3, 1e-6)


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        (lambda reservation: None, Status.RESERVED),
        (lambda reservation: reservation.settle(), Status.SETTLED),
        (lambda reservation: reservation.fail("out of memory"), Status.FAILED),
    ],
)
def test_no_status_gives_anything_back(ledger, finish, status):
    reservation = reserve(ledger)
    before = ledger.account("survey")
    finish(reservation)
    assert ledger.account("survey") == before
    assert 0.03 < ledger.spent("survey").fraction < 0.05
    assert ledger.history("survey")[0].status is status


def test_a_reservation_ends_once(ledger):
    settled, failed = reserve(ledger), reserve(ledger)
    settled.settle()
    failed.fail("no memory")
    for ended in (settled, failed):
        for again in (ended.settle, lambda ended=ended: ended.fail("too late")):
            with pytest.raises(LedgerError, match="ended once"):
                again()
    assert [e.status for e in ledger.history("survey")] == [Status.SETTLED, Status.FAILED]


def test_a_reservation_is_ended_by_the_process_that_made_it(ledger):
    reservation = reserve(ledger)
    copied = dataclasses.replace(reservation, process=os.getpid() + 1)
    for copy_of in (copied, pickle.loads(pickle.dumps(copied))):
        for end in (copy_of.settle, lambda copy_of=copy_of: copy_of.fail("elsewhere")):
            with pytest.raises(LedgerError, match="another process"):
                end()
    assert ledger.history("survey")[0].status is Status.RESERVED
    reservation.settle()


def test_of_threads_that_settle_one_reservation_one_succeeds(ledger):
    reservation, refused = reserve(ledger), []

    def work():
        try:
            reservation.settle()
        except LedgerError:
            refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 3


def test_a_block_settles_and_an_error_in_it_fails_without_its_message(ledger):
    with reserve(ledger):
        pass
    with pytest.raises(ZeroDivisionError), reserve(ledger):
        raise ZeroDivisionError("record 17 has the value 0")
    good, bad = ledger.history("survey")
    assert good.status is Status.SETTLED
    assert (bad.status, bad.reason) == (Status.FAILED, "ZeroDivisionError")


def test_the_budget_ends_where_the_accountant_says_it_may(ledger):
    count = exhaust(ledger, gaussian(30.0))
    together = certify(gaussian(30.0 / math.sqrt(count)), 1e-5, AR).epsilon
    assert 0.85 < together <= 1.0
    assert count == len(ledger.history("survey"))
    assert ledger.nonadaptive("survey").epsilon == pytest.approx(together)
    assert together < ledger.spent("survey").epsilon <= 1.0


def test_a_refused_reservation_leaves_no_trace(ledger):
    reserve(ledger)
    before = ledger.to_json()
    with pytest.raises(BudgetExceededError, match="Nothing was reserved"):
        reserve(ledger, gaussian(0.5), (12.0, 1e-6))
    assert ledger.to_json() == before


def test_a_plan_of_the_whole_budget_fits_once_and_ends_it(ledger):
    event = gaussian(gaussian_multiplier(1.0, 1e-5))
    reserve(ledger, event, (1.0, 1e-5))
    assert ledger.spent("survey").mode is FilterMode.BASIC
    assert ledger.spent("survey").fraction == 1
    assert ledger.remaining("survey").epsilon == 0
    with pytest.raises(BudgetExceededError):
        reserve(ledger, gaussian(1e4), (1e-3, 1e-9))
    assert ledger.verify().reservations == 1


def test_a_certificate_that_claims_too_little_is_not_booked(ledger):
    event = gaussian(gaussian_multiplier(1.5, 1e-5))
    with pytest.raises(InvalidInputError, match="accountant certifies"):
        reserve(ledger, event, (0.9, 1e-5))
    assert ledger.history("survey") == []
    assert ledger.account("survey").mode is FilterMode.UNDECIDED


def test_a_certificate_is_booked_as_certified_in_every_mode(ledger):
    """What is stated in the history is proven, also where the filter does not rest on it."""
    with pytest.raises(InvalidInputError, match="accountant certifies"):
        reserve(ledger, gaussian(), (1e-9, 1e-30))
    assert ledger.history("survey") == []
    proven = certify(gaussian(), 1e-6, AR).epsilon
    reserve(ledger, gaussian(), (proven * (1 - 1e-9), 1e-6))  # the rounding of another machine
    assert ledger.history("survey")[0].epsilon == proven


def test_what_remains_is_what_one_more_gaussian_plan_may_cost(ledger):
    reserve(ledger, gaussian(8.0), (1.0, 1e-6))
    left = ledger.remaining("survey")
    assert left.fraction == pytest.approx(1 - ledger.spent("survey").fraction)
    multiplier = gaussian_multiplier(left.epsilon, left.delta)
    with pytest.raises(BudgetExceededError):
        reserve(ledger, gaussian(multiplier * 0.99), (1.0, 1e-6))
    reserve(ledger, gaussian(multiplier * 1.01), (1.0, 1e-6))


def test_a_new_data_set_has_spent_nothing(ledger):
    assert ledger.spent("survey").epsilon == 0
    assert ledger.remaining("survey").epsilon == 1.0
    assert ledger.nonadaptive("survey").epsilon == 0


def test_a_pure_budget_is_spent_by_the_sum(ledger):
    ledger.create("pure", BudgetPolicy(0.3, 0.0))
    for epsilon in (0.1, 0.2):
        reserve(ledger, pure_event(epsilon), (epsilon, 0.0), "pure")
    assert ledger.spent("pure").epsilon == pytest.approx(0.3)
    assert ledger.nonadaptive("pure").epsilon == pytest.approx(0.3)
    with pytest.raises(BudgetExceededError):
        reserve(ledger, pure_event(1e-6), (1e-6, 0.0), "pure")


def test_a_budget_is_set_once(ledger):
    reserve(ledger)
    for policy, exist_ok in (
        (BudgetPolicy(1.0, 1e-5), False),
        (BudgetPolicy(2.0, 1e-5), False),
        (BudgetPolicy(2.0, 1e-5), True),
    ):
        with pytest.raises(DatasetExistsError, match="set once"):
            ledger.create("survey", policy, exist_ok=exist_ok)
    ledger.create("survey", BudgetPolicy(1.0, 1e-5), exist_ok=True)
    assert ledger.policy("survey").epsilon == 1.0
    assert len(ledger.history("survey")) == 1


def test_two_spellings_of_a_name_are_one_data_set(ledger):
    ledger.create("caf\u00e9", BudgetPolicy(1.0, 1e-5))
    with pytest.raises(DatasetExistsError):
        ledger.create("cafe\u0301", BudgetPolicy(1.0, 1e-5))
    reserve(ledger, dataset_id="cafe\u0301")
    assert ledger.datasets() == ["caf\u00e9", "survey"]
    assert len(ledger.history("caf\u00e9")) == 1


def test_an_unknown_data_set_is_named(ledger):
    for call in (ledger.spent, ledger.history, ledger.to_json, ledger.verify, ledger.policy):
        with pytest.raises(UnknownDatasetError, match="census"):
            call("census")
    with pytest.raises(UnknownDatasetError, match="census"):
        reserve(ledger, dataset_id="census")


@pytest.mark.parametrize(("relation", "unit"), [("replace-one", "record"), ("add-remove", "person")])
def test_a_guarantee_for_other_neighbours_is_not_booked(ledger, relation, unit):
    with pytest.raises(PolicyMismatchError):
        reserve(ledger, relation=relation, unit=unit)
    assert ledger.history("survey") == []


@pytest.mark.parametrize("bad", ["", " x", "x\n", "a" * 201, "\0", 3, None, b"survey"])
def test_a_bad_name_is_a_typed_error(ledger, bad):
    for call in (
        lambda: ledger.create(bad, BudgetPolicy(1.0, 1e-5)),
        lambda: ledger.spent(bad),
        lambda: reserve(ledger, dataset_id=bad),
    ):
        with pytest.raises(InvalidInputError):
            call()


@pytest.mark.parametrize(
    "arguments",
    [
        {"event": "gaussian"},
        {"event": object()},
        {"event": gaussian(math.inf), "certificate": (math.nan, 1e-6)},
        {"certificate": (1.0, 2.0)},
        {"certificate": ([0.1, 0.2], 1e-6)},
        {"event": nested(40)},
        {"relation": "swap"},
        {"unit": None},
        {"description": 5},
        {"description": "x" * 2001},
        {"plan_digest": "\0"},
    ],
)
def test_a_bad_value_is_a_typed_error_and_books_nothing(ledger, arguments):
    with pytest.raises((InvalidInputError, UnsupportedError)):
        reserve(ledger, **arguments)
    with pytest.raises(InvalidInputError):
        ledger.create("other", (1.0, 1e-5))
    assert ledger.history("survey") == []


def test_threads_share_one_handle(ledger):
    made = []

    def work():
        made.extend(reserve(ledger, gaussian(1e5)).sequence for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == list(range(1, 41))
    assert ledger.verify().reservations == 40


def test_a_handle_can_be_pickled_and_copied(ledger):
    for twin in (pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger)):
        with twin:
            reserve(twin)
    assert len(ledger.history("survey")) == 2


def test_a_closed_handle_says_so(address):
    ledger = Ledger.open(address)
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.datasets()


def test_an_export_moves_to_another_ledger_without_loss(ledger, tmp_path):
    ledger.create("open", BudgetPolicy(math.inf, 1e-5, "replace-one", "person"))
    reserve(ledger).settle()
    reserve(ledger).fail("no memory")
    document = ledger.to_json()
    json.loads(document, parse_constant=lambda name: pytest.fail(f"{name} is not strict JSON"))
    with Ledger.open(tmp_path / "other.sqlite") as other:
        assert other.import_json(document) == ["open", "survey"]
        assert other.to_json() == document
        assert other.history("survey") == ledger.history("survey")
        assert other.account("survey") == ledger.account("survey")
        with pytest.raises(DatasetExistsError, match="Nothing was imported"):
            other.import_json(document)
        reserve(other)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: d.update(format="other"), InvalidInputError),
        (lambda d: d.update(version=3), LedgerVersionError),
        (lambda d: d.update(datasets=None), InvalidInputError),
        (lambda d: d["datasets"].append(3), InvalidInputError),
        (lambda d: d["datasets"][0].pop("history"), InvalidInputError),
        (lambda d: d["datasets"][0].update(epsilon="much"), InvalidInputError),
        (lambda d: d["datasets"][0].update(spent_renyi=[0.0]), InvalidInputError),
        (lambda d: d["datasets"][0].update(mode="basic"), LedgerCorruptError),
        (lambda d: d["datasets"][0].update(shares=[1e-8, 1e-6, 1e-6, 0.0]), LedgerCorruptError),
        (lambda d: d["datasets"][0]["orders"].__setitem__(0, 1.5), LedgerCorruptError),
        (lambda d: d["datasets"][0].update(dataset_id="cafe\u0301"), InvalidInputError),
        (lambda d: d["datasets"][0].update(reservations=True), InvalidInputError),
        (lambda d: d["datasets"][0].update(reservations=1.0), InvalidInputError),
        (lambda d: d["datasets"][0].update(mode="undecided"), InvalidInputError),
        (lambda d: d["datasets"][0].update(spent_epsilon="NaN"), InvalidInputError),
        (lambda d: d["datasets"][0].update(spent_epsilon="-1"), InvalidInputError),
        (lambda d: d["datasets"][0].update(spent_delta="sNaN"), InvalidInputError),
        (lambda d: d["datasets"][0].update(created_at="\u001b[2J"), InvalidInputError),
        (lambda d: d["datasets"][0]["history"][0].update(epsilon=-3.0), InvalidInputError),
        (lambda d: d["datasets"][0]["history"][0].update(epsilon="nan"), InvalidInputError),
        (lambda d: d["datasets"][0]["history"][0].update(epsilon=10**400), InvalidInputError),
        (lambda d: d["datasets"][0]["history"][0].update(delta=7.0), InvalidInputError),
        (lambda d: d["datasets"][0]["history"][0].update(epsilon=1e-9), LedgerCorruptError),
        (lambda d: d["datasets"][0]["history"][0]["charges"].__setitem__(0, "nan"), InvalidInputError),
        (lambda d: d["datasets"][0]["history"][0].update(sequence=1.0), InvalidInputError),
        (lambda d: d["datasets"][0]["history"][0].update(description="\u001b[2J"), InvalidInputError),
        (lambda d: d["datasets"][0]["history"].pop(), LedgerCorruptError),
        (lambda d: d["datasets"][0]["history"][0].update(status="free"), InvalidInputError),
        (
            lambda d: d["datasets"][0]["history"][0]["event"].update(type="os.system"),
            InvalidInputError,
        ),
        (
            lambda d: d["datasets"][0]["history"][0]["event"].update(noise_multiplier=40.0),
            LedgerCorruptError,
        ),
    ],
)
def test_a_changed_export_is_not_imported(ledger, tmp_path, change, error):
    reserve(ledger)
    document = json.loads(ledger.to_json())
    change(document)
    with Ledger.open(tmp_path / "other.sqlite") as other:
        with pytest.raises(error):
            other.import_json(json.dumps(document))
        assert other.datasets() == []


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_only_the_owner_may_read_an_export(tmp_path):
    path = tmp_path / "export.json"
    path.touch(0o644)
    save("{}", path)
    assert path.read_text() == "{}\n"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"sordino-ledger"', "[" * 10**5])
def test_what_is_no_export_is_refused(sqlite_path, text):
    with Ledger.open(sqlite_path) as ledger, pytest.raises(InvalidInputError):
        ledger.import_json(text)
