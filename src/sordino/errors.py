"""Typed errors. A message names the value, the bound and the remedy, never a value of the data."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


class SordinoError(Exception):
    """Base class of every error raised on purpose by Sordino."""


class InvalidInputError(SordinoError, ValueError):
    """A parameter or an input is outside its bound."""


class InvalidTypeError(InvalidInputError, TypeError):
    """An input is of a kind that cannot be a number."""


class SchemaError(InvalidInputError):
    """A schema that declares nothing usable, or a table that does not fit its schema."""


class UnsupportedError(SordinoError, ValueError):
    """A combination that has no proof, for example a sampling without an accountant."""


class CalibrationError(SordinoError, ValueError):
    """No noise level reaches the asked epsilon."""


class PlanError(SordinoError, RuntimeError):
    """A release that was not planned, or a plan that is not ready to be run."""


class PlanSpentError(PlanError):
    """A plan, or one of its releases, was used more often than it was paid for."""


class AuditError(SordinoError, RuntimeError):
    """An audit cannot be made of what it was given; this says nothing about a guarantee."""


class BudgetExceededError(SordinoError, RuntimeError):
    """The ledger refuses: the budget of the data set does not cover the plan."""


class LedgerError(SordinoError, RuntimeError):
    """The ledger could not be read or written."""


class LedgerLockedError(LedgerError):
    """Another process holds the ledger for too long."""


class LedgerCorruptError(LedgerError):
    """The file is not a ledger, or it was damaged."""


class LedgerReadOnlyError(LedgerError):
    """The ledger cannot be written, so no budget can be reserved."""


class LedgerVersionError(LedgerError):
    """The ledger was written by a newer version of Sordino."""


class UnknownDatasetError(LedgerError):
    """The ledger has no data set of this name."""


class DatasetExistsError(LedgerError, ValueError):
    """The ledger has a data set of this name, and a budget is set only once."""


class PolicyMismatchError(LedgerError, ValueError):
    """A guarantee for one relation or unit cannot be booked on a budget for another."""


class RoleError(LedgerError):
    """The terms of the data set do not let this person do this."""


class ApprovalNeededError(LedgerError):
    """A reservation of this size needs the approval of a second person."""


class ReservationEndedError(LedgerError):
    """A reservation ended before, or belongs to another process: it cannot end again here."""


class PartyError(SordinoError, RuntimeError):
    """A run between parties failed; ``party`` is the name of the member it failed at, if known."""

    def __init__(self, message: str, party: str | None = None) -> None:
        super().__init__(message)
        self.party = party


class WorkerError(SordinoError, RuntimeError):
    """Workers of a cluster failed or were lost, so a release has no answer; its budget is spent."""


class MissingExtraError(SordinoError, ImportError):
    """An optional dependency is not installed."""


class DataNotFoundError(SordinoError, FileNotFoundError):
    """A data set is neither on disk nor downloadable."""


class DataFileError(InvalidInputError):
    """A file of records cannot be read as what it should be; the message holds no value of it."""


class ModelFileError(SordinoError, ValueError):
    """A model file is damaged, of a newer version, or holds what a model file may not hold."""


class NotPrivateWarning(UserWarning):
    """What was just made carries no privacy guarantee, or not the one that its paper claims.

    ``certified`` is the epsilon that is proven, nan where none is.
    """

    def __init__(self, message: str = "", certified: float = float("nan")) -> None:
        super().__init__(message)
        self.certified = certified


class PrivacyWarning(UserWarning):
    """The guarantee is true but weaker than it may look."""


class LedgerWarning(UserWarning):
    """A run ended and the ledger could not be told: its budget is spent, its label there is old."""


class UndeclaredBoundWarning(UserWarning):
    """A bound that clips or ends an interval was not declared: the guarantee holds, accuracy may suffer."""


class SlowEngineWarning(UserWarning):
    """Gradients of a network are computed by the slow engine, which was not asked for."""


class FitWarning(UserWarning):
    """Released numbers say that a model is biased: a clip took more of the targets than was put back."""


class DivergenceWarning(UserWarning):
    """Released coefficients are not finite: the steps of the run were too long."""


def require_extra(module: str, extra: str) -> MissingExtraError:
    """Build the error for a missing optional dependency."""
    return MissingExtraError(
        f"The module {module!r} is not installed. Install it with: pip install 'sordino[{extra}]'."
    )


def import_extra(name: str, extra: str) -> Any:
    """Return a module of an optional dependency, or say which extra brings it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise require_extra(name.partition(".")[0], extra) from error


def levels_to_the_caller() -> int:
    """Return the ``stacklevel`` of a warning at which the first line outside of this package stands."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("sordino."):
        frame, level = frame.f_back, level + 1
    return level
