"""Seconds of processor time before anything is computed: the import, a command, and a small fit in all.

Command: python -m benchmarks.start
Least of five processes each, with byte code that is kept, as an installer leaves it. The fit has 10,000 rows
of five numbers and a category in a CSV file; the line "other packages" is the import of scikit-learn, Numba,
pandas and dp-accounting, with nothing of ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.machine import describe

TIMES = 5
BARS = {"import sordino": 0.25, "sordino version": 0.3, "sordino fit": 1.2}
FIT = "-m sordino fit rows.csv --schema schema.toml --epsilon 1 --output m.sordino --force --json"
COMMANDS = {
    "import sordino": ["-c", "import sordino"],
    "sordino version": ["-m", "sordino", "version"],
    "sordino fit": FIT.split(),
    "other packages": ["-c", "import sklearn.base, numba, pandas, dp_accounting"],
}


def write_table(folder: Path) -> None:
    """Write the records and their schema."""
    public = np.random.default_rng(0)
    rows = public.normal(size=(10_000, 5)).round(4)
    labels = np.where(rows[:, 0] + public.normal(size=10_000) > 0, "yes", "no")
    lines = [",".join([*map(str, row), "xyz"[i % 3], labels[i]]) for i, row in enumerate(rows)]
    (folder / "rows.csv").write_text("\n".join(["a,b,c,d,e,kind,y", *lines]) + "\n")
    number = '[columns.{}]\nkind = "number"\nlow = -4\nhigh = 4\n'
    schema = "format = 1\n" + "".join(number.format(name) for name in "abcde")
    schema += '[columns.kind]\nkind = "category"\nlevels = ["x", "y", "z"]\n'
    schema += '[columns.y]\nkind = "target"\nof = "category"\nlevels = ["no", "yes"]\n'
    (folder / "schema.toml").write_text(schema)


def seconds(words: list[str], folder: str) -> float:
    """Return the processor seconds of one process."""
    before = os.times()
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *words], cwd=folder, check=True, capture_output=True, env=known)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main() -> None:
    """Print a line for each command."""
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        write_table(Path(folder))
        for name, words in COMMANDS.items():
            seconds(words, folder)  # files are in memory, machine code is on disk
            found = min(seconds(words, folder) for _ in range(TIMES))
            bar = f"  (bar {BARS[name]})" if name in BARS else ""
            print(f"{name:16s} {found:5.2f} s{bar}")


if __name__ == "__main__":
    main()
