"""The stages in which a sparse model loses its columns."""

from __future__ import annotations

from dataclasses import dataclass

# Shares of the budget: of the cuts, of the first one behind a screen, of polishing behind cuts and alone.
NARROW, AFTER_SCREEN, POLISH, POLISH_ALONE = 0.12, 0.20, 0.20, 0.30
# Margin noise that the last iterate of a cut and of polishing may carry.
NARROWING, POLISHING = 0.5, 1.0
# The support is found in stages that keep so many times as many coefficients as the last one.
WIDTHS = (24, 6)


@dataclass(frozen=True)
class Stage:
    """A descent on the largest ``count`` coefficients: its steps, share of the budget and margin noise."""

    count: int
    steps: int
    share: float
    margin_noise: float


def narrowing(sparsity: int, coefficients: int) -> dict[str, Stage]:
    """Return the stages that end at this sparsity; one that would keep most coefficients is left out."""
    wide = {
        f"narrow-{times}": Stage(times * sparsity, 10, NARROW, NARROWING)
        for times in WIDTHS
        if 2 * times * sparsity <= coefficients
    }
    return {**wide, "polish": Stage(sparsity, 20, POLISH if wide else POLISH_ALONE, POLISHING)}
