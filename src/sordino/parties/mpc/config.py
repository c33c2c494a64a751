"""`party.toml`: everything that one member decides for itself."""

from __future__ import annotations

import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError
from sordino.parties.mpc.links import Credentials, Limits, fingerprint_of
from sordino.parties.mpc.partners import Partners
from sordino.parties.mpc.policy import Policy

SECTIONS: dict[str, set[str] | None] = {
    "party": {"name", "state", "listen", "control", "proposers"},
    "tls": {"certificate", "key", "authorities"},
    "data": {"path", "dataset"},
    "ledger": {"path"},
    "policy": {
        "max_epsilon",
        "max_delta",
        "slack_delta",
        "min_parties",
        "min_threshold",
        "modes",
        "trusted",
        "min_trusted",
    },
    "limits": {"connect", "message", "work"},
    "members": None,  # any names
}
OPTIONAL = {"limits"}


@dataclass(frozen=True)
class PartyConfig:
    """A member's own settings; paths are relative to the file."""

    name: str
    state: Path
    data: Path
    dataset: str
    ledger: str
    policy: Policy
    partners: Partners
    credentials: Credentials
    limits: Limits
    listen: str | None = None
    control: str | None = None

    @property
    def fingerprint(self) -> str:
        """The fingerprint of this member's certificate."""
        return fingerprint_of(self.credentials.certificate)

    @classmethod
    def load(cls, path: Path) -> PartyConfig:
        """Read and check a file."""
        try:
            text = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInputError(f"Expected a party's settings at {path}: {error}") from None
        _check_words(path, text)
        party, data, tls, base = text["party"], text["data"], text["tls"], path.parent
        ledger = str(text["ledger"]["path"])
        credentials = Credentials(*(base / tls[k] for k in ("certificate", "key", "authorities")))
        return cls(
            name=str(party["name"]),
            state=base / party["state"],
            data=base / data["path"],
            dataset=str(data["dataset"]),
            ledger=ledger if "://" in ledger else str(base / ledger),
            policy=_policy(text["policy"]),
            partners=_partners(text, credentials),
            credentials=credentials,
            limits=Limits(**text.get("limits", {})),
            listen=party.get("listen"),
            control=party.get("control"),
        )


def _policy(text: Mapping[str, Any]) -> Policy:
    given = {name: value for name, value in text.items() if name not in ("trusted", "min_trusted")}
    modes = {"modes": tuple(given["modes"])} if "modes" in given else {}
    return Policy(**{**given, **modes})


def _partners(text: Mapping[str, Any], credentials: Credentials) -> Partners:
    policy, party = text["policy"], text["party"]
    return Partners(
        name=str(party["name"]),
        fingerprint=fingerprint_of(credentials.certificate),
        members={str(name): value for name, value in text["members"].items()},
        trusted=tuple(policy["trusted"]),
        min_trusted=int(policy.get("min_trusted", 1)),
        proposers=tuple(party.get("proposers", ())),
    )


def _check_words(path: Path, text: Mapping[str, Any]) -> None:
    missing = sorted(set(SECTIONS) - set(text) - OPTIONAL)
    unknown = sorted(set(text) - set(SECTIONS))
    closed = {section: words for section, words in SECTIONS.items() if words is not None}
    unknown += [f"{s}.{w}" for s, words in closed.items() for w in sorted(set(text.get(s, ())) - words)]
    if missing or unknown:
        raise InvalidInputError(
            f"{path}: missing sections {missing}, unknown words {unknown}. [members] names whom this member "
            "runs with, with the fingerprints of their certificates."
        )
    required = {"party": ("name", "state"), "tls": closed["tls"], "data": closed["data"]}
    required |= {"ledger": ("path",), "policy": ("max_epsilon", "max_delta", "trusted")}
    for section, words in required.items():
        absent = sorted(w for w in words if w not in text[section])
        if absent:
            raise InvalidInputError(f"{path}: the section [{section}] needs {absent}.")


def load_records(path: Path, classes: Sequence[Any] = ()) -> tuple[Any, Any]:
    """Return a matrix and its targets: an ``.npz`` with X and y, or a CSV whose last column is y.

    The last column of a CSV is text if the declared ``classes`` are texts.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return arrays["X"], arrays.get("y")
        if not any(isinstance(label, str) for label in classes):
            table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
            return table[:, :-1], table[:, -1]
        with path.open(encoding="utf-8") as lines:
            columns = [line.count(",") for _, line in zip(range(2), lines)][-1]
        matrix = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2, usecols=range(columns))
        return matrix, np.loadtxt(path, delimiter=",", skiprows=1, ndmin=1, usecols=columns, dtype=str)
    except (OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile):
        # Which error it was may be decided by one record, and so may its words.
        raise InvalidInputError(
            f"Expected an .npz with X and y, or a CSV with a header, at {path}."
        ) from None
