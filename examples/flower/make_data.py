"""Make two hospitals and print the commands that start them: ``python make_data.py FOLDER``."""

import sys
from pathlib import Path

import numpy as np

from sordino import BudgetPolicy, Ledger

FEATURES, TRUE = 20, 5


def hospital(folder: Path, number: int, size: int) -> str:
    """Write one hospital and return its node configuration."""
    rng = np.random.default_rng(number)
    X = rng.standard_normal((size, FEATURES)) / np.sqrt(FEATURES)
    y = np.where(X[:, :TRUE].sum(axis=1) + 0.1 * rng.standard_normal(size) > 0, 1.0, -1.0)
    here = folder / f"hospital-{number}"
    here.mkdir(parents=True)
    np.savez(here / "records.npz", X=X, y=y)
    ledger = Ledger.open(here / "ledger.sqlite")
    ledger.create("patients", BudgetPolicy(epsilon=8.0, delta=1e-5))
    ledger.close()
    paths = f'data="{here}/records.npz" folder="{here}/rounds" ledger="{here}/ledger.sqlite"'
    return f'{paths} dataset="patients" epsilon=4.0 delta=0.000005'


if __name__ == "__main__":
    root = Path(sys.argv[1]).resolve()
    for number, size in enumerate((600, 900), start=1):
        print(
            f"flower-supernode --insecure --superlink 127.0.0.1:9092 --port {9094 + number} "
            f"--node-config '{hospital(root, number, size)}'"
        )
