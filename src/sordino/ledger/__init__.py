"""Persistent privacy budgets: reserved and on disk before the first release, never refunded."""

from sordino.ledger.account import Account, Charge, FilterMode
from sordino.ledger.filter import RenyiFilter
from sordino.ledger.ledger import Ledger
from sordino.ledger.policy import BudgetPolicy
from sordino.ledger.records import Entry, Status
from sordino.ledger.reservation import Reservation
from sordino.ledger.spending import Remaining, Spent
from sordino.ledger.verify import Verification

__all__ = [
    "Account",
    "BudgetPolicy",
    "Charge",
    "Entry",
    "FilterMode",
    "Ledger",
    "Remaining",
    "RenyiFilter",
    "Reservation",
    "Spent",
    "Status",
    "Verification",
]
