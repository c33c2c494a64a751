"""Terms of a team: roles, a second person, which records a name means, parts, keys, copies, who booked."""

import threading

import numpy as np
import pytest

import sordino
from sordino.errors import (
    ApprovalNeededError,
    BudgetExceededError,
    DatasetExistsError,
    InvalidInputError,
    LedgerCorruptError,
    LedgerError,
    LedgerWarning,
    RoleError,
    UnknownDatasetError,
)
from sordino.kernel.events import Relation, gaussian_event
from sordino.ledger import BudgetPolicy, Ledger, Status, Terms, fingerprint
from sordino.ledger import ledger as book_of_ledgers
from sordino.ledger.address import code_digest

EVENT = gaussian_event(20.0, Relation.ADD_REMOVE)
HOW = {"relation": "add-remove", "unit": "record", "certificate": (0.25, 1e-6)}
KEY = b"a key of sixteen bytes or more"


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "budget.db") as book:
        book.create("survey", BudgetPolicy(2.0, 1e-6))
        yield book


def working_for(monkeypatch, person):
    monkeypatch.setenv("SORDINO_PERSON", person)


# ------------------------------------------------------------------------------------------------ roles


def test_only_who_is_named_may_spend_change_approve_and_read(ledger, monkeypatch):
    working_for(monkeypatch, "ann")
    everything = {"create": ["ann"], "spend": ["bob"], "approve": ["cy"], "read": ["ann", "bob"]}
    ledger.set_terms("survey", Terms(roles=everything))
    assert ledger.terms("survey").roles["spend"] == ("bob",)
    with pytest.raises(RoleError, match="ann may not spend here: this takes bob"):
        ledger.reserve("survey", EVENT, **HOW)
    with pytest.raises(RoleError, match="may not approve"):
        ledger.approve("survey", "abc")
    assert ledger.history("survey") == []
    working_for(monkeypatch, "bob")
    ledger.reserve("survey", EVENT, **HOW).settle()
    with pytest.raises(RoleError, match="may not create"):
        ledger.set_terms("survey", Terms())
    working_for(monkeypatch, "cy")
    with pytest.raises(RoleError, match="may not read"):
        ledger.history("survey")
    with pytest.raises(RoleError, match="may not read"):
        ledger.people("survey")


def test_who_spends_does_not_lift_the_terms_that_others_have_to_approve(ledger, monkeypatch):
    working_for(monkeypatch, "ann")
    ledger.set_terms("survey", Terms(roles={"approve": ["dora"]}, approve_above=0.1))
    with pytest.raises(RoleError, match="ann may not approve here: this takes dora"):
        ledger.set_terms("survey", Terms())
    with pytest.raises(ApprovalNeededError):
        ledger.reserve("survey", EVENT, **HOW)
    working_for(monkeypatch, "dora")
    ledger.set_terms("survey", Terms(roles={"approve": ["dora"]}, approve_above=0.5))


@pytest.mark.parametrize(
    "wrong", [{"roles": {"own": ["ann"]}}, {"roles": {"spend": "ann"}}, {"approve_above": -1.0}]
)
def test_terms_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InvalidInputError):
        Terms(**wrong)


def test_edited_terms_are_found(ledger):
    ledger.set_terms("survey", Terms(approve_above=0.1))
    with ledger._store.transaction(write=True) as store:
        store.execute(
            "UPDATE sordino_meta SET value = replace(value, '0.1', '9.1') WHERE name = ?", ("terms/survey",)
        )
    with pytest.raises(LedgerCorruptError, match="terms"):
        ledger.reserve("survey", EVENT, **HOW)


# ------------------------------------------------------------------------------------ a second person


def test_a_large_reservation_needs_somebody_else_and_once_only(ledger, monkeypatch):
    working_for(monkeypatch, "ann")
    ledger.set_terms("survey", Terms(approve_above=0.2))
    with pytest.raises(ApprovalNeededError, match=r"0\.25 of ann") as refused:
        ledger.reserve("survey", EVENT, **HOW)
    request = str(refused.value).split("survey ")[1].split(",")[0]
    ledger.approve("survey", request)
    with pytest.raises(ApprovalNeededError):  # her own approval does not count
        ledger.reserve("survey", EVENT, **HOW)
    working_for(monkeypatch, "bob")
    ledger.approve("survey", request)
    working_for(monkeypatch, "ann")
    with pytest.raises(ApprovalNeededError):  # for another price
        ledger.reserve("survey", EVENT, **{**HOW, "certificate": (0.26, 1e-6)})
    ledger.reserve("survey", EVENT, **HOW).settle()
    with pytest.raises(ApprovalNeededError):
        ledger.reserve("survey", EVENT, **HOW)
    (booked,) = ledger.history("survey")
    assert booked.description.startswith("approved by bob: ")
    ledger.set_terms("survey", Terms(approve_above=0.25))
    ledger.reserve("survey", EVENT, **HOW).settle()


def test_an_approval_of_somebody_who_has_lost_the_role_since_is_none(ledger, monkeypatch):
    working_for(monkeypatch, "ann")
    ledger.set_terms("survey", Terms(roles={"approve": ["bob", "cy"]}, approve_above=0.2))
    with pytest.raises(ApprovalNeededError) as refused:
        ledger.reserve("survey", EVENT, **HOW)
    request = str(refused.value).split("survey ")[1].split(",")[0]
    working_for(monkeypatch, "bob")
    ledger.approve("survey", request)
    working_for(monkeypatch, "cy")
    ledger.set_terms("survey", Terms(roles={"approve": ["cy"]}, approve_above=0.2))
    working_for(monkeypatch, "ann")
    with pytest.raises(ApprovalNeededError):
        ledger.reserve("survey", EVENT, **HOW)
    working_for(monkeypatch, "cy")
    ledger.approve("survey", request)
    working_for(monkeypatch, "ann")
    ledger.reserve("survey", EVENT, **HOW).settle()
    assert ledger.history("survey")[0].description.startswith("approved by cy: ")


# ------------------------------------------------------------------------- which records a name means


def test_other_records_under_a_name_are_noticed(ledger):
    data = np.arange(12.0).reshape(4, 3)
    assert ledger.recognise("survey", data, KEY)
    assert ledger.recognise("survey", data.copy(), KEY)
    other = data.copy()
    other[0, 0] = 1.0
    with pytest.warns(LedgerWarning, match="Other records come under the name 'survey'"):
        assert not ledger.recognise("survey", other, KEY)


def test_a_fingerprint_needs_its_key_and_sees_everything():
    data = np.arange(12.0).reshape(4, 3)
    digests = {
        fingerprint(data, KEY),
        fingerprint(data, KEY + b"!"),
        fingerprint(data.T, KEY),
        fingerprint(data.astype(np.float32), KEY),
        fingerprint((data, data[:, 0]), KEY),
        fingerprint(np.array([["a", None]], dtype=object), KEY),
    }
    assert len(digests) == 6
    with pytest.raises(InvalidInputError, match="16 bytes"):
        fingerprint(data, b"short")


# ---------------------------------------------------------------------------------- parts and windows


def test_parts_have_budgets_of_their_own_and_the_whole_pays_on_each(ledger):
    for part in ("north", "south"):
        ledger.create(f"wards/{part}", BudgetPolicy(0.6, 1e-6))
    assert ledger.parts("wards") == ["wards/north", "wards/south"]
    assert ledger.parts("survey") == ["survey"]
    ledger.reserve("wards/north", EVENT, **HOW).settle()
    with ledger.reserve("wards", EVENT, **HOW) as both:
        assert [both.entry.dataset_id, *(e.dataset_id for e in both.beside)] == ledger.parts("wards")
    assert [len(ledger.history(part)) for part in ledger.parts("wards")] == [2, 1]
    assert {e.status for part in ledger.parts("wards") for e in ledger.history(part)} == {Status.SETTLED}
    ledger.verify()


def test_a_part_that_comes_while_the_whole_is_booked_is_not_left_out(ledger, monkeypatch):
    ledger.create("wards/north", BudgetPolicy(0.6, 1e-6))
    price = book_of_ledgers.charge_of

    def priced(*args):
        if ledger.parts("wards") == ["wards/north"]:
            ledger.create("wards/south", BudgetPolicy(0.6, 1e-6))
        return price(*args)

    monkeypatch.setattr(book_of_ledgers, "charge_of", priced)
    with pytest.raises(LedgerError, match="Parts of 'wards' came meanwhile"):
        ledger.reserve("wards", EVENT, **HOW)
    assert ledger.history("wards/north") == []
    ledger.reserve("wards", EVENT, **HOW).settle()
    assert [len(ledger.history(part)) for part in ledger.parts("wards")] == [1, 1]


def test_what_one_part_cannot_pay_no_part_pays(ledger):
    for part in ("october", "november"):
        ledger.create(f"visits/{part}", BudgetPolicy(0.3, 1e-6))
    ledger.reserve("visits/november", EVENT, **HOW).settle()
    with pytest.raises(BudgetExceededError):
        ledger.reserve("visits", EVENT, **HOW)
    assert ledger.history("visits/october") == []
    ledger.create("visits/december", BudgetPolicy(0.3, 1e-6))  # a window that opens later
    ledger.reserve("visits/december", EVENT, **HOW).settle()


def test_a_whole_and_its_parts_have_no_budgets_beside_each_other(ledger, tmp_path):
    ledger.create("visits/october", BudgetPolicy(0.3, 1e-6))
    ledger.create("visitors", BudgetPolicy(0.3, 1e-6))
    for later in ("visits", "survey/north", "visits/october/first"):
        with pytest.raises(DatasetExistsError, match="the same units would have two budgets"):
            ledger.create(later, BudgetPolicy(2.0, 1e-6))
    with Ledger.open(tmp_path / "other.db") as other:
        other.create("visits", BudgetPolicy(2.0, 1e-6))
        document = other.to_json()
    with pytest.raises(DatasetExistsError, match="two budgets"):
        ledger.import_json(document)
    assert ledger.parts("visits") == ["visits/october"]


def test_a_whole_that_was_given_back_is_given_back_on_each_part(ledger):
    for part in ("a", "b"):
        ledger.create(f"halves/{part}", BudgetPolicy(0.3, 1e-6))
    ledger.reserve("halves", EVENT, **HOW).give_back()
    assert {ledger.spent(f"halves/{part}").fraction for part in ("a", "b")} == {0.0}
    with pytest.raises(UnknownDatasetError):
        ledger.reserve("hal", EVENT, **HOW)


# ------------------------------------------------------------------------ lost connections, copies, who


def test_a_booking_whose_answer_was_lost_is_not_made_twice(ledger, monkeypatch):
    execute, lost = type(ledger._store).execute, []

    def losing(self, statement, values=()):
        found = execute(self, statement, values)
        if statement == "COMMIT" and not lost:
            lost.append(1)
            raise LedgerError("the connection was lost")
        return found

    ledger._account("survey")
    monkeypatch.setattr(Ledger, "parts", lambda self, dataset_id: [dataset_id])  # the booking commits first
    monkeypatch.setattr(type(ledger._store), "execute", losing)
    ledger.reserve("survey", EVENT, **HOW).settle()
    assert lost
    assert [e.status for e in ledger.history("survey")] == [Status.SETTLED]


def test_a_booking_that_was_lost_before_it_was_written_is_an_error(ledger, monkeypatch):
    ledger._account("survey")
    monkeypatch.setattr(
        "sordino.ledger.store.Store.update_account", lambda *_: (_ for _ in ()).throw(LedgerError("lost"))
    )
    with pytest.raises(LedgerError, match="lost"):
        ledger.reserve("survey", EVENT, **HOW)
    assert ledger.history("survey") == []


def test_a_copy_is_whole_while_others_book(ledger, tmp_path):
    done = threading.Event()

    def book():
        with Ledger.open(tmp_path / "budget.db") as mine:
            mine.create("busy", BudgetPolicy(1e6, 1e-3))
            while not done.is_set():
                mine.reserve("busy", EVENT, **HOW).settle()

    worker = threading.Thread(target=book)
    worker.start()
    try:
        for number in range(3):
            ledger.back_up(tmp_path / f"copy{number}.db")
    finally:
        done.set()
        worker.join()
    for number in range(3):
        with Ledger.open(tmp_path / f"copy{number}.db", create=False) as copy:
            copy.verify()
    with pytest.raises(LedgerError, match="Cannot make the copy"):
        ledger.back_up(tmp_path / "copy0.db")


def test_a_reservation_says_who_from_where_and_with_which_code(ledger, monkeypatch):
    working_for(monkeypatch, "ann")
    ledger.reserve("survey", EVENT, **HOW).settle()
    with ledger._store.transaction(write=False) as store:
        (owner,) = store.execute("SELECT owner FROM sordino_reservations")[0]
    parts = owner.split("|")
    assert parts[4:7] == ["ann", sordino.__version__, code_digest()[:16]]
    assert len(parts[7]) == 16
    assert ledger.people("survey") == {1: "ann"}


def test_the_chain_holds_who_booked(ledger):
    for _ in range(3):
        ledger.reserve("survey", EVENT, **HOW).settle()
    receipts = ledger.verify().receipts
    ledger.verify(receipts=receipts)
    with ledger._store.transaction(write=True) as store:
        store.execute("UPDATE sordino_reservations SET owner = replace(owner, '|', '|x') WHERE sequence = 2")
    with pytest.raises(LedgerCorruptError, match="seal"):
        ledger.verify(receipts=receipts)


def test_the_commands_set_terms_approve_and_copy(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from sordino.cli.program import main as cli

    path = str(tmp_path / "budget.db")
    with Ledger.open(path) as book:
        book.create("survey", BudgetPolicy(2.0, 1e-6))

    def said(*words):
        found = CliRunner().invoke(cli, ["ledger", *words])
        assert found.exit_code == 0, found.output
        return found.output

    assert "Everybody" in said("terms", path, "survey")
    assert "spend: ann, bob" in said("terms", path, "survey", "--role", "spend=ann", "--role", "spend=bob")
    assert "from epsilon 0.5 on" in said("terms", path, "survey", "--approve-above", "0.5")
    assert "Approved" in said("approve", path, "survey", "abc")
    assert "Written" in said("backup", path, "--output", str(tmp_path / "copy.db"))
    assert (tmp_path / "copy.db").exists()
