"""Broken twins of honest fits: an audit alone catches each, and says by which name.

Everything here is caught for certain (replay) or with the power that the audit itself states. The
proofs of what honest ones do: docs/proofs.md.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.replay.neighbours import hostile_data

import sordino
from sordino.estimators.search import PrivateSearchCV
from sordino.execute.local import LocalExecutor
from sordino.execute.persons import Owners
from sordino.kernel import Curator, NoiseSource, Norm, Plan, Release, curator
from sordino.kernel.correlated import Correlated
from sordino.kernel.events import InTurn, Relation
from sordino.kernel.mechanism import (
    Gaussian,
    GumbelTopK,
    JointSelection,
    Laplace,
    LaplaceMax,
    OnGrid,
    Rounding,
    StableCounts,
)
from sordino.kernel.plan import Question
from sordino.problems.queries import GlmGradient
from sordino.runs.report import PrivacyReport
from sordino.solvers import SOLVERS, Entry
from sordino.solvers.dense import Gd
from sordino.tables import Category, Number, Person, Schema, Target, learn_schema

X = np.random.default_rng(0).normal(size=(60, 3))
Y = X[:, 0]
QUICK: dict[str, Any] = {"seconds": 0.6, "draws": 3000}
SETTINGS: dict[str, Any] = {
    "data_norm": 2.0,
    "target_bound": 3.0,
    "solver_options": {"clip_norm": 0.7},
    "max_iter": 3,
}


def regression(**options: Any) -> Any:
    return sordino.LinearRegression(**{"epsilon": 2.0, "solver": "gd", **SETTINGS, **options})


def caught(fit: Any, data: Any = (X, Y), **how: Any) -> set[str]:
    """Return the names of the attacks that refute a fit, and the kinds of what a replay finds."""
    found = sordino.audit(fit, data, **{**QUICK, **how})
    return {attack.name for attack in found.attacks if attack.refuted} | {leak.kind for leak in found.leaks}


def asking(monkeypatch: Any, query: Any, mechanism: Any = None) -> Any:
    """Return gradient descent that asks another question, as a row of the registry."""

    @dataclass(frozen=True)
    class Asks(Gd):
        def plan(self, problem: Any) -> Any:
            plan = super().plan(problem)
            release, asked = plan.releases["gradient"], query(problem.loss, self.clip)
            release = replace(release, query=asked, mechanism=mechanism or release.mechanism)
            return replace(plan, releases={"gradient": release})

    def made(problem: Any, options: Any) -> Any:
        return Asks(**vars(Gd.configure(problem, options)))

    monkeypatch.setitem(SOLVERS["linear"], "twin", Entry(made, Gd.capabilities))
    return regression(solver="twin")


def test_honest_fits_of_these_kinds_pass(monkeypatch):
    assert caught(regression()) == set()
    assert caught(asking(monkeypatch, GlmGradient)) == set()
    assert caught(search("replace-one"), (X, np.sign(Y))) == set()
    assert caught(scsg()) == set()
    assert caught(learned_and_fitted(True), TABLE) == set()


# -------------------------------------------------------------------------------- noise


def test_half_of_exact_noise(monkeypatch):
    honest = NoiseSource.rounded_gaussian
    monkeypatch.setattr(
        NoiseSource, "rounded_gaussian", lambda self, std, shape: honest(self, std / 2, shape)
    )
    assert {"noise", "white box", "sequential"} <= caught(regression(secure_noise=True))


def test_a_lattice_too_coarse_for_the_noise_that_is_not_paid_for(monkeypatch):
    assert caught(regression(secure_noise=True)) == set()
    monkeypatch.setattr(OnGrid, "lattice", lambda self, sensitivity: 4.0 * sensitivity)
    monkeypatch.setattr(Rounding, "widen", lambda self, sensitivity, corner=0.0, errors=1.0: sensitivity)
    monkeypatch.setattr(NoiseSource, "rounded_gaussian", lambda self, std, shape: np.zeros(shape, dtype=int))
    assert {"replay", "sensitivity"} <= caught(regression(secure_noise=True))


def test_half_noise(monkeypatch):
    honest = Gaussian.privatise
    monkeypatch.setattr(
        Gaussian, "privatise", lambda self, v, sensitivity, noise: honest(self, v, sensitivity / 2, noise)
    )
    found = sordino.audit(regression(), (X, Y), **QUICK)
    assert {"noise", "white box", "sequential"} <= {a.name for a in found.attacks if a.refuted}
    assert found.lower > found.epsilon
    assert max(attack.power or 0.0 for attack in found.attacks) > 0.99
    tried = next(attack for attack in found.attacks if attack.name == "noise")
    assert tried.runs <= 8  # fits


def notice_less(monkeypatch: Any, kind: type, part: float, fit: Any, data: Any) -> None:
    """Draw a part of the noise of one mechanism; the fits that the audit looks at are enough to notice."""
    monkeypatch.setattr(kind, "scale", lambda self, sensitivity: part * self.multiplier * sensitivity)
    found = sordino.audit(fit, data, seconds=2.0, draws=25)
    tried = next(attack for attack in found.attacks if attack.name == "noise")
    assert tried.refuted
    assert tried.runs <= 300
    assert tried.power > 0.8


def median(values: Any) -> Any:
    return sordino.quantiles(values, 0.5, epsilon=4.0, bounds=(-5.0, 5.0), resolution=8)


def medians_of_towns(values: Any) -> Any:
    towns = sordino.group_by(np.arange(len(values)) % 3, levels=[0, 1, 2])
    return towns.quantile(values, q=0.5, epsilon=4.0, bounds=(-5.0, 5.0), resolution=8)


def vertices(selection: str) -> Any:
    own = {"selection": selection}
    return sordino.SparseLinearRegression(
        solver="frank-wolfe", epsilon=4.0, **{**SETTINGS, "solver_options": own}
    )


def test_honest_choices_pass():
    for fit, data in ((median, Y), (medians_of_towns, Y), (vertices("gumbel"), (X, Y))):
        found = sordino.audit(fit, data, seconds=2.0, draws=25)
        assert not found.refuted
        assert next(attack for attack in found.attacks if attack.name == "noise").power > 0.8


def test_half_the_noise_of_a_choice_by_ranks(monkeypatch):
    notice_less(monkeypatch, JointSelection, 0.5, median, Y)


def test_a_sixty_fourth_of_the_noise_of_a_choice_by_ranks(monkeypatch):
    notice_less(monkeypatch, JointSelection, 1 / 64, median, Y)


def test_half_the_noise_of_quantiles_of_groups(monkeypatch):
    notice_less(monkeypatch, JointSelection, 0.5, medians_of_towns, Y)


def test_half_the_noise_of_a_gumbel_choice(monkeypatch):
    notice_less(monkeypatch, GumbelTopK, 0.5, vertices("gumbel"), (X, Y))


def test_half_the_noise_of_a_noisy_maximum(monkeypatch):
    notice_less(monkeypatch, LaplaceMax, 0.5, vertices("laplace"), (X, Y))


def test_half_the_noise_of_counts_of_texts(monkeypatch):
    schema = Schema([Number("b", -3, 3), Category("town"), Target("ill", levels=["no", "yes"])])

    def learn(table: Any) -> Any:
        return learn_schema(schema, table, epsilon=50.0, delta=1e-3)

    assert caught(learn, TABLE[["b", "town", "ill"]]) == set()
    honest = StableCounts._tell

    def half(self: Any, *counts: Any) -> Any:
        return honest(replace(self, multiplier=self.multiplier / 2), *counts)

    monkeypatch.setattr(StableCounts, "_tell", half)
    assert "noise" in caught(learn, TABLE[["b", "town", "ill"]])


def test_half_the_noise_of_a_correlated_stream(monkeypatch):
    nn = pytest.importorskip("sordino.nn", exc_type=ImportError)
    honest = Correlated.scale
    monkeypatch.setattr(Correlated, "scale", lambda self, sensitivity: honest(self, sensitivity) / 2)
    own = {"trainer_options": {"noise": "banded"}, "max_iter": 4, "batch_size": 20}
    fit = nn.NeuralClassifier(epsilon=2.0, classes=[0, 1], hidden=2, **own)
    assert "noise" in caught(fit, (X, (Y > 0).astype(int)))


def test_a_reused_seed(monkeypatch):
    honest = curator.answer

    def again(executor: Any, question: Any, noise: Any, *batch: Any) -> Any:
        return honest(executor, question, NoiseSource.seeded_not_private(3), *batch)

    monkeypatch.setattr(curator, "answer", again)
    assert caught(regression()) == {"noise"}


def test_a_cached_scale(monkeypatch):
    honest, known = Gaussian.privatise, {}

    def cached(self: Any, value: Any, sensitivity: float, noise: Any) -> Any:
        multiplier = known.setdefault(np.shape(value)[-1:], self.multiplier)
        return honest(replace(self, multiplier=multiplier), value, sensitivity, noise)

    monkeypatch.setattr(Gaussian, "privatise", cached)
    assert "noise" in caught(regression())


# --------------------------------------- noise that has the declared size on the whole, and is another one


def draw_instead(monkeypatch: Any, drawn: Any) -> None:
    """Draw the noise of Gaussian answers otherwise: by a shape and a source, in deviations."""

    def privatise(self: Any, value: Any, sensitivity: float, noise: Any) -> Any:
        return value + self.multiplier * sensitivity * drawn(np.shape(value), noise)

    monkeypatch.setattr(Gaussian, "privatise", privatise)


def test_noise_in_floats_that_is_said_to_be_exact(monkeypatch):
    honest = Question.privatised

    def privatised(self: Any, exact: Any, noise: Any) -> Any:
        if not self.secure:
            return honest(self, exact, noise)
        sums = np.asarray(exact) * (self.spacing or 1.0)
        return self.release.mechanism.privatise(sums, self.room(exact), noise)

    monkeypatch.setattr(Question, "privatised", privatised)
    assert "status" in caught(regression(secure_noise=True))
    assert "status" in caught(regression(secure_noise=True), groups=np.repeat(np.arange(20), 3))


def test_one_coordinate_without_noise(monkeypatch):
    draw_instead(monkeypatch, lambda shape, noise: noise.normal(shape) * np.append(np.ones(shape[0] - 1), 0))
    assert "noise" in caught(regression())


def test_one_number_of_noise_for_all_coordinates(monkeypatch):
    draw_instead(monkeypatch, lambda shape, noise: noise.normal(()) * np.ones(shape))
    assert "noise" in caught(regression())


def test_noise_that_follows_that_of_the_answer_before(monkeypatch):
    last: dict[Any, Any] = {}

    def drawn(shape: Any, noise: Any) -> Any:  # of one fit
        own, source = noise.normal(shape), (id(noise), shape)
        last[source] = 0.9 * last[source] + np.sqrt(0.19) * own if source in last else own
        return last[source]

    draw_instead(monkeypatch, drawn)
    assert "noise" in caught(regression())


def test_uniform_noise_of_the_declared_deviation(monkeypatch):
    draw_instead(monkeypatch, lambda shape, noise: np.sqrt(12.0) * (noise.random(shape) - 0.5))
    assert caught(regression()) == {"noise"}


def test_noise_without_tails(monkeypatch):
    draw_instead(monkeypatch, lambda shape, noise: np.clip(noise.normal(shape), -2.0, 2.0))
    assert caught(regression()) == {"noise"}


def test_half_the_noise_of_the_last_step(monkeypatch):
    honest = Question.privatised

    def fading(self: Any, exact: Any, noise: Any) -> Any:
        answer, last = honest(self, exact, noise), self.position == self.release.times - 1
        return (answer + exact) / 2 if last else answer

    monkeypatch.setattr(Question, "privatised", fading)
    assert caught(regression(max_iter=20), seconds=4.0) == {"noise"}


def test_four_fifths_of_the_noise_of_one_step_in_fifty(monkeypatch):
    honest = Question.privatised

    def thinner(self: Any, exact: Any, noise: Any) -> Any:
        answer = honest(self, exact, noise)
        return exact + 0.8 * (answer - exact) if self.position == 24 else answer

    monkeypatch.setattr(Question, "privatised", thinner)
    wide = np.random.default_rng(0).normal(size=(60, 20))
    assert "noise of these fits" in caught(regression(max_iter=50), (wide, Y), draws=25, fits=60)


def test_answers_whose_last_bits_are_those_of_the_truth(monkeypatch):
    honest = Question.privatised

    def privatised(self: Any, exact: Any, noise: Any) -> Any:
        grid = 2.0**16 * np.spacing(np.max(np.abs(exact)) + 1.0)
        return exact + grid * np.rint((honest(self, exact, noise) - exact) / grid)

    monkeypatch.setattr(Question, "privatised", privatised)
    assert caught(regression()) == {"noise"}


def test_noise_that_was_drawn_in_single_precision(monkeypatch):
    draw_instead(monkeypatch, lambda shape, noise: noise.normal(shape).astype(np.float32).astype(float))
    assert caught(regression()) == {"noise"}


def test_an_answer_that_is_the_mean_of_two(monkeypatch):
    honest = curator.answer
    twice = lambda *asked: (honest(*asked) + honest(*asked)) / 2  # noqa: E731
    monkeypatch.setattr(curator, "answer", twice)
    assert "noise" in caught(regression())


def test_an_answer_that_is_divided_by_the_size_of_its_batch(monkeypatch):
    honest, drawn = (Curator.release, InTurn.draw), [1]
    own = {"solver_options": {"clip_norm": 0.7, "batch_size": 6, "epochs": 1}, "max_iter": None}

    def draw(self: Any, *asked: Any) -> Any:
        rows = honest[1](self, *asked)
        drawn[0] = max(1, len(rows))
        return rows

    monkeypatch.setattr(InTurn, "draw", draw)
    monkeypatch.setattr(Curator, "release", lambda self, *asked: honest[0](self, *asked) * 6 / drawn[0])
    assert caught(regression(solver="sgd", **own)) == {"replay", "answers"}


def test_exact_noise_that_leaves_the_last_bits_alone(monkeypatch):
    honest = NoiseSource.rounded_gaussian
    monkeypatch.setattr(
        NoiseSource, "rounded_gaussian", lambda self, std, shape: 2**20 * honest(self, std / 2**20, shape)
    )
    assert caught(regression(secure_noise=True)) == {"noise"}


def test_twice_the_sampling_rate(monkeypatch):
    own = {"solver_options": {"clip_norm": 0.7, "batch_size": 6, "epochs": 1}, "max_iter": None}
    assert caught(regression(solver="sgd", **own), draws=25) == set()
    honest = NoiseSource.bernoulli_rows
    monkeypatch.setattr(NoiseSource, "bernoulli_rows", lambda self, n, rate: honest(self, n, 2 * rate))
    assert "noise" in caught(regression(solver="sgd", **own), draws=25)


# ----------------------------------------------- programs that look at the records before they ask a curator


def test_honest_programs_pass():
    order = np.random.default_rng(1).permutation(len(X))
    assert caught(lambda x, y: regression().fit(x[order], y[order])) == set()
    assert caught(lambda x, y: regression().fit(np.clip(x, -1, 1), np.tanh(y))) == set()


def test_weights_that_all_records_decide():
    def fit(x: Any, y: Any) -> Any:
        return regression().fit(x, y, sample_weight=np.abs(y) / np.abs(y).max())

    assert "others" in caught(fit)


def test_classes_that_are_balanced():
    def fit(x: Any, y: Any) -> Any:
        share = np.mean(y > 0)
        model = sordino.LogisticRegression(epsilon=2.0, solver="gd", max_iter=3, classes=[False, True])
        return model.fit(x, y > 0, sample_weight=np.where(y > 0, 1 - share, share))

    assert "others" in caught(fit)


def test_a_bound_that_the_records_decide():
    assert "others" in caught(lambda x, y: regression(target_bound=np.quantile(np.abs(y), 0.9)).fit(x, y))


def test_columns_that_the_records_choose():
    def fit(x: Any, y: Any) -> Any:
        return regression().fit(x[:, np.argsort(-np.abs(x.T @ np.tanh(y)))[:2]], y)

    assert "others" in caught(fit)


def test_outliers_that_are_left_out():
    def fit(x: Any, y: Any) -> Any:
        kept = np.abs(y - np.median(y)) < 3 * np.std(np.tanh(y))
        return regression().fit(x[kept], y[kept])

    assert "others" in caught(fit)


def test_a_fit_that_is_repeated_until_it_pleases():
    def fit(x: Any, y: Any) -> Any:
        model = regression().fit(x, y)
        while model.coef_[1] < 0:
            model = regression().fit(x, y)
        return model

    assert caught(fit) & {"noise", "price"}


def test_a_wrong_relation_of_what_both_turned_around_leave_alone(monkeypatch):
    fit = sordino.HeavyTailedRegressor(epsilon=2.0, relation="replace-one", max_iter=2)
    assert caught(fit, seconds=0.0, draws=0) == set()
    honest = Release.sensitivity
    monkeypatch.setattr(
        Release, "sensitivity", lambda self, relation, params=None: honest(self, Relation.ADD_REMOVE, params)
    )
    assert "sensitivity" in caught(fit, seconds=0.0, draws=0)


def test_a_record_of_several_rows_that_counts_as_one(monkeypatch):
    own = {"solver_options": {"clip_norm": 0.2}, "max_iter": 2, "classes": [0, 1, 2]}
    fit = sordino.OrderedLogisticRegression(epsilon=2.0, solver="gd", **own)
    data = (X, np.digitize(Y, [-0.5, 0.5]))
    assert caught(fit, data, seconds=0.0, draws=0) == set()
    honest = Release.sensitivity
    monkeypatch.setattr(Release, "sensitivity", lambda self, *asked: honest(self, *asked) / self.rows)
    assert "sensitivity" in caught(fit, data, seconds=0.0, draws=0)


# -------------------------------------------------------------------------- sensitivities


@dataclass(frozen=True)
class NoClip(GlmGradient):
    """Residuals times rows, as they are."""

    def evaluate(self, records: Any, params: Any) -> Any:
        residual = self.loss.residual(records.margins(params), records.targets)
        return records.unit_sum(np.nan_to_num(residual), 1e9)


@dataclass(frozen=True)
class InAnotherNorm(GlmGradient):
    """Clips in the Euclidean norm and says that it is the sum of sizes."""

    norm = Norm.L1


def test_no_clip(monkeypatch):
    assert "sensitivity" in caught(asking(monkeypatch, NoClip))


def test_a_wrong_norm(monkeypatch):
    assert "sensitivity" in caught(asking(monkeypatch, InAnotherNorm, Laplace()))


def test_a_wrong_relation(monkeypatch):
    honest = GlmGradient.sensitivity
    monkeypatch.setattr(
        GlmGradient, "sensitivity", lambda self, relation, params: honest(self, Relation.ADD_REMOVE, params)
    )
    assert "sensitivity" in caught(regression(relation="replace-one"))


def test_a_relation_that_only_the_report_has(monkeypatch):
    honest = PrivacyReport.from_plan.__func__

    def other(cls: Any, plan: Any, certificate: Any, noise: Any, **known: Any) -> Any:
        return replace(honest(cls, plan, certificate, noise, **known), unit="person")

    monkeypatch.setattr(PrivacyReport, "from_plan", classmethod(other))
    assert "relation" in caught(regression())


def test_a_realised_batch_size(monkeypatch):
    honest = LocalExecutor.total

    def mean(self: Any, question: Any, batch: Any) -> Any:
        present = np.asarray(self.matrix).any(axis=1).sum()  # a record that is absent is zero
        return honest(self, question, batch) * len(self.matrix) / present  # the mean of those present

    monkeypatch.setattr(LocalExecutor, "total", mean)
    assert "sensitivity" in caught(regression())


def scsg() -> Any:
    own = {"clip_norm": 0.7, "epochs": 2, "batch_size": 12}
    settings = {**SETTINGS, "epsilon": 4.0, "solver_options": own, "n_nonzero_coefs": 2}
    return sordino.SparseLinearRegression(solver="svrg-ht", **settings)


def test_stale_parameters(monkeypatch):
    honest, last = LocalExecutor.total, [np.ones(4)]

    def stale(self: Any, question: Any, batch: Any) -> Any:
        """Take a correction between points of which one is that of an earlier fit."""
        if not isinstance(question.params, tuple):
            return honest(self, question, batch)
        return honest(self, replace(question, params=(last[0], question.params[1])), batch)

    monkeypatch.setattr(LocalExecutor, "total", stale)
    assert "sensitivity" in caught(scsg())


def test_merged_persons(monkeypatch):
    honest = Owners.of
    monkeypatch.setattr(Owners, "of", lambda groups, records: honest(np.zeros(records, dtype=int), records))
    data = hostile_data("numbers", persons=True)
    assert "sensitivity" in caught(regression(), (data.X, data.y), groups=data.groups)


VISITS = pd.DataFrame({"a": X[:, 0], "who": [f"p{i % 20}" for i in range(60)], "ill": Y > 0})


def merge_two_persons(monkeypatch: Any) -> None:
    """Count the first two persons as one."""
    honest = Owners.of

    def merged(groups: Any, records: int) -> Any:
        owner = np.unique(np.asarray(groups), return_inverse=True)[1]
        return honest(np.maximum(owner, 1), records)

    monkeypatch.setattr(Owners, "of", merged)


def test_merged_persons_of_a_table(monkeypatch):
    schema = Schema([Number("a", -3, 3), Person("who"), Target("ill", levels=[False, True])])
    fit = sordino.LogisticRegression(epsilon=2.0, schema=schema)
    assert caught(fit, VISITS) == set()
    merge_two_persons(monkeypatch)
    assert caught(fit, VISITS) == {"replay", "relation"}


def test_merged_persons_of_a_network(monkeypatch):
    nn = pytest.importorskip("sordino.nn", exc_type=ImportError)
    fit = nn.NeuralClassifier(epsilon=2.0, classes=[0, 1], hidden=2, max_iter=2, batch_size=20)
    data, owners = (X, (Y > 0).astype(int)), np.asarray(VISITS["who"])
    assert caught(fit, data, groups=owners, seconds=0.0, draws=0) == set()
    merge_two_persons(monkeypatch)
    assert "relation" in caught(fit, data, groups=owners, seconds=0.0, draws=0)


def test_persons_taken_apart(monkeypatch):
    honest = Owners.of
    monkeypatch.setattr(Owners, "of", lambda groups, records: honest(np.arange(records), records))
    assert "sensitivity" in caught(regression(), groups=np.repeat(np.arange(20), 3))


# ------------------------------------------------------------------------------- accounts


def test_a_dropped_event(monkeypatch):
    honest = Plan.event

    def fewer(self: Any) -> Any:
        some = {name: replace(r, times=max(1, r.times // 3)) for name, r in self.releases.items()}
        return honest(replace(self, releases=some))

    monkeypatch.setattr(Plan, "event", fewer)
    assert {"price", "white box"} <= caught(regression())


FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "town": np.where(X[:, 2] > 0, "x", "y")})
TABLE = FRAME.assign(ill=np.where(Y > 0, "yes", "no"))


def learned_and_fitted(honest: bool) -> Any:
    """Return a function that learns a schema, and fits with it or with a copy that knows no price."""

    known = [Number("b", -3, 3), Category("town", ["x", "y"]), Target("ill", levels=["no", "yes"])]
    blank = Schema([Number("a"), *known])

    def fit(table: Any) -> Any:
        schema = learn_schema(blank, table, epsilon=20.0, delta=1e-5).schema
        if not honest:
            schema = Schema([Number("a", -2, 2), *known])
        return sordino.LogisticRegression(epsilon=1.0, delta=1e-5, schema=schema, random_state=0).fit(table)

    return fit


def test_a_forgotten_price():
    assert "price" in caught(learned_and_fitted(False), TABLE)


def test_a_forgotten_status(monkeypatch):
    monkeypatch.setattr(NoiseSource, "is_private", property(lambda self: True))
    assert caught(regression()) == {"replay", "status"}


def search(relation: str) -> Any:
    inner = sordino.LogisticRegression(
        data_norm=2.0, solver="gd", classes=[-1.0, 1.0], max_iter=2, relation=relation
    )
    grid = {"solver_options__clip_norm": [0.2, 0.25]}
    return PrivateSearchCV(inner, grid, epsilon=4.0, delta=1e-5, relation=relation, random_state=0)


def test_validation_rows_in_training(monkeypatch):
    def everybody(self: Any, n: int, judges: int, owners: Any) -> Any:
        return np.arange(n), np.arange(n)

    monkeypatch.setattr(PrivateSearchCV, "_split", everybody)
    assert "distance" in caught(search("replace-one"), (X, np.sign(Y)))


# ---------------- The faulty mechanisms of dp-recorder (Cebere et al. 2026, arXiv 2602.17454), for a curator


AGES = np.where(np.arange(60) == 7, 5.0, np.arange(60) % 3)


def test_records_that_are_read_beside_the_mechanism():
    def fit(values: Any) -> Any:
        return sordino.mean(values, epsilon=2.0, bounds=(0.0, 9.0)), values.sum()

    assert "state" in caught(fit, AGES)


def test_a_function_that_keeps_the_records_it_was_made_from():
    def fit(values: Any) -> Any:
        middle = np.mean(values)
        return sordino.mean(values, epsilon=2.0, bounds=(0.0, 9.0)), lambda one: one > middle

    assert "state" in caught(fit, AGES)


def test_levels_that_are_inferred_from_the_records():
    def fit(values: Any) -> Any:
        return sordino.count(values, epsilon=2.0, levels=np.unique(values[:3]).tolist())

    assert {"sensitivity", "state"} <= caught(fit, AGES)


def test_a_budget_that_is_spent_twice():
    def fit(values: Any) -> Any:
        first, second = (sordino.mean(values, epsilon=2.0, bounds=(0.0, 9.0)) for _ in range(2))
        return float(first), second

    assert "price" in caught(fit, AGES)


@dataclass(frozen=True)
class NoGuard(GlmGradient):
    """Lets what is no number through."""

    def evaluate(self, records: Any, params: Any) -> Any:
        return super().evaluate(records, params) + 0.0 * records.targets.sum() * np.sum(records.matrix)


def test_a_number_that_is_none(monkeypatch):
    assert "sensitivity" in caught(asking(monkeypatch, NoGuard))


def test_a_sensitivity_of_nothing(monkeypatch):
    monkeypatch.setattr(GlmGradient, "sensitivity", lambda self, relation, params: 0.0)
    assert "sensitivity" in caught(regression())
