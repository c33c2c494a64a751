"""Each rule of the house linter catches what is planted, and lets its neighbour pass."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools.lint_house import findings, is_code, judged

TOOL = Path(__file__).resolve().parents[2] / "tools" / "lint_house.py"
BLOCK = [f"total = total + weight_{i} * factor" for i in range(7)]


@pytest.fixture
def house(tmp_path):
    """Return a function that puts a file into a small house; its names are used by a test."""

    def put(path, text):
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return tmp_path

    put("tests/test_uses.py", "import used, also_used\n")
    return put


def _function(name, lines):
    return f"def {name}():\n" + "".join(f"    {line}\n" for line in lines)


def _rules(root):
    return [(finding.rule, finding.path, finding.line) for finding in findings(root)]


# ------------------------------------------------------------------------------------------ copies


def test_six_lines_that_stand_twice_are_found_with_both_places(house):
    house("src/a.py", "start = 1\n" + "\n".join(BLOCK[:6]))
    root = house("src/b.py", "other = 2\n\n" + "\n".join(BLOCK[:6]))
    (found,) = findings(root)
    assert (found.rule, found.path, found.line) == ("copy", "src/a.py", 2)
    assert found.what == "6 lines stand also in src/b.py:3"
    assert found.key == "src/a.py and src/b.py"


def test_five_lines_that_stand_twice_are_not_found(house):
    house("src/a.py", "\n".join(BLOCK[:5]))
    assert _rules(house("src/b.py", "\n".join(BLOCK[:5]))) == []


def test_a_longer_copy_is_one_finding(house):
    house("src/a.py", "\n".join(BLOCK))
    (found,) = findings(house("src/b.py", "\n".join(BLOCK)))
    assert found.what == "7 lines stand also in src/b.py:1"


def test_a_copy_in_one_file_in_other_indentation_with_other_comments_is_found(house):
    inner = "\n".join(f"        {line}" for line in BLOCK)
    outer = "\n\n# why\n".join(BLOCK)
    root = house("src/a.py", f"for i in x:\n    if i:\n{inner}\nprint(total)\n{outer}\n")
    assert _rules(root) == [("copy", "src/a.py", 3)]


def test_a_repeating_line_is_not_a_copy_of_itself(house):
    assert _rules(house("src/a.py", "total = total + 1\n" * 8)) == []


def test_parameters_fields_imports_and_docstrings_are_not_copies(house):
    names = ["epsilon", "delta", "alpha", "beta", "gamma", "kappa", "rho"]
    text = '"""Say.\n' + "\n".join(names) + '\n"""\n' + "".join(f"import {name}\n" for name in names)
    text += "class {}:\n" + "".join(f"    {name}: float\n" for name in names)
    text += (
        "    def __init__(\n        self,\n" + "".join(f"        {name},\n" for name in names) + "    ):\n"
    )
    text += "".join(f"        self.{name} = {name}\n" for name in names)
    text += (
        "        super().__init__(\n"
        + "".join(f"            {name}={name},\n" for name in names)
        + "        )\n"
    )
    house("src/a.py", text.replace("{}", "used"))
    assert _rules(house("src/b.py", text.replace("{}", "also_used"))) == []


# ---------------------------------------------------------------------------------------- unused


def test_a_public_name_that_nothing_names_is_found(house):
    root = house("src/room.py", "def forgotten():\n    return 1\n\n\nclass Lost:\n    pass\n")
    assert _rules(root) == [("unused", "src/room.py", 1), ("unused", "src/room.py", 5)]


@pytest.mark.parametrize(
    "place", ["src/b.py", "tests/b.py", "docs/page.md", "benchmarks/b.py", "examples/b.py"]
)
def test_a_name_that_something_names_is_used(house, place):
    house("src/room.py", "def forgotten():\n    return 1\n")
    assert _rules(house(place, "forgotten\n")) == []


def test_a_longer_name_does_not_count(house):
    house("docs/page.md", "unforgotten, forgotten_2\n")
    root = house("src/room.py", "def forgotten():\n    return 1\n")
    assert _rules(root) == [("unused", "src/room.py", 1)]


def test_private_and_registered_functions_are_left_alone(house):
    text = "def _own():\n    return 1\n\n\n@main.command()\ndef fit():\n    return 2\n"
    assert _rules(house("src/room.py", text)) == []


# -------------------------------------------------------------------------------- code in comments


@pytest.mark.parametrize(
    "comment",
    [
        "# x = f(y)",
        "#x = f(y)",
        "# print(total)",
        "# return total",
        "# import numpy as np",
        "# if total > 3:",
        "# for row in rows:",
        "# total += weight",
        "# raise ValueError",
        "# a = 1; b = 2",
        "# def f(x):",
    ],
)
def test_a_comment_that_is_code_is_found(house, comment):
    assert is_code(comment)
    root = house("tests/room.py", f"def f():\n    {comment}\n    return 1\n")
    assert _rules(root) == [("code-in-comment", "tests/room.py", 2)]


@pytest.mark.parametrize(
    "comment",
    [
        "# Paper divides by |B|; we use E|B|.",
        "# w = theta, k = s, v is Eq. (7)'s v_t",
        "# s = a * b",
        "# noqa: E501",
        "# ------------------------------ the tests",
        "# total",
        "# 38 numbers + 3 protocols",
        "# (rows, columns)",
        "# why?",
    ],
)
def test_a_comment_that_is_prose_or_a_formula_is_not(comment):
    assert not is_code(comment)


def test_a_line_of_a_string_is_not_a_comment(house):
    assert _rules(house("tests/room.py", 'text = """\n# print(total)\n"""\n')) == []


# ------------------------------------------------------------------------------------- allowances


def test_an_allowed_finding_passes_and_a_needless_or_bare_allowance_does_not(house):
    found = findings(house("src/room.py", "def forgotten():\n    return 1\n"))
    reason = "the next release uses it"
    assert judged(found, {"unused": {"src/room.py:forgotten": reason}}) == []
    assert "nothing names forgotten" in judged(found, {})[0]
    assert "found no more" in judged([], {"unused": {"src/room.py:forgotten": reason}})[0]
    assert "needs a reason" in judged(found, {"unused": {"src/room.py:forgotten": "later"}})[0]


def test_the_command_says_where_and_returns_one(house):
    root = house("src/room.py", "def forgotten():\n    return 1\n")
    run = [sys.executable, str(TOOL), str(root)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0][:24]) == (1, "src/room.py:1: unused: n")
    house("tools/lint_house.toml", '[unused]\n"src/room.py:forgotten" = "the next release uses it"\n')
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
