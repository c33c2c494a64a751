"""Chapter 6 of the dissertation and the rates of heavy tails: what their modules measure."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from sordino.datasets import StudentT
from sordino.kernel import Relation
from sordino.literature.local import gradient_noise, published_gradient_noise
from sordino.literature.reproduce import heavy as tao
from sordino.literature.reproduce import linear, parties, table_named
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.runs import Ask, Promise
from sordino.solvers.sparse import Ight


@pytest.mark.filterwarnings("ignore::sordino.errors.NotPrivateWarning")
@pytest.mark.parametrize("table", [False, True])
def test_printed_gradient_noise_certifies_the_same_on_a_plan_and_in_closed_form(table):
    problem = Problem(LOSSES["logistic"], 1000, 5, Relation.REPLACE_ONE, 0.5, 1e-3)
    plan, ask = Ight(None, 40, 1.0, 1.0).plan(problem), Ask(0.5, 1e-3)
    found = Promise.made(ask, plan, gradient_noise(plan, ask, table=table)).certificate.epsilon
    assert found == pytest.approx(published_gradient_noise(0.5, 1e-3, table=table)[1], rel=1e-3)


def tiny(name: str, **options) -> SimpleNamespace:
    public = np.random.default_rng(0)
    x = public.normal(size=(400, 6))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    from scipy import sparse

    return SimpleNamespace(data=sparse.csr_matrix(x), target=(x[:, 0] > 0).astype(int))


def test_a_set_without_test_rows_is_judged_on_rows_that_were_not_learned_from(monkeypatch):
    monkeypatch.setattr(parties, "load", tiny)
    world = parties.World("tiny", 300)
    assert (world.x.shape[0], world.test_x.shape[0], len(world.test_y)) == (300, 100, 100)
    gap, loss = world.judge(np.zeros(6))
    assert gap > 0.1
    assert loss > 0.1


def test_the_tables_of_the_parties_have_the_printed_numbers_where_they_are_printed():
    for name, numbers in (("parties", (1e-3, 1e-2, None)), ("parties-accuracy", (1e-4, 1e-4, None))):
        printed = [(row.group, row.published) for row in table_named(name).rows if row.method == "MPC Grad P"]
        sets = zip(("kddcup99", "adult", "donor_pva"), numbers)
        expected = [(f"{data}, m = {m:,}", number) for data, number in sets for m in parties.PARTIES[data]]
        assert printed == expected
        others = (row.published for row in table_named(name).rows if row.method != "MPC Grad P")
        assert not any(others)


def test_the_noise_of_table_6_1_is_drawn_as_printed_beside_what_certifies_the_claim():
    for row in table_named("parties-noise").rows:
        drawn = row.cells["paper"].once(0)
        assert drawn["value"] == pytest.approx(row.published, rel=0.2)  # of a thousand draws
        if row.method != "Local Obj P":
            assert drawn["replace-one"] > 1
            assert row.cells["sound"].once(0)["value"] > 1.5 * row.published


def test_a_release_between_parties_is_compared_with_both_printed_protocols():
    table = table_named("aggregation-time", True)
    rows = table.rows
    assert [row.published for row in rows] == [22.28, 26.45, 20.31, 56.46, 65.21, 50.67]
    assert len({runs.key for runs in table.runs().values()}) == 3  # three lengths of a vector
    assert "certifies" in rows[0].cells["paper"]


@pytest.mark.long
def test_a_release_is_timed_between_three_members():
    spent, sent = parties.release_cost(7, 2)
    assert spent.shape == (3, 2)
    assert (spent > 0).all()
    assert (sent > 7 * 8).all()


def test_a_slope_is_the_exponent_of_a_power():
    sizes = (10, 100, 1000)
    assert tao.slope(sizes, [n**-1.5 for n in sizes]) == pytest.approx(-1.5)


def test_each_factor_of_the_sparse_rate_is_varied_alone():
    rows = [row for row in tao.rates(True).rows if "sparse" in row.method]
    assert [row.published for row in rows] == [-0.6667, -1.0, 1.5, 1.0]
    for row, name in zip(rows, ("n", "n", "s", "d")):
        _, designs, along, _ = row.cells["sound"].once.args
        values = [getattr(at, name) for at in designs]
        assert len(set(values)) == len(designs)
        assert list(along) == [round(math.log(v), 5) if name == "d" else v for v in values]
        others = {tuple(getattr(at, other) for other in "nsdv" if other != name) for at in designs}
        assert len(others) == 1
        assert f"v = {designs[0].v:g}" in row.method


def test_gradients_of_a_risk_have_the_moment_of_the_theorem_and_hardly_more(monkeypatch):
    asked = []

    class Model:
        def __init__(self, epsilon, delta, **facts):
            asked.append(facts["moment_order"])

        def fit(self, x, y):
            assert abs(np.std(x) - 1) < 0.05  # normal features: no moment is lost away from the optimum
            self.coef_ = np.zeros(5)
            return self

    drawn = []
    monkeypatch.setattr(tao, "HeavyTailedRegressor", Model)
    monkeypatch.setattr(tao, "StudentT", lambda index: drawn.append(index) or StudentT(index))
    tao.excess_risks({"moment_order": 0.5}, (500,), 1)
    assert (asked, drawn) == ([0.5], [1.7])


def test_the_risk_of_a_sparse_model_falls_with_the_number_of_records():
    few, many = (tao.sparse_risk(tao.Sparse(n=n, d=10, s=2), "gumbel", 3) for n in (500, 20_000))
    assert many < few / 3


def test_pixels_are_scaled_to_one_once(monkeypatch):
    pixels = np.full((3, 28, 28), 1.0, dtype=np.float32)  # as `load` returns them
    labels = np.arange(3)
    data = SimpleNamespace(data=pixels, target=labels, test_data=pixels, test_target=labels)
    monkeypatch.setattr(linear, "load", lambda name: data)
    task = linear.digits.__wrapped__()
    assert task.x.max() == task.test_x.max() == 1.0
    assert task.x.shape == (3, 784)
