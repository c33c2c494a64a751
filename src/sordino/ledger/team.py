"""What a team agrees on for a data set: who may do what, what a second person has to see, which data it is.

Terms and approvals are rows of ``sordino_meta``, written in the transactions of the ledger. A person is
whoever a process says it works for (:func:`sordino.ledger.address.person`): in one file this keeps colleagues
from mistakes, not from lies; on a server the rights of database roles do.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from sordino.errors import ApprovalNeededError, InvalidInputError, RoleError
from sordino.ledger.store import Entry, Store, damage_error, seal
from sordino.values import check_number

ROLES: Final = ("create", "spend", "approve", "read")


@dataclass(frozen=True)
class Terms:
    """The terms of a data set; a role that nobody is named for is everybody's.

    Parameters
    ----------
    roles : the persons who may ``create`` (change these terms), ``spend``, ``approve`` and ``read``.
    approve_above : the epsilon of one reservation from which on somebody else has to approve it first.
    fingerprint : the keyed fingerprint of the records that the name stands for.
    """

    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    approve_above: float | None = None
    fingerprint: str = ""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.roles) - set(ROLES))
        if unknown:
            raise InvalidInputError(f"Expected roles among {ROLES}, got {unknown}.")
        if any(isinstance(people, str) or not all(people) for people in self.roles.values()):
            raise InvalidInputError("Expected a list of names for each role.")
        if self.approve_above is not None and not check_number("approve_above", self.approve_above) >= 0:
            raise InvalidInputError(f"Expected approve_above >= 0, got {self.approve_above}.")
        object.__setattr__(self, "roles", {role: tuple(people) for role, people in self.roles.items()})

    def require(self, role: str, who: str) -> None:
        """Refuse a person who does not have a role."""
        people = self.roles.get(role, ())
        if people and who not in people:
            raise RoleError(
                f"{who or 'Somebody without a name'} may not {role} here: this takes {', '.join(people)}. "
                "Ask one of them, or whoever may change the terms of the data set."
            )


def read_terms(store: Store, dataset_id: str) -> Terms:
    """Return the terms of a data set, inside a transaction; none are written for most."""
    line = _read(store, f"terms/{dataset_id}")
    return Terms() if line is None else Terms(**line)


def write_terms(store: Store, dataset_id: str, terms: Terms) -> None:
    _write(store, f"terms/{dataset_id}", asdict(terms))


def write_approval(store: Store, dataset_id: str, request: str, who: str) -> None:
    _write(store, f"approval/{dataset_id}/{request}", {"by": who})


def use_approval(store: Store, terms: Terms, entry: Entry, who: str) -> str:
    """Take the approval that a reservation needs, once, or refuse it; return whose, "" if none is due."""
    if terms.approve_above is None or entry.charge.epsilon <= terms.approve_above:
        return ""
    # The same event at the same price on the same data set has the same name.
    request = seal([entry.dataset_id, entry.event_json, entry.charge.epsilon, entry.charge.delta])[:16]
    key = f"approval/{entry.dataset_id}/{request}"
    by = str((_read(store, key) or {}).get("by", ""))
    if by in ("", who) or by not in (terms.roles.get("approve") or [by]):  # who may not approve now, did not
        raise ApprovalNeededError(
            f"Expected epsilon <= {terms.approve_above:g} in one reservation on {entry.dataset_id!r}, or the "
            f"approval of a second person, got {entry.charge.epsilon:.4g} of {who or 'nobody'}. Let somebody "
            f"else run: sordino ledger approve {entry.dataset_id} {request}, and ask again."
        )
    store.execute("DELETE FROM sordino_meta WHERE name = ?", (key,))
    return by


def _read(store: Store, key: str) -> dict[str, Any] | None:
    rows = store.execute("SELECT value FROM sordino_meta WHERE name = ?", (key,))
    if not rows:
        return None
    line, _, stored = str(rows[0][0]).rpartition(" ")
    if stored != seal([key, line]):
        raise damage_error(f"{key.partition('/')[0]} of a data set does not match its seal")
    return dict(json.loads(line))


def _write(store: Store, key: str, value: dict[str, Any]) -> None:
    line = json.dumps(value, sort_keys=True)
    store.execute("DELETE FROM sordino_meta WHERE name = ?", (key,))
    store.execute(
        "INSERT INTO sordino_meta (name, value) VALUES (?, ?)", (key, f"{line} {seal([key, line])}")
    )


def fingerprint(data: Any, key: bytes) -> str:
    """Return a keyed digest of a table of numbers or texts; without the key it says nothing about records.

    **Privacy.** It is a function of every record, exact: whoever has the key can test a guess of all of
    them. Keep the key with the data.
    """
    if not isinstance(key, bytes) or len(key) < 16:
        raise InvalidInputError("Expected a secret key of at least 16 bytes, kept with the data.")
    digest = hmac.new(key, digestmod=hashlib.sha256)
    for part in data if isinstance(data, tuple) else (data,):
        array = np.asarray(part.to_numpy() if hasattr(part, "to_numpy") else part)
        texts = array.dtype.kind == "O"
        body = json.dumps(array.tolist(), default=str).encode() if texts else array.tobytes()
        digest.update(f"{array.dtype.str}{array.shape}".encode() + body)
    return digest.hexdigest()
