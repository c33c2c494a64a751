"""Who lets a client take part, what an adaptive clip costs, and clients that leave."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, target
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.parties.flower_toys import NODES, SIZES, D, K, local, made, recipe_of, records

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel import Relation
from sordino.parties.flower import (
    ClientLevelHardThresholding,
    FederatedClient,
    HardThresholdAveraging,
    LinearModel,
    client_app,
    secure_client_app,
    secure_server_app,
    server_app,
    simulate,
)
from sordino.parties.flower.server import AdaptiveSum, UpdateSum
from sordino.parties.mpc.charter import Rules
from sordino.parties.words import Code, PlanRefusedError
from sordino.solvers.steps import hard_threshold
from sordino.testing import seeded_noise_not_private

INF = float("inf")


# ---------------------------------------------------------------------------------- approval


def _client(tmp_path, **changes):
    settings = {"epsilon": 2.0, "delta": 1e-6, "approval": Rules(), **changes}
    return FederatedClient(LinearModel(*records(SIZES[0], 0)), recipe_of(), tmp_path / "client", **settings)


def _asked(client):
    client.require({"recipe": client.recipe.digest, "protection": client.protection})


def test_a_client_takes_part_when_a_person_approved_of_this_recipe_and_budget(tmp_path, monkeypatch):
    monkeypatch.setenv("SORDINO_PERSON", "anna")
    with pytest.raises(PlanRefusedError, match="0 of 1") as refused:
        _asked(_client(tmp_path))
    assert refused.value.code is Code.APPROVAL
    assert _client(tmp_path).approve() == "anna"
    _asked(_client(tmp_path))
    with pytest.raises(PlanRefusedError):
        _asked(_client(tmp_path, epsilon=2.1))  # another budget is another decision
    _client(tmp_path).withdraw()
    with pytest.raises(PlanRefusedError):
        _asked(_client(tmp_path))


def test_the_server_hears_that_nobody_approved_and_nothing_is_spent(tmp_path):
    recipe = recipe_of()
    server = server_app(HardThresholdAveraging(recipe, len(NODES)), np.zeros(D))
    with pytest.raises(PlanError, match=Code.APPROVAL.words):
        simulate(server, client_app(made(recipe, tmp_path, approval=Rules())), NODES)
    assert not list(tmp_path.glob("client-*/*"))


def test_a_rule_approves_of_small_budgets(tmp_path):
    rule = {"max_epsilon": 3.0, "estimators": ["LogisticRegression"]}
    _asked(_client(tmp_path, approval=Rules(rule=rule)))
    with pytest.raises(PlanRefusedError):
        _asked(_client(tmp_path, epsilon=4.0, approval=Rules(rule=rule)))


# ----------------------------------------------------------------------------- adaptive clip

NUMBERS = st.floats(allow_nan=True) | st.sampled_from([1e-320, 1e-170, -1.7e308, 1.7e308])
ANSWERS = arrays.arrays(np.float64, st.sampled_from([(3,), (4,), (1,), ()]), elements=NUMBERS)


@given(
    ANSWERS, arrays.arrays(np.float64, 3, elements=st.floats(-1e3, 1e3)), st.sampled_from([1e-9, 0.3, 7.0])
)
def test_a_client_moves_an_adaptive_sum_by_at_most_its_bound(mine, w, clip):
    query = AdaptiveSum(0.3)
    own = query.evaluate([mine], (w, clip))
    size = math.sqrt(sum(Fraction(x) ** 2 for x in own))
    target(size / clip)
    assert own.shape == (4,)
    assert size <= query.contribution((w, clip)) == query.sensitivity(Relation.ADD_REMOVE, (w, clip))


def test_a_count_of_updates_within_the_clip_goes_along():
    w, near, far = np.zeros(3), np.array([0.1, 0.0, 0.0]), np.array([5.0, 0.0, 0.0])
    found = AdaptiveSum(0.3).evaluate([near, near, far, np.full(3, np.nan)], (w, 0.4))
    assert found[-1] == pytest.approx(0.4 / 8 * (2 - 1))  # the broken answer is neither
    assert found[:3] == pytest.approx(UpdateSum(0.4).evaluate([near, near, far], w))


@pytest.mark.parametrize("first", [0.001, 50.0])
def test_a_clip_follows_the_declared_share_of_updates(tmp_path, first):
    recipe, asked = recipe_of(rounds=200, batch_size=None), []
    strategy = ClientLevelHardThresholding(recipe, 3, first, epsilon=INF, delta=1e-3, within=0.5)
    release = strategy.plan(np.zeros(D)).releases["update"]
    assert release.times == 200  # the count is part of the answer: it has no release of its own

    class Curious:
        def release(self, name, params):
            w, clip = params
            asked.append(clip)
            updates = [w + s * np.eye(1, D)[0] for s in (0.5, 1.0, 2.0)]
            return release.query.evaluate(updates, params) / 3

    list(strategy.run(Curious(), np.zeros(D)))
    assert 0.9 < asked[-1] < 1.1  # the middle one of the three norms
    with pytest.raises(InvalidInputError, match="within"):
        ClientLevelHardThresholding(recipe, 3, first, epsilon=INF, within=1.0)


def test_an_adaptive_run_is_certified_as_asked(tmp_path):
    recipe, results = recipe_of(rounds=5), []
    strategy = ClientLevelHardThresholding(recipe, 3, 0.3, epsilon=3.0, delta=1e-3, within=0.5)
    app = client_app(made(recipe, tmp_path, INF, protection="client"))
    with seeded_noise_not_private(5):
        simulate(server_app(strategy, np.zeros(D), done=results.append), app, NODES)
    report = results[0].privacy
    assert 0.99 * 3 < report.epsilon <= 3.0
    assert [(r.name, r.times) for r in report.releases] == [("update", 5)]
    assert report.unit == "client"


# ----------------------------------------------------------------------- clients that leave


def test_masked_rounds_go_on_without_a_client_that_leaves(tmp_path):
    recipe, results = recipe_of(batch_size=None, rounds=2), []
    nodes = [{"partition-id": i} for i in (0, 1, 2, 0, 1)]
    make, calls = made(recipe, tmp_path, INF), []

    def leaving(context):
        calls.append(context.node_id)
        if context.node_id == 2:
            raise PlanError("the disk is full")
        client = make(context)
        return FederatedClient(client.model, recipe, tmp_path / f"node-{context.node_id}", INF)

    chosen = HardThresholdAveraging(recipe, 5, weighting="equal", least=4)
    server = secure_server_app(chosen, np.zeros(D), largest=1, threshold=0.6, done=results.append)
    simulate(server, secure_client_app(leaving), nodes)
    stay = [records(SIZES[i], i) for i in (0, 2, 0, 1)]
    expected = np.zeros(D)
    for _ in range(recipe.rounds):  # the average of four, each counted once
        expected = hard_threshold(sum(local(recipe, expected, *part) for part in stay) / 4, K)
    np.testing.assert_allclose(results[0].weights, expected, atol=1e-4)
