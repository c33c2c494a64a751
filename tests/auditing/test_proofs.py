"""docs/proofs.md knows every mechanism and solver, and what it points to is there."""

import inspect
import re
import sys
from pathlib import Path

import pytest

from sordino.auditing.tape import play
from sordino.kernel import mechanism
from sordino.kernel.mechanism import Additive, OnGrid
from sordino.solvers import SOLVERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "proofs.md").read_text("utf-8")
NAMED = set(re.findall(r"`([\w-]+)`", PAGE))


def test_every_mechanism_and_every_solver_has_a_proof():
    classes = {c for _, c in inspect.getmembers(mechanism, inspect.isclass)}
    mechanisms = {c.__name__ for c in classes if issubclass(c, Additive)} - {
        Additive.__name__,
        OnGrid.__name__,
    }
    assert mechanisms - NAMED == set()
    assert {name for family in SOLVERS.values() for name in family} - NAMED == set()


NEEDED = {
    "Poisson": "poisson-batches", "Disjoint": "disjoint-parts", "GumbelTopK": "selections",
    "JointSelection": "selections", "LaplaceMax": "selections", "LaplacePeeling": "selections",
    "TiltedObjective": "noise-inside-an-objective",
}  # fmt: skip


@pytest.mark.long
def test_a_row_has_the_proofs_that_the_plans_of_its_solvers_need():
    sys.path.insert(0, str(ROOT))
    from tests.replay import subjects
    from tests.replay.neighbours import hostile_data

    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    rows = {name: line for line in lines for name in re.findall(r"`([\w-]+)`", line.split("|")[1])}
    solvers, seen = {name for family in SOLVERS.values() for name in family}, set()
    for row in subjects.all_rows():
        if not row.name.startswith(("SparseLinear", "PCA")) or "memory" not in row.must:
            continue
        plans = play(lambda r=row: r.fit(hostile_data(r.kind), r.relations[0])).plans
        kinds = {type(part).__name__ for plan in plans for release in plan.releases.values()
                 for part in (release.mechanism, release.sampling)}  # fmt: skip
        for name in set(row.name.split("/")) & solvers:
            assert all(f"#{NEEDED[kind]}" in rows[name] for kind in kinds & set(NEEDED)), row.name
            seen.add(name)
    assert len(seen) >= 25


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
