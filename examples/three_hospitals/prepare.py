"""Prepare three hospitals on one machine: keys, records, budgets, settings, a charter and a plan.

    python examples/three_hospitals/prepare.py hospitals
    sordino party approve --config hospitals/north/party.toml hospitals/plan.json    # each of the three
    sordino party serve --config hospitals/north/party.toml    # one terminal each: north, south, west
    sordino consortium run --plan hospitals/plan.json --config hospitals/north/party.toml

It types the commands that each hospital would type on its own machine. A real member makes its own key,
sends out only the certificate, and compares fingerprints on another channel before it signs.
"""

import argparse
from pathlib import Path

import numpy as np
import tomli_w

from sordino.cli import main as sordino

NAMES = ("north", "south", "west")


def make_records(path: Path, records: int, features: int, seed: int) -> None:
    """Write made-up patients: the same disease everywhere, another mix of patients in each place."""
    public = np.random.default_rng(seed)
    weights = np.random.default_rng(0).standard_normal(features)
    x = public.standard_normal((records, features)) + 0.3 * public.standard_normal(features)
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
    y = (x @ weights + 0.2 * public.standard_normal(records) > 0).astype(int)
    np.savez(path, X=x, y=y)


def settings(path: Path, name: str) -> None:
    """Say in a hospital's settings whom it trusts not to hand on what it sees, and how long it waits."""
    others = ", ".join(f'"{other}"' for other in NAMES if other != name)
    text = path.read_text().replace("trusted = []", f"trusted = [{others}]")
    path.write_text(text + "\n[limits]                           # seconds\nconnect = 60.0\n")


def charter(folder: Path, features: int) -> None:
    """Propose a charter and have all hospitals sign it."""
    members = [
        {
            "name": name,
            "certificates": [f"{name}/certificate.pem"],
            "roles": ["data", "proposer"] if name == "north" else ["data"],
            "epsilon": 3.0,
            "delta": 1e-5,
        }
        for name in NAMES
    ]
    rules = {"consortium": "three hospitals", "expires": "2999-12-31", "threshold": 1, "max_epsilon": 1.0}
    rules |= {"max_delta": 1e-5, "max_features": features, "estimators": ["SparseLogisticRegression"]}
    (folder / "charter.toml").write_text(tomli_w.dumps({**rules, "members": members}))
    made = str(folder / "charter.json")
    run("party", "charter", "propose", "--config", str(folder / "charter.toml"), "--output", made)
    for name in NAMES:
        run(
            "party", "charter", "sign", made, "--name", name, "--key", str(folder / name / "key.pem"), "--yes"
        )
    for name in NAMES:
        (folder / name / "charter.json").write_bytes((folder / "charter.json").read_bytes())


def run(*words: str) -> None:
    """Type a command."""
    sordino(list(words), standalone_mode=False)


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--solver", default="auto", help="'auto', or 'ight' (MPC Grad P) with --steps")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--mode", default="noise-inside", help="or 'secure-aggregation', for long vectors")
    parser.add_argument("--port", type=int, default=26500, help="the first of six")
    given = parser.parse_args()
    folder, members = given.folder, []
    folder.mkdir(parents=True)
    for i, name in enumerate(NAMES):
        control, home = f"127.0.0.1:{given.port + 3 + i}", folder / name
        budget = ("--epsilon", "3", "--delta", "1e-5")
        run("party", "init", str(home), "--name", name, "--control", control, *budget)
        settings(home / "party.toml", name)
        make_records(home / "records.npz", given.records, given.features, seed=i + 1)
        row = {"name": name, "host": "127.0.0.1", "port": given.port + i, "control": control}
        members.append({**row, "records": given.records, "certificate": f"{name}/certificate.pem"})
    charter(folder, given.features)
    params = {"classes": [0, 1], "data_norm": 1.0, "solver": given.solver}
    if given.solver != "auto":
        params |= {"alpha": 0.001, "max_iter": given.steps, "solver_options": {"step_size": 4.0}}
    task = {"estimator": "SparseLogisticRegression", "features": given.features, "params": params}
    plan = {"name": "three hospitals", "charter": "charter.json", "mode": given.mode, "threshold": 1}
    plan |= {"budget": {"epsilon": 1.0, "delta": 1e-6}, "task": task, "members": members}
    (folder / "consortium.toml").write_text(tomli_w.dumps(plan))
    made = ("--output", str(folder / "plan.json"))
    run("consortium", "plan", "--config", str(folder / "consortium.toml"), *made)


if __name__ == "__main__":
    main()
