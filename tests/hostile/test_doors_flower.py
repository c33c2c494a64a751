"""Flower: what a server hears of a client, and what a client's labels, units and prices become."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from tests.parties.flower_toys import NODES, D, recipe_of

from sordino.errors import InvalidInputError
from sordino.estimators.linear import LogisticRegression
from sordino.kernel import Relation
from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties.flower import FederatedClient, InProcessGrid, LinearModel, client_app
from sordino.parties.flower.client import record_of
from sordino.parties.flower.simulation import server_identity
from sordino.parties.words import Code
from sordino.runs import Price


def train_message(recipe, weights=None):
    said = ConfigRecord({"recipe": recipe.digest, "protection": "record"})
    sent = record_of(np.zeros(D) if weights is None else weights)
    return Message(RecordDict({"arrays": sent, "config": said}), 1, "train")


def _rows(labels=(-1, 1)):
    public = np.random.default_rng(3)
    x = public.standard_normal((200, D))
    return x, np.where(x[:, 0] > 0, labels[1], labels[0])


def _reason(client, message):
    grid = InProcessGrid(client_app(client), NODES[:1])
    with server_identity():
        (reply,) = grid.send_and_receive([message])
    return reply.error.reason


def _sentences():
    return {f"The client does not take part: {code.words}. Nothing is sent." for code in Code}


@pytest.mark.parametrize("damage", ["budget", "no ledger", "data", "parsing", "weights", "recipe"])
def test_door_15_a_server_hears_one_of_a_few_sentences(tmp_path, damage):
    path = tmp_path / "secret-place" / "ledger.sqlite"
    path.parent.mkdir()
    with Ledger.open(path) as ledger:
        ledger.create("patients", BudgetPolicy(epsilon=0.123, delta=1e-3))

    def make(context):
        if damage == "parsing":
            return float("record 42")
        x, y = _rows()
        if damage == "data":
            x[3, 1] = np.nan
        where = tmp_path / "secret-place" / "gone.sqlite" if damage == "no ledger" else path
        return FederatedClient(
            LinearModel(x, y), recipe_of(), tmp_path / "client", 1.0, 1e-6, str(where), "patients"
        )

    with server_identity():
        message = train_message(recipe_of(rounds=9 if damage == "recipe" else 3))
        if damage == "weights":
            message = train_message(recipe_of(), weights=np.zeros(D + 3))
    reason = _reason(make, message)
    assert any(sentence in reason for sentence in _sentences()), reason
    for word in (
        str(tmp_path),
        "secret-place",
        "0.123",
        "%",
        "ValueError",
        "float",
        "InvalidInput",
        str(D + 3),
    ):
        assert word not in reason
    expected = {"budget": Code.BUDGET, "weights": Code.WEIGHTS, "recipe": Code.RECIPE}.get(damage, Code.OWN)
    assert expected.words in reason


def test_door_12_labels_of_a_client_are_declared_or_refused():
    x, y = _rows((0, 1))
    with pytest.raises(InvalidInputError, match="declared classes"):
        LinearModel(x, y)

    def logistic(classes, **more):
        return LogisticRegression(classes=classes, data_norm=1.0, fit_intercept=False, **more)

    declared = LinearModel(x, y, logistic([0, 1]))
    assert np.array_equal(declared.executor.targets, LinearModel(*_rows()).executor.targets)
    words = np.where(y == 1, "yes", "no")
    assert np.array_equal(LinearModel(x, words, logistic(["no", "yes"])).executor.targets, 2.0 * y - 1.0)
    for wrong in ([2, 3], [0]):
        with pytest.raises(InvalidInputError):
            LinearModel(x, y, logistic(wrong))
    with pytest.raises(InvalidInputError, match="target"):
        LinearModel(x, None)
    x[5, 0] = np.inf
    with pytest.raises(InvalidInputError, match="finite"):
        LinearModel(x, y, logistic([0, 1]))


def test_door_12_released_weights_become_a_model_in_the_users_units():
    x, y = _rows()
    model = LinearModel(x, y, LogisticRegression(classes=[-1, 1], data_norm=1.0))
    w = np.arange(D + 1.0)
    found = model.finish(w)
    assert np.array_equal(found.coef_.ravel(), w[:D])
    assert found.intercept_ == 0.25 * w[-1]
    assert set(found.predict(x)) <= {-1, 1}


def test_door_05_the_price_of_a_learned_schema_goes_along_with_a_clients_guarantee(tmp_path):
    price = Price(0.7, 1e-7, Relation.ADD_REMOVE, "record")
    client = FederatedClient(
        LinearModel(*_rows()), recipe_of(), tmp_path, epsilon=1.0, delta=1e-6, learned=(price,)
    )
    _, report = client.round("run", np.zeros(D))
    assert report.learned == (price,)
    said = client.facts(report)
    assert said["epsilon"] == pytest.approx(report.epsilon + 0.7)
    assert said["delta"] == pytest.approx(1e-6 + 1e-7)
