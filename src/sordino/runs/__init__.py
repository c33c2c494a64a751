"""The only room that makes a promise: what was asked, certified, reserved, released and reported.

A fit is one call, ``run(task, rows, ask)``. Whoever needs more control takes the same steps one by one::

    ask = Ask.checked(epsilon, delta, population, ledger, dataset_id)   # what the user wants
    promise = Promise.made(ask, task.plan())                             # calibrated, certified now
    with promise.reserved("what it is for") as run:                      # on the ledger's disk
        curator = run.curate(executor)                                   # the only way to a curator
        ...                                                              # settled, or failed, at the end
    report = promise.report(public, notes)                               # the only way to a report

A plan whose noise comes from elsewhere (a checkpoint, a peer, a consortium's text) becomes a promise only by
:meth:`Promise.given`, which certifies it now and refuses what exceeds the ask. :class:`Journal` and
:class:`SavedRun` let a run survive its process, :class:`RoundBook` spreads one over the rounds of a
federation, :class:`Stream` over chunks; :func:`composed` adds up promises, :class:`ChooseThenFit` and
:class:`BestOf` pay for a search.
"""

from sordino.runs.journal import Journal, RoundBook, SavedRun, Stream, Turn, resumed
from sordino.runs.promise import Ask, Enclosure, Promise, Run
from sordino.runs.report import PaperClaim, Price, PrivacyReport, ReleaseReport, composed
from sordino.runs.search import BestOf, ChooseThenFit
from sordino.runs.task import Fitted, Task, run, track

__all__ = [
    "Ask", "BestOf", "ChooseThenFit", "Enclosure", "Fitted", "Journal", "PaperClaim", "Price",
    "PrivacyReport", "Promise", "ReleaseReport", "RoundBook", "Run", "SavedRun", "Stream", "Task",
    "Turn", "composed", "resumed", "run", "track",
]  # fmt: skip
