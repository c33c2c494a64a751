"""The rows of a ledger as sealed values, and what a database does for them: short, durable transactions."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar

from dp_accounting import dp_event as dp

from sordino.accounting.trees import canonical, decode
from sordino.errors import (
    InvalidInputError,
    LedgerCorruptError,
    LedgerError,
    LedgerVersionError,
    SordinoError,
    UnknownDatasetError,
)
from sordino.kernel.events import Relation
from sordino.ledger.account import Account, Charge, FilterMode
from sordino.ledger.policy import BudgetPolicy, RenyiFilter, name, text
from sordino.values import check_number


class Status(str, Enum):
    """What became of a reservation. All of them count as spent, but for one that was never used."""

    RESERVED = "reserved"
    SETTLED = "settled"
    FAILED = "failed"
    CRASHED = "crashed"
    RETURNED = "returned"

    @property
    def is_final(self) -> bool:
        """Whether nothing can go on under the reservation."""
        return self in (Status.SETTLED, Status.FAILED, Status.RETURNED)


ENTRY_COLUMNS = (
    "dataset_id, sequence, status, event, charges, epsilon, delta, description, plan_digest, "
    "reason, reserved_at, finished_at"
)
DATASET_COLUMNS = (
    "dataset_id, epsilon, delta, relation, unit, orders, shares, mode, reservations, spent_renyi, "
    "spent_epsilon, spent_delta, created_at"
)
UNREADABLE = (SordinoError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError)
"""What a reader of rows meets in a file that somebody else wrote."""


@dataclass(frozen=True)
class Entry:
    """One reservation in the history of a data set; ``sequence`` counts from one."""

    dataset_id: str
    sequence: int
    status: Status
    event_json: str
    charge: Charge
    description: str
    plan_digest: str
    reason: str
    reserved_at: str
    finished_at: str

    @property
    def event(self) -> dp.DpEvent:
        """The privacy event, decoded from an allow-list of classes."""
        return decode_event(self.event_json)

    @property
    def epsilon(self) -> float:
        """The certified epsilon of this reservation alone."""
        return self.charge.epsilon

    @property
    def delta(self) -> float:
        """The delta that goes with ``epsilon``."""
        return self.charge.delta

    @property
    def row(self) -> list[object]:
        """The values of ``ENTRY_COLUMNS``."""
        charge, words = self.charge, (self.description, self.plan_digest, self.reason)
        row: list[object] = [self.dataset_id, self.sequence, self.status.value, self.event_json]
        row += [dump(charge.renyi), charge.epsilon, charge.delta, *words]
        return [*row, self.reserved_at, self.finished_at]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Entry:
        """Build an entry from ``ENTRY_COLUMNS``, or say that the row is damaged."""
        try:
            dataset_id, sequence, status, event, renyi, epsilon, delta, *texts = row
            charge = Charge(load(renyi), float(epsilon), float(delta))
            words = [text(one, "a text") for one in texts]
            return cls(_name(dataset_id), _whole(sequence), Status(status), str(event), charge, *words)
        except UNREADABLE as error:
            raise damage_error("a reservation cannot be read") from error


@dataclass(frozen=True)
class Dataset:
    """A data set: its budget and the running state of the filter."""

    dataset_id: str
    account: Account
    created_at: str

    @property
    def row(self) -> list[object]:
        """The values of ``DATASET_COLUMNS``."""
        account, policy = self.account, self.account.policy
        row: list[object] = [self.dataset_id, policy.epsilon, policy.delta, policy.relation.value]
        row += [policy.unit, dump(account.filter.orders), dump(account.filter.deltas)]
        row += [account.mode.value, account.count, dump(account.renyi)]
        return [*row, str(account.epsilon), str(account.delta), self.created_at]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Dataset:
        """Build a data set from ``DATASET_COLUMNS``, or say that the row is damaged."""
        try:
            dataset_id, epsilon, delta, relation, unit, orders, shares, mode, count, renyi, *rest = row
            policy = BudgetPolicy(float(epsilon), float(delta), Relation(relation), unit)
            total_epsilon, total_delta, created = rest
            chosen, sums = RenyiFilter(load(orders), load(shares)), map(Decimal, (total_epsilon, total_delta))
            account = Account(policy, chosen, FilterMode(mode), _whole(count), load(renyi), *sums)
            return cls(_name(dataset_id), account, text(created, "a time"))
        except UNREADABLE as error:
            raise damage_error("the account of a data set cannot be read") from error

    def require_own_filter(self) -> Dataset:
        """Return this, if its stored filter is the one of its policy; another one was never proven."""
        if not self.account.filter.belongs_to(self.account.policy):
            raise damage_error(f"the filter of data set {self.dataset_id!r} is not the one of its budget")
        return self


def _name(value: object) -> str:
    """Return a name as the ledger would have written it; another spelling would be a second budget."""
    if name(value, "dataset_id") != value:
        raise damage_error("a data set has a name that is not in its normal form")
    return str(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise damage_error("a count is not a whole number")
    return value


def seal(values: Sequence[object]) -> str:
    """Return a digest of a row. It shows accidents, not forgery: there is no key."""
    line = json.dumps(list(values), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(line.encode("ascii")).hexdigest()


def check_seal(row: Sequence[object], owned: bool = False) -> Sequence[object]:
    """Return a row without the seal at its end, or refuse one whose content is not what was written.

    A row that is ``owned`` has its owner before the seal, which covers it since version 0.2.
    """
    values = row[: -2 if owned else -1]
    if row[-1] not in (seal(row[:-1]), seal(values)):
        raise damage_error("a row does not match its seal")
    return values


def damage_error(what: str) -> LedgerCorruptError:
    """Return the error for a damaged ledger."""
    return LedgerCorruptError(
        f"The ledger is damaged: {what}. Nothing was written. Restore it from a backup, and book "
        "what was released since then."
    )


def encode_event(event: dp.DpEvent) -> str:
    """Return an event as canonical JSON that :func:`decode_event` will read."""
    line = canonical(event)
    decode(json.loads(line))  # it refuses trees that are too large; better now than when spent
    return line


def decode_event(line: str) -> dp.DpEvent:
    """Return the event of a JSON text; only classes from the allow-list are built."""
    try:
        return decode(json.loads(line))
    except UNREADABLE as error:
        raise damage_error("an event cannot be decoded") from error


def dump(values: Sequence[float]) -> str:
    """Return numbers as JSON, infinity as a string: strict JSON has none."""
    return json.dumps([jsonable(value) for value in values], separators=(",", ":"))


def load(line: str) -> tuple[float, ...]:
    """Return the numbers of ``dump``."""
    return tuple(float(value) for value in json.loads(line))


def jsonable(value: Any) -> Any:
    """Return a value that strict JSON can hold; infinity becomes a text."""
    return "inf" if value == math.inf else value


# ------------------------------------------------------------------------------------------ A database

Row = tuple[Any, ...]

# Connections that a fork inherited. Closing one in the child would disturb the parent's, so they
# are kept from the garbage collector instead.
_INHERITED: list[object] = []


class Store(ABC):
    """One connection behind one lock, opened again after a fork.

    Statements are written with ``?`` for values. Everything a transaction wrote is on disk when
    its block ends, or nothing is.
    """

    begin_write: ClassVar[str]
    begin_read: ClassVar[str]
    for_update: ClassVar[str]

    def __init__(self, address: str, timeout: float) -> None:
        timeout = check_number("timeout", timeout)
        if not 0 <= timeout <= 86_400:
            raise InvalidInputError(f"Expected a timeout of 0 to 86400 seconds, got {timeout}.")
        self.address = address
        self.timeout = timeout
        self._connection: Any = None
        self._closed = False
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    @abstractmethod
    def label(self) -> str:
        """Where the ledger is, in words that may be printed: without a password."""

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection."""

    @abstractmethod
    def execute(self, statement: str, values: Sequence[object] = (), /) -> list[Row]:
        """Run one statement inside a transaction."""

    @abstractmethod
    def translate(self, error: Exception) -> Exception:
        """Return the typed error for what the database said."""

    @property
    @abstractmethod
    def errors(self) -> tuple[type[Exception], ...]:
        """The base classes of the database's errors."""

    def back_up(self, version: int) -> None:  # noqa: B027 - a server's owner makes copies, not its clients
        """Keep a copy of the ledger as it is, inside a transaction, before its tables change."""

    def begin(self, write: bool) -> None:
        """Begin a transaction; wait for other writers, but not longer than the timeout."""
        self.execute(self.begin_write if write else self.begin_read)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Store]:
        """Run a block all or nothing; it is durable when the block has ended."""
        self._after_fork()
        with self._lock, self._translate_errors():
            if self._closed:
                raise LedgerError(f"The ledger {self.label} was closed. Open it again.")
            if self._connection is None:
                self._connection = self.connect()
            self.begin(write)
            try:
                yield self
                self.execute("COMMIT")
            except BaseException:
                # If even this fails the connection is lost, and the database rolls back by itself.
                try:
                    self.execute("ROLLBACK")
                except Exception:
                    self._drop()
                raise

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except self.errors as error:
            raise self.translate(error) from error

    def close(self) -> None:
        """Close the connection. Reservations that were made stay spent."""
        self._after_fork()
        with self._lock:
            self._closed = True
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _after_fork(self) -> None:
        if self._process != os.getpid():
            _INHERITED.append(self._connection)
            self._connection, self._lock = None, threading.Lock()
            self._process = os.getpid()

    def __del__(self) -> None:
        with suppress(Exception):
            if self._process == os.getpid():
                self._drop()
            else:
                _INHERITED.append(self._connection)

    # ---------------------------------- Rows; every method runs inside a transaction of the caller

    def dataset_ids(self) -> list[str]:
        """Return the names of all data sets."""
        return sorted(str(row[0]) for row in self.execute("SELECT dataset_id FROM sordino_datasets"))

    def dataset(self, dataset_id: str, *, lock: bool = False) -> Dataset:
        """Return a data set; with ``lock`` nobody else can change it until the transaction ends."""
        query = f"SELECT {DATASET_COLUMNS}, seal FROM sordino_datasets WHERE dataset_id = ?"
        rows = self.execute(query + (self.for_update if lock else ""), (dataset_id,))
        if not rows:
            raise UnknownDatasetError(
                f"The ledger {self.label} has no data set {dataset_id!r}. Check the name, or set its "
                "budget once with `ledger.create` or `sordino ledger create`."
            )
        return Dataset.from_row(check_seal(rows[0])).require_own_filter()

    def insert_dataset(self, dataset: Dataset) -> bool:
        """Add a data set; return whether it is new. An existing one is left as it is."""
        values = dataset.row
        rows = self.execute(
            f"INSERT INTO sordino_datasets ({DATASET_COLUMNS}, seal) VALUES ({_marks(len(values) + 1)})"
            " ON CONFLICT (dataset_id) DO NOTHING RETURNING dataset_id",
            [*values, seal(values)],
        )
        return bool(rows)

    def update_account(self, dataset: Dataset) -> None:
        """Write the running state of a filter."""
        values = dict(zip(DATASET_COLUMNS.split(", "), dataset.row))
        changed = ("mode", "reservations", "spent_renyi", "spent_epsilon", "spent_delta")
        self.execute(
            f"UPDATE sordino_datasets SET {' = ?, '.join(changed)} = ?, seal = ? WHERE dataset_id = ?",
            [*(values[column] for column in changed), seal(dataset.row), dataset.dataset_id],
        )

    def insert_entry(self, entry: Entry, owner: str) -> None:
        """Add a reservation; ``owner`` says who made it, from where and with which code."""
        values = entry.row
        self.execute(
            f"INSERT INTO sordino_reservations ({ENTRY_COLUMNS}, owner, seal)"
            f" VALUES ({_marks(len(values) + 2)})",
            [*values, owner, seal([*values, owner])],
        )

    def entries(self, dataset_id: str) -> list[Entry]:
        """Return the history of a data set, oldest first."""
        query = f"SELECT {ENTRY_COLUMNS}, owner, seal FROM sordino_reservations WHERE dataset_id = ?"
        rows = self.execute(f"{query} ORDER BY sequence", (dataset_id,))
        return [Entry.from_row(check_seal(row, owned=True)) for row in rows]

    def entry(self, dataset_id: str, sequence: int) -> Entry:
        """Return one reservation; a transaction that writes locks it until it ends."""
        rows = self.execute(
            f"SELECT {ENTRY_COLUMNS}, owner, seal FROM sordino_reservations"
            f" WHERE dataset_id = ? AND sequence = ?{self.for_update}",
            (dataset_id, sequence),
        )
        if not rows:
            raise damage_error(f"reservation {sequence} of {dataset_id!r} is gone")
        return Entry.from_row(check_seal(rows[0], owned=True))

    def update_status(self, entry: Entry) -> None:
        """Write what became of a reservation."""
        one = "FROM sordino_reservations WHERE dataset_id = ? AND sequence = ?"
        ((owner,),) = self.execute(f"SELECT owner {one}", (entry.dataset_id, entry.sequence))
        values = (entry.status.value, entry.reason, entry.finished_at, seal([*entry.row, owner]))
        self.execute(
            "UPDATE sordino_reservations SET status = ?, reason = ?, finished_at = ?, seal = ?"
            " WHERE dataset_id = ? AND sequence = ?",
            (*values, entry.dataset_id, entry.sequence),
        )

    def owners_of(self, dataset_id: str) -> dict[int, str]:
        """Return which process owns each reservation of a data set."""
        query = "SELECT sequence, owner FROM sordino_reservations WHERE dataset_id = ?"
        return {int(sequence): str(owner) for sequence, owner in self.execute(query, (dataset_id,))}


def _marks(count: int) -> str:
    return ", ".join("?" * count)


# ----------------------------------------------------------------- The tables of a ledger and their version

VERSION = 2

_TYPES = {"epsilon": "DOUBLE PRECISION", "delta": "DOUBLE PRECISION", "sequence": "BIGINT"}
_TYPES["reservations"] = "BIGINT"


def _table(name: str, columns: str, key: str, more: str = "") -> str:
    typed = (f"{column} {_TYPES.get(column, 'TEXT')} NOT NULL" for column in columns.split(", "))
    return f"CREATE TABLE sordino_{name} ({', '.join(typed)}, PRIMARY KEY ({key}){more})"


_OF_A_DATASET = ", FOREIGN KEY (dataset_id) REFERENCES sordino_datasets (dataset_id)"
TABLES = (
    _table("meta", "name, value", "name"),
    _table("datasets", f"{DATASET_COLUMNS}, seal", "dataset_id"),
    _table("reservations", f"{ENTRY_COLUMNS}, owner, seal", "dataset_id, sequence", _OF_A_DATASET),
)


def create_tables(store: Any) -> None:
    """Make an empty ledger of the present version, inside a transaction."""
    for statement in TABLES:
        store.execute(statement)
    store.execute("INSERT INTO sordino_meta (name, value) VALUES (?, ?)", ("schema", str(VERSION)))


STEPS: dict[int, Callable[[Store], None]] = {}
"""What changes the tables of a version into those of the next, inside a transaction.

The next version of the tables raises ``VERSION``, changes ``TABLES`` and adds the step from the old number
here; ``sordino migrate`` does the rest: a copy, all steps or none, and the new number.
"""


def check_version(store: Store, migrate: bool = False) -> None:
    """Refuse tables of another version, inside a transaction, or bring older ones up to date if asked."""
    rows = store.execute("SELECT value FROM sordino_meta WHERE name = ?", ("schema",))
    if len(rows) != 1 or re.fullmatch("[1-9][0-9]{0,8}", str(rows[0][0])) is None:
        raise damage_error("it does not say which version it is")
    version = int(rows[0][0])
    if version > VERSION:
        raise LedgerVersionError(
            f"The ledger {store.label} has version {version}, this Sordino reads version {VERSION}. "
            "Upgrade Sordino: pip install --upgrade sordino."
        )
    if not set(range(version, VERSION)) <= set(STEPS):
        raise LedgerVersionError(
            f"The ledger {store.label} has version {version}, which no release wrote; this Sordino reads "
            f"version {VERSION}. Export it with the program that made it."
        )
    if version < VERSION and not migrate:
        raise LedgerVersionError(
            f"The ledger {store.label} has version {version}, this Sordino reads version {VERSION}. Convert "
            f"it, with a copy kept beside it: sordino migrate {store.label}"
        )
    if version < VERSION:
        store.back_up(version)
        for number in range(version, VERSION):
            STEPS[number](store)
        store.execute("UPDATE sordino_meta SET value = ? WHERE name = ?", (str(VERSION), "schema"))


# ------------------------------------------------------------------------ A ledger as strict JSON, and back

FORMAT = "sordino-ledger"
_NESTED = ("orders", "shares", "spent_renyi", "charges", "event")  # JSON texts in the tables


def to_json(records: Sequence[tuple[Dataset, Sequence[Entry]]]) -> str:
    """Return data sets and their histories as a JSON document."""
    datasets = [
        {
            **_object(DATASET_COLUMNS, dataset.row),
            "history": [_object(ENTRY_COLUMNS, entry.row) for entry in entries],
        }
        for dataset, entries in records
    ]
    document = {"format": FORMAT, "version": VERSION, "datasets": datasets}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def save(document: str, path: str | os.PathLike[str]) -> None:
    """Write an export that only its owner may read, as the ledger itself."""
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        with suppress(AttributeError):  # no file modes on this system
            os.fchmod(handle, 0o600)  # the file may have been there before
        file.write(document + "\n")


def from_json(document: str) -> list[tuple[Dataset, list[Entry]]]:
    """Return what :func:`to_json` wrote, or refuse the document."""
    try:
        data = json.loads(document)
    except UNREADABLE as error:
        raise InvalidInputError("Expected an export of a ledger, got no JSON.") from error
    datasets = data.get("datasets") if isinstance(data, dict) else None
    if not isinstance(datasets, list) or data.get("format") != FORMAT:
        raise InvalidInputError(f"Expected an export of a ledger (format {FORMAT!r}), a list of data sets.")
    if data.get("version") != VERSION:
        raise LedgerVersionError(
            f"Expected an export of version {VERSION}, got {data.get('version')!r}. Export with "
            "the same version of Sordino."
        )
    found = []
    try:
        for one in datasets:
            history = [Entry.from_row(_row(ENTRY_COLUMNS, line)) for line in one["history"]]
            for entry in history:
                decode_event(entry.event_json)  # refuses what is not in the allow-list
            found.append((Dataset.from_row(_row(DATASET_COLUMNS, one)), history))
    except UNREADABLE as error:
        raise InvalidInputError(
            "The document is not an export of a ledger: a data set or a reservation in it cannot "
            "be read. Export it again."
        ) from error
    return found


def _object(columns: str, values: Sequence[Any]) -> dict[str, Any]:
    """Return a row as an object, with the JSON texts in it unfolded."""
    pairs = zip(columns.split(", "), values, strict=True)
    return {column: json.loads(value) if column in _NESTED else jsonable(value) for column, value in pairs}


def _row(columns: str, data: dict[str, Any]) -> list[Any]:
    return [
        json.dumps(data[column], sort_keys=True, separators=(",", ":")) if column in _NESTED else data[column]
        for column in columns.split(", ")
    ]
