"""A ledger of version 1 becomes one of version 2 when it is opened, whole and once."""

import json
import sqlite3
from decimal import Decimal

import pytest
from tests.ledger.helpers import gaussian, reserve

from sordino.accounting.accountants import rdp_curve
from sordino.errors import LedgerCorruptError
from sordino.kernel.relation import Relation
from sordino.ledger import BudgetPolicy, Ledger, RenyiFilter, Status

# What version 1 wrote, as it wrote it.
TABLES = (
    "CREATE TABLE sordino_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE sordino_datasets (dataset_id TEXT PRIMARY KEY, epsilon DOUBLE PRECISION NOT NULL,"
    " delta DOUBLE PRECISION NOT NULL, relation TEXT NOT NULL, unit TEXT NOT NULL,"
    " orders TEXT NOT NULL, shares TEXT NOT NULL, mode TEXT NOT NULL, reservations BIGINT NOT NULL,"
    " spent_renyi TEXT NOT NULL, created_at TEXT NOT NULL)",
    "CREATE TABLE sordino_reservations (dataset_id TEXT NOT NULL REFERENCES sordino_datasets"
    " (dataset_id), sequence BIGINT NOT NULL, status TEXT NOT NULL, event TEXT NOT NULL,"
    " charges TEXT NOT NULL, epsilon DOUBLE PRECISION NOT NULL, delta DOUBLE PRECISION NOT NULL,"
    " description TEXT NOT NULL, reason TEXT NOT NULL, reserved_at TEXT NOT NULL,"
    " finished_at TEXT NOT NULL, PRIMARY KEY (dataset_id, sequence))",
    "INSERT INTO sordino_meta VALUES ('schema', '1')",
)
MULTIPLIERS = (25.0, 50.0)
CERTIFICATES = ((0.1, 1e-6), (0.2, 2e-6))


def version_1_rows():
    """Return the rows of a data set with two reservations, as lists of values."""
    chosen = RenyiFilter.for_policy(BudgetPolicy(1.0, 1e-5))
    finite = chosen.orders[:-1]
    costs = [[*rdp_curve(gaussian(m), Relation.ADD_REMOVE, finite), "inf"] for m in MULTIPLIERS]
    sums = [*(a + b for a, b in zip(costs[0][:-1], costs[1][:-1], strict=True)), "inf"]
    orders, shares = json.dumps([*finite, "inf"]), json.dumps(chosen.deltas)
    dataset = ["survey", 1.0, 1e-5, "add-remove", "record", orders, shares, "renyi", 2]
    dataset += [json.dumps(sums), "2024-01-01T00:00:00+00:00"]
    reservations = []
    for number, (multiplier, cost) in enumerate(zip(MULTIPLIERS, costs, strict=True), start=1):
        event = json.dumps({"type": "gaussian", "noise_multiplier": multiplier})
        row = ["survey", number, ["settled", "reserved"][number - 1], event, json.dumps(cost)]
        reservations.append([*row, *CERTIFICATES[number - 1], f"fit {number}", "", "then", ""])
    return dataset, reservations


def write_version_1(address):
    dataset, reservations = version_1_rows()
    if address.startswith("postgresql"):
        import psycopg

        connection, mark = psycopg.connect(address, autocommit=True), "%s"
    else:
        connection, mark = sqlite3.connect(address, isolation_level=None), "?"
    for statement in TABLES:
        connection.execute(statement)
    for table, rows in (("datasets", [dataset]), ("reservations", reservations)):
        for row in rows:
            marks = ", ".join([mark] * len(row))
            connection.execute(f"INSERT INTO sordino_{table} VALUES ({marks})", row)
    connection.close()


def test_version_1_becomes_version_2_with_all_its_reservations(address):
    write_version_1(address)
    with Ledger.open(address) as ledger:
        account = ledger.account("survey")
        assert (account.epsilon, account.delta) == (Decimal("0.3"), Decimal("0.000003"))
        first, second = ledger.history("survey")
        assert (first.status, second.status) == (Status.SETTLED, Status.RESERVED)
        assert first.event == gaussian(25.0)
        assert second.description == "fit 2"
        assert second.plan_digest == ""
        assert ledger.verify().reservations == 2
        assert reserve(ledger, plan_digest="abc").sequence == 3
    with Ledger.open(address) as again:
        assert again.verify().reservations == 3
        assert again.history("survey")[2].plan_digest == "abc"


def test_a_migration_that_fails_changes_nothing(sqlite_path):
    write_version_1(sqlite_path)
    broken = sqlite3.connect(sqlite_path, isolation_level=None)
    broken.execute("UPDATE sordino_reservations SET epsilon = 'much' WHERE sequence = 2")
    before = list(broken.iterdump())
    with pytest.raises(LedgerCorruptError, match="not a number"):
        Ledger.open(sqlite_path)
    assert list(broken.iterdump()) == before
    broken.close()


def test_a_version_1_ledger_is_migrated_once_by_many(address):
    import threading

    write_version_1(address)
    counts = []

    def work():
        with Ledger.open(address) as ledger:
            counts.append(ledger.verify().reservations)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [2, 2, 2, 2]
