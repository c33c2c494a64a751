"""What the server does with noise of its own, and what it does not get to see."""

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
from flwr.app import RecordDict
from hypothesis import given, target
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.parties.flower_toys import NODES, SIZES, D, K, local, made, plain, recipe_of, records

from sordino.accounting import certify
from sordino.errors import InvalidInputError, PlanError
from sordino.kernel import Poisson, Relation
from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties.flower import (
    ClientLevelHardThresholding,
    HardThresholdAveraging,
    InProcessGrid,
    client_app,
    secure_client_app,
    secure_server_app,
    server_app,
    simulate,
)
from sordino.parties.flower import simulation as flower_simulation
from sordino.parties.flower.client import record_of
from sordino.parties.flower.server import UpdateSum, stated_number
from sordino.solvers.steps import hard_threshold
from sordino.testing import seeded_noise_not_private

INF = float("inf")
BOUND = 0.3


def client_level(recipe, tmp_path, nodes=NODES, make=None, **settings):
    results = []
    chosen = ClientLevelHardThresholding(
        recipe, len(nodes), **{"update_clip": BOUND, "delta": 1e-3, **settings}
    )
    server = server_app(chosen, np.zeros(D), done=results.append)
    simulate(server, client_app(make or made(recipe, tmp_path, INF, protection="client")), nodes)
    return results[0]


def test_client_level_rounds_without_noise_add_up_clipped_updates(tmp_path):
    recipe = recipe_of(batch_size=None)
    found = client_level(recipe, tmp_path, epsilon=INF).weights
    w = np.zeros(D)
    for _ in range(recipe.rounds):
        updates = [local(recipe, w, *records(n, i)) - w for i, n in enumerate(SIZES)]
        clipped = [u * min(1.0, BOUND / np.linalg.norm(u)) for u in updates]
        w = hard_threshold(w + sum(clipped) / len(SIZES), K)
    np.testing.assert_allclose(found, w, rtol=1e-8, atol=1e-12)


def test_client_level_noise_has_the_size_of_a_whole_update(tmp_path):
    """One round from clients that do not move: what is left is noise, std z C / clients."""
    recipe = recipe_of(rounds=1, sparsity=None, step_size=1e-300)
    strategy = ClientLevelHardThresholding(recipe, 3, BOUND, epsilon=1.0, delta=1e-3)
    with seeded_noise_not_private(3):
        app = client_app(made(recipe, tmp_path, INF, protection="client"))
        results = []
        simulate(server_app(strategy, np.zeros(D), done=results.append), app, NODES)
    report = results[0].privacy
    std = report.releases[0].noise_multiplier * BOUND / 3
    size = float((results[0].weights ** 2).sum() / std**2)  # chi-squared with D degrees of freedom
    assert 1.0 < size < 40.0  # p < 1e-4 on both sides
    assert report.unit == "client"
    assert report.seeded
    assert certify(report.event, 1e-3, Relation.ADD_REMOVE).epsilon == pytest.approx(report.epsilon)
    assert 0.99 < report.epsilon <= 1.0


@given(
    st.lists(arrays.arrays(np.float64, 3, elements=st.floats(allow_nan=True)), max_size=4),
    arrays.arrays(np.float64, 3, elements=st.floats(-1e300, 1e300)),
    arrays.arrays(np.float64, 3, elements=st.floats(-10, 10)),
)
def test_a_client_moves_the_sum_by_at_most_the_clip(others, mine, w):
    query = UpdateSum(BOUND)
    moved = query.evaluate([*others, mine], w) - query.evaluate(others, w)
    assert np.linalg.norm(moved) <= query.sensitivity(Relation.ADD_REMOVE, w) * (1 + 1e-12)
    assert query.sensitivity(Relation.REPLACE_ONE, w) == 2 * BOUND


NUMBERS = st.floats(allow_nan=True) | st.sampled_from([1e-320, 5e-324, 1e-170, -1e-160, 1.7e308, -1.7e308])
ANSWERS = st.one_of(
    arrays.arrays(
        st.sampled_from([np.float64, np.float32, np.float16]), 3, elements=st.floats(-100, 100, width=16)
    ),
    arrays.arrays(
        np.float64, st.sampled_from([(3,), (1,), (), (3, 1), (1, 3), (4,), (0,)]), elements=NUMBERS
    ),
    arrays.arrays(st.sampled_from([np.int64, np.complex128, np.bool_]), 3),
)


@given(
    st.lists(ANSWERS, max_size=4),
    ANSWERS,
    st.lists(ANSWERS, max_size=4),
    arrays.arrays(np.float64, 3, elements=st.floats(-1e3, 1e3)),
    st.sampled_from([1e-100, 0.3, 1e6]),
)
def test_no_mixture_of_answers_lets_a_client_move_the_sum_by_more_than_the_clip(before, mine, after, w, clip):
    query = UpdateSum(clip)
    own = query.clipped(mine, w)
    assert own.shape == (3,)
    size = math.sqrt(sum(Fraction(x) ** 2 for x in own))
    target(size / clip)
    assert size <= clip
    found = query.evaluate([*before, mine, *after], w)
    parts = [query.clipped(x, w) for x in (*before, mine, *after)]
    expected = [float(sum(map(Fraction, column))) for column in zip(*parts, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * clip * len(parts))


def test_an_update_of_another_shape_counts_as_nothing():
    query = UpdateSum(BOUND)
    assert not query.evaluate([np.ones(4), np.full(3, np.nan)], np.zeros(3)).any()


class Meddling(InProcessGrid):
    """A network, or clients, that answer as they like; ``meddle(message, reply)`` says with what."""

    meddle = None

    def send_and_receive(self, messages, *, timeout=None):
        for message in messages:
            yield from type(self).meddle(message, self._answer(message))


def _bent(reply, weights):
    content = RecordDict(dict(reply.content))
    content["arrays"] = record_of(weights)
    return _copied(reply, content)


def _copied(reply, content=None, **metadata):
    bent = copy.copy(reply)
    bent.__dict__["_content"] = reply.content if content is None else content
    bent.__dict__["_metadata"] = copy.copy(reply.metadata)
    for name, value in metadata.items():
        bent.metadata.__dict__[f"_{name}"] = value
    return bent


def _without_weights(reply):
    return _copied(reply, RecordDict())


HOSTILE = {
    "another shape": lambda r: [_bent(r, np.ones(D + 1))],
    "a column": lambda r: [_bent(r, np.ones((D, 1)))],
    "one number": lambda r: [_bent(r, np.ones(1))],
    "integers": lambda r: [_bent(r, np.ones(D, dtype=int))],
    "complex": lambda r: [_bent(r, np.ones(D, dtype=complex))],
    "nan": lambda r: [_bent(r, np.full(D, np.nan))],
    "no weights": lambda r: [_without_weights(r)],
    "twice": lambda r: [r, r],
    "an old round": lambda r: [_copied(r, group_id="99")],
    "a stranger": lambda r: [_copied(r, src_node_id=77)],
    "for somebody else": lambda r: [r, _copied(r, src_node_id=77), _copied(r, src_node_id=78)][1:],
}


def _meddled(kind, only):
    class Grid(Meddling):
        @staticmethod
        def meddle(message, reply):
            node = message.metadata.dst_node_id
            return (
                HOSTILE[kind](reply) if node == only and message.metadata.message_type == "train" else [reply]
            )

    return Grid


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_answer_that_is_not_one_of_this_client_and_round_counts_as_nothing(kind, tmp_path, monkeypatch):
    recipe = recipe_of(batch_size=None, rounds=1)
    monkeypatch.setattr(flower_simulation, "InProcessGrid", _meddled(kind, only=2))
    found = client_level(recipe, tmp_path, epsilon=INF).weights
    updates = [local(recipe, np.zeros(D), *records(SIZES[i], i)) for i in (0, 2)]
    expected = sum(u * min(1.0, BOUND / np.linalg.norm(u)) for u in updates) / 3
    np.testing.assert_allclose(found, hard_threshold(expected, K), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("kind", HOSTILE)
def test_averaging_stops_at_an_answer_that_does_not_fit(kind, tmp_path, monkeypatch):
    recipe = recipe_of(batch_size=None, rounds=1)
    monkeypatch.setattr(flower_simulation, "InProcessGrid", _meddled(kind, only=2))
    server = server_app(HardThresholdAveraging(recipe, len(NODES)), np.zeros(D))
    with pytest.raises(PlanError, match="2 clients answered once with finite weights of shape"):
        simulate(server, client_app(made(recipe, tmp_path)), NODES)


@pytest.mark.parametrize(
    "facts",
    [
        {"epsilon": float("nan"), "delta": 1e-5},
        {"epsilon": -1.0, "delta": 1e-5},
        {"epsilon": 1.0, "delta": 7.0},
        {"delta": 1e-5},
        {"epsilon": "none", "delta": 1e-5},
    ],
)
def test_a_stated_guarantee_that_is_none_is_refused(facts):
    with pytest.raises(PlanError, match="Node 3 states a guarantee that is none"):
        HardThresholdAveraging(recipe_of(), 3).note(3, facts)


def test_the_weakest_guarantee_a_client_ever_stated_counts():
    strategy = HardThresholdAveraging(recipe_of(), 1)
    for epsilon, delta in ((1.0, 1e-5), (3.0, 1e-6), (0.1, 1e-4)):
        strategy.note(1, {"epsilon": epsilon, "delta": delta, "seeded": 0})
    assert (strategy.privacy.epsilon, strategy.privacy.delta) == (3.0, 1e-4)


@pytest.mark.parametrize("size", [0, -5, float("nan"), float("inf"), "many"])
def test_a_stated_number_of_records_that_is_none_is_refused(size):
    with pytest.raises(PlanError, match="number of records"):
        stated_number({"num-examples": size}, "num-examples", 2.0**53, 2)


def test_a_client_that_fails_contributes_zero_and_the_divisor_stays(tmp_path):
    recipe = recipe_of(batch_size=None, rounds=1)
    good = made(recipe, tmp_path, INF, protection="client")

    def make(context):
        if context.node_config["partition-id"] == 1:
            raise PlanError("the disk is full")
        return good(context)

    found = client_level(recipe, tmp_path, make=make, epsilon=INF).weights
    updates = [local(recipe, np.zeros(D), *records(SIZES[i], i)) for i in (0, 2)]
    expected = sum(u * min(1.0, BOUND / np.linalg.norm(u)) for u in updates) / 3
    np.testing.assert_allclose(found, hard_threshold(expected, K), rtol=1e-8, atol=1e-12)


def test_drawn_clients_are_amplified_and_reserved_on_the_servers_ledger(tmp_path):
    book = Ledger.open(tmp_path / "server.sqlite")
    book.create("members", BudgetPolicy(epsilon=5.0, delta=1e-2, unit="client"))
    result = client_level(recipe_of(), tmp_path, epsilon=2.0, share=0.5, ledger=book, dataset_id="members")
    assert [entry.status.value for entry in book.history("members")] == ["settled"]
    assert repr(Poisson(0.5)) in result.privacy.releases[0].sampling
    assert result.privacy.releases[0].times == 3


def test_the_two_kinds_of_privacy_are_not_mixed_up(tmp_path):
    recipe = recipe_of()
    with pytest.raises(InvalidInputError, match="epsilon=inf"):
        made(recipe, tmp_path, 1.0, protection="client")(_context())
    found = client_level(recipe, tmp_path, epsilon=INF, make=made(recipe, tmp_path, 1.0))
    assert not found.weights.any()  # record-level clients refuse a client-level server
    assert not (tmp_path / "client-0").exists()


def _context():
    return next(iter(InProcessGrid(None, NODES)._contexts.values()))


# ------------------------------------------------------------------------------ secure aggregation


def secure(recipe, tmp_path, weighting="size", epsilon=INF):
    results, seen = [], []
    chosen = HardThresholdAveraging(recipe, len(NODES), weighting=weighting)
    server = secure_server_app(chosen, np.zeros(D), largest=max(SIZES), done=results.append)
    app = secure_client_app(made(recipe, tmp_path, epsilon))

    class Watching(InProcessGrid):
        def _answer(self, message):
            reply = super()._answer(message)
            seen.append(reply.content if reply.has_content() else RecordDict())
            return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flower_simulation, "InProcessGrid", Watching)
        simulate(server, app, NODES)
    return results[0], seen


def test_masked_rounds_give_the_average_that_the_server_would_have_computed(tmp_path):
    recipe = recipe_of(batch_size=None)
    found, _ = secure(recipe, tmp_path)
    expected = plain(recipe, np.zeros(D), [records(n, i) for i, n in enumerate(SIZES)])
    np.testing.assert_allclose(found.weights, expected, atol=1e-4)  # a grid of 2^22 points on [-8, 8]
    assert np.count_nonzero(found.weights) == K


def test_no_message_to_the_server_holds_the_weights_of_one_client(tmp_path):
    recipe = recipe_of(rounds=1)
    found, seen = secure(recipe, tmp_path, epsilon=2.0)
    assert 0.99 * 2 < found.privacy.epsilon <= 2.0
    assert len(found.privacy.clients) == 3
    held = [r for content in seen for r in content.array_records.values()]
    assert all(len(record) == 0 for record in held)


def test_a_masked_round_without_enough_clients_stops_the_run(tmp_path):
    def make(context):
        raise PlanError("the disk is full")

    chosen = HardThresholdAveraging(recipe_of(), len(NODES))
    server = secure_server_app(chosen, np.zeros(D), largest=max(SIZES))
    with pytest.raises(PlanError, match="Round 1: secure aggregation was given up"):
        simulate(server, secure_client_app(make), NODES)
