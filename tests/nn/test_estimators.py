"""The neural estimators from the outside."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator
from tests.nn.helpers import blobs
from torch import nn

from sordino import checks as bounds
from sordino.errors import DivergenceWarning, InvalidInputError, UndeclaredBoundWarning
from sordino.nn import NeuralClassifier, NeuralRegressor, Trainer
from sordino.testing import seeded_noise_not_private


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "estimator",
    [
        NeuralClassifier(epsilon=30.0, delta=1e-4, random_state=0, max_iter=6, batch_size=400),
        NeuralRegressor(epsilon=30.0, delta=1e-4, random_state=0, max_iter=6, target_bound=3.0),
    ],
)
def test_scikit_learn_checks_pass_when_the_noise_is_the_same(estimator):
    with seeded_noise_not_private(1, same_for_every_fit=True):
        check_estimator(estimator)


def test_it_classifies_and_reports():
    x, y = (part.numpy() for part in blobs(800))
    names = np.array(["a", "b", "c"])[y]
    with seeded_noise_not_private(0):
        model = NeuralClassifier(epsilon=4.0, delta=1e-5, max_iter=80, random_state=1).fit(x, names)
    assert model.score(x, names) > 0.9
    assert model.n_iter_ == 80
    assert np.allclose(model.predict_proba(x[:5]).sum(axis=1), 1)
    assert 0.99 * 4 < model.privacy_.epsilon <= 4
    assert any("class labels" in fact for fact in model.privacy_.public)


def curved(n=1500):
    public = np.random.default_rng(0)
    X = public.normal(size=(n, 4))
    return X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int)


@pytest.mark.parametrize("unit", [1e-2, 1e3])
def test_the_unit_of_the_rows_does_not_matter(unit):
    X, y = curved()
    shares = []
    for scale in (1.0, unit):
        with seeded_noise_not_private(0):
            model = NeuralClassifier(2.0, 1e-5, data_norm=4.0 * scale, max_iter=60, random_state=0)
            shares.append(model.fit(scale * X, y).predict_proba(scale * X))
    np.testing.assert_allclose(shares[1], shares[0], atol=1e-2)


def test_less_noise_steps_faster_and_the_rate_is_public():
    X, _ = curved()
    rates = []
    for epsilon in (0.1, 1.0, 10.0, np.inf):
        model = NeuralClassifier(epsilon, random_state=0)
        rates.append(model._rate(model._network(4, 2), len(X)))
    assert rates == sorted(rates)
    assert rates[0] < 0.25
    assert rates[-1] == 2.0
    assert NeuralClassifier(1.0, learning_rate=0.3)._rate(model._network(4, 2), 10) == 0.3


def test_more_budget_does_not_lower_the_accuracy():
    X, y = curved(3000)
    scores = []
    for epsilon in (0.3, 3.0, np.inf):
        with seeded_noise_not_private(0):
            model = NeuralClassifier(epsilon, 1e-5, data_norm=4.0, random_state=0).fit(X, y)
        scores.append(model.score(X, y))
    assert min(np.diff(scores)) > -0.01
    assert scores[-1] > 0.85


def test_it_regresses_in_the_units_of_its_public_bound():
    public = np.random.default_rng(0)
    x = public.normal(size=(900, 4)).astype(np.float32)
    y = 50.0 * x[:, 0]
    with seeded_noise_not_private(0):
        model = NeuralRegressor(
            epsilon=8.0, delta=1e-5, target_bound=150.0, max_iter=120, random_state=1
        ).fit(x, y)
    assert model.score(x, y) > 0.8
    assert "target_bound = 150 (targets are clipped to it)" in model.privacy_.public


def test_a_target_bound_that_nobody_declared_is_said_once(monkeypatch):
    monkeypatch.setattr(bounds, "_said", set())
    x, y = (part.numpy() for part in blobs(60))
    with pytest.warns(UndeclaredBoundWarning, match="Pass target_bound="):
        NeuralRegressor(max_iter=2).fit(x, y.astype(float))
    NeuralRegressor(max_iter=2).fit(x, y.astype(float))  # a warning would be an error here


URL = "postgresql://ada:hush@host/budgets"


@pytest.mark.parametrize(
    "made",
    [NeuralClassifier(ledger=URL), NeuralRegressor(ledger=URL), Trainer(nn.Linear(1, 1), None, ledger=URL)],
)
def test_the_password_of_a_ledger_is_neither_printed_nor_pickled(made):
    assert "ada@host" in repr(made)
    assert "hush" not in repr(made)
    assert b"hush" not in pickle.dumps(made)


def test_a_network_that_blew_up_says_so():
    x, y = (part.numpy() for part in blobs(60))
    wild = NeuralClassifier(max_iter=3, learning_rate=1e40, random_state=0)
    with pytest.warns(DivergenceWarning, match="not finite.*Lower learning_rate"):
        wild.fit(x, y)


def test_a_module_of_ones_own_and_sparsity():
    x, y = (part.numpy() for part in blobs(200))

    def build(features, outputs):
        return nn.Sequential(nn.Linear(features, 5), nn.ReLU(), nn.Linear(5, outputs))

    model = NeuralClassifier(module=build, n_nonzero_coefs=12, max_iter=10, data_norm=2.0, delta=1e-5).fit(
        x, y
    )
    assert sum(int(p.count_nonzero()) for p in model.module_.parameters()) <= 12


def test_the_random_state_fixes_the_start_and_not_the_noise():
    x, y = (part.numpy() for part in blobs(100))
    model = NeuralClassifier(max_iter=3, random_state=0)
    first, second = (clone(model).fit(x, y).module_[0].weight.detach().numpy() for _ in range(2))
    assert not np.array_equal(first, second)
    free = NeuralClassifier(max_iter=3, random_state=0, epsilon=float("inf"), batch_size=100)
    first, second = (clone(free).fit(x, y).module_[0].weight.detach().numpy() for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    "settings", [{"hidden": 0}, {"clip_norm": -1.0}, {"max_iter": 0}, {"batch_size": 1.5}, {"data_norm": 0.0}]
)
def test_settings_outside_their_bounds_are_refused(settings):
    x, y = (part.numpy() for part in blobs(50))
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        NeuralClassifier(**settings).fit(x, y)


def test_a_page_names_the_one_reservation_of_a_network_on_a_table(tmp_path, monkeypatch):
    from click.testing import CliRunner

    import sordino
    from sordino.cli.program import main

    monkeypatch.chdir(tmp_path)
    lines = [f"{i % 10 / 10},{i % 7 / 7}" for i in range(300)]
    (tmp_path / "rows.csv").write_text("\n".join(["age,cost", *lines]))
    ends = "low = 0\nhigh = 1\n"
    columns = f'[columns.age]\nkind = "number"\n{ends}[columns.cost]\nkind = "target"\nof = "number"\n{ends}'
    (tmp_path / "schema.toml").write_text(f"format = 1\n{columns}")
    sordino.Ledger.open("budget.db").create("per", sordino.BudgetPolicy(epsilon=8.0, delta=1e-4))
    words = "fit rows.csv --schema schema.toml --model network-regressor --set max_iter=2 --epsilon 2"
    place = "--delta 1e-5 --ledger budget.db --dataset per --output m.sordino --report m.html"
    assert CliRunner().invoke(main, f"{words} {place}".split()).exit_code == 0
    page = (tmp_path / "m.html").read_text()
    assert "no reservation" not in page
    assert "reservation 1" in page
    assert "reservations 1" not in page
