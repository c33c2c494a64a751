"""Table 3 of Liang et al. on its stand-in without any noise: is a miss the noise, or the way to the minimum?

Command: python -m benchmarks.stars_referee [--save benchmarks/results/stars_referee.json]

Hard thresholding to k = 200 with constant steps (in units of one over the curvature) on the star ratings, as
in ``sordino reproduce liang-3``, epsilon infinite: its mean squared error over that of the model without
privacy.
"""

from __future__ import annotations

import argparse
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sordino.literature.reproduce.linear import _curvature, _fit_one, reviews
from sordino.literature.reproduce.runner import kept_rows, source_commit, table_named

RESULT = Path(__file__).parent / "results" / "stars_referee.json"
LATE = {"momentum": "nesterov", "threshold_after": 0.5}  # what `ight` does with nothing set


def main() -> None:
    """Fit each setting once and keep the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, default=RESULT)
    asked, task, rows = parser.parse_args(), reviews(200, 3308), []
    cells: Any = kept_rows(table_named("liang-3"), RESULT.parent / "reproduced")[0][1]
    for more in ({}, LATE):
        for passes in (100, 300):
            for step in (1.0, 4.0, 16.0):
                options = {"step_size": step / _curvature(task), **more}
                settings = {"solver": "ight", "max_iter": passes, "solver_options": options}
                value = _fit_one(task, math.inf, 1e-5, 0, **settings)[0]
                row = {"step": step, "passes": passes, **more, "ratio": value / cells["plain"].mean}
                rows.append(row)
                print(row, flush=True)
    about = {"command": "python -m benchmarks.stars_referee", "date": datetime.now(UTC).date().isoformat()}
    about |= {"commit": source_commit(), "runs": "one a number"}
    asked.save.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
