"""A small table on disk, and a way to type commands."""

import json

import numpy as np
import pandas
from click.testing import CliRunner

from sordino.cli import main
from sordino.kernel import public_generator

SECRET = 31415.926535  # a value of the data that no message may hold
WIDE = {"COLUMNS": "200"}
FIT = ("--model", "logistic", "--target", "y", "--set", "data_norm=3", "--epsilon", 2)


def typed(*words, code=0, stdin=None, env=None):
    """Run a command, check how it ends, and return what it printed."""
    result = CliRunner().invoke(main, [str(word) for word in words], input=stdin, env={**WIDE, **(env or {})})
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    assert str(SECRET) not in result.output
    return result.output


def typed_json(*words, **how):
    """Run a command with --json and return its document; notes stand on standard error."""
    result = CliRunner().invoke(main, [*(str(word) for word in words), "--json"], env=WIDE, **how)
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def table(n=800, seed=5):
    """Return rows of four numbers and a label that two of them decide."""
    X = public_generator(seed).normal(size=(n, 4)).round(3)
    return X, np.where(X[:, 0] - X[:, 1] > 0, "yes", "no")


def named(X):
    return pandas.DataFrame(X, columns=list("abcd"))


def write_csv(path, X, y=None):
    names = [*"abcd", *(["y"] if y is not None else [])]
    lines = [",".join(map(str, row)) for row in X]
    if y is not None:
        lines = [f"{line},{label}" for line, label in zip(lines, y, strict=True)]
    path.write_text("\n".join([",".join(names), *lines, ""]), "utf-8")
    return path
