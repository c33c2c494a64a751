"""Persistent privacy budgets: reserved and on disk before the first release, never refunded."""

from sordino.ledger.account import Account, Charge, FilterMode
from sordino.ledger.ledger import Ledger, Reservation
from sordino.ledger.policy import BudgetPolicy, RenyiFilter
from sordino.ledger.store import Entry, Status
from sordino.ledger.team import Terms, fingerprint

__all__ = [
    "Account", "BudgetPolicy", "Charge", "Entry", "FilterMode", "Ledger", "RenyiFilter", "Reservation",
    "Status", "Terms", "fingerprint",
]  # fmt: skip
