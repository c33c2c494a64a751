"""Count the files of src that a fit walks through: those with a function that is called, imports aside.

    python tools/walks.py              # print both counts and the files
    python tools/walks.py --check      # exit with 1 where a count is above its bar

Two walks: `SparseLogisticRegression(1.0).fit(csr)`, and `sordino fit` on a CSV file with a schema. A reader
who follows one of them opens so many files; merging what is only read together brings the counts down.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = str(ROOT / "src" / "sordino") + "/"
sys.path[:0] = [str(ROOT / "src")]

import numpy as np  # noqa: E402
from click.testing import CliRunner  # noqa: E402
from scipy import sparse  # noqa: E402

from sordino import SparseLogisticRegression  # noqa: E402
from sordino.cli import main as command  # noqa: E402

BARS = {"CSR fit": 34, "sordino fit": 47}  # what is reached, and one (the aims are 35 and 70)


def files_called(walk: Callable[[], Any]) -> list[str]:
    """Return the files of src with a function that the walk calls; bodies of modules do not count."""
    seen: set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_flags & 0x2:  # a function
            seen.add(code.co_filename.removeprefix(SOURCE))

    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
    return sorted(seen)


def csr_fit() -> None:
    """Fit the sparse default on a few rows of text."""
    public = np.random.default_rng(0)
    rows = sparse.random(400, 300, density=0.05, format="csr", rng=public)
    SparseLogisticRegression(1.0, data_norm=1.0, classes=[0, 1]).fit(rows, np.arange(400) % 2)


def command_fit() -> None:
    """Fit a table with a declared schema by the command."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        lines = [f"{18 + i % 60},{'north' if i % 3 else 'south'},{1000 + 37 * (i % 90)}" for i in range(400)]
        Path("rows.csv").write_text("age,region,income\n" + "\n".join(lines) + "\n", "utf-8")
        Path("schema.toml").write_text(SCHEMA, "utf-8")
        words = "fit rows.csv --schema schema.toml --epsilon 1 --output model.sordino"
        done = CliRunner().invoke(command, words.split())
        if done.exit_code:
            raise SystemExit(f"The command ended with {done.exit_code}: {done.output}")


SCHEMA = """
format = 1

[columns.age]
kind = "number"
low = 18
high = 90

[columns.region]
kind = "category"
levels = ["north", "south"]

[columns.income]
kind = "target"
of = "number"
low = 0
high = 10000
"""
WALKS = {"CSR fit": csr_fit, "sordino fit": command_fit}


def counts() -> dict[str, list[str]]:
    """Return the files of each walk. All modules are imported before: what a module calls then is no walk."""
    for path in sorted(Path(SOURCE).rglob("*.py")):
        parts = path.relative_to(Path(SOURCE).parent).with_suffix("").parts
        if parts[1] not in ("nn", "parties", "literature", "__main__"):
            with suppress(ImportError):  # of an extra that is not here
                import_module(".".join(parts).removesuffix(".__init__"))
    return {name: files_called(walk) for name, walk in WALKS.items()}


def main() -> None:
    """Print the counts, and compare them with their bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a count is above its bar")
    check, found = parser.parse_args().check, counts()
    for name, files in found.items():
        rooms = {Path(file).parts[0] for file in files if "/" in file}
        print(f"{name}: {len(files)} files, {len(rooms)} rooms (bar {BARS[name]})")
        if not check:
            print("  " + "\n  ".join(files))
    if check and any(len(files) > BARS[name] for name, files in found.items()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
