"""docs/proofs.md knows every mechanism and solver, and what it points to is there."""

import inspect
import re
from pathlib import Path

import pytest

from sordino.kernel import mechanism, selection
from sordino.kernel.mechanism import Additive, OnGrid
from sordino.solvers import SOLVERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "proofs.md").read_text("utf-8")
NAMED = set(re.findall(r"`([\w-]+)`", PAGE))


def test_every_mechanism_and_every_solver_has_a_proof():
    classes = {c for m in (mechanism, selection) for _, c in inspect.getmembers(m, inspect.isclass)}
    mechanisms = {c.__name__ for c in classes if issubclass(c, Additive)} - {
        Additive.__name__,
        OnGrid.__name__,
    }
    assert mechanisms - NAMED == set()
    assert {name for family in SOLVERS.values() for name in family} - NAMED == set()


def anchors(path):
    heads = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", PAGE))))
def test_a_proof_that_is_named_is_there(link):
    path, _, anchor = link.partition("#")
    assert not anchor or anchor in anchors(ROOT / "docs" / path)
    assert (ROOT / "docs" / path).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))))
def test_an_attack_that_is_named_is_there_and_names_the_page(path):
    assert "docs/proofs.md" in (ROOT / path).read_text("utf-8")
