"""Run the benchmarks: ``python -m benchmarks`` for all, or name some: ``python -m benchmarks lazy fit``."""

from __future__ import annotations

import argparse
import pkgutil
import subprocess
import sys

import benchmarks

NOT_BENCHMARKS = {
    "machine",
    "laws",
    "sparse_design",
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
# Started by name only: they need a device, arguments or a package that most machines lack.
BY_NAME = {"nn_cifar", "nn_gpu_modes", "nn_profile", "opacus_text"}


def names() -> list[str]:
    """Return the benchmarks that run without special hardware."""
    return sorted(known() - NEED_A_GPU - BY_NAME)


def known() -> set[str]:
    """Return all benchmarks."""
    return {module.name for module in pkgutil.iter_modules(benchmarks.__path__)} - NOT_BENCHMARKS


def main() -> int:
    """Run each in its own process, so that memory figures are its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(sorted(known())))
    asked = parser.parse_args().names
    if strange := sorted(set(asked) - known()):
        parser.error(f"no benchmark is called {', '.join(strange)}")
    failed = []
    for name in asked or names():
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
