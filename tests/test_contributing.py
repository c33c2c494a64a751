"""The code in CONTRIBUTING.md runs, so it cannot drift from the library."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).resolve().parents[1] / "CONTRIBUTING.md").read_text("utf-8")


def _blocks(title):
    """Return the Python blocks of one section."""
    section = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S)
    return re.findall(r"^```python\n(.*?)^```", section.group(1), re.M | re.S)


@pytest.mark.parametrize("title", ["Add a solver", "Add a mechanism"])
def test_the_code_of_a_section_runs(title):
    blocks = _blocks(title)
    assert len(blocks) >= 2
    # Each section is one program, with a module name of its own for its dataclasses.
    exec(compile("\n".join(blocks), f"CONTRIBUTING.md: {title}", "exec"), {"__name__": __name__})
