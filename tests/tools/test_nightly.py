"""A night runs every step within its share, says how each ended, and fails if one failed."""

import sys

import pytest
from tools import nightly


def _step(name, code, share=1.0):
    return nightly.Step(name, share, (sys.executable, "-c", code))


def test_the_shares_of_a_night_are_one():
    assert sum(step.share for step in nightly.steps(3, 2)) == pytest.approx(1.0)


def test_a_month_of_nights_takes_every_shard_of_the_mutants():
    def shard(day):
        return next(step.command[-1] for step in nightly.steps(day, 2) if step.name == "mutants")

    assert {shard(day) for day in range(1, 29)} == {f"{i}/28" for i in range(1, 29)}
    assert shard(31) == "3/28"


@pytest.mark.parametrize(
    ("code", "status"),
    [("print('done')", "passed"), ("raise SystemExit(3)", "FAILED"), ("import time; time.sleep(60)", "cut")],
)
def test_a_step_says_how_it_ended(tmp_path, code, status):
    outcome = nightly.run(_step("one step", code), 60 if status != "cut" else 0.5, tmp_path)
    assert outcome.status == status
    assert (tmp_path / "one-step.log").exists()
    assert f"| one step | {status} |" in nightly.page([outcome])


@pytest.mark.parametrize(("code", "status"), [("print(1)", 0), ("raise SystemExit(1)", 1)])
def test_a_night_fails_if_a_step_fails_and_writes_its_page(tmp_path, monkeypatch, capsys, code, status):
    monkeypatch.setattr(
        nightly, "steps", lambda day, workers: [_step("a", "print(0)", 0.5), _step("b", code, 0.5)]
    )
    assert nightly.main(["--hours", "0.02", "--page", str(tmp_path / "page.md")]) == status
    assert (tmp_path / "page.md").read_text("utf-8") == capsys.readouterr().out
