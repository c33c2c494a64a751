"""No pair of neighbours moves any question of any solver further than its declared sensitivity."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.neighbours import (
    KINDS,
    absent,
    answers,
    asked_for,
    assert_within,
    assert_within_exactly,
    bad_answers,
    data_sets,
    lattice_answer,
    replaced,
    worst_pair,
)
from tests.solver_case import SolverCase
from tests.solver_table import CASES, IDS

from sordino.kernel import ClippedSum, Relation, Release
from sordino.kernel.clip import clip_scalars

BOTH = (Relation.ADD_REMOVE, Relation.REPLACE_ONE)


@cache
def questions(name: str) -> list:
    """Return what one run of a solver asked."""
    return CASES[IDS.index(name)].run(seed=3).asked


def drawn(case: SolverCase, data: st.DataObject):
    """Draw a question, a data set, and its neighbours by relation."""
    asked = data.draw(st.sampled_from(range(len(questions(case.id)))))
    question = questions(case.id)[asked]
    params = asked_for(case, question, data.draw(st.sampled_from(case.param_scales)))
    loss = getattr(getattr(case.problem, "loss", None), "name", None)
    outputs = getattr(case.problem, "outputs", 1)
    one, record = data.draw(data_sets(case.problem.features, loss, outputs))
    others = {Relation.ADD_REMOVE: absent(one), Relation.REPLACE_ONE: replaced(one, record)}
    return question.release, params, one, others, data.draw(st.sampled_from(KINDS))


def asks(case: SolverCase) -> frozenset:
    """Return what the sensitivity of a row rests on: its queries, losses and mechanisms."""
    loss = getattr(getattr(case.problem, "loss", None), "name", None)
    return frozenset(
        (type(r.query), type(r.mechanism), getattr(r.mechanism, "secure", False), loss)
        for r in case.plan().releases.values()
    )


ALIKE = Counter(map(asks, CASES))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_no_neighbour_moves_an_answer_beyond_its_sensitivity(case):
    @settings(max_examples=-(-settings().max_examples // min(ALIKE[asks(case)], 4)))  # rows alike share them
    @given(data=st.data())
    def stays_within(data):
        release, params, one, others, kind = drawn(case, data)
        ours = answers(case, release, params, one, kind)
        for relation, other in others.items():
            assert_within(release, relation, params, ours, answers(case, release, params, other, kind))
            if getattr(release.mechanism, "secure", False):
                assert_lattice_within(case, release, relation, params, one, other, kind)

    stays_within()


def assert_lattice_within(case, release, relation, params, one, other, kind):
    declared = release.sensitivity(relation, params)
    if declared == 0:
        return
    pair = [lattice_answer(case, release, params, d, kind, declared) for d in (one, other)]
    (ours, spacing, wide), (theirs, *same) = pair
    assert [spacing, wide] == same
    assert_within_exactly(wide, spacing, ours, theirs)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_bad_pair_comes_close_to_the_sensitivity(case):
    best: dict[tuple[str, Relation], float] = {}
    for question in questions(case.id):
        for factor in case.param_scales:
            params = asked_for(case, question, factor)
            asked = [r for r in BOTH if question.release.query.sensitivity(r, params) > 0]
            answered = bad_answers(case, question.release, params) if asked else ()
            for relation in asked:
                reached = worst_pair(case, question.release, relation, params, answered)[0]
                best[question.name, relation] = max(best.get((question.name, relation), 0.0), reached)
    for key, reached in best.items():
        assert case.tight.get(key, 0.99) <= reached <= 1 + 1e-9, key


# ------------------------------------------------------------------------------------ broken twins


@dataclass(frozen=True)
class _Twin(ClippedSum):
    """A query that does something else than it declares."""

    inner: Any

    @property
    def needs(self):
        return self.inner.needs

    def contribution(self, params):
        return self.inner.contribution(params)

    def sensitivity(self, relation, params):
        return self.inner.sensitivity(relation, params)

    def evaluate(self, records, params):
        return self.inner.evaluate(records, params)


class NotClipped(_Twin):
    """The clip is left out (and with it the guard against what is not a number)."""

    def evaluate(self, records, params):
        with np.errstate(all="ignore"):
            return records.weighted_sum(self.inner.loss.residual(records.margins(params), records.targets))


class ReplaceOneForgotten(_Twin):
    """A replaced record is taken for a removed one."""

    def sensitivity(self, relation, params):
        return self.contribution(params)


class InterceptForgotten(_Twin):
    """The norm that is clipped leaves out the intercept column."""

    def evaluate(self, records, params):
        residual = self.inner.loss.residual(records.margins(params), records.targets)
        rows = np.sqrt(np.maximum(records.norms**2 - records.intercept**2, 0.0))
        return records.weighted_sum(clip_scalars(residual, rows, self.inner.clip))


def _case(name: str, twin: type[_Twin]) -> tuple[SolverCase, Release]:
    case = CASES[IDS.index(name)]
    release = case.plan().releases["gradient"]
    return case, replace(release, query=twin(release.query))


def _worst(case, release, relation):
    w = np.full(case.problem.shape, 0.4)
    _, one, other = worst_pair(case, release, relation, w)
    pair = [(np.atleast_2d(r), np.array([y])) for r, y in (one, other)]
    return w, *[answers(case, release, w, d, "dense") for d in pair]


@pytest.mark.parametrize("twin", [NotClipped, InterceptForgotten])
def test_a_query_without_its_clip_is_caught(twin):
    case, release = _case("ight-squared-intercept-replace", twin)
    w, one, other = _worst(case, release, Relation.ADD_REMOVE)
    with pytest.raises(AssertionError, match=r"moved|not finite"):
        assert_within(release, Relation.ADD_REMOVE, w, one, other)


def test_a_record_that_is_not_a_number_is_caught_without_the_clip():
    case, release = _case("ight-poisson-loss", NotClipped)
    w, data = np.full(case.problem.shape, 3.0), (np.ones((2, 6)), np.array([1.0, math.nan]))
    answer = answers(case, release, w, data, "dense")
    with pytest.raises(AssertionError):
        assert_within(release, Relation.ADD_REMOVE, w, answer, answers(case, release, w, absent(data), "csr"))


def test_a_forgotten_factor_of_replace_one_is_caught():
    case, release = _case("ight-squared-intercept-replace", ReplaceOneForgotten)
    w, one, other = _worst(case, release, Relation.REPLACE_ONE)
    assert_within(release, Relation.ADD_REMOVE, w, one, [np.zeros_like(a) for a in other])
    with pytest.raises(AssertionError, match="moved"):
        assert_within(release, Relation.REPLACE_ONE, w, one, other)
