"""Persons with several records: what one of them adds is at most the clip, and it is the right sum."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, target
from hypothesis import strategies as st
from tests.nn import test_operations
from tests.nn.helpers import accuracy, blobs, perceptron, reading
from torch import nn

from sordino import Schema, private_score
from sordino.accounting import certify
from sordino.errors import InvalidInputError, PlanError, PolicyMismatchError, UnsupportedError
from sordino.execute.persons import Owners
from sordino.execute.torch import TorchExecutor, _round_up
from sordino.kernel import Curator, Gaussian, NoiseSource, Plan, Poisson, Relation, Release
from sordino.ledger import BudgetPolicy, Ledger
from sordino.nn import NeuralClassifier, NeuralRegressor, Trainer, engines, make_private
from sordino.nn.compiled import CompiledEngine
from sordino.nn.engine_choice import make_engine
from sordino.nn.engines import GhostEngine, VmapEngine
from sordino.nn.network import Network, quiet_dropout
from sordino.nn.queries import PersonDifference, PersonGradient, TorchGradient, finite_sum
from sordino.runs.report import Booked
from sordino.tables import Number, Target

CPU = torch.device("cpu")
LOSS = nn.CrossEntropyLoss()
ADDED = Relation.ADD_REMOVE


class Reader(nn.Module):
    """A table that is looked up and multiplied, and attention between words."""

    def __init__(self, words=11, width=8):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.norm = nn.LayerNorm(width)
        self.mixing = nn.MultiheadAttention(width, 2, batch_first=True)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, words):
        h = self.norm(self.table(words))
        h = h + self.mixing(h, h, h, need_weights=True)[0]
        return (h @ self.table.weight.T).mean(1) * self.scale.exp()


def images():
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 16, 3)
    )
    return model, torch.randn(40, 1, 6, 6), torch.randint(0, 3, (40,))


def texts():
    torch.manual_seed(4)
    return Reader(), torch.randint(0, 11, (40, 5)), torch.randint(0, 11, (40,))


def tables():
    return perceptron(), *blobs(40, 5)


MODELS = {"images": images, "texts": texts, "tables": tables}
# three persons of one record, some of two to six, one of thirteen; their records lie apart
GROUPS = np.repeat(np.arange(11), [1, 1, 2, 2, 3, 4, 5, 6, 13, 1, 2])[np.argsort(np.arange(40) * 17 % 40)]


def evaluate(query, x, y, groups, params, chunk=16):
    owners = Owners.of(groups, len(x))
    plan = Plan(
        {"q": Release(query, Gaussian(multiplier=0.0), mean=False)}, Relation.ADD_REMOVE, owners.persons
    )
    executor = TorchExecutor((x, y), CPU, chunk, owners=owners)
    return Curator(executor, plan, NoiseSource.from_os()).release("q", params)


def oracle(model, x, y, groups, vector, clip):
    """One backward pass per record in float64, added up by person and clipped."""
    network = Network(model.double(), LOSS)
    x = x.double() if x.is_floating_point() else x
    total = torch.zeros(network.size, dtype=torch.float64)
    for person in np.unique(groups):
        row = torch.zeros_like(total)
        for i in np.flatnonzero(groups == person):
            leaf = vector.double().requires_grad_()
            params = network.unflatten(leaf)
            outputs = torch.func.functional_call(network.model, params, (x[i : i + 1],))
            row += torch.autograd.grad(LOSS(outputs, y[i : i + 1]), leaf)[0]
        total += row * min(1.0, clip / float(row.norm()))
    return total


@pytest.mark.parametrize(("engine", "chunk"), [("ghost", 1), ("ghost", 7), ("ghost", 64), ("vmap", 7)])
@pytest.mark.parametrize("name", MODELS)
def test_the_sum_is_that_of_one_backward_pass_per_record(name, engine, chunk):
    model, x, y = MODELS[name]()
    network = Network(model, LOSS)
    made = make_engine(network, x[:1], y[:1], engine, 8)
    vector = network.flat() * 1.1
    want = oracle(model, x, y, GROUPS, vector, 0.8)
    got = evaluate(PersonGradient(made, 0.8), x, y, GROUPS, vector, chunk)
    assert float((got.double() - want).norm()) <= 2e-5 * float(want.norm()) * len(set(GROUPS))


def test_a_compiled_engine_fills_up_with_persons_that_count_nothing():
    model, x, y = tables()
    network = Network(model, LOSS)
    inner, vector = GhostEngine(network), network.flat() * 1.1
    made = CompiledEngine(inner, 16, backend="eager")
    groups = np.repeat(np.arange(6), [3, 3, 3, 3, 3, 25])
    want = evaluate(PersonGradient(inner, 0.8), x, y, groups, vector)
    got = evaluate(PersonGradient(made, 0.8), x, y, groups, vector)
    assert torch.allclose(got, want, atol=1e-5)
    assert len(made._graphs) == 1


PRESENT = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])  # a person of three records and one of two


@pytest.mark.parametrize("name", test_operations.MODELS)
@pytest.mark.parametrize("cost", [1e9, 0.0], ids=["norms", "formed"])
def test_every_operation_agrees_with_float64_for_persons(name, cost, monkeypatch):
    def pays(found):
        return cost == 0.0 and not isinstance(found, engines.Table)

    monkeypatch.setattr(engines, "_direct_pays", pays)
    network, vector, x, y = test_operations.made(name, 6)
    test_operations.trainable(network)
    engine = GhostEngine(network)
    with quiet_dropout(network.model):
        rows = test_operations.loop(network, vector, x, y)
        sums = (rows.unflatten(0, (2, 3)) * PRESENT[:, :, None]).sum(1)
        clip = 0.7 * float(sums.norm(dim=1).min())
        want = (sums * (clip / sums.norm(dim=1))[:, None]).sum(0)
        got = engine.clipped_sum(vector, x, y, clip, PRESENT)
        alone = engine.clipped_sum(vector, x[:3], y[:3], clip, PRESENT[:1])
        whole = engine.whole(vector, x[:3], y[:3])
    assert float((got - want).norm()) <= 1e-4 * clip
    assert 0.999 * clip <= float(alone.double().norm()) <= clip
    assert float((whole - sums[0]).norm()) <= 1e-4 * float(sums[0].norm())


@pytest.mark.parametrize("name", ["encoder", "tied", "functions", "norms"])
def test_a_coarse_forward_pass_of_persons_is_clipped_all_the_same(name):
    network, vector, x, y = test_operations.made(name, 6, torch.bfloat16)
    test_operations.trainable(network)
    engine = GhostEngine(network)
    for size in (1e-3, 1.0, 1e3):  # the last may overflow

        def clipped(a, b, present, point=size * vector):
            return engine.clipped_sum(point, a, b, 0.01, present)

        got = finite_sum(clipped, x[:3], y[:3], PRESENT[:1])
        assert float(got.double().norm()) <= 0.01


@pytest.mark.parametrize("chunk", [3, 64])
def test_a_correction_is_that_of_summed_gradients(chunk):
    model, x, y = tables()
    network = Network(model, LOSS)
    vector, owners = network.flat() * 1.1, np.unique(GROUPS)
    rows = [GhostEngine(network).per_record(v, x, y) for v in (vector, 0.9 * vector)]
    sums = [torch.stack([r[p == GROUPS].sum(0) for p in owners]) for r in rows]
    query = PersonDifference(GhostEngine(network), 0.9, 0.2, 0.3)
    got = evaluate(query, x, y, GROUPS, (vector, 0.9 * vector), chunk)
    assert torch.allclose(got, query.clipped(*sums), atol=1e-5)


NETWORK = Network(perceptron(), LOSS)
ENGINES = {"ghost": GhostEngine(NETWORK), "vmap": VmapEngine(NETWORK)}


@settings(max_examples=60)
@given(
    st.sampled_from(["ghost", "vmap"]),
    st.integers(1, 12),
    st.integers(0, 10**6),
    st.lists(st.sampled_from([1e-30, 1e-12, 1.0, 1e6, 1e15, 1e30]), min_size=12, max_size=12),
    st.booleans(),
    st.sampled_from([4, 64]),
)
def test_a_person_adds_at_most_the_clip(engine, count, seed, sizes, cancelling, chunk):
    x, y = blobs(count, seed)
    x = x * torch.tensor(sizes)[:count, None]
    if cancelling:  # each record has a twin that takes back what it adds, up to rounding
        x, y = torch.cat([x, x * (1 + 1e-6)]), torch.cat([y, (y + 1) % 3])
    query, params = PersonGradient(ENGINES[engine], 0.7), NETWORK.flat() * 3
    norm = float(evaluate(query, x, y, np.zeros(len(x)), params, chunk).double().norm())
    target(norm)
    assert norm <= 0.7


@settings(max_examples=30)
@given(st.integers(0, 10), st.integers(0, 10**6), st.sampled_from([1e-6, 1.0, 1e4, 1e20]))
def test_leaving_out_a_person_moves_a_sum_by_at_most_the_clip(person, seed, size):
    x, y = blobs(40, seed)
    mine = torch.from_numpy(person == GROUPS)
    x[mine] *= size
    query, params = PersonGradient(ENGINES["ghost"], 0.7), NETWORK.flat() * 3
    whole = evaluate(query, x, y, GROUPS, params)
    rest = evaluate(query, x[~mine], y[~mine], GROUPS[~mine.numpy()], params)
    assert float((whole - rest).norm()) <= 0.7 + 11 * 0.7 * 2.0**-20


def test_a_clip_per_record_would_be_found():
    x, y = blobs(1, 2)
    x, y = 50 * x.repeat(6, 1), (y.repeat(6) + 1) % 3
    params, groups = NETWORK.flat() * 10, np.zeros(6)
    executor = TorchExecutor((x, y), CPU, 16)
    plan = Plan(
        {"q": Release(TorchGradient(ENGINES["ghost"], 0.7), Gaussian(0.0), mean=False)}, "add-remove", 6
    )
    twin = Curator(executor, plan, NoiseSource.from_os()).release("q", params)
    assert float(twin.norm()) > 4.0
    assert 0.69 < float(evaluate(PersonGradient(ENGINES["ghost"], 0.7), x, y, groups, params).norm()) <= 0.7


@pytest.mark.parametrize("chunk", [4, 64])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_a_person_without_a_finite_gradient_contributes_zero(engine, bad, chunk):
    x, y = blobs(40, 1)
    mine = GROUPS == 7
    x[np.flatnonzero(mine)[2], 1] = bad
    query, params = PersonGradient(ENGINES[engine], 0.7), NETWORK.flat()
    got = evaluate(query, x, y, GROUPS, params, chunk)
    want = evaluate(query, x[~mine], y[~mine], GROUPS[~mine], params, chunk)
    assert torch.allclose(got, want, atol=1e-5)


def test_a_person_larger_than_memory_is_read_in_parts(monkeypatch):
    seen, real = [], TorchExecutor.batch

    def batch(self, rows):
        seen.append(len(rows))
        return real(self, rows)

    monkeypatch.setattr(TorchExecutor, "batch", batch)
    x, y = blobs(40, 1)
    groups = np.array([0] * 33 + [1, 2, 3, 3, 3, 4, 4])
    evaluate(PersonGradient(ENGINES["ghost"], 0.7), x, y, groups, NETWORK.flat(), 6)
    assert max(seen) == 6
    assert sum(seen) == 40


@given(st.integers(1, 10**6))
def test_places_are_at_most_half_as_many_again(size):
    places = int(_round_up(np.array([size]))[0])
    assert size <= places <= max(size, 1.5 * size)


def trainer(**options):
    options = {"epsilon": 8.0, "delta": 1e-3, "steps": 6, "batch_size": 5, **options}
    return Trainer(perceptron(), LOSS, **options)


@pytest.mark.parametrize("optimizer", ["sgd", "srm"])
def test_persons_are_drawn_booked_and_reported(optimizer, tmp_path, monkeypatch):
    asked, real = [], TorchExecutor.noisy_total

    def noisy_total(self, question, batch, noise):
        asked.append((question.release.sampling, question.sensitivity))
        return real(self, question, batch, noise)

    monkeypatch.setattr(TorchExecutor, "noisy_total", noisy_total)
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("toy", BudgetPolicy(epsilon=20.0, delta=1e-2, unit="person"))
    made = trainer(optimizer=optimizer, clip_norm=0.7, ledger=ledger, dataset_id="toy")
    x, y = blobs(40, 5)
    got = made.fit(x, y, groups=GROUPS)
    assert [sampling for sampling, _ in asked] == [Poisson(5 / 11)] * 6
    assert asked[0][1] == 0.7
    assert got.privacy.unit == "person"
    assert "number of persons: 11" in got.privacy.public
    assert not any("40" in fact for fact in got.privacy.public)
    assert ledger.history("toy")[0].status == "settled"


def test_the_ledger_says_that_persons_rest_on_a_declared_number_of_rows(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("toy", BudgetPolicy(epsilon=20.0, delta=1e-2, unit="person"))
    x, y = blobs()
    for most in (None, 3):
        owned = {"groups": np.arange(len(x)) // 2} if most is None else {}
        trainer(rows_per_person=most, ledger=ledger, dataset_id="toy").fit(x, y, **owned)
    assert [Booked.read(entry.description).most for entry in ledger.history("toy")] == [0, 3]


def test_a_ledger_of_records_refuses_persons_and_the_other_way_round(tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("records", BudgetPolicy(epsilon=20.0, delta=1e-2))
    x, y = blobs(40, 5)
    with pytest.raises(PolicyMismatchError, match="person"):
        trainer(ledger=ledger, dataset_id="records").fit(x, y, groups=GROUPS)


def test_delta_follows_the_number_of_persons():
    x, y = blobs(40, 5)
    groups = np.arange(40) // 20
    assert trainer(delta=None, batch_size=1).fit(x, y, groups=groups).privacy.delta == 1e-5
    assert trainer(batch_size=1).fit(x, y, groups=groups).privacy.public[0] == "number of persons: 2"


def test_the_word_for_an_owner_can_be_chosen():
    x, y = blobs(40, 5)
    got = trainer(unit="household").fit(x, y, groups=GROUPS).privacy
    assert got.unit == "household"
    assert got.public[0] == "number of households: 11"


@pytest.mark.parametrize("ids", [[None] * 40, [float("nan")] * 40, np.ma.masked_equal(GROUPS, 3), [1] * 39])
@pytest.mark.parametrize("way", ["trainer", "loop", "estimator"])
def test_records_without_an_owner_are_refused_before_anything_is_spent(ids, way, tmp_path):
    ledger = Ledger.open(tmp_path / "ledger.db")
    ledger.create("toy", BudgetPolicy(epsilon=20.0, delta=1e-2, unit="person"))
    x, y = blobs(40, 5)
    booked = {"ledger": ledger, "dataset_id": "toy"}
    ways = {
        "trainer": lambda: trainer(**booked).fit(x, y, groups=ids),
        "loop": lambda: make_private(perceptron(), LOSS, (x, y), groups=ids, **booked),
        "estimator": lambda: NeuralClassifier(**booked).fit(x.numpy(), y.numpy(), groups=ids),
    }
    with pytest.raises(InvalidInputError, match=r"group|masked"):
        ways[way]()
    assert not ledger.history("toy")


def test_a_loop_of_ones_own_releases_gradients_of_persons():
    x, y = blobs(40, 5)
    model = perceptron()
    steps = make_private(
        model, LOSS, (x, y), groups=GROUPS, epsilon=float("inf"), delta=1e-3, steps=2, batch_size=11
    )
    assert steps.privacy.unit == "person"
    for _ in reading(steps):
        vector = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        want = oracle(perceptron(), x, y, GROUPS, vector, 1.0) / 11
        got = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        assert torch.allclose(got.double(), want, atol=1e-5)


@pytest.mark.parametrize("kind", [NeuralClassifier, NeuralRegressor])
def test_the_estimators_take_persons(kind):
    x, y = blobs(120, 5)
    more = {"target_bound": 3.0} if kind is NeuralRegressor else {}
    groups = [f"p{i // 3}" for i in range(120)]
    model = kind(epsilon=20.0, delta=1e-3, max_iter=20, **more)
    model.fit(x.numpy(), y.numpy(), groups=groups)
    assert model.privacy_.unit == "person"
    assert "number of persons: 40" in model.privacy_.public


def test_a_run_with_persons_is_resumed_as_it_was(tmp_path):
    x, y = blobs(40, 5)
    made = trainer(checkpoint=tmp_path / "run", checkpoint_every=2)
    got = made.fit(x, y, groups=GROUPS)
    again = made.resume(x, y, groups=GROUPS)
    assert again.steps == 0
    assert all(
        torch.equal(a, b) for a, b in zip(got.model.parameters(), again.model.parameters(), strict=True)
    )
    with pytest.raises(PlanError, match=r"plan|other"):
        made.resume(x, y)


def test_it_learns_from_persons_with_noise():
    x, y = blobs(600, 5)
    groups = np.arange(600) // 4
    got = trainer(epsilon=10.0, steps=60, batch_size=75, clip_norm=2.0).fit(x, y, groups=groups)
    assert accuracy(got.model, x, y) > 0.9


# ------------------------------------------------------- records whose owners nobody knows, a declared number


def test_records_of_an_unknown_person_are_protected_in_batches():
    x, y = blobs(200, 5)
    asked = {"epsilon": 3.0, "delta": 1e-5, "steps": 3, "batch_size": 20, "clip_norm": 0.5}
    one, four = (Trainer(perceptron(), LOSS, **asked, rows_per_person=m).fit(x, y) for m in (None, 4))
    (plain,), (release,) = one.privacy.releases, four.privacy.releases
    assert (one.privacy.unit, four.privacy.unit) == ("record", "person")
    assert "rows_per_person = 4 (nobody has more; declared)" in four.privacy.public
    assert float(release.sensitivity.split()[0]) == pytest.approx(
        4 * float(plain.sensitivity.split()[0]), rel=1e-3
    )
    assert 2.97 < four.privacy.epsilon <= 3.0
    # a mixture by how many of the four enter costs less than all four at once in each batch that holds any
    crude = Poisson(1 - 0.9**4).amplify(Gaussian(release.noise_multiplier).event(ADDED), 3, ADDED, 200)
    assert certify(crude, 1e-5, ADDED).epsilon > 3.1


def test_a_table_of_unknown_persons_is_protected_in_both_runs():
    public = np.random.default_rng(0)
    table = pd.DataFrame({"age": public.uniform(0, 1, 300), "cost": public.uniform(0, 1, 300)})
    schema = Schema([Number("age", 0, 1), Target("cost", "number", low=0, high=1)])
    model = NeuralRegressor(2.0, 1e-5, schema=schema, rows_per_person=3, max_iter=2).fit(table)
    assert model.privacy_.unit == "person"
    assert "rows_per_person = 3 (nobody has more; declared)" in model.privacy_.public
    assert 1.9 < model.privacy_.epsilon <= 2.0
    assert private_score(model, table, epsilon=1.0, delta=1e-5).privacy.unit == "person"


def test_unknown_persons_of_networks_have_exact_noise():
    x, y = blobs(40, 5)
    found = Trainer(perceptron(), LOSS, steps=2, rows_per_person=3, secure_noise=True).fit(x, y)
    assert all("lattice" in release.mechanism for release in found.privacy.releases)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"rows_per_person": 0}, InvalidInputError),
        ({"rows_per_person": 3, "noise": "banded"}, UnsupportedError),
    ],
)
def test_networks_refuse_what_is_not_proven_for_unknown_persons(more, error):
    x, y = blobs(40, 5)
    with pytest.raises(error, match=r"rows_per_person|Several records"):
        Trainer(perceptron(), LOSS, steps=2, **more).fit(x, y)
    with pytest.raises(InvalidInputError, match="rows_per_person=None"):
        Trainer(perceptron(), LOSS, steps=2, rows_per_person=3).fit(x, y, groups=np.arange(40) // 3)
    with pytest.raises(InvalidInputError, match="outside of trainer_options"):
        NeuralClassifier(trainer_options={"rows_per_person": 3}, max_iter=2).fit(x.numpy(), y.numpy())
