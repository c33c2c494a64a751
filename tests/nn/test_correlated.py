"""Trainers with correlated noise: what is planned, said, resumed and refused."""

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from tests.nn.helpers import reading
from torch import nn

from sordino.cli import main
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute.torch import NoisePool, TensorNoise
from sordino.kernel import Banded, Buffered, Correlated, Cyclic, NoiseSource, Regenerated
from sordino.nn import Trainer, make_private
from sordino.runs.training import NOISES, Training, best_bands, best_buffers, choices, prefix_error

X = torch.linspace(-1, 1, 240).reshape(80, 3)
Y = (X[:, 0] > 0).long()


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def trainer(noise, **known):
    settings = {"epsilon": 8.0, "delta": 1e-4, "batch_size": 8, "steps": 12, "learning_rate": 0.1} | known
    return Trainer(model(), nn.CrossEntropyLoss(), noise=noise, **settings)


@pytest.mark.parametrize(
    ("noise", "kind"), [("banded", Banded), ("blt", Buffered), ("regenerated", Regenerated)]
)
def test_a_training_is_planned_with_its_noise_and_batches(noise, kind):
    trained = trainer(noise).fit(X, Y)
    (release,) = trained.privacy.releases
    assert trained.steps == release.times == 12
    assert release.mechanism == f"Correlated ({kind.__name__}, all releases together)"
    assert release.sampling.startswith("Cyclic")
    assert not any("order" in fact for fact in trained.privacy.public)  # parts are dealt, not told by places
    assert 7.9 < trained.privacy.epsilon <= 8.0


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_all_releases_without_sampling_cost_one_gaussian(relation):
    trained = trainer("blt", relation=relation).fit(X, Y)
    assert trained.privacy.accountant == "gaussian (exact)"
    factor = 2 if relation == "replace-one" else 1
    priced = Training(80, 8, 12, 1e-4, relation, "blt").epsilon(
        trained.privacy.releases[0].noise_multiplier * factor
    )
    assert priced.epsilon == pytest.approx(trained.privacy.epsilon)


def test_a_loop_of_ones_own_has_it_too():
    steps = make_private(
        model(), nn.CrossEntropyLoss(), (X, Y), noise="blt", epsilon=8.0, steps=4, batch_size=8
    )
    assert len(list(reading(steps))) == 4
    assert "Buffered" in str(steps.privacy)


def test_a_training_that_stopped_goes_on_with_fresh_noise(tmp_path):
    settings = {"checkpoint": tmp_path / "run", "checkpoint_every": 2}
    stop = trainer("banded", callbacks=(lambda step: step.number == 5 and 1 / 0,), **settings)
    with pytest.raises(ZeroDivisionError):
        stop.fit(X, Y)
    rest = trainer("banded", **settings).resume(X, Y)
    assert rest.steps == 12 - 5
    assert (tmp_path / "run.journal").read_text("utf-8").count("records dealt to parts") == 1
    with pytest.raises(Exception, match=r"[Ee]xpected|differ|other"):
        trainer("blt", **settings).resume(X, Y)


@pytest.mark.parametrize("known", [{"secure_noise": True}, {"optimizer": "srm"}])
def test_what_is_not_proven_is_refused_by_name(known):
    with pytest.raises(UnsupportedError, match="proven for gradients of sgd and adam, in floating point"):
        trainer("banded", **known).fit(X, Y)


def test_a_noise_that_nobody_knows_is_refused():
    with pytest.raises(InvalidInputError, match=r"Expected noise in .*banded"):
        trainer("pink").fit(X, Y)


def test_one_band_is_independent_noise():
    """With one part and one band the plan is that of independent noise: same law, same price."""
    first, plain = next(choices("banded", 6000, 60, 100)), next(choices("independent", 6000, 60, 100))
    assert isinstance(first.mechanism, Correlated)
    assert first.mechanism.norm == pytest.approx(1.0)
    assert first.sampling == Cyclic(1, plain.sampling.rate)
    assert first.error == pytest.approx(plain.error)


def test_bands_are_as_good_as_those_of_jax_privacy():
    """jax-privacy 2.0, toeplitz.optimize_banded_toeplitz(n=200, bands=8): root mean square error 4.10304."""
    found = Banded(best_bands(8, 200))
    error = prefix_error(found.coefficients(200)) * sum(w * w for w in found.weights) ** 0.5
    assert error < 4.10304 * 1.0001


@pytest.mark.parametrize(("steps", "parts"), [(3, 2), (8, 10), (100, 2)])
def test_a_search_for_buffers_that_ends_far_out_is_silent(steps, parts):
    best_buffers.cache_clear()
    assert len(best_buffers(steps, parts).decays) == 3  # a warning of an overflow is an error here


def test_buffers_beat_independent_noise_of_the_same_batches():
    blt = best_buffers(400, 40)
    mechanism = Correlated(strategy=blt, parts=40, times=400)
    independent = Correlated(strategy=Banded((1.0,)), parts=40, times=400)
    errors = [m.norm * prefix_error(m.strategy.coefficients(400)) for m in (mechanism, independent)]
    assert errors[0] < errors[1] / 2


def test_the_best_choice_halves_the_error_at_epsilon_eight():
    error = {}
    for noise in NOISES:
        priced = Training(60_000, 600, 1000, 1e-5, noise=noise)
        error[noise] = priced.least_noise(8.0)[0] * priced.chosen(8.0).error
    assert error["banded"] < 0.55 * error["independent"]
    assert error["blt"] < 0.6 * error["independent"]
    assert error["regenerated"] < 0.75 * error["independent"]


def test_noise_on_a_device_is_made_again_from_its_key():
    device = torch.device("cpu")
    source = TensorNoise(NoiseSource.from_os(), device, NoisePool(device))
    one, other = source.subkey(), source.subkey()
    assert torch.equal(source.normal_of(one, (7, 3)), source.normal_of(one, (7, 3)))
    assert not torch.equal(source.normal_of(one, (21,)), source.normal_of(other, (21,)))
    many = source.normal_of(one, (200_000,))
    assert abs(float(many.std()) - 1) < 0.01
    assert abs(float(many.mean())) < 0.02


def test_the_command_prices_it():
    words = ["account", "noise", "--epsilon", "8", "--rows", "6000", "--batch-size", "100"]
    words += ["--steps", "300", "--delta", "1e-5", "--correlation"]
    for noise in NOISES:
        done = CliRunner().invoke(main, [*words, noise])
        assert done.exit_code == 0
        assert f"{noise} noise, multiplier" in done.output
    done = CliRunner().invoke(
        main,
        [*words[:1], "epsilon", "--noise", "1", "--rows", "600", "--steps", "30", "--correlation", "banded"],
    )
    assert done.exit_code != 0


def test_the_example_of_the_page_runs(capsys):
    page = Path(__file__).resolve().parents[2] / "docs" / "correlated-noise.md"
    block = page.read_text("utf-8").split("```python\n")[1].split("```")[0]
    exec(compile(block, "correlated-noise.md", "exec"), {})
    assert capsys.readouterr().out == "Correlated (Buffered, all releases together)\n"
