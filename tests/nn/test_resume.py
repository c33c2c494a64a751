"""A run that was killed goes on at its position, on its reservation, with fresh noise."""

import math
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from tests.hostile.claims_nn import RUN, forge, stopped
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino.errors import CalibrationError, PlanError, PlanSpentError
from sordino.execute.torch import TensorNoise, TorchExecutor
from sordino.kernel import Curator, Gaussian, NoiseSource, Plan, Relation, Release
from sordino.ledger import BudgetPolicy, Ledger
from sordino.nn import Trainer
from sordino.nn.queries import TorchGradient
from sordino.nn.session import Checkpoint
from sordino.runs import Journal

LOSS = nn.CrossEntropyLoss()


def trainer(path, **settings):
    settings = {
        "epsilon": 5.0,
        "delta": 1e-4,
        "steps": 20,
        "batch_size": 30,
        "checkpoint_every": 4,
        **settings,
    }
    return Trainer(perceptron(), LOSS, checkpoint=path, **settings)


class Crash(Exception):
    pass


@pytest.fixture
def crash_at(monkeypatch):
    """Let the n-th question from now on crash after its noise was drawn; count the questions."""
    real, asked = TorchExecutor.noisy_total, []

    def at(number):
        asked.clear()

        def noisy_total(self, *args):
            value = real(self, *args)
            asked.append(value)
            if len(asked) == number:
                raise Crash
            return value

        monkeypatch.setattr(TorchExecutor, "noisy_total", noisy_total)
        return asked

    return at


def vector(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "srm"])
def test_a_run_stopped_at_a_checkpoint_resumes_exactly(tmp_path, crash_at, optimizer):
    x, y = blobs()
    settings = {"epsilon": math.inf, "batch_size": 120, "optimizer": optimizer, "average": 0.5}
    whole = trainer(tmp_path / "whole", **settings).fit(x, y)
    crash_at(9)  # after the checkpoint at 8; the ninth is lost
    broken = trainer(tmp_path / "broken", **settings)
    with pytest.raises(Crash):
        broken.fit(x, y)
    # the ninth was asked and is spent; pretend it was not, to compare the rest
    journal = tmp_path / "broken.journal"
    journal.write_text("\n".join(journal.read_text().splitlines()[:-1]) + "\n")
    asked = crash_at(0)
    resumed = broken.resume(x, y)
    assert resumed.steps == len(asked) == 12
    assert torch.equal(vector(resumed.model), vector(whole.model))


def test_what_was_asked_before_a_crash_stays_spent(tmp_path, crash_at):
    x, y = blobs()
    crash_at(11)
    broken = trainer(tmp_path / "run")
    with pytest.raises(Crash):
        broken.fit(x, y)
    asked = crash_at(0)
    resumed = broken.resume(x, y)
    assert len(asked) == resumed.steps == 20 - 11
    with pytest.raises(PlanSpentError):  # nothing is left, also for a second resume
        Curator(TorchExecutor((x, y), torch.device("cpu")), *_spent_plan(), used={"gradient": 20}).release(
            "gradient", torch.zeros(83)
        )
    assert broken.resume(x, y).steps == 0


def _spent_plan():
    query = TorchGradient(None, 0.5)
    plan = Plan({"gradient": Release(query, Gaussian(multiplier=2.0), times=20)}, Relation.ADD_REMOVE, 120)
    return plan, NoiseSource.from_os()


@pytest.mark.parametrize("used", [{"gradient": 21}, {"gradient": -1}, {"other": 0}])
def test_a_position_outside_the_plan_is_refused(used):
    executor = TorchExecutor(blobs(), torch.device("cpu"))
    with pytest.raises(PlanError, match="position"):
        Curator(executor, *_spent_plan(), used=used)


def test_the_journal_is_written_before_the_data_is_asked(tmp_path, monkeypatch):
    seen = []

    def noisy_total(self, question, batch, noise):
        seen.append((question.position, (tmp_path / "run.journal").read_text().splitlines()[-1]))
        return torch.ones_like(question.params)

    monkeypatch.setattr(TorchExecutor, "noisy_total", noisy_total)
    trainer(tmp_path / "run", steps=3).fit(*blobs())
    assert seen == [(0, "gradient 1"), (1, "gradient 2"), (2, "gradient 3")]


def test_a_resumed_run_draws_new_noise(tmp_path, crash_at, monkeypatch):
    drawn, real = [], TensorNoise.normal
    monkeypatch.setattr(TensorNoise, "normal", lambda self, s: drawn.append(real(self, s)) or drawn[-1])
    crash_at(7)
    broken = trainer(tmp_path / "run")
    with pytest.raises(Crash):
        broken.fit(*blobs())
    crash_at(0)
    broken.resume(*blobs())
    rows = np.stack([d.numpy() for d in drawn])
    assert len(rows) == 20
    assert len(np.unique(rows.round(6), axis=0)) == 20


KILLED = """
    import os, signal, sys
    import torch
    from tests.nn.helpers import blobs, perceptron
    from sordino.execute.torch import TorchExecutor
    from tests.nn.test_resume import trainer
    real, asked = TorchExecutor.noisy_total, []
    def noisy_total(self, *args):
        value = real(self, *args)
        asked.append(1)
        if len(asked) == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return value
    TorchExecutor.noisy_total = noisy_total
    trainer(sys.argv[1], ledger=sys.argv[2], dataset_id="toy").fit(*blobs())
"""


def test_after_kill_9_position_and_reservation_are_the_same(tmp_path, crash_at):
    book = tmp_path / "ledger.db"
    with Ledger.open(book) as ledger:
        ledger.create("toy", BudgetPolicy(epsilon=6.0, delta=1e-3))
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "run"), str(book)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    asked = crash_at(0)
    resumed = trainer(tmp_path / "run", ledger=book, dataset_id="toy").resume(*blobs())
    assert len(asked) == resumed.steps == 10  # 20 planned, 10 asked by the killed process
    with Ledger.open(book) as ledger:
        entries = ledger.history("toy")
    assert [e.status for e in entries] == ["settled"]  # one reservation for both processes
    with pytest.raises(PlanError, match="settled"):
        trainer(tmp_path / "run", ledger=book, dataset_id="toy").resume(*blobs())


def test_a_run_is_not_started_over_an_existing_one(tmp_path):
    trainer(tmp_path / "run", steps=2).fit(*blobs())
    with pytest.raises(PlanError, match="resume"):
        trainer(tmp_path / "run", steps=2).fit(*blobs())


def test_two_processes_cannot_go_on_with_the_same_run(tmp_path, crash_at):
    crash_at(3)
    broken = trainer(tmp_path / "run")
    with pytest.raises(Crash):
        broken.fit(*blobs())
    held = Journal(Checkpoint(tmp_path / "run").journal_path)
    with pytest.raises(PlanError, match="Another process"):
        broken.resume(*blobs())
    held.close()


def test_a_checkpoint_is_refused_with_other_settings_other_data_or_no_journal(tmp_path, crash_at):
    crash_at(3)
    with pytest.raises(Crash):
        trainer(tmp_path / "run").fit(*blobs())
    crash_at(0)
    with pytest.raises(PlanError, match="recipe"):
        trainer(tmp_path / "run", learning_rate=9.0).resume(*blobs())
    with pytest.raises(PlanError, match="another plan"):
        trainer(tmp_path / "run", relation="replace-one").resume(*blobs())
    with pytest.raises(PlanError, match="another plan"):
        trainer(tmp_path / "run").resume(*blobs(119))
    (tmp_path / "run.journal").unlink()
    with pytest.raises(PlanError, match="journal"):
        trainer(tmp_path / "run").resume(*blobs())


@pytest.mark.parametrize(
    ("first", "then"),
    [({}, {"secure_noise": True}), ({"secure_noise": True}, {}), ({}, {"unit": "person"})],
)
def test_a_run_does_not_go_on_with_another_noise_or_unit_than_it_began(tmp_path, crash_at, first, then):
    crash_at(6)
    with pytest.raises(Crash):
        trainer(tmp_path / "run", **first).fit(*blobs())
    with pytest.raises(PlanError, match="another recipe"):
        trainer(tmp_path / "run", **then).resume(*blobs())


def test_a_run_of_persons_does_not_go_on_with_records(tmp_path, crash_at):
    x, y = blobs()
    crash_at(6)
    with pytest.raises(Crash):
        trainer(tmp_path / "run").fit(x, y, groups=np.arange(len(x)) // 2)
    half = len(x) // 2
    with pytest.raises(PlanError, match="another recipe"):
        trainer(tmp_path / "run", unit="person").resume(x[:half], y[:half])


def test_a_line_cut_off_by_the_crash_was_not_asked_and_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "j"
    path.write_text("gradient 6\ngradient 7\ngradient 1")
    journal = Journal(path)
    assert journal.counts() == {"gradient": 7}
    journal.note("gradient", 8)
    journal.close()
    again = Journal(path)
    assert again.counts()["gradient"] == 8
    again.close()


@pytest.mark.parametrize(
    ("change", "error"), [(0.125, CalibrationError), (0.9, CalibrationError), (8.0, PlanError)]
)
def test_a_run_whose_noise_was_edited_is_refused_also_with_all_hashes_made_anew(
    tmp_path, monkeypatch, change, error
):
    made = Trainer(perceptron(), nn.CrossEntropyLoss(), checkpoint=tmp_path / "run", **RUN)
    stopped(monkeypatch, made, blobs())
    forge(made, blobs(), change)
    with pytest.raises(error, match="certifies epsilon"):
        made.resume(*blobs())
