"""What a user may fix in a PCA, and the rules for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.problems.covariance import PcaProblem

# A d x d release needs about four such matrices at once (sum, noise, its transpose, eigenvectors).
MATRIX_BYTES = 500_000_000


@dataclass(frozen=True)
class PcaOptions:
    """None means: by a rule that looks at public facts only."""

    max_iter: int | None = None
    batch_size: int | None = None
    step_size: float | None = None
    oversampling: int | None = None
    momentum: float | None = None

    def columns(self, problem: PcaProblem) -> int:
        """Return how many directions an iteration follows: more than wanted, so that it converges fast."""
        extra = 20 if self.oversampling is None else self.oversampling
        return min(problem.features, problem.components + extra)

    def batch(self, problem: PcaProblem) -> int:
        """Return the expected batch size."""
        wanted = max(64, problem.population // 10) if self.batch_size is None else self.batch_size
        return min(wanted, problem.population)


def fits_matrix(features: int) -> bool:
    """Whether a features x features matrix may be held, noised and decomposed."""
    return 4 * 8 * features**2 <= MATRIX_BYTES
