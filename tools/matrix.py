"""Try the lowest and the newest versions that pyproject.toml allows, on every Python that is here.

    python tools/matrix.py --list
    python tools/matrix.py --python 3.11 --versions lowest
    python tools/matrix.py --extras tables,save,torch

Each pair of a Python and a choice of versions gets an environment of its own under build/matrix, and runs a
short suite there. Pythons are looked for on the path and among those of pyenv.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "matrix"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = "tables,save,dask,flower,torch,transformers"
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "PyYAML", "cryptography")
# extra -> tests; those of "" need none but the tables and saved models
SUITE = {
    "": (
        "tests/test_lasting.py",
        "tests/saving/test_files.py",
        "tests/cli/test_main.py",
        "tests/cli/test_fit.py",
        "tests/estimators/test_sparse.py",
        "tests/ledger/test_ledger.py",
        "tests/tables/test_encoder.py",
    ),
    "dask": ("tests/execute/test_dask.py",),
    "flower": ("tests/parties/test_flower.py",),
    "torch": ("tests/nn/test_engines.py", "tests/nn/test_estimators.py", "tests/nn/test_resume.py"),
    "transformers": ("tests/nn/test_transformers.py",),
}


def promised() -> list[str]:
    """Return the Pythons that the classifiers name."""
    return [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]


def interpreter(version: str) -> str | None:
    """Return where a Python is, or None."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(root.glob(f"versions/{version}.*/bin/python"))
    return str(kept[-1]) if kept else shutil.which(f"python{version}")


def requirements(extras: list[str]) -> list[str]:
    """Return the requirements of the package with these extras; extras of extras are followed."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        for line in PROJECT["optional-dependencies"][extra]:
            inner = re.fullmatch(r"sordino\[(.+)\]", line)
            lines += requirements(inner[1].split(","))[len(PROJECT["dependencies"]) :] if inner else [line]
    return lines


def lowest(extras: list[str]) -> list[str]:
    """Return each requirement at its lowest version."""
    found = [re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", line) for line in requirements(extras)]
    return sorted({f"{match[1]}=={match[2]}" for match in found if match})


def tested(extras: list[str]) -> list[str]:
    """Return the tests that these extras can run."""
    return [path for extra in ("", *extras) for path in SUITE.get(extra, ())]


def run(version: str, choice: str, extras: list[str], workers: int) -> str:
    """Make an environment, run the suite, and return a line about it."""
    python = interpreter(version)
    if python is None:
        return f"Python {version}: not here"
    home, began = PLACE / f"{version}-{choice}", time.monotonic()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    limits = home / "constraints.txt"
    limits.write_text("\n".join(lowest(extras) if choice == "lowest" else ()) + "\n")
    own = str(home / "env" / "bin" / "python")
    subprocess.run([python, "-m", "venv", home / "env"], check=True)
    wanted = [f"{ROOT}[{','.join(extras)}]", *TOOLS]
    words = [own, "-m", "pip", "install", "-c", limits, *wanted]
    made = subprocess.run(words, check=False, capture_output=True, text=True)
    if made.returncode:
        print(made.stdout[made.stdout.find("The conflict is caused by") :], made.stderr)
        return f"Python {version}, {choice}: does not resolve"
    words = ["-q", "-n", str(workers), "-m", "not long", "-p", "no:cacheprovider"]
    # What other packages warn about in versions that were current once is no fault of ours.
    for warning in () if choice == "newest" else ("DeprecationWarning", "FutureWarning"):
        words += ["-W", f"default::{warning}"]
    around = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # what was installed
    done = subprocess.run([own, "-m", "pytest", *words, *tested(extras)], cwd=ROOT, env=around, check=False)
    said = "green" if done.returncode == 0 else f"pytest ended with {done.returncode}"
    return f"Python {version}, {choice}: {said}, {time.monotonic() - began:.0f} s"


def main() -> int:
    """Run what was asked for, one environment at a time, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", action="append", help="Such as 3.11; else all that are promised.")
    parser.add_argument("--versions", choices=("lowest", "newest"), action="append", help="Else both.")
    parser.add_argument("--extras", default=EXTRAS, help=f"With commas between; else {EXTRAS}.")
    parser.add_argument("--workers", type=int, default=2, help="Test processes.")
    parser.add_argument("--list", action="store_true", help="Say what would be run.")
    asked = parser.parse_args()
    extras = asked.extras.split(",")
    if asked.list:
        print(*(f"Python {v}: {interpreter(v) or 'not here'}" for v in asked.python or promised()), sep="\n")
        print(*lowest(extras), sep="\n")
        return 0
    choices = asked.versions or ["lowest", "newest"]
    lines = [run(v, c, extras, asked.workers) for v in asked.python or promised() for c in choices]
    print(*lines, sep="\n")
    return 0 if all("green" in line or "not here" in line for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
