"""`sordino inspect` and `sordino report`: what a saved model is, on a terminal and on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sordino.cli import options, show


@click.command()
@options.MODEL
@click.option("--top", default=20, show_default=True, help="How many coefficients.")
@options.JSON
def inspect(model: Path, top: int, as_json: bool) -> None:
    """Show the guarantee of MODEL and its coefficients with the noise in them."""
    import sordino
    from sordino.saving import about

    fitted, facts = sordino.load(model), about(model)
    report = getattr(fitted, "privacy_", None)
    rows = _contents(fitted)
    if as_json:
        run = facts.get("about", {}).get("run")
        out = {"model": facts["model"], "version": facts["version"], "run": run, "privacy": facts["report"]}
        show.document({**out, "coefficients": rows})
        return
    click.echo(f"{type(fitted).__name__}, saved by Sordino {facts['version']}")
    if report is not None:
        click.echo(report.guarantee)
        click.echo(repr(report))
    if rows:
        show.table(("", "value", "noise, two sigma", ""), [_row(entry) for entry in rows[:top]])
        if len(rows) > top:
            click.echo(f"{len(rows) - top} smaller ones are not shown (--top).")


def _contents(model: Any) -> list[dict[str, Any]]:
    """Return coefficients by size, or the variances of components, with the noise that is known."""
    import numpy as np

    if hasattr(model, "explained_variance_"):
        values, names = (
            model.explained_variance_,
            [f"component {i}" for i in range(len(model.explained_variance_))],
        )
        noise = np.full(len(values), model.eigenvalue_noise_)
    elif hasattr(model, "coef_"):
        coef = np.atleast_2d(model.coef_)
        classes = [""] if len(coef) == 1 else [f"{label}: " for label in model.classes_]
        names = [start + name for start in classes for name in _names(model, coef.shape[1])]
        values, noise = coef.ravel(), _noise(model, coef)
    else:
        return []
    order = np.argsort(-np.abs(values), kind="stable") if hasattr(model, "coef_") else np.arange(len(values))
    return [
        {
            "name": names[i],
            "value": float(values[i]),
            "two sigma": None if noise is None else 2 * float(noise[i]),
        }
        for i in order
    ]


def _noise(model: Any, coef: Any) -> Any:
    import numpy as np

    noise = getattr(model, "coef_noise_", None)
    if noise is None:
        return None
    rows = np.atleast_2d(noise)[:, : coef.shape[1]]  # the last one may be the intercept's
    return np.broadcast_to(rows, coef.shape).ravel() if rows.shape[1] == coef.shape[1] else None


def _names(model: Any, count: int) -> list[str]:
    encoder = getattr(model, "encoder_", None)
    if encoder is not None:
        return [str(name) for name in encoder.get_feature_names_out()]
    names = getattr(model, "feature_names_in_", None)
    return [f"x{i}" for i in range(count)] if names is None else [str(name) for name in names]


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    noise = entry["two sigma"]
    word = "could be noise" if noise is not None and abs(entry["value"]) <= noise else ""
    return entry["name"], f"{entry['value']:.4g}", "" if noise is None else f"{noise:.3g}", word
