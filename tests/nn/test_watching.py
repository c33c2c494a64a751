"""A loop people know: public scores, callbacks, schedules, sets larger than memory, state dicts."""

import math

import numpy as np
import pytest
import torch
from tests.nn.helpers import accuracy, blobs, perceptron
from torch import nn

from sordino.errors import DivergenceWarning, InvalidInputError
from sordino.ledger import BudgetPolicy, Ledger
from sordino.nn import Trainer, warm_up
from sordino.nn.trainer import warn_if_diverged
from sordino.testing import seeded_noise_not_private

# A short training under noise may end worse than it began; the tests of the warning ask for it themselves.
pytestmark = pytest.mark.filterwarnings("ignore::sordino.errors.DivergenceWarning")
LOSS = nn.CrossEntropyLoss()
PUBLIC = blobs(60, 9)


def trainer(**settings):
    settings = {"epsilon": 8.0, "delta": 1e-4, "steps": 12, "batch_size": 40, **settings}
    return Trainer(perceptron(), LOSS, **settings)


def test_the_history_holds_scores_on_public_records():
    got = trainer(validation=PUBLIC, validate_every=5).fit(*blobs())
    assert [step for step, _ in got.history] == [5, 10, 12]
    with torch.no_grad():
        assert got.history[-1][1] == pytest.approx(float(LOSS(got.model(PUBLIC[0]), PUBLIC[1])), rel=1e-5)
    assert "records behind the scores of the history: 60" in got.privacy.public
    assert len(trainer(validation=PUBLIC, steps=95).fit(*blobs()).history) == 10


def test_a_score_of_ones_own_sees_the_averaged_model_ready_to_predict():
    seen = []

    def score(model):
        seen.append(model.training)
        return accuracy(model, *PUBLIC)

    got = trainer(validation=score, validate_every=4, average=0.9).fit(*blobs())
    assert got.history[-1] == (12, accuracy(got.model, *PUBLIC))
    assert not any(seen)
    assert "records behind the scores of the history" in got.privacy.public


def test_watching_changes_nothing():
    heard = []
    with seeded_noise_not_private(3):
        plain = trainer(average=0.5).fit(*blobs())
    with seeded_noise_not_private(3):
        watched = trainer(average=0.5, validation=PUBLIC, callbacks=(heard.append,)).fit(*blobs())
    pairs = zip(plain.model.parameters(), watched.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert [step.number for step in heard] == list(range(1, 13))
    assert heard[0].steps == 12
    assert heard[0].learning_rate == 0.5
    assert heard[1].learning_rate == pytest.approx(0.25 * (1 + math.cos(math.pi / 12)))
    assert all(
        torch.equal(a, b)
        for a, b in zip(heard[-1].model().parameters(), watched.model.parameters(), strict=True)
    )


def test_a_callback_that_says_true_stops_and_the_rest_stays_spent(tmp_path):
    with Ledger.open(tmp_path / "l.db", create=True) as ledger:
        ledger.create("toy", BudgetPolicy(epsilon=20.0, delta=1e-2))
    heard = []
    stop = (lambda step: step.number == 3, heard.append)
    got = trainer(callbacks=stop, ledger=tmp_path / "l.db", dataset_id="toy").fit(*blobs())
    assert got.steps == len(heard) == 3
    with Ledger.open(tmp_path / "l.db") as ledger:
        assert [entry.status for entry in ledger.history("toy")] == ["settled"]
    assert got.privacy.epsilon > 7.9  # of all twelve


@pytest.mark.parametrize(
    "settings",
    [
        {"validation": (PUBLIC[0][:, :3], PUBLIC[1])},
        {"validation": (PUBLIC[0], PUBLIC[1][:3])},
        {"validation": lambda model: "good"},
        {"validation": PUBLIC, "validate_every": 0},
    ],
)
def test_scores_that_cannot_be_are_refused_before_anything_is_booked(settings, tmp_path):
    with Ledger.open(tmp_path / "l.db", create=True) as ledger:
        ledger.create("toy", BudgetPolicy(epsilon=20.0, delta=1e-2))
    with pytest.raises((ValueError, RuntimeError)):
        trainer(ledger=tmp_path / "l.db", dataset_id="toy", **settings).fit(*blobs())
    with Ledger.open(tmp_path / "l.db") as ledger:
        assert not ledger.history("toy")


def test_a_run_that_goes_on_scores_at_the_same_steps(tmp_path):
    x, y = blobs()

    def crash(step):
        if step.number == 7:
            raise KeyboardInterrupt

    settings = {
        "checkpoint": tmp_path / "run",
        "checkpoint_every": 1,
        "validation": PUBLIC,
        "validate_every": 5,
    }
    with pytest.raises(KeyboardInterrupt):
        trainer(callbacks=(crash,), **settings).fit(x, y)
    assert [step for step, _ in trainer(**settings).resume(x, y).history] == [10, 12]


def test_a_rate_that_warms_up_rises_and_then_falls():
    schedule = warm_up(0.25, "linear")
    assert [schedule(p) for p in (0.0, 0.125, 0.25, 0.625)] == [0.0, 0.5, 1.0, 0.5]
    assert warm_up(0.1, lambda progress: 3.0)(0.5) == 3.0
    with pytest.raises(InvalidInputError, match="share"):
        warm_up(1.0)
    assert accuracy(trainer(schedule=schedule, steps=40).fit(*blobs()).model, *blobs()) > 0.8


class OnDisk(torch.utils.data.Dataset):
    """Records in a file that are read one by one."""

    def __init__(self, path, y):
        self.x, self.y, self.read = np.load(path, mmap_mode="r"), y, []

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        self.read.append(i)
        return torch.from_numpy(self.x[i].copy()), self.y[i]


def test_a_set_on_disk_is_read_record_by_record_and_gives_the_same_model(tmp_path):
    x, y = blobs(400)
    np.save(tmp_path / "x.npy", x.numpy())
    disk = OnDisk(tmp_path / "x.npy", y)
    with seeded_noise_not_private(3):
        there = trainer(batch_size=20, steps=3).fit(disk)
    with seeded_noise_not_private(3):
        here = trainer(batch_size=20, steps=3).fit(x, y)
    for a, b in zip(there.model.parameters(), here.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    assert (
        len(disk.read) < 400 + 200
    )  # all once before booking, some of them again; three batches of about 20


def test_a_state_dict_goes_to_disk_and_comes_back(tmp_path):
    got = trainer(precision=torch.bfloat16, average=0.9).fit(*blobs())
    torch.save(got.model.state_dict(), tmp_path / "model.pt")
    other = perceptron(seed=5)
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert torch.equal(other(PUBLIC[0]), got.model(PUBLIC[0]))
    assert all(p.dtype == torch.float32 for p in other.parameters())
    again = Trainer(other, LOSS, 8.0, 1e-4, steps=1, batch_size=40).fit(*blobs())  # goes on from there
    assert again.steps == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schedule": lambda progress: math.nan}, "schedule to return"),
        ({"schedule": lambda progress: 0.5 - progress}, "step 8 of 12"),
        ({"schedule": lambda progress: "fast"}, "schedule to return"),
        ({"learning_rate": math.inf}, "learning_rate"),
        ({"callbacks": print}, "callbacks"),
        ({"callbacks": ("print",)}, "callbacks"),
        ({"precision": "bf16"}, "precision"),
    ],
)
def test_settings_that_would_waste_a_run_are_refused_before_it_is_paid(settings, words, tmp_path):
    with Ledger.open(tmp_path / "l.db", create=True) as ledger:
        ledger.create("toy", BudgetPolicy(epsilon=20.0, delta=1e-2))
        with pytest.raises(InvalidInputError, match=words):
            trainer(**settings, ledger=ledger, dataset_id="toy").fit(*blobs())
        assert not ledger.history("toy")


def test_inputs_without_targets_are_refused_in_our_words():
    for inputs in (PUBLIC[0], PUBLIC[0].numpy()):
        with pytest.raises(InvalidInputError, match="targets"):
            trainer().fit(inputs)


def test_a_training_that_blew_up_is_said_from_released_numbers_alone():
    with pytest.warns(DivergenceWarning, match="largest trained parameter.*Lower learning_rate"):
        trainer(learning_rate=1e4).fit(*blobs())
    with pytest.warns(DivergenceWarning, match="not finite"):
        trainer(learning_rate=1e40).fit(*blobs())


def test_a_loss_on_public_records_that_has_risen_is_said():
    vector = torch.ones(3)
    for last in (11.0, math.inf, math.nan):
        with pytest.warns(DivergenceWarning, match=r"loss on the public records is .*, before .* was 1:"):
            warn_if_diverged(vector, vector, (1.0, 0.5, last))
    warn_if_diverged(vector, vector, (1.0, 50.0, 9.0))
    warn_if_diverged(vector, vector)
    got = trainer(epsilon=50.0, validation=lambda model: math.nan).fit(*blobs())  # a score of one's own
    assert math.isnan(got.history[-1][1])
