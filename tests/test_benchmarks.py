"""Benchmarks still start: each imports, builds its tasks and runs its smallest setting."""

from __future__ import annotations

import importlib
import json
import pkgutil
import warnings

import benchmarks
import numpy as np
import pytest
from benchmarks.__main__ import NEED_A_GPU, NOT_BENCHMARKS, names

from sordino.errors import DataNotFoundError

ALL = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", sorted(set(ALL) - {"__main__"} - NEED_A_GPU - {"peer_worker"}))
def test_a_benchmark_imports(name):
    module = importlib.import_module(f"benchmarks.{name}")
    assert module.__doc__
    assert name in NOT_BENCHMARKS or name not in names() or callable(module.main)


def test_heavy_tails_have_slopes():
    from benchmarks.heavy import excess_risks, mean_errors, slope, wrong_bound

    sizes = (200, 400)
    assert np.isfinite(slope(sizes, mean_errors(1.0, True, sizes, 2)))
    assert np.isfinite(slope(sizes, excess_risks({}, sizes, 1)))
    assert wrong_bound(10.0, 1.0, n=200, repeats=2) > 0


def test_pca_builds_its_axes_and_its_paper_protocol():
    from benchmarks import pca_measures, pca_paper

    rows = np.random.default_rng(0).normal(size=(200, 12)) / 4
    known = pca_measures.Rows.of("toy", rows, 1.0)
    for axes in (
        pca_measures.textbook(rows, 1.0, 0, True),
        pca_measures.fitted(rows, "gauss", 1.0, 0).components_,
    ):
        share, away = known.judged(axes)
        assert 0 < share <= 1 + 1e-9
        assert away >= 0
    labels = (rows[:, 0] > 0).astype(int)
    assert 0 <= pca_paper.accuracy(rows, labels, lambda seed: pca_paper.Unchanged(), 1) <= 100
    model = pca_paper.PCA(2, solver="power", noise="paper", center=False, epsilon=1.0, delta=1e-3, max_iter=2)
    assert pca_paper.certified(model, rows) > 0


def test_a_name_that_is_no_benchmark_is_refused_before_anything_runs(monkeypatch, capsys):
    from benchmarks import __main__ as every

    monkeypatch.setattr("sys.argv", ["benchmarks", "guard", "gaurd"])
    monkeypatch.setattr(every.subprocess, "run", pytest.fail)
    with pytest.raises(SystemExit):
        every.main()
    assert "no benchmark is called gaurd" in capsys.readouterr().err
    assert every.known() > every.BY_NAME
    assert not every.BY_NAME & set(every.names())


def test_sparse_solvers_run_each_kind():
    from benchmarks import sparse_solvers as module

    public = np.random.default_rng(0)
    task = module.Task.of("toy", public.normal(size=(200, 10)), public.integers(0, 2, 200), 3)
    for kind in module.KINDS:
        made = module.solvers(kind, task, 3, 1.0)
        assert made
        assert np.isfinite(module.reached(task, made[0]))


def test_growth_gives_an_exponent_for_every_size():
    from benchmarks.growth import measured

    found = measured(doublings=1, base={"n": 200, "d": 100, "nnz": 5, "k": 10})
    assert len(found) == 9
    assert all(np.isfinite(line["exponent"]) for line in found.values())


def test_adassp_and_the_peers_protocol_run(monkeypatch):
    from benchmarks import peers
    from benchmarks.peers import explained, ours, plain, regression

    (apart,) = peers.alone(explained, [("adassp", 300, 5, 1.0, 0)])  # a process of its own, once
    assert apart["peak_mb"] > 0
    monkeypatch.setattr(peers, "alone", peers._each)
    rows = list(regression(1, (1.0,)))
    assert {row["method"] for row in rows} == {"sordino", "adassp", "not private"}
    public = np.random.default_rng(0)
    x = public.normal(size=(300, 5)) / 5
    task = {"x": x, "y": (x[:, 0] > 0).astype(int), "test_x": x, "test_y": (x[:, 0] > 0).astype(int)}
    assert ours(task, 1.0)["value"] > 0.4
    assert plain(task)["value"] > 0.4


def with_data(make):
    try:
        return make()
    except DataNotFoundError:
        pytest.skip("the data set is not here")


def test_the_bounds_of_adult_are_the_declared_ones():
    from benchmarks.peers import adult

    task = with_data(lambda: adult(0))
    assert task["raw"].shape == (len(task["y"]), 14)
    assert list(task["high"][~task["categories"]]) == [100, 1_500_000, 16, 100_000, 5_000, 100]


def test_nonconvex_takes_one_run_of_each_method():
    from benchmarks import nonconvex

    task = with_data(lambda: nonconvex.Task.of("a9a", 0.2))
    found = nonconvex.run(task, "gd", 1.0, 0)
    assert found["passes"] == pytest.approx(20)
    for method in nonconvex.METHODS:
        options = nonconvex.options(method, 0.2, None, 0)
        name = method.partition(",")[0]
        assert nonconvex.make_solver(name, task.problem, options).plan(task.problem).releases


def test_parties_compare_all_methods_on_few_records():
    from benchmarks import parties

    world = with_data(lambda: parties.World("adult", 1000, parties.Relation.ADD_REMOVE))
    noise = parties.NoiseSource.seeded_not_private(0)
    gap, loss = parties.descend(world, parties.LocalExecutor(world.x, world.y), noise, steps=41)
    assert np.isfinite([gap, loss]).all()
    assert np.isfinite(parties.local_objective(world.members(4), world.problem, noise)).all()


def test_multiclass_and_accuracy_read_their_data():
    from benchmarks import accuracy, multiclass

    assert multiclass.pixels(np.full((2, 28, 28), 255)).max() == 1.0
    X, test, *_ = accuracy.digits(0)
    assert X.shape[1] == test.shape[1] == 64


def test_persons_are_dealt_a_hundred_images_each():
    from benchmarks.persons import PERSONS, owners

    digits = np.arange(60_000) % 10
    for skewed in (False, True):
        dealt = owners(digits, skewed)
        assert np.bincount(dealt, minlength=PERSONS).tolist() == [100] * PERSONS
    assert max(len(set(digits[dealt == person])) for person in range(PERSONS)) <= 4


def test_secure_noise_of_a_network_is_timed():
    from benchmarks.secure_nn import models, seconds

    model, x, _ = models()["perceptron, 7,114 weights, batch 256"]
    assert seconds(model, x[:200], 20, True) > 0


def test_a_bar_of_true_answers_can_be_kept_in_a_file():
    from benchmarks.true_answers import inside

    assert json.dumps(inside("a mean over the true mean", 0.9, np.float64(0.95), 1.1).holds) == "true"
