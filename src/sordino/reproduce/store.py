"""Results on disk: one JSON file per table, written after every run, so that an interrupted one goes on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError
from sordino.reproduce.tables import Outcome

FORMAT = 1


class Store:
    """The outcomes of the runs of one table, by key; ``settings`` tell whether they may be gone on with.

    ``date`` is the day of the last run (UTC), ``cpu_seconds`` what all of them took.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, {"format": FORMAT, **settings}
        self.date, self.cpu_seconds = "", 0.0
        self._runs: dict[str, list[dict[str, float]]] = {}
        if path.exists():
            self._read()

    def outcomes(self, key: str) -> Sequence[Outcome]:
        """Return what is known of a key."""
        return tuple(self._runs.get(key, ()))

    def add(self, key: str, outcome: Outcome, cpu_seconds: float = 0.0) -> None:
        """Keep an outcome, on disk when this returns."""
        self._runs.setdefault(key, []).append({name: float(value) for name, value in outcome.items()})
        self.date = time.strftime("%Y-%m-%d", time.gmtime())
        self.cpu_seconds = round(self.cpu_seconds + cpu_seconds, 1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        about = {"date": self.date, "cpu_seconds": self.cpu_seconds}
        document = {"settings": self.settings, "about": about, "runs": self._runs}
        fresh = self.path.with_suffix(".part")
        fresh.write_text(json.dumps(document, indent=1, allow_nan=True) + "\n", encoding="utf-8")
        os.replace(fresh, self.path)

    def _read(self) -> None:
        try:
            document = json.loads(self.path.read_text("utf-8"))
            known, about = dict(document["settings"]), document["about"]
            self.date, self.cpu_seconds = str(about["date"]), float(about["cpu_seconds"])
            runs = {key: [_outcome(one) for one in kept] for key, kept in document["runs"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"{self.path} is not a file of results. Move it away, or name another folder."
            ) from error
        if known == self.settings:
            self._runs = runs
        else:
            raise InvalidInputError(
                f"{self.path} was made with other settings ({_differences(known, self.settings)}). Move it "
                "away, name another folder, or run it as before."
            )


def _outcome(kept: Any) -> dict[str, float]:
    """Return an outcome that was kept, if it is one: numbers by name, the value among them."""
    found = {name: float(number) for name, number in kept.items()}
    return {"value": found.pop("value"), **found}


def _differences(known: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = sorted(n for n in known.keys() | wanted.keys() if known.get(n) != wanted.get(n))
    return ", ".join(f"{n} {known.get(n)!r}, now {wanted.get(n)!r}" for n in names)
