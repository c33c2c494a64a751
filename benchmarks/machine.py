"""Say on what a benchmark ran."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def describe() -> str:
    """Print the processor, cores and versions, and return them for what is kept."""
    import numba
    import numpy
    import scipy

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            model = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    said = (
        f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {numpy.__version__}, "
        f"SciPy {scipy.__version__}, Numba {numba.__version__}"
    )
    print(f"# {said}")
    return said


def about(command: str, **more: Any) -> dict[str, Any]:
    """Return what a kept file says of its run: command, day, commit and machine."""
    from sordino.literature.reproduce.runner import source_commit

    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return {"command": command, "date": day, "commit": source_commit(), "machine": describe(), **more}


def peak_mb() -> float:
    """Return the most memory this program has held; `ru_maxrss` would count what started it too."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


def keep_row(row: dict[str, Any], out: str) -> None:
    """Print a row and append it to a file, if one is named: what ran is kept if the next one fails."""
    line = json.dumps(row)
    print(line, flush=True)
    if out:
        with Path(out).open("a") as file:
            file.write(line + "\n")
