"""What no linter off the shelf finds: copies, names nobody uses, code in comments.

    python tools/lint_house.py [root]

Rules, each a function from the files of the house to findings:

- ``copy``             six lines and more of code that stand in src/ twice
- ``unused``           a public function or class of src/ that nothing names, not even a test or a page
- ``code-in-comment``  a comment that is code

What may stay is listed in ``lint_house.toml`` with a reason. An entry that nothing needs any more is a
finding too, so the list only gets shorter by itself.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import sys
import time
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

LINES_OF_A_COPY = 6
ROOMS = ("src", "tests", "tools", "benchmarks")
PLACES_THAT_NAME = ("src", "tests", "docs", "benchmarks", "examples", "tools")
ALLOWED = "tools/lint_house.toml"

_SAYS_NOTHING = re.compile(r"[#@]|\W*\w?\W*$|\w+,$|(\w+)=\1,$|self\.(\w+) = \2$")

Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, order=True)
class Finding:
    """A rule that is broken, where, and the key under which it can be allowed."""

    path: str
    line: int
    rule: str
    key: str
    what: str


@dataclass(frozen=True)
class Source:
    """A Python file, parsed when a rule asks for its tree."""

    path: str
    text: str

    @property
    def room(self) -> str:
        return self.path.split("/")[0]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text)))


def read_sources(root: Path) -> list[Source]:
    """Return the Python files of the rooms, in order."""
    paths = [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]
    return [Source(path.relative_to(root).as_posix(), path.read_text("utf-8")) for path in paths]


# ------------------------------------------------------------------------------------------- copies


def code_lines(source: Source) -> list[tuple[int, str]]:
    """Return (number, text) of the lines that do something.

    Docstrings, imports, comments and lone brackets do not; nor do the fields of a class and the
    parameters of a function, which are handed on one a line and kept as ``self.x = x`` by the custom of
    scikit-learn.
    """
    dropped: set[int] = set()
    for node in source.nodes:
        is_string = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_field = isinstance(node, ast.AnnAssign) and node.value is None
        if is_string or is_field or isinstance(node, ast.Import | ast.ImportFrom):
            dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, Functions):
            dropped.update(range(node.lineno, node.body[0].lineno))
    lines = enumerate(source.text.splitlines(), start=1)
    plain = [(number, " ".join(line.split())) for number, line in lines if number not in dropped]
    return [(number, line) for number, line in plain if not _SAYS_NOTHING.match(line)]


def copies(sources: list[Source]) -> Iterator[Finding]:
    """Find runs of lines that stand twice, each pair of places once and at its full length."""
    said = {source.path: code_lines(source) for source in sources if source.room == "src"}
    windows: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path, lines in said.items():
        for start in range(len(lines) - LINES_OF_A_COPY + 1):
            window = tuple(text for _, text in lines[start : start + LINES_OF_A_COPY])
            windows[window].append((path, start))
    starts = {pair for places in windows.values() for pair in itertools.combinations(places, 2)}
    for (path, i), (other, j) in sorted(starts):
        overlap = path == other and abs(i - j) < LINES_OF_A_COPY
        if overlap or ((path, i - 1), (other, j - 1)) in starts:
            continue
        n = LINES_OF_A_COPY
        while ((path, i + n - LINES_OF_A_COPY + 1), (other, j + n - LINES_OF_A_COPY + 1)) in starts:
            n += 1
        key = " and ".join(sorted({path, other}))
        what = f"{n} lines stand also in {other}:{said[other][j][0]}"
        yield Finding(path, said[path][i][0], "copy", key, what)


# ------------------------------------------------------------------------------------ unused names


def words(root: Path) -> Counter[str]:
    """Count every name in the code, the tests and the pages."""
    counted: Counter[str] = Counter()
    for place in PLACES_THAT_NAME:
        for path in (root / place).rglob("*"):
            if path.suffix in (".py", ".md", ".ipynb", ".sh", ".toml") and path.name != Path(ALLOWED).name:
                counted.update(re.findall(r"[A-Za-z_]\w*", path.read_text("utf-8")))
    for path in [*root.glob("*.md"), *root.glob("*.toml")]:
        counted.update(re.findall(r"[A-Za-z_]\w*", path.read_text("utf-8")))
    return counted


def unused(sources: list[Source], counted: Mapping[str, int]) -> Iterator[Finding]:
    """Find public functions and classes that are defined and never named again.

    What a decorator registers (a command, a case of a table) is used by that decorator.
    """
    defined: dict[str, list[tuple[Source, int]]] = defaultdict(list)
    for source in sources:
        for node in source.nodes[0].body if source.room == "src" else ():  # type: ignore[attr-defined]
            if isinstance(node, Functions | ast.ClassDef) and not node.name.startswith("_"):
                registered = any(isinstance(d, ast.Call | ast.Attribute) for d in node.decorator_list)
                if isinstance(node, ast.ClassDef) or not registered:
                    defined[node.name].append((source, node.lineno))
    for name, places in defined.items():
        if counted[name] <= len(places):
            for source, line in places:
                yield Finding(source.path, line, "unused", f"{source.path}:{name}", f"nothing names {name}")


# ------------------------------------------------------------------------------------ dead comments

_STATEMENTS = (
    ast.Import | ast.ImportFrom | ast.Return | ast.Raise | ast.Assert | ast.Delete | ast.If | ast.For
    | ast.While | ast.With | ast.FunctionDef | ast.ClassDef | ast.AugAssign
)  # fmt: skip


def is_code(comment: str) -> bool:
    """Return whether a comment is a statement of Python, and not a formula or a word.

    ``x = f(y)`` and ``f(y)`` are code; ``s = a * b`` is how a paper's formula is written down.
    """
    text = re.sub(r"^#+ ?", "", comment).strip()
    text = f"{text}\n    pass" if text.endswith(":") else text
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    if len(body) != 1:
        return len(body) > 1
    node = body[0]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute | ast.Name)
    return isinstance(node, _STATEMENTS)


def code_in_comments(sources: list[Source]) -> Iterator[Finding]:
    """Find comments on lines of their own that are code; version control remembers it better."""
    for source in sources:
        lines = enumerate(source.text.splitlines(), start=1)
        looks = {number: line.strip() for number, line in lines if line.lstrip().startswith("#")}
        looks = {number: line for number, line in looks.items() if is_code(line)}
        for number in sorted(looks.keys() & _comment_lines(source.text)) if looks else ():
            what = f"is code: {looks[number]}"
            yield Finding(source.path, number, "code-in-comment", f"{source.path}:{looks[number]}", what)


def _comment_lines(text: str) -> set[int]:
    """Return the numbers of the lines with a comment; a string may hold a line that looks like one."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}


# --------------------------------------------------------------------------------------------- main


def findings(root: Path) -> list[Finding]:
    """Return everything that breaks a rule, allowed or not."""
    sources = read_sources(root)
    found = [*copies(sources)]
    found += [*unused(sources, words(root)), *code_in_comments(sources)]
    return sorted(found)


def judged(found: list[Finding], allowed: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the complaints: what is not allowed, and what is allowed in vain or without a reason."""
    rows = {(rule, key): reason for rule, keys in allowed.items() for key, reason in keys.items()}
    seen = {(finding.rule, finding.key) for finding in found}
    out = [
        f"{f.path}:{f.line}: {f.rule}: {f.what}. Mend it, or allow it under {f.key!r} in {ALLOWED}."
        for f in found
        if (f.rule, f.key) not in rows
    ]
    for (rule, key), reason in rows.items():
        if (rule, key) not in seen:
            out.append(f"{ALLOWED}: [{rule}] {key!r} is found no more. Delete the line.")
        elif len(reason.split()) < 3:
            out.append(f"{ALLOWED}: [{rule}] {key!r} needs a reason of a few words.")
    return out


def main(arguments: list[str]) -> int:
    """Print the complaints and return 1 if there are any."""
    start = time.perf_counter()
    root = Path(arguments[0] if arguments else ".").resolve()
    path = root / ALLOWED
    allowed = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
    complaints = judged(findings(root), allowed)
    for complaint in complaints:
        print(complaint)
    print(f"lint_house: {len(complaints)} findings in {time.perf_counter() - start:.1f} s")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
