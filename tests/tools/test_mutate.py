"""The mutation tests themselves: they break what they should and notice who does not notice."""

import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from tools.mutations import changed, mutants

TOOL = Path(__file__).resolve().parents[2] / "tools" / "mutate.py"


def _changes(source):
    return [m.change for m in mutants("f.py", source.encode())]


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("x = a + b", "a + b -> (a - b)"),
        ("x = 2 - a * b", "a * b -> (a / b)"),
        ("x = a < b", "a < b -> (a <= b)"),
        ("x = a < b", "a < b -> (a > b)"),
        ("x = a and b", "a and b -> (a or b)"),
        ("x = not a", "not a -> (a)"),
        ("x = -a", "-a -> (a)"),
        ("x = 3", "3 -> 4"),
        ("x = 0.5", "0.5 -> 0.75"),
        ("x = True", "True -> False"),
        ("x += y", "x += y -> x -= y"),
        ("x += y", "x += y -> pass"),
        ("x = a if c else b", "a if c else b -> (b if c else a)"),
        ("if c:\n    pass", "c -> (not c)"),
        ("x = [a for a in b if c(a)]", "c(a) -> (not c(a))"),
        ("x = np.minimum(a, b)", "np.minimum(a, b) -> np.maximum(a, b)"),
        ("x = max(a, b)", "max(a, b) -> min(a, b)"),
        ("x = math.sqrt(a)", "math.sqrt(a) -> (a)"),
        ("def f():\n    return x", "return x -> return None"),
        ("def f():\n    check(x)", "check(x) -> pass"),
        ("raise ValueError(3)", "raise ValueError(3) -> pass"),
        ("a[i] = x", "a[i] = x -> pass"),
        ("def f(x=0.5): ...", "0.5 -> 0.75"),
    ],
)
def test_a_line_is_broken_in_the_way_a_slip_would(source, change):
    assert change in _changes(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring with 3 numbers."""',
        "x: int | None",
        "def f(x: A | B) -> A | B: ...",
        "@njit(cache=True)\ndef f(): ...",
        "from a import b",
        "x = f'{a + 1}'",
    ],
)
def test_words_types_and_decorators_are_left_alone(source):
    assert _changes(source) == []


def test_a_mutant_changes_one_span_and_leaves_every_other_byte_alone():
    before, after = "é = x  # a comment\n\nclass A:\n    def f(self, x):\n        y = (", ")  # ü\n"
    source = f"{before}x +\n            z{after}".encode()
    (mutant,) = mutants("f.py", source)
    assert (mutant.line, mutant.where, mutant.change) == (5, "A.f", "x + z -> (x - z)")
    assert mutant.apply(source).decode() == f"{before}(x - z){after}"


def test_every_written_reason_is_of_a_mutant_that_there_is():
    root = TOOL.parents[1]
    entries = tomllib.loads((root / "tools" / "mutation_survivors.toml").read_text("utf-8"))["survivor"]
    files = {entry["file"] for entry in entries}
    known = {mutant.key for file in files for mutant in changed(file, (root / file).read_bytes())}
    gone = [
        entry
        for entry in entries
        if tuple(entry[name] for name in ("file", "where", "code", "change")) not in known
    ]
    assert not gone, "the code has moved: move the entries with it, or delete them"


TOY = "def clip(x, bound):\n    if x > bound:\n        return bound\n    return x\n"
WEAK = "from sordino.kernel.toy import clip\n\n\ndef test_it():\n    assert clip(5, 2) == 2\n"
STRONG = WEAK + "    assert clip(1, 2) == 1\n"
EQUAL = """
[[survivor]]
file = "src/sordino/kernel/toy.py"
where = "clip"
code = "if x > bound:"
change = "x > bound -> (x >= bound)"
reason = "At equality both branches return the bound."
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Return a function that mutates a package of one module, and of others, under the given tests."""

    @cache
    def run(tests, survivors="", *options, others=()):
        files = {
            "src/sordino/kernel/toy.py": TOY,
            "src/sordino/kernel/__init__.py": "",
            "src/sordino/__init__.py": "",
            "tests/kernel/test_toy.py": tests,
            "tools/mutation_survivors.toml": survivors,
            "pyproject.toml": "[tool.pytest.ini_options]\nfilterwarnings = ['error']\n",
            **dict(others),
        }
        folder = tmp_path_factory.mktemp("toy")
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        command = [sys.executable, str(TOOL), "--root", str(folder), "--jobs", "1", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    return run


def test_a_weak_test_leaves_a_survivor_with_its_place_and_change(toy):
    result = toy(WEAK)
    assert result.returncode == 1
    assert "SURVIVED src/sordino/kernel/toy.py:4 [clip] return x -> return None" in result.stdout


def test_a_survivor_without_a_reason_fails_the_run_and_one_with_a_reason_does_not(toy):
    without = toy(STRONG)
    assert without.returncode == 1
    assert without.stdout.count("SURVIVED") == 1
    explained = toy(STRONG, EQUAL)
    assert explained.returncode == 0, explained.stdout + explained.stderr
    assert "1 survived, 0 of them without a reason" in explained.stdout


def test_an_entry_for_a_mutant_that_is_gone_fails_the_run(toy):
    result = toy(STRONG, EQUAL.replace("x > bound ->", "y > bound ->"))
    assert result.returncode == 1
    assert "no such mutant any more" in result.stdout


def test_a_printed_entry_explains_its_mutant_once_it_has_a_reason(toy):
    lines = toy(STRONG).stdout.splitlines()
    start = lines.index("[[survivor]]")
    entry = "\n".join(lines[start : start + 6])
    assert toy(STRONG, entry.replace('reason = ""', 'reason = "Equal."')).returncode == 0


def test_an_empty_reason_is_no_reason(toy):
    result = toy(STRONG, EQUAL.replace("At equality both branches return the bound.", " "))
    assert result.returncode == 1
    assert "no reason given" in result.stdout


def test_tests_that_fail_unmutated_stop_the_run(toy):
    result = toy(STRONG + "    assert clip(1, 2) == 7\n")
    assert result.returncode == 1
    assert "fail unmutated" in result.stderr


def test_a_module_without_tests_is_named(toy):
    result = toy(STRONG, EQUAL, others=(("src/sordino/kernel/bare.py", "x = 3\n"),))
    assert result.returncode == 1
    assert "no tests mapped: src/sordino/kernel/bare.py" in result.stdout


def test_shards_share_out_every_mutant_once(toy):
    whole = toy(STRONG, "", "--list").stdout.splitlines()
    parts = [toy(STRONG, "", "--list", "--shard", f"{i}/2").stdout.splitlines() for i in (1, 2)]
    assert len(whole) > 2
    assert sorted(parts[0] + parts[1]) == sorted(whole)
