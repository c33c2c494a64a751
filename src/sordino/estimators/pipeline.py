"""The guarantee of several steps together."""

from __future__ import annotations

from typing import Any

from dp_accounting import dp_event as dp
from sklearn.utils.validation import check_is_fitted

from sordino.accounting import PrivacyReport, certify
from sordino.errors import InvalidInputError


def pipeline_privacy(pipeline: Any, delta: float | None = None) -> PrivacyReport:
    """Return the guarantee of all private steps of a fitted pipeline together.

    Their events are composed; ``delta=None`` takes the largest delta of the steps. Steps without a
    ``privacy_`` report are listed: they must be public (a fixed vocabulary, a hashing vectoriser, a row
    normaliser), because nothing was paid for them.
    """
    check_is_fitted(pipeline)
    steps = list(getattr(pipeline, "steps", [(type(pipeline).__name__, pipeline)]))
    reports = [(name, step.privacy_) for name, step in steps if hasattr(step, "privacy_")]
    if not reports:
        raise InvalidInputError("Expected a pipeline with at least one private step, got none.")
    relations = {report.relation for _, report in reports}
    units = {report.unit for _, report in reports}
    if len(relations) > 1 or len(units) > 1:
        raise InvalidInputError(
            "Expected all steps to protect the same unit under the same relation, got "
            f"{sorted(r.value for r in relations)} and {sorted(units)}."
        )
    relation = relations.pop()
    delta = max(report.delta for _, report in reports) if delta is None else delta
    event = dp.ComposedDpEvent([report.event for _, report in reports])
    certificate = certify(event, delta, relation)
    free = [name for name, step in steps if not hasattr(step, "privacy_")]
    return PrivacyReport(
        epsilon=certificate.epsilon,
        delta=delta,
        relation=relation,
        unit=units.pop(),
        accountant=certificate.accountant,
        event=event,
        releases=tuple(r for _, report in reports for r in report.releases),
        public=tuple(dict.fromkeys(line for _, report in reports for line in report.public)),
        noise_source=reports[0][1].noise_source,
        seeded=any(report.seeded for _, report in reports),
        notes=(
            *(f"step {name!r}: epsilon = {report.epsilon:.4g}" for name, report in reports),
            *(f"step {name!r}: nothing paid, assumed to use no private data" for name in free),
        ),
    )
