"""A member of a federation: its records, its budget, and its rounds as messages of Flower."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from sordino.errors import BudgetExceededError, InvalidInputError, PlanError, PlanSpentError
from sordino.kernel.arrays import Floats
from sordino.parties.flower.models import FederatedRecipe, LocalModel, Weights
from sordino.parties.words import Code, code_of
from sordino.runs import Ask, Price, PrivacyReport, RoundBook
from sordino.runs.price import Status

# What clients send back, checked before it is used: one answer per client and round, of the right shape.


def fits(weights: object, shape: tuple[int, ...]) -> bool:
    """Tell whether these are finite floating-point weights of exactly this shape; nothing is broadcast."""
    if not isinstance(weights, np.ndarray) or weights.dtype.kind != "f" or weights.shape != tuple(shape):
        return False
    return bool(np.isfinite(weights).all())


def weights_of(message: Message, shape: tuple[int, ...]) -> Weights | None:
    """Return the weights of an answer, or None if it carries anything else."""
    try:
        sent = message.content.array_records["arrays"]["weights"]
        if tuple(sent.shape) != tuple(shape):  # what it says of itself, before it is unpacked
            return None
        weights = sent.numpy()
    except Exception:  # whatever a client packs: it counts as no answer
        return None
    return weights if fits(weights, shape) else None


def one_each(replies: Iterable[Message], asked: Sequence[int], group: str) -> dict[int, Message]:
    """Return the answers of this round by client; who answers twice or was not asked has no answer.

    An error is an answer too: whoever fails and then answers has answered twice.
    """
    mine = [m for m in replies if m.metadata.group_id == group]
    times = Counter(m.metadata.src_node_id for m in mine)
    wanted = [node for node in dict.fromkeys(asked) if times[node] == 1]
    found = {m.metadata.src_node_id: m for m in mine if not m.has_error()}
    return {node: found[node] for node in wanted if node in found}


def updates_of(
    replies: Iterable[Message], asked: Sequence[int], group: str, shape: tuple[int, ...]
) -> list[Floats]:
    """Return the usable weights, at most one vector for each client that was asked."""
    found = (weights_of(m, shape) for m in one_each(replies, asked, group).values())
    return [w for w in found if w is not None]


def stated_privacy(facts: object, node: int) -> tuple[float, float]:
    """Return the (epsilon, delta) that a client states, or refuse numbers that are no guarantee."""
    epsilon, delta = (_number(facts, name) for name in ("epsilon", "delta"))
    if not epsilon >= 0 or not 0 <= delta <= 1:
        raise PlanError(
            f"Node {node} states a guarantee that is none: expected epsilon >= 0, delta in [0, 1]."
        )
    return epsilon, delta


def stated_size(facts: object, node: int) -> float:
    size = _number(facts, "num-examples")
    if not 1 <= size < math.inf:
        raise PlanError(f"Node {node} states no number of records: expected a finite number >= 1.")
    return size


def _number(facts: object, name: str) -> float:
    try:
        return float(facts[name])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, OverflowError):
        return math.nan


RECORD_LEVEL, CLIENT_LEVEL = "record", "client"
_log = logging.getLogger("sordino.parties.flower")


class WeightsError(InvalidInputError):
    """The server sent weights that do not fit the model."""

    code = Code.WEIGHTS


class RecipeError(PlanError):
    """The server runs something else than what was agreed on."""

    code = Code.RECIPE


@dataclass(frozen=True, eq=False)
class FederatedClient:
    """One client: it plans its own releases, pays for them on its own ledger, and adds its own noise.

    Parameters
    ----------
    model : :class:`LinearModel` or :class:`sordino.nn.TorchModel`, with the records of this client.
    recipe : what the members agreed on; a server that asks for another one is refused.
    folder : where the client remembers which rounds are spent; of this client alone.
    epsilon, delta : the budget of the whole run for one record; delta None means ``min(1e-5, 1 / (10 n))``.
    ledger, dataset_id : the client's own ledger.
    learned : what was paid before for a schema that the rows were encoded with; the report adds it.
    protection : ``"record"``, or ``"client"`` for :class:`ClientLevelHardThresholding`: then nothing is added
        here (epsilon must be inf) and the *server* is trusted with the update.

    **Privacy.** All that leaves the client during a run is (epsilon, delta)-DP for one of its records:
    ``rounds * local_steps`` Gaussian releases, whoever asks and whatever the server does. No loss, accuracy
    or batch size is sent, and of an error one of a few fixed sentences (:class:`sordino.parties.words.Code`).
    """

    model: LocalModel
    recipe: FederatedRecipe
    folder: str | os.PathLike[str]
    epsilon: float = 1.0
    delta: float | None = None
    ledger: Any = None
    dataset_id: str | None = None
    protection: str = RECORD_LEVEL
    learned: tuple[Price, ...] = ()

    def __post_init__(self) -> None:
        if self.protection not in (RECORD_LEVEL, CLIENT_LEVEL):
            raise InvalidInputError(f"Expected protection 'record' or 'client', got {self.protection!r}.")
        if self.protection == CLIENT_LEVEL and self.epsilon != float("inf"):
            raise InvalidInputError(
                f"Expected epsilon=inf with protection='client', got {self.epsilon}: there the server adds "
                "the noise, per client. For noise per record use protection='record'."
            )
        object.__setattr__(self, "folder", Path(self.folder))

    @property
    def population(self) -> int:
        """The public number of records."""
        return self.model.executor.population

    @property
    def book(self) -> RoundBook:
        return RoundBook(
            self.folder,
            Ask.checked(
                self.epsilon, self.delta, self.population, self.ledger, self.dataset_id, learned=self.learned
            ),
            self.recipe,
            self.model.plan(self.recipe),
            public=(f"number of records: {self.population}", "the recipe and the model's shape"),
            notes=("federated: local noise, each gradient counts as released to the server",),
            description=f"{self.recipe.algorithm()} run",
        )

    def round(self, run: str, weights: Weights) -> tuple[Weights, PrivacyReport]:
        """Make the local steps of the next round from the server's weights; what it releases is spent."""
        weights = np.asarray(weights)
        if not fits(weights, self.model.shape):
            raise WeightsError(
                f"Expected finite weights of shape {self.model.shape} and a floating-point type, got shape "
                f"{weights.shape} of {weights.dtype}."
            )
        with self.book.turn(run) as turn:
            curator = turn.curate(self.model.executor, self.recipe.local_steps)
            step = self.recipe.step_of(turn.attempt)
            return self.model.steps(curator, weights, self.recipe, step), turn.report

    def answer(self, message: Message, context: Context) -> Message:
        self.require(message.content.config_records["config"])
        sent = next(iter(message.content.array_records.values()))
        weights, report = self.round(str(context.run_id), sent["weights"].numpy())
        content = {"arrays": record_of(weights), "metrics": self.facts(report)}
        return Message(RecordDict(content), reply_to=message)

    def require(self, config: ConfigRecord | dict[str, Any]) -> None:
        """Refuse a server that runs something else than what was agreed on."""
        if config.get("recipe") != self.recipe.digest:
            raise RecipeError("The server asks for another recipe than was agreed on. Nothing is released.")
        if config.get("protection") != self.protection:
            raise RecipeError(
                f"This client takes part for protection per {self.protection}, the server runs another "
                "strategy. Nothing is released."
            )

    def facts(self, report: PrivacyReport) -> MetricRecord:
        """Return the public numbers that go with an answer: the guarantee with what was learned before."""
        epsilon, delta = report.epsilon, report.delta
        if report.learned:
            epsilon, delta = report.whole or (math.inf, delta)
        return MetricRecord(
            {
                "num-examples": self.population,
                "epsilon": epsilon,
                "delta": delta,
                "seeded": int(report.seeded or report.status is Status.SEEDED),
            }
        )


def client_app(make: Callable[[Context], FederatedClient]) -> ClientApp:
    """Return the ClientApp of a member.

    Parameters
    ----------
    make : builds the client from Flower's context. Take data, ledger, folder and budget from
        ``context.node_config``, which is set on the member's own machine, never from ``context.run_config``,
        which comes from whoever starts the run.
    """
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return guarded(lambda: make(context).answer(message, context))

    register_close(app, make)
    return app


def register_close(app: ClientApp, make: Callable[[Context], FederatedClient]) -> None:
    """Let the server say that the run is over."""

    @app.query("close")
    def close(message: Message, context: Context) -> Message:
        guarded(lambda: make(context).book.close(str(context.run_id)))
        return Message(RecordDict({"metrics": MetricRecord({"closed": 1})}), reply_to=message)


def guarded(work: Callable[[], Any]) -> Any:
    """Run ``work``: Flower sends the text of an error to the server, so it is one of a few sentences.

    **Privacy.** What an error says may name a path, a figure of the budget, or what a record did; whether it
    is this or that kind of error may be decided by a record. All of it stays in the log of the client.
    """
    try:
        return work()
    except Exception as error:
        _log.exception("A round failed on this client.")
        raise PlanError(f"The client does not take part: {_code(error).words}. Nothing is sent.") from None


def _code(error: Exception) -> Code:
    if isinstance(error, PlanSpentError):
        return Code.SPENT
    return Code.BUDGET if isinstance(error, BudgetExceededError) else code_of(error)


def record_of(weights: Weights) -> ArrayRecord:
    return ArrayRecord({"weights": Array(np.ascontiguousarray(weights))})
