"""Each mend of the clip has a twin without it, and the search that guards it finds the twin."""

import numpy as np
import pytest
from hypothesis import Phase
from scipy import sparse
from tests.hostile.contributions import Case, climb
from tests.hostile.queries import CASES, SQUARED, W

from sordino.execute import csr
from sordino.kernel import clip, query
from sordino.problems import queries as glm
from sordino.problems.queries import GlmGradient

EXAMPLES = 100  # those of the default profile


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def found(case: Case, kind: str) -> None:
    with pytest.raises(AssertionError, match=r"times the bound|not finite"):
        climb(case, (kind,), EXAMPLES, phases=[Phase.generate, Phase.target])


def naive_norms(matrix, weights, rows=None):
    """Return norms from squares that over- and underflow."""
    matrix = matrix.toarray() if sparse.issparse(matrix) else matrix
    with np.errstate(all="ignore"):
        out = np.sqrt(np.square(matrix * weights).sum(axis=1))
    return out if rows is None else out[rows]


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_claim_1_comes_back_with_squares_that_underflow(monkeypatch, kind):
    monkeypatch.setattr(clip, "weighted_norms", naive_norms)
    found(named("gradient, norm"), kind)


def test_claim_14_comes_back_when_flags_are_believed(monkeypatch):
    monkeypatch.setattr(csr, "check_csr", lambda matrix: matrix)
    found(named("squared, rows clipped"), "csr stale")


def test_a_clip_that_forgets_its_rounding_is_found(monkeypatch):
    monkeypatch.setattr(clip, "limit", lambda bound, length=0: bound)
    monkeypatch.setattr(query, "limit", lambda bound: bound)
    monkeypatch.setattr(clip, "slack", lambda length: 0.0)
    monkeypatch.setattr(clip, "above", lambda values, length: values)
    found(named("squared, rows as they are"), "dense")


def test_a_mapped_row_that_forgets_its_shift_is_found(monkeypatch):
    plain = clip.centred_norms
    without = lambda m, f, shift, w, rows=None, spread=1.0: plain(m, f, 0 * shift, w, rows, spread)  # noqa: E731
    monkeypatch.setattr(clip, "centred_norms", without)
    found(named("affine without intercept"), "dense")
    found(named("gram in a ball"), "csr")


def test_persons_clipped_record_by_record_are_found(monkeypatch):
    monkeypatch.setattr(clip, "person_norms", lambda blocks, owner, persons, sizes: np.zeros(persons))
    found(named("squared, rows clipped"), "persons csr")


def test_tiny_products_that_lose_their_digits_are_found(monkeypatch):
    monkeypatch.setattr(clip, "TINY", 0.0)
    monkeypatch.setattr(glm, "compiled_form", lambda loss: None)  # what is compiled cannot be changed
    for name in ("clip_scalar", "times_factor", "_clip_each", "_products", "_factors"):
        monkeypatch.setattr(clip, name, getattr(clip, name).py_func)
    found(Case("tiny clip", GlmGradient(SQUARED, 1e-12), 0 * W[:4]), "dense")


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_one_pass_with_another_limit_is_found(monkeypatch, kind):
    monkeypatch.setattr(query, "limit", lambda bound: bound * (1.0 + 1e-9))
    found(named("affine without intercept"), kind)
