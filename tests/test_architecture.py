"""The page on architecture is true: its picture, its walk, and where it says that new things go."""

import contextlib
import io
import re
import runpy
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import sordino
from sordino.checks import check_data
from sordino.cli import main
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.estimators.metrics import METRICS, MetricRow, judge
from sordino.execute import LocalExecutor
from sordino.kernel import ClippedSum, Full, Gaussian, Plan, Relation, Release, clip, public_generator
from sordino.kernel.query import Records
from sordino.private_estimator import PrivateEstimator
from sordino.problems.losses import IDENTITY, LOSSES, Link
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmGradient
from sordino.runs import Ask, Task, run
from sordino.solvers import SOLVERS, Entry, Option, Options, make_solver
from sordino.solvers.base import STEPS, Capabilities

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SCRIPT = runpy.run_path(str(ROOT / "docs" / "figures" / "architecture.py"), run_name="architecture")
AGAIN = "run: python docs/figures/architecture.py"

# ------------------------------------------------------------------------------------------- the picture


def test_the_table_of_rooms_is_what_the_code_imports():
    inside = PAGE.partition(SCRIPT["START"])[2].partition(SCRIPT["END"])[0]
    assert inside.strip() == SCRIPT["table"](), AGAIN


def test_the_picture_is_drawn_from_the_same_imports():
    assert SCRIPT["PICTURE"].read_text("utf-8") == SCRIPT["picture"](), AGAIN


def test_every_room_has_words_a_place_and_a_line_on_the_front_page():
    rooms, front = SCRIPT["rooms"](), (ROOT / "README.md").read_text("utf-8")
    assert set(rooms) == set(SCRIPT["WORDS"]) == set(SCRIPT["MIDDLE"])
    # The estimators are `sordino` itself, and cli is a command.
    assert [room for room in rooms if f"`sordino.{room}`" not in front] == ["cli", "estimators"]


def test_arrows_skip_what_a_longer_way_says_and_circles_are_refused():
    graph = {"a": Counter(b=1, c=2), "b": Counter(c=1), "c": Counter()}
    assert SCRIPT["direct"](graph) == [("a", "b"), ("b", "c")]
    assert SCRIPT["floors"](graph) == {"a": 2, "b": 1, "c": 0}
    with pytest.raises(SystemExit, match="import each other"):
        SCRIPT["floors"]({"a": Counter(b=1), "b": Counter(a=1)})


# ---------------------------------------------------------------------------------------------- the walk


def shortened(text):
    """Return the text with long decimals cut, which may differ in their last digits between machines."""
    return re.sub(r"(\d+\.\d{6})\d+", r"\1", text)


def test_the_walk_prints_what_the_page_shows():
    names, printed = {"__name__": "page"}, ""
    for kind, block in re.findall(r"^```(python|text)\n(.*?)^```", PAGE, re.M | re.S):
        if kind == "text":
            assert shortened(printed) == shortened(block)
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block, "architecture.md", "exec"), names)
        printed = out.getvalue()
    assert len(names["data"].heard) == 35


def test_every_file_that_the_page_names_exists():
    named = set(re.findall(r"`((?:[\w-]+/)+[\w.-]*|[\w-]+\.(?:py|md))`", PAGE))
    places = (ROOT, ROOT / "src" / "sordino", ROOT / "src" / "sordino" / "solvers")
    assert len(named) > 30
    assert not [name for name in named if not any((place / name).exists() for place in places)]


# ------------------------------------------------------------------------------------- adding one of each

DATA = public_generator(3)
X = DATA.normal(size=(400, 3)) / 2
Y = X @ [1.0, -0.5, 0.0]
TASK = Problem(LOSSES["squared"], 400, 3, Relation.ADD_REMOVE, 5.0, 1e-6, data_norm=1.9, target_bound=2.0)
ASK = Ask.checked(5.0, 1e-6, 400)


@dataclass(frozen=True)
class SignDescent:
    """w <- w - step sign(g): a toy that is one file, one line and one row."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the gradient on all records", reads=STEPS, options={"shrink": Option(0.7)}, dense=True
    )
    steps: int
    clip: float
    shrink: float

    @classmethod
    def configure(cls, problem, options):
        return cls(options.max_iter or 12, options.clip(problem), options.read(cls.capabilities)["shrink"])

    def plan(self, problem):
        query = GlmGradient(problem.loss, self.clip)
        return problem.planned(gradient=Release(query, problem.gaussian(), Full(), self.steps))

    def run(self, curator, problem):
        w, step = np.zeros(problem.shape), 0.3
        for _ in range(self.steps):
            w, step = w - step * np.sign(curator.release("gradient", w)), step * self.shrink
            yield w


@pytest.fixture
def sign_descent(monkeypatch):
    monkeypatch.setitem(SOLVERS["linear"], "sign-descent", Entry.of(SignDescent))


def test_a_new_solver_is_reached_from_an_estimator_and_its_options_are_checked(sign_descent):
    model = sordino.LinearRegression(
        5.0, 1e-6, solver="sign-descent", data_norm=1.9, target_bound=2.0, fit_intercept=False
    ).fit(X, Y)
    assert [(r.name, r.times) for r in model.privacy_.releases] == [("gradient", 12)]
    assert np.abs(model.coef_ - [1.0, -0.5, 0.0]).max() < 0.5
    with pytest.raises(InvalidInputError, match="which does not read it"):
        model.set_params(solver_options={"batch_size": 7}).fit(X, Y)
    with pytest.raises(InvalidInputError, match="shrink"):
        model.set_params(solver_options={"shrnk": 0.5}).fit(X, Y)


@dataclass(frozen=True)
class TargetSum(ClippedSum):
    """``sum_i clip_b(y_i)``, a new question."""

    needs: ClassVar[tuple[type, ...]] = (Records,)
    bound: float

    def contribution(self, params):
        return self.bound

    def evaluate(self, records, params):
        rows = np.asarray(records.targets)[:, None]
        kept = clip.clip_scalars(np.ones(len(rows)), clip.row_norms(rows), self.bound)
        return np.array([np.sum(np.where(kept > 0, kept * np.nan_to_num(rows[:, 0]), 0.0))])


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_a_new_query_moves_by_its_bound_at_most_and_can_be_planned(targets):
    query = TargetSum(0.7)
    one, all_but_one = (LocalExecutor(np.zeros((len(t), 1)), t) for t in (targets, [0.0, *targets[1:]]))
    moved = [query.evaluate(part.records(None), None) for part in (one, all_but_one)]
    assert abs(moved[0] - moved[1]) <= query.sensitivity(Relation.ADD_REMOVE, None) * (1 + 1e-12)
    plan = Plan({"targets": Release(query, Gaussian())}, Relation.ADD_REMOVE, 400)
    assert plan.printed == ()


@dataclass(frozen=True)
class Shards:
    """Records in several pieces, for example files: sums over all records are sums over pieces."""

    pieces: tuple[LocalExecutor, ...]

    @property
    def population(self):
        return sum(piece.population for piece in self.pieces)

    @property
    def offer(self):
        return replace(self.pieces[0].offer, records="records in several pieces", samplings=(Full,))

    def total(self, question, batch):
        return np.sum([piece.total(question, batch) for piece in self.pieces], axis=0)


def test_a_new_executor_runs_a_solver_of_the_library_and_gives_the_same_answers():
    ask = Ask.checked(float("inf"), 1e-6, 400)
    whole = LocalExecutor(X, Y, 1.9)
    shards = Shards(tuple(LocalExecutor(X[i::3], Y[i::3], 1.9) for i in range(3)))
    solver = make_solver("gd", TASK, Options(max_iter=30))
    results = [run(Task(solver, TASK, "gd"), data, ask).result for data in (whole, shards)]
    np.testing.assert_allclose(*results, rtol=1e-9)
    private = run(Task(make_solver("gd", TASK, Options()), TASK, "gd"), shards, ASK)
    assert private.report.status == "private"
    with pytest.raises(UnsupportedError, match="cannot be drawn from records in several pieces"):
        run(Task(make_solver("sgd", TASK, Options(batch_size=20)), TASK, "sgd"), shards, ASK)


@dataclass(frozen=True)
class LogCosh:
    """``log cosh(m - y)``, a loss with residual ``tanh``."""

    targets: ClassVar[str] = "numbers"
    link: ClassVar[Link] = IDENTITY
    name: str = "log-cosh"
    lipschitz: float = 1.0
    curvature: float = 1.0

    def value(self, margins, y):
        return np.logaddexp(margins - y, y - margins) - np.log(2.0)

    def residual(self, margins, y):
        return np.tanh(margins - y)


def test_a_new_loss_is_reached_from_an_estimator(monkeypatch):
    monkeypatch.setitem(LOSSES, "log-cosh", LogCosh())
    h, m = 1e-6, np.linspace(-4, 4, 9)
    slope = (LogCosh().value(m + h, 0.3) - LogCosh().value(m - h, 0.3)) / (2 * h)
    np.testing.assert_allclose(slope, LogCosh().residual(m, 0.3), atol=1e-6)
    settings = {"data_norm": 1.9, "target_bound": 2.0, "max_iter": 60, "fit_intercept": False}
    model = sordino.LinearRegression(5.0, 1e-6, loss="log_cosh", solver="gd", **settings).fit(X, Y)
    assert np.abs(model.coef_ - [1.0, -0.5, 0.0]).max() < 0.4
    assert model.privacy_.releases[0].sensitivity == "1.9 (L2)"  # its Lipschitz constant makes the clip


def test_a_new_metric_is_a_row_and_its_paid_score_is_the_exact_one_up_to_noise(monkeypatch):
    row = MetricRow(
        "near", "near", "values", "off by more than a fifth of the range",
        lambda judged, limits: (np.abs(judged.predicted - judged.targets) > 0.8).astype(float), gain=True,
    )  # fmt: skip
    monkeypatch.setitem(METRICS, "near", row)
    model = sordino.LinearRegression(20.0, 1e-6, data_norm=1.9, target_bound=2.0).fit(X, Y)
    judged = judge(model, X, Y + np.arange(400) % 4, "values")
    paid = sordino.private_score(model, X, judged.targets, epsilon=20.0, metric="near", bounds=(-2.0, 5.0))
    assert row.exactly(judged) == 0.25
    assert paid.interval[0] < 0.25 < paid.interval[1] < 0.4
    assert paid == pytest.approx(0.25, abs=0.05)


class TargetMean(PrivateEstimator):
    """Predicts the private mean of the targets, through the one path."""

    def __init__(self, epsilon=1.0, bound=2.0):
        self.epsilon, self.bound = epsilon, bound

    def fit(self, X, y):
        X, y = check_data(self, X, y, y_numeric=True)
        ask = Ask.checked(self.epsilon, None, len(X))
        said = (f"number of records: {len(X)}", f"bound = {self.bound:g} (targets are clipped to it)")
        task = Task(self, len(X), "TargetMean", said, finish=lambda last: {"mean_": float(last[0])})
        self._run(task, LocalExecutor(np.zeros_like(X), y), ask)
        return self

    def plan(self, population):
        return Plan({"mean": Release(TargetSum(self.bound), Gaussian())}, Relation.ADD_REMOVE, population)

    def run(self, curator, population):
        yield curator.release("mean")


def test_a_new_estimator_is_certified_booked_and_reported_like_the_others():
    model = TargetMean(epsilon=2.0).fit(X, Y + 1.0)
    assert model.mean_ == pytest.approx(1.0, abs=0.3)
    assert 0.99 * 2 < model.privacy_.epsilon <= 2
    assert "assumed public: number of records: 400" in repr(model.privacy_)


def test_a_new_command_is_one_function_and_one_line(monkeypatch):
    @click.command()
    @click.argument("epsilon", type=float)
    def noise(epsilon):
        """Print the multiplier of one full-batch release."""
        from sordino.accounting.conversions import gaussian_multiplier

        click.echo(f"{gaussian_multiplier(epsilon, 1e-5):.3f}")

    monkeypatch.setattr(main, "commands", {**main.commands, "noise": noise})
    result = CliRunner().invoke(main, ["noise", "1"])
    assert (result.exit_code, result.output[:4]) == (0, "3.73")
