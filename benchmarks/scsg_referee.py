"""DP-SCSG-HT on RCV1 with its printed noise: the losses that it reaches, and the epsilons that it certifies.

Command: python -m benchmarks.scsg_referee [--save benchmarks/results/scsg_referee.json]

The batch sizes of table 4 of Liang et al. are not printed but for B/b, of the order of the root of k. For a
claimed epsilon of 2 and of 10 some pairs (B, b) are run for ten epochs with the printed noise, and without
noise, each with the best of five step sizes on the *test* rows (hindsight, in favour of the print). ``noise``
is the norm of the noise of one snapshot over the largest norm that the gradient of one record can have.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from datetime import UTC, datetime
from pathlib import Path

from sordino import SparseLogisticRegression
from sordino.literature import formulas
from sordino.literature.reproduce.linear import mean_log_loss, rcv1
from sordino.literature.reproduce.runner import source_commit

RESULT = Path(__file__).parent / "results" / "scsg_referee.json"
PRINTED = {2.0: 0.2243, 10.0: 0.1615}
PAIRS = ((4000, 400), (1234, 123), (300, 30), (150, 30), (2467, 77))  # B/b = 10, 5, and the root of k
STEPS = (0.5, 2.0, 8.0, 32.0, 128.0)


def best_loss(epsilon: float, anchor: int, batch: int, noise: bool) -> dict[str, float]:
    """Return the least test loss over the step sizes, and what the printed noise certifies."""
    task, found = rcv1(1000, 1e-5), []
    own = {"epochs": 10, "snapshot_batch": anchor, "batch_size": batch}
    for step in STEPS:
        told = {"noise": "paper"} if noise else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SparseLogisticRegression(
                epsilon if noise else math.inf,
                1e-5,
                solver="scsg-ht",
                relation="replace-one",
                solver_options={**own, "step_size": step},
                random_state=0,
                **task.facts,
                **told,
            ).fit(task.x, task.y)
        certified = float(model.privacy_.epsilon)
        found.append({"loss": mean_log_loss(model, task), "step": step, "certified": certified})
    return min(found, key=lambda one: one["loss"])


def main() -> None:
    """Run the pairs and keep what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, default=RESULT)
    asked, rows = parser.parse_args(), []
    n, columns = rcv1(1000, 1e-5).x.shape
    for anchor, batch in PAIRS:
        plain = best_loss(2.0, anchor, batch, False)["loss"]
        for epsilon, printed in PRINTED.items():
            one, _ = formulas.scsg_ht(
                epsilon, 1e-5, population=n, anchor_batch=anchor, batch_size=batch, epochs=10
            )
            ours = best_loss(epsilon, anchor, batch, True)
            row = {"claimed": epsilon, "B": anchor, "b": batch, "printed": printed, "plain": plain, **ours}
            rows.append(row | {"noise": one / anchor * math.sqrt(columns)})
            print(row | {"noise": rows[-1]["noise"]}, flush=True)
    about = {"command": "python -m benchmarks.scsg_referee", "date": datetime.now(UTC).date().isoformat()}
    about |= {"commit": source_commit(), "runs": "one a number"}
    asked.save.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
