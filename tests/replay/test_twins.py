"""Broken twins: each leaks in one known way, and the replay says which."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tests.replay.cases import Case, told
from tests.replay.subjects import (
    BUDGET,
    LINEAR,
    Subject,
    interval_rows,
    joint_rows,
    linear_rows,
    unknown_owner_rows,
)

import sordino
from sordino.execute.parties import executor as parties
from sordino.execute.persons import Owners
from sordino.kernel import Release
from sordino.problems.queries import GlmGradient
from sordino.problems.robust import PartSum
from sordino.solvers import SOLVERS, Entry, one_step
from sordino.solvers.dense import Gd


def kinds(subject: Subject, relation: str, place: str, folder) -> set[str]:
    """Return the kinds of leaks that a replay finds."""
    return {leak.kind for leak in Case(subject, relation, place, False).judged(folder).leaks}


# --------------------------------------------------------------------- solvers that are a row of the registry


@dataclass(frozen=True)
class NoClip(GlmGradient):
    """Residuals times rows, as they are."""

    def evaluate(self, records: Any, params: Any) -> Any:
        residual = self.loss.residual(records.margins(params), records.targets)
        return records.unit_sum(np.nan_to_num(residual), 1e9)


@dataclass(frozen=True)
class HalfSensitivity(GlmGradient):
    """Declares half of what a record adds."""

    def contribution(self, params: Any) -> float:
        return 0.5 * super().contribution(params)


@dataclass(frozen=True)
class ReplaceOneForgotten(GlmGradient):
    """A replaced record is taken for a removed one."""

    def sensitivity(self, relation: Any, params: Any) -> float:
        return self.contribution(params)


@dataclass(frozen=True)
class AsksAnother(Gd):
    """Gradient descent with another query."""

    query: Any = GlmGradient

    def plan(self, problem: Any) -> Any:
        plan = super().plan(problem)
        release = plan.releases["gradient"]
        return replace(
            plan, releases={"gradient": replace(release, query=self.query(problem.loss, self.clip))}
        )


class PeeksPastTheCurator(Gd):
    """Takes the sum of all entries from where the records lie."""

    def run(self, curator: Any, problem: Any) -> Any:
        step = 1.0 / np.abs(np.asarray(curator._executor._inner.matrix)).sum()
        yield from replace(self, step=step)._plain(curator, problem)

    def _plain(self, curator: Any, problem: Any) -> Any:
        return super().run(curator, problem)


class StopsWhereRecordsSay(Gd):
    """Asks once more where a record is far out."""

    def run(self, curator: Any, problem: Any) -> Any:
        steps = self.steps if np.abs(np.asarray(curator._executor._inner.matrix)).max() > 100 else 1
        yield from list(self._plain(curator, problem, steps))

    def _plain(self, curator: Any, problem: Any, steps: int) -> Any:
        return Gd.run(replace(self, steps=steps), curator, problem)


def registered(monkeypatch, make: Any) -> Subject:
    """Return the row that a solver gets by its entry in the registry alone."""
    monkeypatch.setitem(SOLVERS["linear"], "twin", Entry(make, Gd.capabilities))
    return next(row for row in linear_rows() if row.name.startswith(f"{LINEAR[0][0]}/twin/"))


def asking(query: type) -> Any:
    """Return what makes gradient descent with another query."""
    return lambda problem, options: AsksAnother(**vars(Gd.configure(problem, options)), query=query)


def other(kind: type) -> Any:
    """Return what makes a twin of gradient descent."""
    return lambda problem, options: kind(**vars(Gd.configure(problem, options)))


def test_gradient_descent_by_another_name_passes(monkeypatch, tmp_path):
    twin = registered(monkeypatch, asking(GlmGradient))
    for relation in twin.relations:
        case = Case(twin, relation, "memory", False)
        assert told(case, case.judged(tmp_path)) == []


@pytest.mark.parametrize("place", ["memory", "csr", "persons", "disk"])
def test_a_forgotten_clip_is_found(monkeypatch, tmp_path, place):
    twin = registered(monkeypatch, asking(NoClip))
    assert "sensitivity" in kinds(twin, "add-remove", place, tmp_path)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("place", ["memory", "csr", "persons", "disk", "tensors"])
def test_half_of_a_sensitivity_is_found(monkeypatch, tmp_path, place, relation):
    twin = registered(monkeypatch, asking(HalfSensitivity))
    assert kinds(twin, relation, place, tmp_path) == {"sensitivity"}


def test_a_forgotten_factor_of_replace_one_is_found(monkeypatch, tmp_path):
    twin = registered(monkeypatch, asking(ReplaceOneForgotten))
    assert kinds(twin, "replace-one", "memory", tmp_path) == {"sensitivity"}


def test_a_number_read_past_the_curator_is_found(monkeypatch, tmp_path):
    twin = registered(monkeypatch, other(PeeksPastTheCurator))
    assert {"parameters", "state"} <= kinds(twin, "replace-one", "memory", tmp_path)


def test_a_branch_on_the_data_is_found(monkeypatch, tmp_path):
    twin = registered(monkeypatch, other(StopsWhereRecordsSay))
    assert "questions" in kinds(twin, "replace-one", "memory", tmp_path)


# ------------------------------------------------------------------------------------------- doors


class Door(sordino.LinearRegression):
    """A linear regression behind a door that does something else besides."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Any:
        self.look(np.abs(X).max())
        return super().fit(X, y, sample_weight, groups=groups)

    def look(self, largest: float) -> None:
        """Do it."""


class KeepsTheLargest(Door):
    def look(self, largest: float) -> None:
        self.largest_ = float(largest)


class PlansByTheLargest(Door):
    def look(self, largest: float) -> None:
        self.max_iter = 2 if largest > 1e300 else 3


class Raises(Door):
    def look(self, largest: float) -> None:
        if largest > 1e300:
            raise ValueError(f"{largest} is too large")


class Warns(Door):
    def look(self, largest: float) -> None:
        if largest > 1e300:
            warnings.warn("that is large", stacklevel=2)


class Prints(Door):
    def look(self, largest: float) -> None:
        print(f"{largest:.1f}")


class LosesPersons(Door):
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Any:
        return super().fit(X, y, sample_weight)


def behind(door: type) -> Subject:
    """Return the row of a twin."""

    def fit(data: Any, relation: str) -> Any:
        settings = {"data_norm": 2.0, "target_bound": 3.0, "max_iter": 3, **BUDGET}
        settings["solver_options"] = {"clip_norm": 0.7}
        return door(solver="gd", relation=relation, **settings).fit(data.X, data.y, groups=data.groups)

    return Subject(door.__name__, "numbers", fit, ("memory", "persons"))


@pytest.mark.parametrize(
    ("door", "kind"),
    [
        (KeepsTheLargest, "state"),
        (PlansByTheLargest, "questions"),
        (Raises, "error"),
        (Warns, "words"),
        (Prints, "words"),
    ],
)
def test_what_a_door_tells_is_found(tmp_path, door, kind):
    assert kind in kinds(behind(door), "replace-one", "memory", tmp_path)


def test_persons_that_a_door_loses_are_found(tmp_path):
    assert kinds(behind(Door), "add-remove", "persons", tmp_path) == set()
    assert kinds(behind(LosesPersons), "add-remove", "persons", tmp_path) == {"sensitivity"}


def test_merged_persons_are_found(monkeypatch, tmp_path):
    honest = Owners.of
    monkeypatch.setattr(Owners, "of", lambda groups, records: honest(np.zeros(records, dtype=int), records))
    assert kinds(behind(Door), "add-remove", "persons", tmp_path) == {"sensitivity"}


# ------------------------------------------------------------------------------------- intervals


@dataclass(frozen=True)
class ForgetsSquares(PartSum):
    """Declares what the parts add, and not their squares."""

    def contribution(self, params: Any) -> float:
        return 0.5


@pytest.mark.parametrize("place", ["memory", "persons"])
def test_intervals_whose_squares_are_free_are_found(monkeypatch, tmp_path, place):
    row = next(row for row in interval_rows() if row.name == "intervals/numbers")
    assert kinds(row, "add-remove", place, tmp_path) == set()
    monkeypatch.setattr(one_step, "PartSum", ForgetsSquares)
    assert kinds(row, "add-remove", place, tmp_path) == {"sensitivity"}


# ------------------------------------------------------------------------------------- joint runs


def joint_run(task: str) -> Subject:
    """Return the row of a task by secure aggregation."""
    return next(row for row in joint_rows() if row.name == f"joint run/{task}/secure-aggregation")


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("task", ["ight", "pca"])
def test_parties_that_make_noise_for_half_of_a_sensitivity_are_found(monkeypatch, tmp_path, task, relation):
    honest, row = parties.quantise, joint_run(task)
    assert kinds(row, relation, "memory", tmp_path) == set()
    monkeypatch.setattr(
        parties, "quantise", lambda r, records, w, bound, n: honest(r, records, w, bound / 2, n)
    )
    assert kinds(row, relation, "memory", tmp_path) == {"sensitivity"}


def test_a_member_whose_records_choose_the_grid_is_found(monkeypatch, tmp_path):
    honest, row = parties.quantise, joint_run("ight")

    def fitted_grid(release, records, params, bound, n):
        return honest(release, records, params, bound * (100.0 + float(records.targets.sum())), n)

    monkeypatch.setattr(parties, "quantise", fitted_grid)
    assert "questions" in kinds(row, "replace-one", "memory", tmp_path)


@pytest.mark.parametrize(
    ("name", "relation"),
    [
        ("LinearRegression/auto/squared/3", "add-remove"),
        ("LinearRegression/gd/squared/3", "replace-one"),
        ("PCA/gauss/rows_per_person=3", "add-remove"),
        ("HeavyTailedRegressor/strongly-convex/rows_per_person=3", "replace-one"),
    ],
)
def test_noise_for_one_row_of_an_unknown_person_is_found(tmp_path, monkeypatch, relation, name):
    row = {row.name: row for row in unknown_owner_rows()}[name]
    assert kinds(row, relation, "persons", tmp_path) == set()
    plain = Release.sensitivity
    monkeypatch.setattr(Release, "sensitivity", lambda self, *asked: plain(self, *asked) / self.rows)
    assert "sensitivity" in kinds(row, relation, "persons", tmp_path)
