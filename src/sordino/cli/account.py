"""`sordino account`: what plans cost, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sordino.cli import shared

TRAINING = shared.all_of(
    click.option("--rows", type=click.IntRange(1), required=True, help="How many records there are."),
    click.option("--batch-size", type=click.IntRange(1), help="Expected records in a batch; else all."),
    click.option("--epochs", type=float, help="How often each record is seen on average."),
    click.option("--steps", type=click.IntRange(1), help="How many batches; instead of --epochs."),
    click.option("--delta", type=float, help="The probability of a larger loss; else min(1e-5, 1/(10 n))."),
    click.option(
        "--correlation",
        default="independent",
        show_default=True,
        help="Of the noise over the steps: banded, blt or regenerated.",
    ),
    shared.RELATION,
)


@click.group()
def account() -> None:
    """Compute prices: the epsilon of a training, the noise for an epsilon, several models together."""


@account.command()
@click.option("--noise", type=float, required=True, help="Noise multiplier: deviation / clipping norm.")
@TRAINING
@shared.JSON
def epsilon(noise: float, **facts: Any) -> None:
    """Say what training by noisy mini-batches (DP-SGD) costs."""
    training = _training(facts)
    _tell(training, noise, training.epsilon(noise))


@account.command()
@shared.EPSILON
@TRAINING
@shared.JSON
def noise(epsilon: float, **facts: Any) -> None:
    """Say how much noise training by mini-batches (DP-SGD) needs for an epsilon."""
    training = _training(facts)
    multiplier, found = training.least_noise(epsilon)
    _tell(training, multiplier, found)


@account.command()
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--delta", type=float, help="Of all together; else the largest of theirs.")
@shared.JSON
def models(models: tuple[Path, ...], delta: float | None) -> None:
    """Certify the plans in the model files MODELS again, and say what they cost together.

    It holds for models of the same records that were planned without looking at each other's results; the
    ledger has the figure for models that were.
    """
    from sordino.errors import InvalidInputError
    from sordino.runs import PrivacyReport, composed
    from sordino.runs.report import at_most
    from sordino.saving import about

    texts = [(str(path), about(path)["report"]) for path in models]
    without = [name for name, text in texts if text is None]
    if without:
        raise InvalidInputError(f"{without[0]} has no report: nothing private was fitted in it.")
    parts = [(name, PrivacyReport.from_dict(text)) for name, text in texts]
    together = composed(parts, delta)
    if shared.wants_json():
        each = [
            {"model": name, "epsilon": part.epsilon, "delta": part.delta, "status": part.status}
            for name, part in parts
        ]
        shared.document({"models": each, "together": together.to_dict()})
        return
    shown = [*parts, ("together", together)]
    rows = [
        (name, at_most(report.epsilon), at_most(report.delta, 3), report.status) for name, report in shown
    ]
    shared.show_table(("model", "epsilon", "delta", "status"), rows)
    shared.tell_schema_price(together)


def _training(facts: dict[str, Any]) -> Any:
    from sordino.runs.training import Training

    rows, batch = facts["rows"], facts["batch_size"] or facts["rows"]
    if (facts["epochs"] is None) == (facts["steps"] is None):
        raise click.UsageError("Say either --epochs or --steps.")
    steps = facts["steps"] or max(1, round(facts["epochs"] * rows / batch))
    return Training(rows, batch, steps, facts["delta"], facts["relation"], facts["correlation"])


def _tell(training: Any, multiplier: float, found: Any) -> None:
    facts = {"epsilon": found.epsilon, "delta": found.delta, "relation": found.relation.value}
    facts |= {"accountant": found.accountant, "noise_multiplier": multiplier, "correlation": training.noise}
    facts |= {"steps": training.steps, "batch_size": training.batch_size, "rows": training.rows}
    words = (
        f"{shared.bound(found)} ({found.relation.value}, "
        f"{found.accountant}): {training.steps} steps of {training.batch_size:g} of {training.rows} "
        f"records, {training.noise} noise, multiplier {multiplier:.4g}"
    )
    shared.result(facts, words)
