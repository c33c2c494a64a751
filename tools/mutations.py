"""Small, single changes of a Python source file, each of which a test should notice.

A mutant replaces one span of the file and leaves every other byte alone; its line is that of the
original.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

BINARY = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARE = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
PAIRS = [("min", "max"), ("minimum", "maximum"), ("floor", "ceil"), ("any", "all")]
PAIRS += [("exp", "expm1"), ("log", "log1p"), ("argmin", "argmax"), ("zeros", "ones")]
CALLS = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}
UNWRAPPED = {"sqrt", "abs", "fabs", "square", "isfinite"}


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes from start to stop of `file` become `text`."""

    file: str
    line: int
    where: str  # the dotted name of the enclosing function or class
    change: str  # "before -> after", on one line
    code: str  # the line of the source where the change begins
    start: int
    stop: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """Return the changed file."""
        return source[: self.start] + self.text.encode() + source[self.stop :]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} [{self.where}] {self.change}   in: {self.code}"

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a written reason refers to; it survives a shift of the lines."""
        return self.file, self.where, self.code, self.change


def mutants(file: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a file that still compile, in the order of its lines."""
    return [m for m in changed(file, source) if _compiles(m.apply(source))]


def changed(file: str, source: bytes) -> list[Mutant]:
    """Return all changes of a file, also those that no longer compile."""
    starts, rows = [0], source.splitlines(keepends=True)
    for row in rows:
        starts.append(starts[-1] + len(row))
    found = []
    for node, where, text in _changes(ast.parse(source), "module"):
        start = starts[node.lineno - 1] + node.col_offset
        stop = starts[node.end_lineno - 1] + node.end_col_offset
        before = " ".join(source[start:stop].decode().split())
        after = " ".join(text.split())
        change, code = f"{before} -> {after}", rows[node.lineno - 1].decode().strip()
        found.append(Mutant(file, node.lineno, where, change, code, start, stop, text))
    return list(dict.fromkeys(found))


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _changes(node: ast.AST, where: str) -> Iterator[tuple[ast.AST, str, str]]:
    for text in _texts(node):
        yield node, where, text
    for test in _bare_tests(node):
        yield test, where, _paren(ast.UnaryOp(ast.Not(), test))
    for child in _children(node):
        yield from _changes(child, _scope(child, where))


def _bare_tests(node: ast.AST) -> list[ast.expr]:
    """Return the conditions that have no operator of their own to change."""
    tests = [node.test] if isinstance(node, (ast.If, ast.While)) else getattr(node, "ifs", [])
    return [t for t in tests if isinstance(t, (ast.Name, ast.Attribute, ast.Call))]


def _scope(node: ast.AST, where: str) -> str:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return where
    return node.name if where == "module" else f"{where}.{node.name}"


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children worth changing: no annotation, decorator, message or format string.

    (Before Python 3.12 the nodes inside a format string carry no usable position either.)
    """
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "bases"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_typing_only(child):
                yield child


def _is_typing_only(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield what the source of one node may become."""
    match node:
        case ast.BinOp(left, op, right) if type(op) in BINARY:
            yield _paren(ast.BinOp(left, BINARY[type(op)](), right))
        case ast.AugAssign(target, op, value):
            if type(op) in BINARY:
                yield ast.unparse(ast.AugAssign(target, BINARY[type(op)](), value))
            yield "pass"
        case ast.Compare(left, [op], [right]):
            for other in COMPARE[type(op)]:
                yield _paren(ast.Compare(left, [other()], [right]))
        case ast.BoolOp(op, values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield _paren(ast.BoolOp(other, values))
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield _paren(operand)
        case ast.Constant(value):
            yield from _constants(value)
        case ast.Call(func, arguments):
            yield from _calls(node, func, arguments)
        case ast.IfExp(test, body, orelse):
            yield _paren(ast.IfExp(test, orelse, body))
        case _:
            yield from _statements(node)


def _statements(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Return(value) if value is not None and not _is_none(value):
            yield "return None"
        case ast.Raise() | ast.Expr(ast.Call()):
            yield "pass"
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield "pass"
        case ast.Break():
            yield "continue"
        case ast.Continue():
            yield "break"


def _is_none(value: ast.AST) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _constants(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        yield str(value + 1)
    elif isinstance(value, float):
        yield repr(value * 1.5 if value else 1.0)


def _calls(node: ast.Call, func: ast.expr, arguments: list[ast.expr]) -> Iterator[str]:
    name = getattr(func, "attr", getattr(func, "id", ""))
    if name in CALLS:
        field = "attr" if isinstance(func, ast.Attribute) else "id"
        renamed = type(func)(**{**dict(ast.iter_fields(func)), field: CALLS[name]})
        yield ast.unparse(ast.Call(renamed, arguments, node.keywords))
    if name in UNWRAPPED and len(arguments) == 1:
        yield _paren(arguments[0])


def _paren(node: ast.AST) -> str:
    return f"({ast.unparse(node)})"
