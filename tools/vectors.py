"""Write the test vectors: events, ledgers and reports as JSON that another implementation can run.

    python tools/vectors.py tests/vectors/1

What each file holds and what a runner does with it is on docs/vectors.md; tests/test_vectors.py runs the
files of all versions. A version is written once: what changes an expected number or a format is a new folder.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dp_accounting import dp_event as dp

from sordino.accounting import canonical, certify, encode, gaussian_multiplier, rdp_curve
from sordino.errors import BudgetExceededError, InvalidInputError, UnsupportedError
from sordino.kernel.events import (
    PureDpEvent,
    RareDpEvent,
    Relation,
    TiltDpEvent,
    compose_events,
    gaussian_event,
    repeat_event,
)
from sordino.ledger import BudgetPolicy, Ledger, Status
from sordino.ledger.ledger import chain_heads
from sordino.ledger.store import ENTRY_COLUMNS, jsonable, seal
from sordino.runs.report import PrivacyReport, ReleaseReport, certified_report

VERSION = 1
ORDERS = (1.5, 2.0, 8.0, 32.0, 256.0)
TOLERANCE = 2e-3
ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def poisson(rate: float, multiplier: float, times: int) -> dp.DpEvent:
    """Return ``times`` Gaussian releases on Poisson batches."""
    return repeat_event(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)), times)


EVENTS: dict[str, dp.DpEvent] = {
    "nothing": dp.NoOpDpEvent(),
    "no noise": dp.NonPrivateDpEvent(),
    "one Gaussian": dp.GaussianDpEvent(1.3),
    "Gaussians of two sizes": compose_events(
        [repeat_event(dp.GaussianDpEvent(5.0), 20), dp.GaussianDpEvent(2.5)]
    ),
    "Laplace": repeat_event(dp.LaplaceDpEvent(6.0), 7),
    "pure": repeat_event(PureDpEvent(0.15), 11),
    "zCDP": dp.ZCDpEvent(0.04, 0.01),
    "DP-SGD": poisson(0.01, 1.0, 1000),
    "batches and full passes": compose_events(
        [poisson(0.05, 2.0, 40), repeat_event(dp.GaussianDpEvent(9.0), 4)]
    ),
    "batches of a fixed size": repeat_event(
        dp.SampledWithoutReplacementDpEvent(10_000, 100, dp.GaussianDpEvent(1.0)), 300
    ),
    "a mixture of shifts": repeat_event(dp.MixtureOfGaussiansDpEvent(2.0, (0.25, 1.0), (0.9, 0.1)), 30),
    "the best of a random number of runs": dp.RepeatAndSelectDpEvent(dp.GaussianDpEvent(3.0), 10.0, 1.0),
    "a tilted objective": TiltDpEvent(4.0, 0.1),
    "told but rarely": compose_events([RareDpEvent(1e-7), dp.GaussianDpEvent(2.0)]),
}
MALFORMED: list[Any] = [
    {},
    [],
    {"type": "gaussian"},
    {"type": "gaussian", "noise_multiplier": -1.0},
    {"type": "gaussian", "noise_multiplier": True},
    {"type": "gaussian", "noise_multiplier": 1.0, "more": 1},
    {"type": "os.system", "command": "true"},
    {"type": "repeated", "event": {"type": "pure", "epsilon": 0.1}, "count": 1.5},
    {"type": "poisson", "sampling_probability": 1.5, "event": {"type": "none"}},
    {"type": "fixed-size", "source_dataset_size": 10, "sample_size": 11, "event": {"type": "none"}},
    {"type": "composed", "events": {"type": "none"}},
]


def events() -> dict[str, Any]:
    """Return event trees with their text, their certified epsilon and their Rényi costs."""
    cases = []
    for name, event in EVENTS.items():
        for relation in (ADD, REPLACE):
            case = {"name": name, "relation": relation.value, "event": encode(event)}
            found = [_certified(event, delta, relation) for delta in (1e-5, 1e-8)]
            cases.append(
                {**case, "canonical": canonical(event), "certified": found, **_costs(event, relation)}
            )
    return {"orders": ORDERS, "tolerance": TOLERANCE, "cases": cases, "malformed": MALFORMED}


def _certified(event: dp.DpEvent, delta: float, relation: Relation) -> dict[str, Any]:
    try:
        return {"delta": delta, "epsilon": jsonable(certify(event, delta, relation).epsilon)}
    except UnsupportedError:
        return {"delta": delta, "unsupported": True}


def _costs(event: dp.DpEvent, relation: Relation) -> dict[str, Any]:
    try:
        return {"renyi": [jsonable(float(cost)) for cost in rdp_curve(event, relation, ORDERS)]}
    except UnsupportedError:
        return {"renyi": None}


WHOLE = gaussian_event(gaussian_multiplier(1.0, 1e-6), ADD)
# The budget, the plans that are asked for one after the other, and the part of its delta that each one takes.
PLANS: dict[str, tuple[BudgetPolicy, list[dp.DpEvent], float]] = {
    "many small Gaussian plans": (BudgetPolicy(1.0, 1e-6), [gaussian_event(20.0, ADD)] * 22, 0.05),
    "one plan as large as the budget": (BudgetPolicy(1.0, 1e-6), [WHOLE, gaussian_event(99.0, ADD)], 1.0),
    "pure plans add up to the last digit": (BudgetPolicy(0.3, 0.0), [PureDpEvent(0.1)] * 4, 0.0),
    "a plan without a curve comes first": (
        BudgetPolicy(2.0, 1e-5, REPLACE), [RareDpEvent(1e-9), gaussian_event(30.0, REPLACE)], 0.05,
    ),
    "batches": (BudgetPolicy(2.0, 1e-6, unit="person"), [poisson(0.01, 1.2, 200)] * 6, 0.05),
}  # fmt: skip


def ledgers() -> dict[str, Any]:
    """Return budgets, the plans that were asked for one after the other, and what became of each."""
    return {"tolerance": 1e-9, "cases": [_booked(name, *plan) for name, plan in PLANS.items()]}


def _booked(name: str, policy: BudgetPolicy, plans: list[dp.DpEvent], share: float) -> dict[str, Any]:
    delta = share * policy.delta
    with tempfile.TemporaryDirectory() as folder, Ledger.open(f"{folder}/ledger.db") as ledger:
        ledger.create("data", policy)
        steps = [_step(ledger, policy, event, delta) for event in plans]
        account, history = ledger.account("data"), ledger.history("data")
        export = json.loads(ledger.to_json())
    fixed = [replace(e, reserved_at="2026-01-01T00:00:00+00:00", finished_at="") for e in history]
    fixed = [replace(e, status=Status.RESERVED) for e in fixed]
    budget = {"epsilon": jsonable(policy.epsilon), "delta": policy.delta, "unit": policy.unit}
    return {
        "name": name,
        "budget": {**budget, "relation": policy.relation.value},
        "filter": {
            "orders": [jsonable(order) for order in account.filter.orders],
            "shares": account.filter.deltas,
            "budgets": [jsonable(most) for most in account.filter.budgets(policy.epsilon)],
        },
        "asked": steps,
        "columns": ENTRY_COLUMNS.split(", "),
        "rows": [[jsonable(value) for value in entry.row] for entry in fixed],
        "seals": [seal(entry.row) for entry in fixed],
        "chain": chain_heads(fixed),
        "export": export,
    }


def _step(ledger: Ledger, policy: BudgetPolicy, event: dp.DpEvent, delta: float) -> dict[str, Any]:
    epsilon = certify(event, delta, policy.relation).epsilon if delta else event.epsilon
    asked = {"event": encode(event), "certificate": [jsonable(epsilon), delta]}
    how = {"relation": policy.relation, "unit": policy.unit, "certificate": (epsilon, delta)}
    try:
        booked = ledger.reserve("data", event, **how)
    except BudgetExceededError:
        return {**asked, "outcome": "refused"}
    account, entry = ledger.account("data"), booked.entry
    booked.settle()
    return {
        **asked,
        "outcome": "booked",
        "charges": [jsonable(cost) for cost in entry.charge.renyi],
        "mode": account.mode.value,
        "spent": [jsonable(total) for total in account.renyi],
        "fraction": account.fraction,
    }


def reports() -> dict[str, Any]:
    """Return reports as JSON with what a reader has to say of them, and texts that it has to refuse."""
    row = ReleaseReport("gradient", "Gaussian", "Poisson(rate=0.01)", 1000, 1.0, "0.5 (L2)")
    event, words = poisson(0.01, 1.0, 1000), {"noise_source": "the operating system", "seeded": False}
    honest = certified_report(certify(event, 1e-5, ADD), event, "record", None, releases=(row,), **words)
    twins: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "as it was written": lambda data: data,
        "more than its events cost": lambda data: {**data, "epsilon": 2 * data["epsilon"]},
        "seeded noise": lambda data: {**data, "seeded": True},
        "parts that are not proven": lambda data: {**data, "unproven": ["a printed formula"]},
        "no noise": lambda data: {**data, "epsilon": "inf", "event": {"type": "non-private"}},
        "less than its events cost": lambda data: {**data, "epsilon": data["epsilon"] / 2},
        "another delta": lambda data: {**data, "delta": data["delta"] / 100},
        "another relation": lambda data: {**data, "relation": "replace-one"},
        "a format of later": lambda data: {**data, "format": 99},
        "an event that is none": lambda data: {**data, "event": {"type": "os.system"}},
        "a number that is none": lambda data: {**data, "epsilon": math.pi * -1},
    }
    cases = []
    for name, change in twins.items():
        data = change(honest.to_dict())
        try:
            said = {"status": str(PrivacyReport.from_dict(data).status)}
        except InvalidInputError:
            said = {"refused": True}
        cases.append({"name": name, "report": data, **said})
    return {"cases": cases}


def main(folder: str) -> None:
    """Write a folder of vectors that is not there yet."""
    place = Path(folder)
    place.mkdir(parents=True)
    for name, make in {"events": events, "ledgers": ledgers, "reports": reports}.items():
        document = {"format": f"sordino-vectors-{name}", "version": VERSION, **make()}
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
        (place / f"{name}.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
