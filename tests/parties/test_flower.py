"""Rounds of a federation in one process: the algorithm, who pays, what is refused."""

import json
import os
import stat
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from tests.parties.flower_toys import CLIP, LOGISTIC, NODES, SIZES, D, K, made, plain, recipe_of, records

from sordino.accounting import canonical, certify
from sordino.errors import BudgetExceededError, InvalidInputError, PlanError, PlanSpentError
from sordino.kernel import Full, Poisson, Relation
from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties.flower import (
    FederatedClient,
    FederatedPrivacy,
    FederatedRecipe,
    HardThresholdAveraging,
    InProcessGrid,
    LinearModel,
    client_app,
    server_app,
    simulate,
)
from sordino.parties.flower.client import guard, record_of
from sordino.parties.flower.simulation import server_identity
from sordino.parties.words import PlanRefusedError
from sordino.testing import seeded_noise_not_private


@pytest.fixture(autouse=True)
def _server():
    with server_identity():
        yield


def run(recipe, tmp_path, epsilon=2.0, run_id=1, make=None, **strategy):
    results = []
    chosen = HardThresholdAveraging(recipe, len(NODES), **strategy)
    server = server_app(
        chosen, np.zeros(D), done=results.append, evaluate=lambda r, w: {"norm": float(w @ w)}
    )
    simulate(server, client_app(make or made(recipe, tmp_path, epsilon)), NODES, run_id=run_id)
    return results[0]


def train_message(recipe, node=1, **changes):
    said = {"recipe": recipe.digest, "protection": "record", **changes}
    content = RecordDict({"arrays": record_of(np.zeros(D)), "config": ConfigRecord(said)})
    return Message(content, node, "train")


def asked(grid, message):
    return next(iter(grid.send_and_receive([message])))


def test_rounds_without_noise_are_the_algorithm_written_by_hand(tmp_path):
    recipe = recipe_of(batch_size=None)
    result = run(recipe, tmp_path, epsilon=float("inf"))
    expected = plain(recipe, np.zeros(D), [records(n, i) for i, n in enumerate(SIZES)])
    np.testing.assert_allclose(result.weights, expected, rtol=1e-8, atol=1e-12)
    assert np.count_nonzero(result.weights) == K
    assert result.privacy.epsilon == float("inf")


def test_private_rounds_move_towards_the_truth_and_stay_sparse(tmp_path):
    recipe = recipe_of(rounds=20, sparsity=3)
    with seeded_noise_not_private(7):
        result = run(recipe, tmp_path, epsilon=50.0)
    assert np.count_nonzero(result.weights) == 3
    assert set(np.flatnonzero(result.weights)) == {0, 1, 2}
    assert result.privacy.seeded
    assert sorted(result.history) == list(range(21))


def test_the_guarantee_is_that_of_the_weakest_client(tmp_path):
    recipe = recipe_of()
    budgets = [0.5, 3.0, 1.0]

    def make(context):
        i = int(context.node_config["partition-id"])
        model = LinearModel(*records(SIZES[i], i), LOGISTIC)
        return FederatedClient(model, recipe, tmp_path / f"client-{i}", budgets[i], 10.0 ** -(5 + i))

    privacy = run(recipe, tmp_path, make=make).privacy
    assert 0.99 * 3.0 < privacy.epsilon <= 3.0
    assert privacy.delta == 1e-5
    assert sorted(round(e, 1) for e, _ in privacy.clients.values()) == [0.5, 1.0, 3.0]
    assert not privacy.seeded
    assert FederatedPrivacy({}).epsilon == float("inf")


@pytest.mark.parametrize(
    ("vector", "batch", "multiplier", "expected"),
    [("F1", 60, 1.1, 1.08260), ("F2", None, 60.0, 1.43781)],
)
def test_a_plan_of_five_hundred_releases_costs_what_the_vectors_say(vector, batch, multiplier, expected):
    recipe = FederatedRecipe(rounds=50, local_steps=10, batch_size=batch, clip_norm=CLIP)
    model = LinearModel(np.zeros((6000, 2)), np.ones(6000))
    event = model.plan(recipe).at(multiplier).event()
    assert certify(event, 1e-5, Relation.ADD_REMOVE).epsilon == pytest.approx(expected, rel=1e-3)


def test_each_client_samples_at_its_own_rate():
    recipe = recipe_of(batch_size=30)
    rates = [LinearModel(*records(n, 0)).plan(recipe).releases["gradient"].sampling for n in SIZES]
    assert rates == [Poisson(30 / n) for n in SIZES]
    assert recipe.sampling(30) == Full()
    assert recipe_of(batch_size=None).sampling(10**6) == Full()
    assert recipe.algorithm() == "DP-FedSGD-HT"
    assert recipe_of(batch_size=None).algorithm() == "DP-FedGD-HT"
    assert recipe.algorithm(private=False) == "FedSGD-HT"


# ------------------------------------------------------------------------------------ who pays


@pytest.fixture
def ledger(tmp_path):
    book = Ledger.open(tmp_path / "ledger.sqlite")
    book.create("ward", BudgetPolicy(epsilon=3.0, delta=1e-5))
    return book


def client_with(ledger, tmp_path, recipe, epsilon=2.0, folder="one"):
    model = LinearModel(*records(SIZES[0], 0), LOGISTIC)
    return FederatedClient(model, recipe, tmp_path / folder, epsilon, 1e-6, ledger, "ward")


def statuses(ledger):
    return [entry.status.value for entry in ledger.history("ward")]


def test_the_whole_run_is_reserved_before_the_first_round_and_settled_after_the_last(ledger, tmp_path):
    recipe = recipe_of()
    seen = []

    class Watched(LinearModel):
        def steps(self, *args):
            seen.append(statuses(ledger))
            return super().steps(*args)

    for _ in range(recipe.rounds):  # a new client each round, as after a restart
        model = Watched(*records(SIZES[0], 0))
        client = FederatedClient(model, recipe, tmp_path / "one", 2.0, 1e-6, ledger, "ward")
        _, report = client.round("run", np.zeros(D))
    assert seen == [["reserved"]] * recipe.rounds
    assert statuses(ledger) == ["settled"]
    entry = ledger.history("ward")[0]
    plan = Watched(*records(SIZES[0], 0)).plan(recipe)
    multiplier = report.releases[0].noise_multiplier
    assert entry.event_json == canonical(plan.at(multiplier).event())


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_what_a_client_keeps_is_its_owners_alone(tmp_path):
    made(recipe_of(), tmp_path)(_context(0)).round("run", np.zeros(D))
    folder = tmp_path / "client-0"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("run.json", "rounds"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def _context(number):
    return SimpleNamespace(node_config={"partition-id": number})


def test_rounds_beyond_the_plan_are_refused_after_a_restart_too(ledger, tmp_path):
    recipe = recipe_of()
    for _ in range(recipe.rounds):
        client_with(ledger, tmp_path, recipe).round("run", np.zeros(D))
    with pytest.raises(PlanSpentError, match="paid for 3 rounds"):
        client_with(ledger, tmp_path, recipe).round("run", np.zeros(D))
    assert statuses(ledger) == ["settled"]


def test_a_round_that_dies_is_spent_and_its_noise_never_comes_again(ledger, tmp_path):
    recipe, used = recipe_of(), []

    class Dying(LinearModel):
        def steps(self, curator, weights, *args):
            used.append(curator.used["gradient"])
            curator.release("gradient", weights)
            raise RuntimeError("a record says 42")

    model = Dying(*records(SIZES[0], 0))
    client = FederatedClient(model, recipe, tmp_path / "one", 2.0, 1e-6, ledger, "ward")
    for attempt in range(recipe.rounds):
        with pytest.raises(RuntimeError):
            client.round("run", np.zeros(D))
        assert client.book.rounds_begun == attempt + 1
    assert used == [0, 2, 4]
    with pytest.raises(PlanSpentError):
        client.round("run", np.zeros(D))


def test_two_rounds_on_the_same_weights_have_different_noise(tmp_path):
    client = made(recipe_of(sparsity=None), tmp_path)
    grid = InProcessGrid(client_app(client), NODES[:1])
    answers = [asked(grid, train_message(recipe_of(sparsity=None))) for _ in range(2)]
    first, second = (m.content.array_records["arrays"]["weights"].numpy() for m in answers)
    assert not np.isclose(first, second).any()


def test_a_budget_that_does_not_cover_the_run_stops_it_before_any_release(ledger, tmp_path):
    with pytest.raises(BudgetExceededError):
        client_with(ledger, tmp_path, recipe_of(), epsilon=4.0).round("run", np.zeros(D))
    assert statuses(ledger) == []
    assert client_with(ledger, tmp_path, recipe_of()).book.rounds_begun == 0


def test_a_second_run_is_paid_for_again(ledger, tmp_path):
    recipe = recipe_of(rounds=1)
    for name in ("first", "second"):
        client_with(ledger, tmp_path, recipe, epsilon=1.0).round(name, np.zeros(D))
    assert statuses(ledger) == ["settled", "settled"]
    with pytest.raises(BudgetExceededError):
        client_with(ledger, tmp_path, recipe, epsilon=2.95).round("third", np.zeros(D))


def test_without_a_ledger_a_folder_takes_one_run_only(tmp_path):
    recipe = recipe_of()
    run(recipe, tmp_path)
    with pytest.raises(PlanError, match="for a reason of its own"):
        run(recipe, tmp_path, run_id=2)
    with pytest.raises(PlanError, match="another run"):
        made(recipe, tmp_path)(SimpleNamespace(node_config=NODES[0])).round("2", np.zeros(D))


def test_a_run_that_ends_early_is_closed_and_settled(ledger, tmp_path):
    client = client_with(ledger, tmp_path, recipe_of())
    client.round("run", np.zeros(D))
    client.book.close("another")
    assert statuses(ledger) == ["reserved"]
    client.book.close("run")
    assert statuses(ledger) == ["settled"]
    with pytest.raises(PlanSpentError, match="closed"):
        client.round("run", np.zeros(D))


# ------------------------------------------------------------------------------ what is refused


def test_a_changed_recipe_or_population_is_refused_in_the_middle_of_a_run(ledger, tmp_path):
    client_with(ledger, tmp_path, recipe_of()).round("run", np.zeros(D))
    with pytest.raises(PlanError, match="another recipe"):
        client_with(ledger, tmp_path, recipe_of(clip_norm=0.9)).round("run", np.zeros(D))
    other = FederatedClient(
        LinearModel(*records(61, 0)), recipe_of(), tmp_path / "one", 2.0, 1e-6, ledger, "ward"
    )
    with pytest.raises(PlanError, match="number of records"):
        other.round("run", np.zeros(D))


def test_a_folder_without_its_journal_is_refused(tmp_path):
    client = made(recipe_of(), tmp_path)
    grid = InProcessGrid(client_app(client), NODES[:1])
    assert not asked(grid, train_message(recipe_of())).has_error()
    (tmp_path / "client-0" / "rounds").unlink()
    reply = asked(grid, train_message(recipe_of()))
    assert "for a reason of its own" in reply.error.reason
    with pytest.raises(PlanError, match="no journal"):
        client(SimpleNamespace(node_config=NODES[0])).round("1", np.zeros(D))


def test_a_line_cut_off_by_a_crash_does_not_count_and_does_not_corrupt(ledger, tmp_path):
    client = client_with(ledger, tmp_path, recipe_of())
    client.round("run", np.zeros(D))
    with open(tmp_path / "one" / "rounds", "a") as file:
        file.write("2")
    assert client.book.rounds_begun == 1
    client.round("run", np.zeros(D))
    assert client.book.rounds_begun == 2


def test_a_server_with_another_recipe_or_strategy_gets_nothing(tmp_path):
    grid = InProcessGrid(client_app(made(recipe_of(), tmp_path)), NODES[:1])
    for message in (train_message(recipe_of(rounds=9)), train_message(recipe_of(), protection="client")):
        reply = asked(grid, message)
        assert "another recipe or protection was agreed on" in reply.error.reason
    assert not (tmp_path / "client-0").exists()


def test_weights_that_do_not_fit_are_refused_before_the_round_is_spent(ledger, tmp_path):
    client = client_with(ledger, tmp_path, recipe_of())
    for weights in (np.zeros(D + 1), np.full(D, np.nan)):
        with pytest.raises(PlanRefusedError, match="finite weights"):
            client.round("run", weights)
    assert client.book.rounds_begun == 0


def test_the_text_of_a_foreign_error_does_not_reach_the_server():
    with pytest.raises(PlanError, match="for a reason of its own") as caught:
        guard(lambda: (_ for _ in ()).throw(ZeroDivisionError("a record says 42")))
    assert "42" not in str(caught.value)
    assert "ZeroDivision" not in str(caught.value)


def test_a_failing_client_stops_the_run_and_is_named(tmp_path):
    good = made(recipe_of(), tmp_path)

    def make(context):
        if context.node_config["partition-id"] == 1:
            raise PlanError("the disk is full")
        return good(context)

    with pytest.raises(PlanError, match=r"node 2: .*for a reason of its own"):
        run(recipe_of(), tmp_path, make=make)


def test_with_fewer_answers_allowed_the_run_goes_on_with_those_who_answered(tmp_path):
    recipe = recipe_of(batch_size=None)
    good = made(recipe, tmp_path, float("inf"))

    def make(context):
        if context.node_config["partition-id"] == 1:
            raise PlanError("the disk is full")
        return good(context)

    result = run(recipe, tmp_path, make=make, least=2)
    expected = plain(recipe, np.zeros(D), [records(SIZES[i], i) for i in (0, 2)])
    np.testing.assert_allclose(result.weights, expected, rtol=1e-8, atol=1e-12)
    assert sorted(result.privacy.clients) == [1, 3]


def test_a_server_that_waits_in_vain_says_for_how_many(tmp_path):
    strategy = HardThresholdAveraging(recipe_of(), 5, patience=0.0)
    with pytest.raises(PlanError, match="Expected 5 clients, 3"):
        simulate(server_app(strategy, np.zeros(D)), client_app(made(recipe_of(), tmp_path)), NODES)
    strategy = HardThresholdAveraging(recipe_of(), 2, patience=0.0)
    with pytest.raises(PlanError, match="Expected 2 clients, 3"):
        simulate(server_app(strategy, np.zeros(D)), client_app(made(recipe_of(), tmp_path)), NODES)


def test_a_recipe_survives_a_flower_configuration():
    for recipe in (recipe_of(relation="replace-one"), recipe_of(batch_size=None, sparsity=None)):
        config = json.loads(json.dumps({**recipe.to_config(), "other": 1}))
        assert FederatedRecipe.from_config(config) == recipe
        assert FederatedRecipe.from_config(config).digest == recipe.digest
    assert recipe_of().digest != recipe_of(decay=0.9).digest


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"batch_size": -1},
        {"sparsity": 0},
        {"step_size": 0.0},
        {"decay": 1.1},
        {"clip_norm": np.inf},
    ],
)
def test_a_recipe_outside_its_bounds_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        recipe_of(**wrong)
