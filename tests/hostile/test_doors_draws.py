"""Doors found beside the list: models that seed themselves, records of another type, threads that draw."""

import threading

import numpy as np
import pytest
import torch
from tests.hostile.claims_nn import RUN
from tests.nn.helpers import blobs, perceptron
from torch import nn

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute.draws import hidden_draws, seeded_draws
from sordino.execute.torch import TorchExecutor
from sordino.kernel import NoiseSource
from sordino.nn import Trainer
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
        TorchExecutor(odd, torch.device("cpu"), kinds=kinds).batch(None)
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
