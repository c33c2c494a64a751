"""Reservations from several processes of which one is killed (SIGKILL) again and again, at random moments.

Whoever got an answer must find the reservation, with its number, in the ledger afterwards; nothing may be
booked beyond the budget; the history has no gaps, and every receipt that was taken on the way still holds.

Command: python -m benchmarks.ledger_kills PATH-or-postgresql-URL --reservations 10000 --processes 8
         --json benchmarks/results/ledger_kills.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from scipy.optimize import brentq

from benchmarks.machine import describe
from sordino.errors import BudgetExceededError, LedgerLockedError
from sordino.kernel.events import Relation, gaussian_event
from sordino.ledger import Account, BudgetPolicy, Ledger, Status
from sordino.ledger.account import charge_of
from sordino.ledger.ledger import chain_heads

NAME, EVENT = "kills", gaussian_event(1000.0, Relation.ADD_REMOVE)
PRICE = (0.005, 1e-6)


def work(address: str, acknowledged: str) -> None:
    """Book until the budget is spent; write down the number of each reservation that was answered."""
    with Ledger.open(address, create=False) as ledger, open(acknowledged, "a", buffering=1) as file:
        while True:
            try:
                booked = ledger.reserve(NAME, EVENT, relation="add-remove", unit="record", certificate=PRICE)
            except BudgetExceededError:
                return
            except LedgerLockedError:
                continue
            file.write(f"{booked.sequence}\n")
            booked.settle()


def run(address: str, reservations: int, processes: int, pause: float, seed: int) -> dict[str, Any]:
    """Kill and restart workers until the budget is spent, then check everything."""
    public, begin = random.Random(seed), time.monotonic()
    folder = Path(tempfile.mkdtemp())
    with Ledger.open(address) as ledger:
        ledger.create(NAME, budget_for(reservations))
        # Forks begin to book at once, so that a kill finds them at work and not at importing.
        forks = multiprocessing.get_context("fork")

        def start(number: int) -> Any:
            worker = forks.Process(target=work, args=(address, str(folder / f"{number}.txt")))
            worker.start()
            return worker

        running, kills, started, heads = {n: start(n) for n in range(processes)}, 0, processes, []
        while any(worker.is_alive() for worker in running.values()):
            time.sleep(public.expovariate(1 / pause))
            alive = [n for n, worker in running.items() if worker.is_alive()]
            if not alive:
                break
            lost = public.choice(alive)
            os.kill(running[lost].pid, signal.SIGKILL)
            running.pop(lost).join()
            kills, started = kills + 1, started + 1
            running[started] = start(started)
            if kills % 50 == 0:
                entries, owners = ledger.history(NAME), _owners(ledger)
                heads.append((len(entries), chain_heads(entries, owners)[-1] if entries else ""))
        return {**_checked(ledger, folder, heads), "kills": kills, "seconds": time.monotonic() - begin}


def budget_for(reservations: int) -> BudgetPolicy:
    """Return a budget whose filter admits so many reservations and hardly more."""

    def admits(epsilon: float) -> float:
        account = Account.opened(BudgetPolicy(epsilon, 1e-6))
        charge = charge_of(EVENT, Relation.ADD_REMOVE, account.filter.orders, PRICE)
        budgets = account.filter.budgets(epsilon)
        return max(most / cost for most, cost in zip(budgets, charge.renyi)) - (reservations + 0.5)

    return BudgetPolicy(brentq(admits, 1e-3, 50.0), 1e-6)


def _owners(ledger: Ledger) -> dict[int, str]:
    with ledger._store.transaction(write=False) as store:
        return store.owners_of(NAME)


def _checked(ledger: Ledger, folder: Path, heads: list[tuple[int, str]]) -> dict[str, Any]:
    entries = ledger.history(NAME)
    numbers = [entry.sequence for entry in entries]
    told = [int(line) for file in folder.glob("*.txt") for line in file.read_text().split()]
    chain = chain_heads(entries, _owners(ledger))
    ledger.mark_crashed()
    statuses = [entry.status for entry in ledger.history(NAME)]
    spent = ledger.spent(NAME)
    return {
        "reservations": len(entries),
        "answered": len(told),
        "answered twice": len(told) - len(set(told)),
        "lost": len(set(told) - set(numbers)),
        "gaps": int(numbers != list(range(1, len(numbers) + 1))),
        "overspent": int(spent.epsilon > ledger.policy(NAME).epsilon),
        "spent": spent.fraction,
        "settled": statuses.count(Status.SETTLED),
        "crashed": statuses.count(Status.CRASHED),
        "receipts": len(heads),
        "broken receipts": sum(count > 0 and chain[count - 1] != head for count, head in heads),
        "verified": ledger.verify(NAME).reservations,
    }


def main(arguments: list[str] | None = None) -> None:
    """Run, print and keep what was found."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("address")
    options.add_argument("--reservations", type=int, default=10_000)
    options.add_argument("--processes", type=int, default=8)
    options.add_argument("--pause", type=float, default=0.2, help="mean seconds between two kills")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args(arguments)
    machine = describe()
    found = run(chosen.address, chosen.reservations, chosen.processes, chosen.pause, chosen.seed)
    kind = "PostgreSQL" if chosen.address.startswith("postgres") else "SQLite"
    print(json.dumps({kind: found}, indent=1))
    if chosen.json:
        kept = json.loads(chosen.json.read_text("utf-8")) if chosen.json.exists() else {}
        chosen.json.write_text(
            json.dumps({**kept, "machine": machine, kind: found}, indent=1) + "\n", "utf-8"
        )


if __name__ == "__main__":
    main()
