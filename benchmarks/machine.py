"""Say on what a benchmark ran."""

from __future__ import annotations

import os
import platform


def describe() -> None:
    """Print the processor, cores and versions."""
    import numba
    import numpy
    import scipy

    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as info:
            model = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    print(
        f"# {model}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {numpy.__version__}, "
        f"SciPy {scipy.__version__}, Numba {numba.__version__}"
    )
