"""Run the benchmarks: ``python -m benchmarks`` for all, or name some: ``python -m benchmarks lazy fit``."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import benchmarks

NOT_BENCHMARKS = {
    "machine",
    "laws",
    "behaviour_designs",
    "bars_linear",
    "bars_statistics",
    "bars_unlisted",
    "bars_solvers",
    "clusters",
    "__main__",
    "adassp",
    "nn_models",
    "pca_measures",
    "pca_paper",
    "pca_spiked",
    "peer_worker",
}
NEED_A_GPU = {"nn_gpu", "gpu_linear"}


def names() -> list[str]:
    """Return the benchmarks that run without special hardware."""
    found = {module.name for module in pkgutil.iter_modules(benchmarks.__path__)}
    return sorted(found - NOT_BENCHMARKS - NEED_A_GPU)


def main() -> int:
    """Run each in its own process, so that memory figures are its own."""
    failed = []
    for name in sys.argv[1:] or names():
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
