"""Noise of which every client adds a part: its law, what rounding does to it, its masks, and who refuses."""

import itertools
import json
import math
import sys

import flwr.common.secure_aggregation.secaggplus_utils as flower_masks
import numpy as np
import pytest
from flwr.client.mod import secaggplus_mod
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from hypothesis import given, target
from hypothesis import strategies as st
from scipy import stats
from tests.parties.flower_toys import LOGISTIC, SIZES, D, K, local, recipe_of, records

import sordino.parties.flower.simulation as flower_simulation
from sordino.accounting import calibrate
from sordino.accounting.conversions import gaussian_epsilon
from sordino.errors import InvalidInputError, PlanError
from sordino.execute.parties.engine import lattice_ripple
from sordino.execute.parties.executor import SHARE, SharingClient, shared_grid
from sordino.kernel import Batch, Full, Gaussian, NoiseSource, Question, Relation, Release
from sordino.kernel.events import Listed
from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties.flower import (
    FederatedClient,
    FederatedRecipe,
    HardThresholdAveraging,
    InProcessGrid,
    LinearModel,
    SharedNoise,
    client_app,
    secure_client_app,
    secure_server_app,
    server_app,
    simulate,
)
from sordino.parties.flower.models import TAIL, UpdateSum
from sordino.parties.flower.secure import changed_protocol, masks, pack, unpack
from sordino.parties.words import PlanRefusedError
from sordino.solvers.steps import hard_threshold
from sordino.testing import seeded_noise_not_private

CLIP, HONEST, CLIENTS = 0.3, 3, 5
SHARED = SharedNoise(CLIENTS, CLIP, epsilon=4.0, delta=1e-5, least=4, honest=HONEST)
NODES = [{"partition-id": i % len(SIZES)} for i in range(CLIENTS)]
REACH = 60  # grid points on each side in exact computations: beyond are 2^-200 of the mass


# ------------------------------------------------------- the law, computed: no draw is needed to judge it


def law_of(offset, std=SHARE):
    """The probabilities of ``round(offset + std Z)`` at the integers from -REACH to REACH."""
    edges = np.arange(-REACH, REACH + 2) - 0.5
    return np.diff(stats.norm.cdf(edges, offset, std))


def sum_law(offsets):
    found = np.ones(1)
    for offset in offsets:
        found = np.convolve(found, law_of(offset))
    return found


def divergence(one, other, epsilon):
    """delta(epsilon) of two laws, the larger direction."""
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((one, other), (other, one)))


def gaussian_delta(mu, epsilon):
    return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


offsets = st.lists(st.floats(-1.0, 1.0), min_size=HONEST, max_size=HONEST)


@given(offsets=offsets, moved=st.floats(0.01, 8.0), epsilon=st.sampled_from([0.0, 0.3, 1.0, 2.0]))
def test_a_sum_of_rounded_parts_is_as_private_as_the_gaussian_mechanism_on_what_is_not_rounded(
    offsets, moved, epsilon
):
    ours = divergence(sum_law(offsets), sum_law([offsets[0] + moved, *offsets[1:]]), epsilon)
    ideal = gaussian_delta(moved / (SHARE * math.sqrt(HONEST)), epsilon)
    room = (1 + math.exp(epsilon)) * HONEST * lattice_ripple(SHARE**2 / 2) + 1e-13  # doubles on the way
    target(ours - ideal)
    assert ours <= ideal + room


def test_rounding_updates_before_the_noise_is_found():
    """The twin rounds each update to the grid first: a move of .02 across half a point becomes one of 1."""
    moved, epsilon = 0.02, 0.3
    ideal = gaussian_delta(moved / (SHARE * math.sqrt(HONEST)), epsilon)
    before, after = [0.49, 0.1, 0.2], [0.49 + moved, 0.1, 0.2]
    assert divergence(sum_law(before), sum_law(after), epsilon) <= ideal + 1e-12
    twin = divergence(sum_law(np.rint(before)), sum_law(np.rint(after)), epsilon)
    assert twin > ideal + 1e-3


def test_the_twin_moves_a_long_update_far_beyond_its_clip():
    fine, _, cell = shared_grid(Gaussian(1.3), CLIP, 7)
    size = int((CLIP / (0.51 * fine * cell)) ** 2)  # each coordinate is just above half a spacing
    rounded = np.rint(np.full(size, CLIP / math.sqrt(size)) / (fine * cell)) * fine * cell
    assert np.linalg.norm(rounded) > 1.9 * CLIP


def test_a_part_of_half_a_grid_point_would_not_do():
    """The deviation of a part is chosen for its ripple: at half a point, laws of the same sum differ."""
    narrow = [law_of(x, 0.5) for x in (0.0, 0.5)]
    same = np.convolve(narrow[0], narrow[0]), np.convolve(narrow[1], law_of(-0.5, 0.5))
    assert abs(same[0] - same[1]).sum() > 1e-3  # the sums of updates are the same
    wide = [np.convolve(law_of(x), law_of(-x)) for x in (0.0, 0.5)]
    assert abs(wide[0] - wide[1]).sum() < 4 * lattice_ripple(SHARE**2 / 2) + 1e-14


# ---------------------------------------------------------------------------------- what a client draws


def bits_of(shared, recipe, size=D):
    return int(math.log2(shared.grid(recipe, size)[1]["modulus_range"]))


def asked(update, honest=HONEST, multiplier=1.3, clip=CLIP, seed=3, size=None):
    release = Release(UpdateSum(clip), Gaussian(multiplier), Full(), 1, mean=False)
    weights = np.zeros(np.size(update) if size is None else size)
    question = Question(release, weights, release.sensitivity(Relation.ADD_REMOVE), 0, CLIENTS)
    noise = NoiseSource.seeded_not_private(seed)
    return SharingClient(update, CLIENTS, honest).noisy_total(question, Batch((Listed(None),)), noise)


@pytest.mark.statistical
def test_what_a_client_sends_is_its_update_with_a_gaussian_rounded_once():
    size, honest, multiplier = 40_000, 7, 1.3
    fine, std, cell = shared_grid(Gaussian(multiplier), CLIP, honest)
    spacing = fine * cell
    assert std * fine == pytest.approx(multiplier * CLIP / math.sqrt(honest))
    assert SHARE <= std / cell < SHARE * (1 + 1e-5)
    update = np.full(size, 0.9 * CLIP / math.sqrt(size))  # a fraction of a spacing, nothing of it is lost
    found = asked(update, honest, multiplier)

    def p_value(deviation):
        points = np.arange(-6, 8)
        edges = np.concatenate([[-np.inf], points[:-1] + 0.5, [np.inf]])
        cells = np.diff(stats.norm.cdf(edges, update[0] / spacing, deviation)) * size
        seen = [np.count_nonzero((found > a) & (found <= b)) for a, b in itertools.pairwise(edges)]
        return stats.chisquare(seen, cells).pvalue

    assert p_value(std / cell) > 1e-4
    assert p_value(std / cell * 2 / 3) < 1e-4
    assert p_value(std / cell * 3 / 2) < 1e-4
    assert abs(found.mean() * spacing - update[0]) < 4 * spacing * SHARE / math.sqrt(size)


class Silent:
    """A noise source that adds nothing, to see what a contribution is."""

    def rounded_gaussian(self, std, shape):
        return np.zeros(shape, dtype=np.int64)


magnitudes = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(
    update=st.lists(magnitudes, min_size=1, max_size=12),
    clip=st.sampled_from([1e-3, 0.3, 7.0]),
    multiplier=st.sampled_from([0.2, 1.7, 40.0]),
)
def test_no_contribution_exceeds_the_clip_on_the_grid_of_the_noise(update, clip, multiplier):
    release = Release(UpdateSum(clip), Gaussian(multiplier), Full(), 1, mean=False)
    fine, _, _ = shared_grid(release.mechanism, clip, 1)
    grid_of_one = lambda mechanism, sensitivity, honest: (fine, 2.0, 1)  # noqa: E731
    question = Question(release, np.zeros(len(update)), clip, 0, CLIENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sordino.execute.parties.executor.shared_grid", grid_of_one)
        client = SharingClient(np.array(update), CLIENTS, 1)
        values = client.noisy_total(question, Batch((Listed(None),)), Silent())
    norm = math.hypot(*(int(v) * fine for v in values))
    target(norm / clip)
    assert norm <= clip


@pytest.mark.parametrize(
    "update", [np.full(3, np.nan), np.full(4, 0.1), np.array([np.inf, 0, 0]), np.zeros(3, int)]
)
def test_an_update_that_is_none_is_noise_alone(update):
    assert np.array_equal(asked(update, size=3), asked(np.zeros(3)))


# ----------------------------------------------------------------------- bits, masks, and what is sent


@pytest.mark.parametrize(("clients", "bits"), [(10, 10), (100, 14), (1000, 18)])
def test_ten_to_a_thousand_clients_need_less_than_twenty_bits(clients, bits):
    shared = SharedNoise(clients, 1.0, epsilon=4.0, delta=1e-5)
    recipe = recipe_of(rounds=1, shared=shared)
    assert bits_of(shared, recipe, 44_426) == bits
    spacing, how = shared.grid(recipe, 44_426)
    assert clients * how["quantization_range"] < how["modulus_range"]  # whatever they send, no sum wraps
    assert how["clipping_range"] * spacing > 1.0 + TAIL * SHARE * spacing
    assert shared.slack(recipe, 44_426) < 1e-12


def test_noise_that_is_cut_or_rippled_is_paid_for_in_delta():
    shared = SharedNoise(1000, 1.0, epsilon=4.0, delta=1e-5)
    each = 2 * math.exp(-2 * math.pi**2 * SHARE**2 / 2) + 2 * stats.norm.sf(TAIL)
    numbers = 50 * 44_426 * 1000
    assert shared.slack(recipe_of(rounds=50), 44_426) > (1 + math.e**4) * numbers * each
    assert shared.slack(recipe_of(rounds=50), 44_426) < 1e-9


def test_a_coarser_grid_would_be_paid_for_by_more_noise(tmp_path, monkeypatch):
    """With parts of 1.6 grid points the ripple is seen: a client calibrates for what it leaves of delta."""
    recipe = recipe_of(batch_size=None, rounds=2, shared=SHARED)
    monkeypatch.setattr("sordino.parties.flower.models.SHARE", 1.6)
    slack = SHARED.slack(recipe, D)
    assert 1e-8 < slack < 1e-6
    client = member(next(iter(InProcessGrid(None, NODES)._contexts.values())), recipe, tmp_path)
    with seeded_noise_not_private(4):
        _, report = client.round("1", np.zeros(D))
    saved = json.loads((tmp_path / "client-1" / "run.json").read_text())["multipliers"]["update"]
    plan = SHARED.plan(recipe)
    less, whole = (calibrate(plan, 4.0, delta).releases["update"] for delta in (1e-5 - slack, 1e-5))
    assert saved == less.mechanism.multiplier > whole.mechanism.multiplier
    assert report.delta == 1e-5


def test_a_budget_that_leaves_no_noise_is_refused():
    shared = SharedNoise(10**7, 1.0, epsilon=20.0, delta=1e-9)
    with pytest.raises(InvalidInputError, match="Lower epsilon"):
        shared.grid(recipe_of(rounds=1), 3)


@pytest.mark.parametrize(
    "wrong", [{"honest": 6}, {"least": 6}, {"honest": -1}, {"least": 1, "honest": 1}, {"epsilon": 21.0}]
)
def test_numbers_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidInputError, match="Expected"):
        SharedNoise(**{"clients": 5, "update_clip": 0.3, "epsilon": 1.0, "delta": 1e-5, **wrong})


@given(bits=st.integers(8, 32), data=st.data())
def test_packed_numbers_come_back_and_take_their_bits(bits, data):
    values = np.array(data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=40)))
    raw = pack(values, bits)
    assert unpack(raw, bits).tolist() == values.tolist()
    assert len(raw) == -(-len(values) * bits // 8)


def test_masks_use_the_whole_seed_and_the_whole_range():
    """Flower folds a seed to 32 bits and leaves out the last number of the range: both are seen here."""
    seed = bytes(range(32))
    folded = seed[4:8] + seed[:4] + seed[8:]  # two words of four bytes exchanged
    shapes = [(1,), (3, 4)]
    theirs = [flower_masks.pseudo_rand_gen(s, 256, shapes)[1].tolist() for s in (seed, folded)]
    assert theirs[0] == theirs[1]
    ours = [masks(s, 256, shapes) for s in (seed, folded)]
    assert [m.shape for m in ours[0]] == shapes
    assert ours[0][1].tolist() != ours[1][1].tolist()
    assert flower_masks.pseudo_rand_gen(seed, 256, [(100_000,)])[0].max() == 254
    counts = np.bincount(masks(seed, 256, [(100_000,)])[0], minlength=256)
    assert len(counts) == 256
    assert stats.chisquare(counts).pvalue > 1e-4


def test_flower_is_left_as_it_was():
    before = flower_masks.pseudo_rand_gen
    with pytest.raises(PlanError), changed_protocol(2**9):
        raise PlanError("in the middle")
    assert sys.modules[secaggplus_mod.__module__].pseudo_rand_gen is before


# --------------------------------------------------------------------------------- a whole federation


def member(context, recipe, tmp_path, **more):
    i = int(context.node_config["partition-id"])
    model = LinearModel(*records(SIZES[i], i), LOGISTIC)
    folder = tmp_path / f"client-{context.node_id}"
    settings = {"protection": "client", **more}
    return FederatedClient(model, recipe, folder, SHARED.epsilon, SHARED.delta, **settings)


def federated(recipe, tmp_path, leaving=(), watch=lambda message, reply: None, agreed=None, **more):
    """Run a federation; ``watch`` sees each message and its answer, ``agreed`` is the recipe of clients."""
    results = []

    def make(context):
        if context.node_id in leaving:
            raise PlanError("the disk is full")
        return member(context, agreed or recipe, tmp_path, **more)

    class Watching(InProcessGrid):
        def _answer(self, message):
            reply = super()._answer(message)
            watch(message, reply)
            return reply

    server = secure_server_app(HardThresholdAveraging(recipe, CLIENTS), np.zeros(D), done=results.append)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flower_simulation, "InProcessGrid", Watching)
        simulate(server, secure_client_app(make), NODES)
    return results[0]


def plain_step(recipe, weights, nodes):
    """One round without noise, written by hand: clipped updates, their mean, the threshold."""
    total = np.zeros(D)
    for node in nodes:
        i = (node - 1) % len(SIZES)
        update = local(recipe, weights, *records(SIZES[i], i)) - weights
        total += update * min(1.0, CLIP / np.linalg.norm(update))
    return hard_threshold(weights + total / len(nodes), K)


@pytest.mark.parametrize("leaving", [(), (2,)])
def test_a_round_is_the_mean_of_clipped_updates_with_the_noise_of_its_grid(tmp_path, leaving):
    recipe = recipe_of(batch_size=None, rounds=1, sparsity=None, shared=SHARED)
    spacing, _ = SHARED.grid(recipe, D)
    here = [node for node in range(1, CLIENTS + 1) if node not in leaving]
    with seeded_noise_not_private(4):
        found = federated(recipe, tmp_path, leaving)
    noise = (found.weights - plain_step(recipe, np.zeros(D), here)) / spacing * len(here)
    total = np.rint(found.weights / spacing * len(here))
    assert np.allclose(found.weights, total * spacing / len(here), atol=1e-12)  # a point of the grid
    assert np.abs(noise).max() < 5 * math.sqrt(len(here) * (SHARE**2 + 1 / 12))
    assert noise.std() > math.sqrt(len(here)) * SHARE / 2
    assert found.privacy.unit == "client"
    assert set(found.privacy.clients) == set(here)
    assert 0.99 * 4 < found.privacy.epsilon <= 4.0


def test_each_client_books_the_whole_run_and_reports_how_many_bits_it_takes(tmp_path):
    recipe, reports = recipe_of(batch_size=None, rounds=2, shared=SHARED), []
    for node in range(1, CLIENTS + 1):
        with Ledger.open(tmp_path / f"ledger-{node}.sqlite") as ledger:
            ledger.create("patients", BudgetPolicy(epsilon=4.0, delta=1e-5, unit="client"))
    results = []

    def make(context):
        ledger = tmp_path / f"ledger-{context.node_id}.sqlite"
        made = member(context, recipe, tmp_path, ledger=ledger, dataset_id="patients")
        reports.append(made.book)
        return made

    server = secure_server_app(HardThresholdAveraging(recipe, CLIENTS), np.zeros(D), done=results.append)
    with seeded_noise_not_private(4):
        simulate(server, secure_client_app(make), NODES)
    for node in range(1, CLIENTS + 1):
        with Ledger.open(tmp_path / f"ledger-{node}.sqlite") as ledger:
            (entry,) = ledger.history("patients")
        assert entry.status.value == "settled"
        assert json.loads(entry.event_json)["events"][0]["count"] == 2
    (note,) = reports[0].notes
    assert f"{bits_of(SHARED, recipe)} bits a number" in note
    assert "3 of the 4 who stay" in note
    assert reports[0].public[0] == "number of clients: 5"
    assert reports[0].plan.unit == "client"
    sigma = SHARED.grid(recipe, D)[0] * SHARE * math.sqrt(HONEST) / CLIP
    certified = gaussian_epsilon(math.sqrt(2) / sigma, 1e-5)
    assert certified <= 4.0 * (1 + 1e-5)


def test_what_travels_is_masked_has_its_bits_and_tells_no_number_of_records(tmp_path):
    recipe, sent, told = recipe_of(batch_size=None, rounds=1, shared=SHARED), [], []

    def watch(message, reply):
        facts = reply.content.config_records.get(RECORD_KEY_CONFIGS, {})
        if Key.MASKED_PARAMETERS in facts:
            sent.append(facts[Key.MASKED_PARAMETERS])
        told.extend(repr(dict(r)) for r in reply.content.metric_records.values())
        assert all(len(record) == 0 for record in reply.content.array_records.values())

    with seeded_noise_not_private(4):
        federated(recipe, tmp_path, watch=watch)
    bits = bits_of(SHARED, recipe)
    assert len(sent) == CLIENTS
    assert {tuple(map(len, parts)) for parts in sent} == {(-(-bits // 8), -(-D * bits // 8))}
    spread = np.concatenate([unpack(parts[1], bits) for parts in sent])
    assert spread.max() > 0.8 * 2**bits  # an update with its noise is within a seventh of the range
    assert not any(str(size) in text for size in SIZES for text in told)


def test_fewer_clients_than_agreed_end_the_run_and_nothing_is_unmasked(tmp_path):
    recipe, stages = recipe_of(batch_size=None, rounds=1, shared=SHARED), []

    def watch(message, reply):
        asked = message.content.config_records.get(RECORD_KEY_CONFIGS, {})
        if Key.ACTIVE_NODE_ID_LIST in asked:
            stages.append(Stage.UNMASK)

    with pytest.raises(PlanError, match="secure aggregation was given up"):
        federated(recipe, tmp_path, leaving=(2, 4), watch=watch)
    assert not stages


@pytest.mark.parametrize(
    ("change", "value"),
    [("least", 3), ("update_clip", 0.31), ("honest", 2), ("epsilon", 5.0), ("clients", 6)],
)
def test_a_server_with_other_shared_noise_hears_that_another_recipe_was_agreed_on(tmp_path, change, value):
    agreed = recipe_of(batch_size=None, rounds=1, shared=SHARED)
    settings = {name: getattr(SHARED, name) for name in ("clients", "update_clip", "epsilon", "delta")}
    settings |= {"least": 4, "honest": 3, change: value}
    other = recipe_of(batch_size=None, rounds=1, shared=SharedNoise(**settings))
    assert agreed.digest != other.digest
    heard = []

    def watch(message, reply):
        heard.append(reply.error.reason if reply.has_error() else "")

    with pytest.raises(PlanError):
        federated(other, tmp_path, watch=watch, agreed=agreed)
    assert any("another recipe or protection" in reason for reason in heard)
    assert not list(tmp_path.glob("client-*/rounds"))


@pytest.mark.parametrize(
    "weaker", [{"reconstruction_threshold": 3}, {"modulus_range": 2**32}, {"quantization_range": 2}]
)
def test_a_server_that_masks_otherwise_gets_nothing(tmp_path, monkeypatch, weaker):
    """The recipe is the agreed one; the numbers of the protocol are not."""
    recipe = recipe_of(batch_size=None, rounds=1, shared=SHARED)
    import sordino.parties.flower.secure as secure

    whole = secure.SecAggPlusWorkflow
    monkeypatch.setattr(secure, "SecAggPlusWorkflow", lambda **how: whole(**{**how, **weaker}))
    with pytest.raises(PlanError, match="given up"):
        federated(recipe, tmp_path)
    assert not list(tmp_path.glob("client-*/rounds"))


def test_no_client_gives_both_secrets_of_another_one_away(tmp_path, monkeypatch):
    recipe, replies = recipe_of(batch_size=None, rounds=1, shared=SHARED), []

    class Greedy(InProcessGrid):
        def _answer(self, message):
            asked = message.content.config_records.get(RECORD_KEY_CONFIGS, {})
            unmask = Key.ACTIVE_NODE_ID_LIST in asked
            if unmask:
                asked[Key.DEAD_NODE_ID_LIST] = [asked[Key.ACTIVE_NODE_ID_LIST][0]]
            reply = super()._answer(message)
            replies.extend([reply] if unmask else [])
            return reply

    monkeypatch.setattr(flower_simulation, "InProcessGrid", Greedy)
    app = secure_client_app(lambda context: member(context, recipe, tmp_path))
    server = secure_server_app(HardThresholdAveraging(recipe, CLIENTS), np.zeros(D))
    with pytest.raises(PlanError, match="given up"):
        simulate(server, app, NODES)
    assert len(replies) == CLIENTS
    assert all("two secrets" in reply.error.reason for reply in replies)


def test_shared_noise_never_leaves_without_masks(tmp_path):
    recipe = recipe_of(batch_size=None, rounds=1, shared=SHARED)
    app = client_app(lambda context: member(context, recipe, tmp_path))
    with pytest.raises(PlanError, match="another recipe or protection"):
        simulate(server_app(HardThresholdAveraging(recipe, CLIENTS), np.zeros(D)), app, NODES)
    assert not list(tmp_path.glob("client-*/rounds"))
    client = member(next(iter(InProcessGrid(None, NODES)._contexts.values())), recipe, tmp_path)
    message = type("Asked", (), {})()
    message.content = type("Content", (), {})()
    message.content.config_records = {"config": {"recipe": recipe.digest, "protection": "client"}}
    with pytest.raises(PlanRefusedError, match="needs masks"):
        client.answer(message, None)


@pytest.mark.parametrize("wrong", [{"protection": "record"}, {"epsilon": 3.0}, {"delta": 1e-6}])
def test_a_client_states_the_agreed_budget_itself(tmp_path, wrong):
    recipe = recipe_of(shared=SHARED)
    settings = {"protection": "client", "epsilon": 4.0, "delta": 1e-5, **wrong}
    model = LinearModel(*records(SIZES[0], 0), LOGISTIC)
    with pytest.raises(InvalidInputError, match="shared noise"):
        FederatedClient(model, recipe, tmp_path, **settings)


def test_a_recipe_with_shared_noise_goes_through_a_configuration():
    recipe = recipe_of(shared=SHARED)
    assert FederatedRecipe.from_config(recipe.to_config()) == recipe
