"""Doors found beside the list: models that seed themselves, records of another type, threads that draw."""

import threading
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from tests.hostile.claims_nn import RUN
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino import HeavyTailedClassifier, HeavyTailedRegressor, private_score
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute.draws import hidden_draws, seeded_draws
from sordino.execute.torch import TorchExecutor
from sordino.kernel import NoiseSource
from sordino.nn import NeuralClassifier, Trainer
from sordino.nn.data import source_of
from sordino.nn.network import same_draws

LOSS = nn.CrossEntropyLoss()


class OwnSeed(nn.Module):
    """Dropout whose masks everybody knows."""

    def __init__(self, way):
        super().__init__()
        torch.manual_seed(0)
        self.way, self.first, self.last = way, nn.Linear(6, 16), nn.Linear(16, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        if self.way == "generator":
            return self.last(h + torch.randn(h.shape, generator=torch.Generator().manual_seed(3)))
        if self.way == "fork":
            with torch.random.fork_rng():
                torch.manual_seed(0)
                return self.last(self.drop(h))
        if self.way == "seed":
            torch.manual_seed(0)
        return self.last(self.drop(h))


@pytest.mark.parametrize("engine", ["auto", "vmap"])
@pytest.mark.parametrize("way", ["generator", "fork", "seed"])
@pytest.mark.filterwarnings("ignore::sordino.errors.SlowEngineWarning")
def test_door_28_a_model_that_draws_from_a_seed_of_its_own_is_refused(way, engine):
    with pytest.raises(UnsupportedError, match="a seed of its own"):
        Trainer(OwnSeed(way), LOSS, **RUN, engine=engine).fit(*blobs())
    assert Trainer(OwnSeed("none"), LOSS, **RUN, engine=engine).fit(*blobs()).steps == RUN["steps"]


def test_door_29_a_record_of_another_type_does_not_round_the_others():
    large = 2**24 + 1  # which single precision has not
    items = [(torch.full((3,), large), i % 3) for i in range(6)]
    odd = [*items[:5], (torch.full((3,), 0.5), 1)]
    kinds = (torch.int64, torch.int64)
    with pytest.raises(InvalidInputError, match="whole numbers"):
        TorchExecutor(odd, torch.device("cpu"), kinds=kinds).batch(np.arange(6))
    executor = TorchExecutor(odd, torch.device("cpu"), kinds=kinds)
    assert int(executor.batch(np.arange(5))[0].max()) == large
    labels = [*zip(*blobs(20), strict=True)]
    labels[7] = (labels[7][0], 0.5)
    with pytest.raises(InvalidInputError, match="Nothing was booked"):
        Trainer(perceptron(), LOSS, **{**RUN, "batch_size": 5}).fit(torch.utils.data.DataLoader(labels))


@pytest.mark.parametrize("other", [hidden_draws, seeded_draws, same_draws])
def test_door_30_no_thread_puts_known_seeds_back_while_another_draws(other):
    arguments = {hidden_draws: (NoiseSource.from_os(),), seeded_draws: (1,), same_draws: ()}[other]
    inside, go_on, draws = threading.Event(), threading.Event(), []

    def first():
        with hidden_draws(NoiseSource.from_os()):
            inside.set()
            go_on.wait(5)
            draws.append(torch.rand(4))

    def second():
        with other(*arguments):
            pass

    torch.manual_seed(0)
    known = torch.rand(4)
    torch.manual_seed(0)
    threads = [threading.Thread(target=target) for target in (first, second)]
    threads[0].start()
    assert inside.wait(5)
    threads[1].start()
    threads[1].join(0.3)
    assert threads[1].is_alive()  # it waits its turn
    go_on.set()
    for thread in threads:
        thread.join(5)
    assert not torch.equal(draws[0], known)
    assert torch.equal(torch.rand(4), known)  # and the caller's generator is where it was


@pytest.mark.parametrize("large", [1e300, -1e39])
@pytest.mark.parametrize("named", [False, True])
def test_door_44_a_large_finite_item_is_bounded_and_not_refused(large, named):
    x, y = blobs(40)
    x = x.double()
    x[17] = large
    items = list(zip(x, y, strict=True))
    if named:
        items = [({"a": a}, b) for a, b in items]
    source = source_of(torch.utils.data.DataLoader(items))
    executor = source.executor(torch.device("cpu"), 16, False)
    read = executor.batch(np.array([16, 17]))[0]
    assert read.dtype is torch.float32
    assert bool(read.isfinite().all())
    assert torch.equal(read[1], torch.full((6,), np.sign(large) * torch.finfo(torch.float32).max))
    if not named:
        assert (
            Trainer(perceptron(), LOSS, **RUN).fit(torch.utils.data.DataLoader(items)).steps == RUN["steps"]
        )


class View:
    """An augmentation that makes something else of a record."""

    draws = 1

    def __init__(self, make):
        self.make = make

    def __call__(self, record, numbers):
        return self.make(record, numbers)


@pytest.mark.parametrize("made", [lambda r, u: None, lambda r, u: 3.0, lambda r, u: (r, r)])
def test_door_45_an_augmentation_that_makes_no_tensor_is_refused(made):
    with pytest.raises(UnsupportedError, match="augment cannot be mapped"):
        Trainer(perceptron(), LOSS, **RUN, augment=View(made), multiplicity=2).fit(*blobs())


@pytest.mark.parametrize("made", [lambda r, u: r * np.nan, lambda r, u: r + np.inf])
def test_door_46_an_augmentation_that_makes_no_numbers_is_refused(made):
    with pytest.raises(InvalidInputError, match="Expected finite views"):
        Trainer(perceptron(), LOSS, **RUN, augment=View(made), multiplicity=2).fit(*blobs())


def test_door_47_no_warning_tells_of_a_row_that_is_scored():
    public = np.random.default_rng(0)
    X, rows = public.normal(size=(400, 3)), public.normal(size=(60, 3))
    y, rows[7] = X[:, 0] * 2, 1e308
    heavy, tailed = (
        HeavyTailedRegressor(1.0, 1e-5).fit(X, y),
        HeavyTailedClassifier(1.0, 1e-5, classes=[0, 1]),
    )
    tailed.fit(X, (y > 0).astype(int))
    neural = NeuralClassifier(1.0, 1e-5, max_iter=1, module=lambda d, k: nn.Linear(d, k, bias=False))
    neural.fit(X, (y > 0).astype(int))
    with torch.no_grad():
        neural.module_.weight.copy_(torch.tensor([[9.0, 9.0, 9.0], [-9.0, -9.0, -9.0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(heavy.predict(rows)).all()
        for model in (tailed, neural):
            assert np.isfinite(model.decision_function(rows)).all()
            assert np.isfinite(model.predict_proba(rows)).all()
            assert np.isfinite(model.predict_log_proba(rows)).all()
        private_score(heavy, rows, np.zeros(60), epsilon=1.0, metric="mse", bounds=(-3, 3))


class Talking(ClassifierMixin, BaseEstimator):
    """A foreign model that says something when it sees one row."""

    classes_ = np.array([0, 1])

    def fit(self, X, y):
        return self

    def predict(self, X):
        if (np.abs(X) > 1e3).any():
            warnings.warn("a large row", RuntimeWarning, stacklevel=1)
        return (X[:, 0] > 0).astype(int)


def test_door_47_what_a_foreign_model_says_of_rows_is_not_shown():
    rows = np.full((50, 2), 1e4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        private_score(Talking(), rows, np.ones(50), epsilon=1.0)
