"""The guarantee of several promises together."""

from __future__ import annotations

from collections.abc import Sequence

from dp_accounting import dp_event as dp

from sordino.accounting import certify
from sordino.errors import InvalidInputError
from sordino.runs.meaning import at_most
from sordino.runs.price import Price, each_once
from sordino.runs.report import PrivacyReport


def composed(
    parts: Sequence[tuple[str, PrivacyReport]],
    delta: float | None = None,
    *,
    notes: Sequence[str] = (),
    unpaid: Sequence[str] = (),
    learned: Sequence[Price] = (),
) -> PrivacyReport:
    """Return the guarantee of all parts together: their events are composed and certified now.

    Parameters
    ----------
    parts : the reports by name; all for the same unit and relation.
    delta : of the whole; None takes the largest delta of the parts.
    notes : further words.
    unpaid : what else read the records, and why it is not covered: then nothing is guaranteed.
    learned : what was paid for schemas that no part itself has read.
    """
    if not parts:
        raise InvalidInputError("Expected at least one private step, got none.")
    relations = {report.relation for _, report in parts}
    units = {report.unit for _, report in parts}
    if len(relations) > 1 or len(units) > 1:
        raise InvalidInputError(
            "Expected all steps to protect the same unit under the same relation, got "
            f"{sorted(r.value for r in relations)} and {sorted(units)}."
        )
    relation = relations.pop()
    delta = max(report.delta for _, report in parts) if delta is None else delta
    event = dp.ComposedDpEvent([report.event for _, report in parts])
    certificate = certify(event, delta, relation)
    return PrivacyReport(
        epsilon=certificate.epsilon,
        delta=delta,
        relation=relation,
        unit=units.pop(),
        accountant=certificate.accountant,
        event=event,
        releases=tuple(release for _, report in parts for release in report.releases),
        public=tuple(dict.fromkeys(line for _, report in parts for line in report.public)),
        noise_source=parts[0][1].noise_source,
        seeded=any(report.seeded for _, report in parts),
        notes=(
            *(f"step {name!r}: epsilon = {at_most(report.epsilon)}" for name, report in parts),
            *dict.fromkeys(note for _, report in parts for note in report.notes),
            *notes,
        ),
        discretisation=certificate.discretisation,
        unpaid=tuple(dict.fromkeys((*(u for _, report in parts for u in report.unpaid), *unpaid))),
        unproven=tuple(dict.fromkeys(part for _, report in parts for part in report.unproven)),
        learned=each_once((*(price for _, report in parts for price in report.learned), *learned)),
        copied=any(report.copied for _, report in parts),
    )
