"""A member of a federation: its records, its budget, and its rounds as messages of Flower."""

from __future__ import annotations

import hashlib
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from sordino.errors import BudgetExceededError, InvalidInputError, PlanError, PlanSpentError
from sordino.execute.parties.executor import SharingClient
from sordino.parties.flower.models import FederatedRecipe, LocalModel, Weights, fits
from sordino.parties.mpc.charter import Approvals, Rules
from sordino.parties.words import Code, PlanRefusedError, code_of
from sordino.runs import Ask, Price, PrivacyReport, Promise, RoundBook
from sordino.runs.report import Fact, Status

RECORD_LEVEL, CLIENT_LEVEL = "record", "client"
_log = logging.getLogger("sordino.parties.flower")


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
    approval : who has to approve here before a round is answered (``[approval]`` of a member of joint runs):
        :meth:`approve` notes it in the folder, for this recipe, budget and data set. None asks nobody.
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
    approval: Rules | None = None

    def __post_init__(self) -> None:
        if self.protection not in (RECORD_LEVEL, CLIENT_LEVEL):
            raise InvalidInputError(f"Expected protection 'record' or 'client', got {self.protection!r}.")
        shared, own = self.recipe.shared, (self.protection, self.epsilon, self.delta)
        if shared is not None and own != (CLIENT_LEVEL, shared.epsilon, shared.delta):
            raise InvalidInputError(
                "Expected protection='client' and the epsilon and delta of the recipe's shared noise, got "
                f"{own}: all clients add noise for the same budget."
            )
        if shared is None and self.protection == CLIENT_LEVEL and self.epsilon != float("inf"):
            raise InvalidInputError(
                f"Expected epsilon=inf with protection='client', got {self.epsilon}: there the server adds "
                "the noise, per client. For noise per record use protection='record'."
            )
        object.__setattr__(self, "folder", Path(self.folder))

    @property
    def population(self) -> int:
        return self.model.executor.population

    @property
    def book(self) -> RoundBook:
        recipe, shared, size = self.recipe, self.recipe.shared, math.prod(self.model.shape)
        plan, slack, booked = self.model.plan(recipe), 0.0, (self.ledger, self.dataset_id)
        note = "local noise, each gradient counts as released to the server"
        if shared is not None:
            plan, slack = shared.plan(recipe), shared.slack(recipe, size)
            bits = shared.grid(recipe, size)[1]["modulus_range"].bit_length() - 1
            note = (
                f"each client adds a part of the noise, {shared.honest} of the {shared.least} who stay keep "
            )
            note += f"theirs to themselves; {bits} bits a number, under masks"
        return RoundBook(
            self.folder,
            Ask.checked(self.epsilon, self.delta, plan.population, *booked, learned=self.learned),
            recipe,
            plan,
            public=(Fact.number_of(plan.unit, plan.population), "the recipe and the model's shape"),
            notes=(f"federated: {note}",),
            description=f"{recipe.algorithm()} run",
            slack=slack,
        )

    @property
    def _offer(self) -> Any:
        """What is approved: the recipe, whom it protects, the budget and the data set, as one digest."""
        facts = self.recipe.digest, self.protection, self.epsilon, self.delta, str(self.dataset_id)
        learns = type(getattr(self.model, "estimator", self.model)).__name__
        return SimpleNamespace(
            digest=hashlib.sha256(repr((*facts, learns)).encode()).hexdigest(),
            certificate=SimpleNamespace(epsilon=self.epsilon),
            text={"task": {"estimator": learns}},
        )

    def approve(self) -> str:
        """Note that the person at work lets this client take part; return who it is."""
        return Approvals(Path(self.folder), self.approval or Rules()).add(self._offer)

    def withdraw(self) -> str:
        """Note that this client does not take part any more, in the middle of a run or not."""
        return Approvals(Path(self.folder), self.approval or Rules()).withdraw(self._offer.digest)

    def round(self, run: str, weights: Weights) -> tuple[Weights, PrivacyReport]:
        """Make the local steps of the next round from the server's weights; what it releases is spent."""
        weights = np.asarray(weights)
        if not fits(weights, self.model.shape):
            raise PlanRefusedError(
                f"Expected finite weights of shape {self.model.shape} and a floating-point type, got shape "
                f"{weights.shape} of {weights.dtype}.",
                Code.WEIGHTS,
            )
        model, recipe, shared = self.model, self.recipe, self.recipe.shared
        with self.book.turn(run) as turn:
            step = recipe.step_of(turn.attempt)
            if shared is None:
                curator = turn.curate(model.executor, recipe.local_steps)
                return model.steps(curator, weights, recipe, step), turn.report
            # What these steps end at is the record of the release: it has no noise, and stays here.
            plain = Promise.made(Ask(math.inf, shared.delta), model.plan(recipe))
            with plain.run(model.executor, "local steps") as curator:
                update = model.steps(curator, weights, recipe, step)
            curator = turn.curate(SharingClient(update, shared.clients, shared.honest), 1)
            return curator.release("update", weights), turn.report

    def answer(self, message: Message, context: Context) -> Message:
        self.require(message.content.config_records["config"])
        if self.recipe.shared is not None:
            raise PlanRefusedError("Shared noise needs masks: use secure_client_app.", Code.RECIPE)
        sent = next(iter(message.content.array_records.values()))
        weights, report = self.round(str(context.run_id), sent["weights"].numpy())
        content = {"arrays": record_of(weights), "metrics": self.facts(report)}
        return Message(RecordDict(content), reply_to=message)

    def require(self, config: ConfigRecord | dict[str, Any]) -> None:
        if config.get("recipe") != self.recipe.digest:
            raise PlanRefusedError("The server asks for another recipe than was agreed on.", Code.RECIPE)
        if config.get("protection") != self.protection:
            said = f"This client takes part for protection per {self.protection}, the server for another."
            raise PlanRefusedError(said, Code.RECIPE)
        if self.approval is not None:
            Approvals(Path(self.folder), self.approval).require(self._offer)

    def facts(self, report: PrivacyReport) -> MetricRecord:
        """Return the public numbers that go with an answer: the guarantee with what was learned before."""
        epsilon, delta = report.epsilon, report.delta
        if report.learned:
            epsilon, delta = report.whole or (math.inf, delta)
        return MetricRecord(
            {
                "num-examples": self.population if self.recipe.shared is None else 1,
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
        return guard(lambda: make(context).answer(message, context))

    register_close(app, make)
    return app


def register_close(app: ClientApp, make: Callable[[Context], FederatedClient]) -> None:
    """Let the server say that the run is over."""

    @app.query("close")
    def close(message: Message, context: Context) -> Message:
        guard(lambda: make(context).book.close(str(context.run_id)))
        return Message(RecordDict({"metrics": MetricRecord({"closed": 1})}), reply_to=message)


def guard(work: Callable[[], Any]) -> Any:
    """Run ``work``: Flower sends the text of an error to the server, so it is one of a few sentences.

    **Privacy.** What an error says may name a path, a figure of the budget, or what a record did; whether it
    is this or that kind of error may be decided by a record. All of it stays in the log of the client.
    """
    try:
        return work()
    except Exception as error:
        _log.exception("A round failed on this client.")
        known = {PlanSpentError: Code.SPENT, BudgetExceededError: Code.BUDGET}
        code = next((c for kind, c in known.items() if isinstance(error, kind)), code_of(error))
        raise PlanError(f"The client does not take part: {code.words}. Nothing is sent.") from None


def record_of(weights: Weights) -> ArrayRecord:
    return ArrayRecord({"weights": Array(np.ascontiguousarray(weights))})
