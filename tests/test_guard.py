"""The guard of `make bench-check` notices a slowdown and a loss of accuracy, and nothing else."""

import json
import math
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
guard = runpy.run_path(str(ROOT / "benchmarks" / "guard.py"))
losses = guard["losses"]
KNOWN = {"accuracy": {"mean": 0.85, "error": 0.003}, "CPU": {"ratio": 1.0, "largest": 1.2}}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"accuracy": {"mean": 0.84, "error": 0.003}}, []),
        ({"accuracy": {"mean": 0.80, "error": 0.003}}, ["accuracy: 0.8000, at least 0.8373 was expected"]),
        ({"CPU": {"ratio": 1.49, "largest": 1.6}}, []),
        (
            {"CPU": {"ratio": 1.51, "largest": 1.6}},
            ["CPU: 1.51 times scikit-learn, at most 1.50 was expected"],
        ),
        ({"new": {"mean": 0.1, "error": 0.1}}, []),
        (
            {"accuracy": {"mean": math.nan, "error": 0.0}},
            ["accuracy: nan, at least 0.8410 was expected"],
        ),
        (
            {"CPU": {"ratio": math.nan, "largest": 1.0}},
            ["CPU: nan times scikit-learn, at most 1.50 was expected"],
        ),
    ],
)
def test_a_loss_beyond_its_interval_is_told_in_words(found, said):
    assert losses(KNOWN, found) == said


def test_a_kept_measure_that_nothing_measures_any_more_is_told():
    assert guard["gone"](["accuracy, digits", "CPU, of old"]) == ["CPU, of old: kept, but no longer measured"]
    kept = json.loads((ROOT / "benchmarks" / "results" / "guard.json").read_text("utf-8"))
    assert not guard["gone"](kept["measures"])
    assert kept["about"]["machine"]
