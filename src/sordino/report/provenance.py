"""Who ran what, when, with which code and which settings."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from numbers import Real
from typing import Any

import sordino
from sordino.ledger.address import code_digest, person

_LONGEST = 200


def provenance(model: Any, dataset_id: str | None, author: str | None, config: Any) -> dict[str, str]:
    """Return what a board wants to know about a run, besides its guarantee: who, when, code, settings.

    A fact that nobody stated reads "not stated". Of a model's parameters those that are no plain values are
    named by their type.
    """
    if config is None:
        given: Any = getattr(model, "get_params", dict)()
        given = given if isinstance(given, Mapping) else {}
        shown = {k: plain(v) for k, v in given.items() if v is not None and not k.endswith("ledger")}
        config = {"model": type(model).__name__, **shown}
    text = config if isinstance(config, str) else json.dumps(plain(config), indent=2, ensure_ascii=False)
    packages = ("numpy", "scipy", "scikit-learn", "dp-accounting")
    return {
        "dataset_id": dataset_id or "not stated",
        "author": author or person() or "not stated",
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": sordino.__version__,
        "software": f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {metadata.version(name)}" for name in packages),
        "code_digest": code_digest(),
        "config": text,
        "config_digest": hashlib.sha256(text.encode()).hexdigest(),
    }


def plain(value: Any) -> Any:
    """Return a parameter as JSON can hold it: words, numbers and short lists of them, never an array.

    **Privacy.** Parameters are public constants; an array or an object among them may not be one.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"a text of {len(value)} characters"
    if isinstance(value, Real):
        number = float(value)
        if number.is_integer() and abs(number) < 1e15:
            return int(number)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, Mapping):
        return {str(k)[:_LONGEST]: plain(v) for k, v in list(value.items())[:100]}
    if isinstance(value, (list, tuple)) and len(value) <= 50:
        return [plain(v) for v in value]
    return f"a {type(value).__name__}"
