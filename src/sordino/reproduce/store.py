"""Results on disk: one JSON file per table, written after every run, so that an interrupted one goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError
from sordino.reproduce.tables import Outcome

FORMAT = 1


class Store:
    """The outcomes of the runs of one table, by key; ``settings`` tell whether they may be gone on with."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, {"format": FORMAT, **settings}
        self._runs: dict[str, list[dict[str, float]]] = {}
        if path.exists():
            self._read()

    def outcomes(self, key: str) -> Sequence[Outcome]:
        """Return what is known of a key."""
        return tuple(self._runs.get(key, ()))

    def add(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome, on disk when this returns."""
        self._runs.setdefault(key, []).append({name: float(value) for name, value in outcome.items()})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        document = {"settings": self.settings, "runs": self._runs}
        fresh = self.path.with_suffix(".part")
        fresh.write_text(json.dumps(document, indent=1, allow_nan=True) + "\n", encoding="utf-8")
        os.replace(fresh, self.path)

    def _read(self) -> None:
        try:
            document = json.loads(self.path.read_text("utf-8"))
            known, runs = document["settings"], document["runs"]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInputError(
                f"{self.path} is not a file of results. Move it away, or name another folder."
            ) from error
        if known == self.settings:
            self._runs = {str(key): list(values) for key, values in runs.items()}
        else:
            raise InvalidInputError(
                f"{self.path} was made with other settings ({_differences(known, self.settings)}). Move it "
                "away, name another folder, or run it as before."
            )


def _differences(known: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = sorted(n for n in known.keys() | wanted.keys() if known.get(n) != wanted.get(n))
    return ", ".join(f"{n} {known.get(n)!r}, now {wanted.get(n)!r}" for n in names)
