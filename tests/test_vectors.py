"""The test vectors of every version hold here, by nothing but what their files say."""

import hashlib
import json
from pathlib import Path

import pytest
from tools import vectors

from sordino.accounting import canonical, certify, decode, rdp_curve
from sordino.errors import BudgetExceededError, InvalidInputError, UnsupportedError
from sordino.kernel.events import Relation
from sordino.ledger import Account, BudgetPolicy, Ledger
from sordino.ledger.account import charge_of
from sordino.runs import PrivacyReport

FOLDERS = sorted((Path(__file__).parent / "vectors").iterdir())


def files(kind):
    """Return the file of a kind of every version."""
    found = [json.loads((folder / f"{kind}.json").read_text("utf-8")) for folder in FOLDERS]
    assert all(one["format"] == f"sordino-vectors-{kind}" for one in found)
    return found


def cases(kind):
    return [
        pytest.param(case, file, id=f"{file['version']}-{case['name']}-{case.get('relation', '')}")
        for file in files(kind)
        for case in file["cases"]
    ]


def numbers(values):
    return [float(value) for value in values]


@pytest.mark.parametrize(("case", "file"), cases("events"))
def test_an_event_has_its_text_its_epsilon_and_its_costs(case, file):
    event, relation = decode(case["event"]), Relation(case["relation"])
    assert canonical(event) == case["canonical"]
    for row in case["certified"]:
        if row.get("unsupported"):
            with pytest.raises(UnsupportedError):
                certify(event, row["delta"], relation)
        else:
            found = certify(event, row["delta"], relation).epsilon
            assert found == pytest.approx(float(row["epsilon"]), rel=file["tolerance"])
    if case["renyi"] is None:
        with pytest.raises(UnsupportedError):
            rdp_curve(event, relation, file["orders"])
    else:
        expected = pytest.approx(numbers(case["renyi"]), rel=file["tolerance"])
        assert list(rdp_curve(event, relation, file["orders"])) == expected


@pytest.mark.parametrize("data", [data for file in files("events") for data in file["malformed"]])
def test_what_is_no_event_is_refused(data):
    with pytest.raises(InvalidInputError):
        decode(data)


@pytest.mark.parametrize(("case", "file"), cases("ledgers"))
def test_a_filter_admits_what_it_did_and_sums_up_alike(case, file):
    budget, close = case["budget"], file["tolerance"]
    policy = BudgetPolicy(**{**budget, "epsilon": float(budget["epsilon"])})
    account = Account.opened(policy)
    assert account.filter.orders == tuple(numbers(case["filter"]["orders"]))
    assert account.filter.deltas == pytest.approx(case["filter"]["shares"], rel=close)
    budgets = account.filter.budgets(policy.epsilon)
    assert budgets == pytest.approx(numbers(case["filter"]["budgets"]), rel=close)
    for step in case["asked"]:
        certificate = float(step["certificate"][0]), step["certificate"][1]
        charge = charge_of(decode(step["event"]), policy.relation, account.filter.orders, certificate)
        if step["outcome"] == "refused":
            with pytest.raises(BudgetExceededError):
                account.book(charge)
            continue
        account = account.book(charge)
        assert charge.renyi == pytest.approx(numbers(step["charges"]), rel=close)
        assert (account.mode.value, account.fraction) == (
            step["mode"],
            pytest.approx(step["fraction"], rel=close),
        )
        assert account.renyi == pytest.approx(numbers(step["spent"]), rel=close)


@pytest.mark.parametrize(("case", "file"), cases("ledgers"))
def test_seals_and_the_chain_are_hashes_of_the_rows(case, file):
    """Written out, as somebody would who has nothing but the page."""
    head, status = "", case["columns"].index("status")
    for row, seal, link in zip(case["rows"], case["seals"], case["chain"], strict=True):
        text = json.dumps(row, separators=(",", ":"))
        assert hashlib.sha256(text.encode("ascii")).hexdigest() == seal
        assert row[status] == "reserved"
        head = hashlib.sha256(json.dumps([head, *row], separators=(",", ":")).encode("ascii")).hexdigest()
        assert head == link


@pytest.mark.parametrize(("case", "file"), cases("ledgers"))
def test_an_export_is_read_and_verified(case, file, tmp_path):
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert ledger.import_json(json.dumps(case["export"])) == ["data"]
        assert ledger.verify().reservations == len(case["rows"])


@pytest.mark.parametrize(("case", "file"), cases("reports"))
def test_a_report_is_believed_as_far_as_its_events_allow(case, file):
    if case.get("refused"):
        with pytest.raises(InvalidInputError):
            PrivacyReport.from_dict(case["report"])
    else:
        assert PrivacyReport.from_dict(case["report"]).status == case["status"]


def test_the_files_of_this_version_are_what_the_tool_writes(tmp_path):
    vectors.main(tmp_path / "again")
    kept = FOLDERS[-1]
    assert kept.name == str(vectors.VERSION)
    for name in ("events", "reports"):
        again, before = (
            json.loads((f / f"{name}.json").read_text("utf-8")) for f in (tmp_path / "again", kept)
        )
        assert [case["name"] for case in again["cases"]] == [case["name"] for case in before["cases"]]
    asked = [
        [[step["outcome"] for step in case["asked"]] for case in json.loads(path.read_text("utf-8"))["cases"]]
        for path in (tmp_path / "again" / "ledgers.json", kept / "ledgers.json")
    ]
    assert asked[0] == asked[1]
    assert {"booked", "refused"} == {outcome for steps in asked[0] for outcome in steps}


def test_every_kind_of_event_has_a_vector():
    from sordino.accounting.trees import _TYPES

    seen = json.dumps([case["event"] for file in files("events") for case in file["cases"]])
    assert all(f'"type": "{kind}"' in seen for kind in _TYPES)
