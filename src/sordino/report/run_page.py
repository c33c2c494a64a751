"""The page a board signs: one run, what it guarantees and what that rests on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sordino.accounting.codec import encode
from sordino.accounting.conversions import gaussian_mu
from sordino.accounting.trade_off import gaussian_trade_off
from sordino.report import words
from sordino.report.booking import Booking, booking_of
from sordino.report.contents import contents_of, report_of, scores_of
from sordino.report.page import rendered
from sordino.report.provenance import Provenance
from sordino.runs import PrivacyReport, meaning

COMPARED = (1.0, 4.0, 8.0)
_LONGEST_EVENT = 20_000


def write_report(model: Any, path: str | Path, **details: Any) -> Path:
    """Write one self-contained HTML page about a run to ``path``; return the path.

    ``model`` and ``details`` (``dataset_id``, ``author``, ``config``, ``command``, ``title``, ``ledger``,
    ``scores``, ``facts``, ``assume_public``) as in :func:`report_html`.

    **Privacy.** The page shows released numbers and declared constants only.
    """
    page = report_html(model, **details)
    path = Path(path)
    path.write_text(page, encoding="utf-8")
    return path


def report_html(
    model: Any,
    *,
    dataset_id: str | None = None,
    author: str | None = None,
    config: str | Mapping[str, Any] | None = None,
    command: str | None = None,
    title: str | None = None,
    ledger: Any = None,
    scores: Mapping[str, Any] | None = None,
    facts: Mapping[str, str] | None = None,
    assume_public: Sequence[str] = (),
) -> str:
    """Return one self-contained HTML page about a run.

    Parameters
    ----------
    model : a fitted model, search or pipeline, a private result, or a :class:`sordino.PrivacyReport`.
    dataset_id, ledger : of the records; None takes the model's own.
    author : who ran it; None takes ``SORDINO_PERSON`` or the name of the account.
    config : the settings of the run, a text or a mapping; None takes the model's parameters.
    command : how it was run, for the section on how to do it again.
    title : of the page.
    scores : results of :func:`sordino.private_score` (or plain numbers from public records) by name.
    facts : more lines about the run, by name: when it ran, on which file.
    assume_public : for a pipeline, see :func:`sordino.pipeline_privacy`.

    **Privacy.** The page shows released numbers and declared constants only, by a fixed list of attributes;
    of a model that is not private nothing but its kind.
    """
    report = report_of(model, assume_public)
    dataset_id = dataset_id or getattr(model, "dataset_id", None)
    ledger = getattr(model, "ledger", None) if ledger is None else ledger
    origin = Provenance.of(model, dataset_id, author, config)
    contents = contents_of(model, report)
    booking = booking_of(report, ledger, dataset_id)
    whole = report.whole
    return rendered(
        "run.html",
        title=title or f"Privacy report: {contents.kind}",
        report=report,
        origin=origin,
        contents=contents,
        booked=booking if isinstance(booking, Booking) else None,
        not_booked=booking if isinstance(booking, str) else "",
        scores=scores_of(scores),
        releases=words.releases(report),
        assumptions=words.assumptions(report, origin.author),
        facts=dict(facts or {}),
        holds=report.status.holds,
        odds=report.odds,
        whole=whole,
        strength=meaning.strength(report.epsilon),
        compared=compared(report),
        command=command or _command(contents.kind),
        event=_event(report),
    )


def compared(report: PrivacyReport) -> list[dict[str, str]]:
    """Return what the best attack on this run achieves, beside one Gaussian release at epsilon 1, 4 and 8."""
    epsilon, delta = report.whole or (report.epsilon, report.delta)
    near = next((e for e in COMPARED if 0 <= e - epsilon <= 0.02 * e), None)  # calibrated just below it
    own = epsilon if near is None else near
    curves = {e: gaussian_trade_off(gaussian_mu(e, min(delta, 0.5))) for e in COMPARED}
    curves[own] = report.trade_off
    return [
        {
            "epsilon": meaning.at_most(epsilon, 3),
            "own": "yes" if epsilon == own else "",
            "strength": meaning.strength(epsilon),
            "bet": meaning.percent(meaning.guess(curve)),
            "found": meaning.percent(curve.true_positive_rate(0.01)),
            "harm": _in_a_thousand(curve.true_positive_rate(0.001)),
        }
        for epsilon, curve in sorted(curves.items())
    ]


def _in_a_thousand(chance: float) -> str:
    return "any chance" if chance >= 1 else f"{meaning.at_most(1000 * chance, 3)} in 1,000"


def _command(kind: str) -> str:
    return (
        f"model = sordino.{kind}(...)  # the settings below\nmodel.fit(X, y)"
        if kind != "PrivacyReport"
        else ""
    )


def _event(report: PrivacyReport) -> str:
    text = json.dumps(encode(report.event), indent=1)
    return (
        text
        if len(text) <= _LONGEST_EVENT
        else f"{text[:_LONGEST_EVENT]}\n... ({len(text)} characters in all)"
    )
