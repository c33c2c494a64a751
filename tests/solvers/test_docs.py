"""Every sparse solver has a page that names its options, and the code on the pages runs."""

import re
from pathlib import Path

import pytest
from tests.solvers.plain import made_problem

from sordino.errors import InvalidInputError
from sordino.solvers import Options, make_solver

PAGES = Path(__file__).resolve().parents[2] / "docs" / "solvers"
SOLVERS = "ight sgd-ht svrg-ht scsg-ht transfer frank-wolfe two-stage peeled coordinate".split()  # noqa: SIM905


def own_options(name):
    """Return the names that the solver says it knows."""
    with pytest.raises(InvalidInputError) as caught:
        make_solver(name, made_problem(), Options(3, extra={"no such option": 1}))
    return re.search(r"among: (.*); got", str(caught.value)).group(1).split(", ")


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_has_a_page_with_all_of_its_options(name):
    page = (PAGES / f"{name}.md").read_text("utf-8")
    assert not [option for option in own_options(name) if f"`{option}`" not in page]
    for part in ("Steps", "eleased", "ccounting", "paper's formula", "Use it"):
        assert part in page, part


@pytest.mark.parametrize("name", ["gd", "sgd", "rrp-sgd", "adam", "srm", "agd", "ls-sgd", "ls-adam"])
def test_the_page_on_dense_models_has_all_options_of_a_solver(name):
    page = (PAGES / "dense.md").read_text("utf-8")
    assert f"`{name}`" in page
    with pytest.raises(InvalidInputError) as caught:
        make_solver(name, made_problem(), Options(extra={"no such option": 1}))
    known = re.search(r"among: (.*); got", str(caught.value)).group(1).split(", ")
    assert not [option for option in known if f"`{option}`" not in page]


@pytest.mark.parametrize("name", SOLVERS)
def test_the_index_links_the_page(name):
    index = (PAGES / "index.md").read_text("utf-8")
    assert f"({name}.md)" in index
    assert f"\n{name}\n" in index


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda p: p.stem)
def test_the_code_on_a_page_runs(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), {})
