"""RESULTS.md is what the kept results say, and no table of numbers on the front pages lacks its command."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "solvers").glob("*.md")),
]
COMMAND = re.compile(r"`[^`]*(?:python |make |sordino )[^`]*`|made by |docs/figures/|benchmarks[./]")
MEASURED = re.compile(r"\|\s*\**(?:\d*\.\d{2,}|\d+\.\d+ ?%|\d+(?:\.\d+)? (?:ms|s|MB|GB)\b)")


def test_the_page_is_what_the_kept_results_say():
    made = runpy.run_path(str(ROOT / "docs" / "figures" / "results.py"))["page"]()
    assert (ROOT / "RESULTS.md").read_text("utf-8") == made


def tables(text):
    """Yield the first line of each table of a page, with the section around it."""
    for section in re.split(r"^#", text, flags=re.M):
        lines = section.split("\n")
        rows = [i for i, line in enumerate(lines) if line.startswith("|")]
        if rows and any(MEASURED.search(lines[i]) for i in rows):
            yield lines[rows[0]], section


@pytest.mark.parametrize("path", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_a_table_of_measured_numbers_names_the_command_that_made_it(path):
    text = path.read_text("utf-8")
    whole = COMMAND.search(text.split("\n## ", 1)[0])  # a command at the top of a page speaks for all of it
    orphans = [head for head, section in tables(text) if not (whole or COMMAND.search(section))]
    assert not orphans
