"""Every sparse solver has a page that names its options, and the code on the pages runs."""

import re
import runpy
from pathlib import Path

import pytest
from tests.solvers.plain import made_problem

from sordino.errors import InvalidInputError
from sordino.solvers import SOLVERS, Options, capabilities_of, make_solver

PAGES = Path(__file__).resolve().parents[2] / "docs" / "solvers"
OWN_PAGE = sorted(name for name in SOLVERS["linear"] if capabilities_of(name).page == name)


@pytest.mark.parametrize("name", sorted(SOLVERS["linear"]))
def test_a_solver_has_a_page_with_all_of_its_options(name):
    able = capabilities_of(name)
    page = (PAGES / f"{able.page}.md").resolve().read_text("utf-8")
    assert f"`{name}`" in page or able.page == name
    assert not [option for option in able.options if f"`{option}`" not in page]


@pytest.mark.parametrize("name", sorted(set(OWN_PAGE) - {"auto"}))
def test_a_page_of_a_solver_has_all_parts(name):
    page = (PAGES / f"{name}.md").read_text("utf-8")
    for part in ("Steps", "eleased", "ccounting", "paper's formula", "Use it"):
        assert part in page, part


@pytest.mark.parametrize("name", sorted(SOLVERS["linear"]))
def test_an_unknown_option_is_refused_with_the_names_of_those_that_exist(name):
    with pytest.raises(InvalidInputError, match="no such option") as caught:
        make_solver(name, made_problem(), Options(extra={"no such option": 1}))
    assert all(option in str(caught.value) for option in capabilities_of(name).options)


@pytest.mark.parametrize("name", OWN_PAGE)
def test_the_index_links_the_page(name):
    index = (PAGES / "index.md").read_text("utf-8")
    assert f"({name}.md)" in index
    assert f"\n{name}\n" in index


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda p: p.stem)
def test_the_code_on_a_page_runs(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), {})


def test_the_table_of_solvers_is_what_they_declare():
    script = runpy.run_path(str(PAGES.parent / "figures" / "solver_table.py"))
    assert script["tables"]() in (PAGES / "index.md").read_text("utf-8")
