"""Privacy for whole clients: another mechanism than noise at the clients, and another name.

Each client sends the plain result of its local steps, the *server* clips the whole update and adds the
noise. It protects which clients took part, and everything they hold, against those who see the model; it
protects nothing from the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from sordino.errors import InvalidInputError
from sordino.kernel import Batch, ClippedSum, Curator, Full, Gaussian, Offer, Plan, Poisson, Question, Release
from sordino.kernel.arrays import Floats
from sordino.kernel.clip import to_bound
from sordino.kernel.query import ClientUpdates
from sordino.parties.flower.client import CLIENT_LEVEL, fits, record_of, updates_of
from sordino.parties.flower.models import FederatedRecipe, Weights
from sordino.parties.flower.server import FederatedResult, farewell, waited_for
from sordino.problems.queries import check_clip
from sordino.runs import Ask, PrivacyReport, Task, run
from sordino.solvers.steps import hard_threshold


@dataclass(frozen=True)
class UpdateSum(ClippedSum):
    r"""``sum_i clip_C(w_i - w)`` over clients, at the public weights ``params = w``.

    **Privacy.** Sensitivity C (add-remove a client) or 2 C (replace one) in L2. A client that fails, answers
    twice, or whose answer is not a finite floating-point vector of exactly the right shape contributes zero.
    """

    needs: ClassVar[tuple[type, ...]] = (ClientUpdates,)

    clip: float

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def contribution(self, params: Any) -> float:
        return self.clip

    def evaluate(self, records: Sequence[Weights], params: Weights) -> Floats:
        total = np.zeros(np.shape(params))
        for weights in records:
            total = total + self.clipped(weights, params)
        return total

    def clipped(self, weights: Weights, params: Weights) -> Floats:
        """Return what one client adds, a function of its own answer alone."""
        if not fits(weights, np.shape(params)):
            return np.zeros(np.shape(params))
        with np.errstate(over="ignore", invalid="ignore"):
            return to_bound(np.asarray(weights, dtype=np.float64) - params, self.clip)


@dataclass(frozen=True, eq=False)
class FederationExecutor:
    """The clients as records: a release asks those that were drawn for their update."""

    offer: ClassVar[Offer] = Offer("clients", (ClientUpdates,), doubles=False)

    grid: Grid
    nodes: tuple[int, ...]
    recipe: FederatedRecipe
    timeout: float

    @property
    def population(self) -> int:
        """The public number of clients."""
        return len(self.nodes)

    def total(self, question: Question, batch: Batch) -> Floats:
        """Ask the drawn clients and return the exact sum of their clipped updates."""
        rows = batch.rows(self.population)
        chosen = self.nodes if rows is None else [self.nodes[i] for i in rows]
        said = ConfigRecord({"recipe": self.recipe.digest, "protection": CLIENT_LEVEL})
        content = RecordDict({"arrays": record_of(question.params), "config": said})
        group = str(question.position + 1)
        messages = [Message(content, node, MessageType.TRAIN, group_id=group) for node in chosen]
        replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        return np.asarray(question.summed(updates_of(replies, chosen, group, np.shape(question.params))))


@dataclass(frozen=True)
class ClientLevelHardThresholding:
    """``w <- H_k(w + (sum of clipped updates + noise) / expected number of clients)``.

    Parameters
    ----------
    recipe : rounds, local steps and sparsity; its clip is the one of the clients' gradients and has no part
        in the guarantee.
    clients : the public number of clients.
    update_clip : the norm to which the update of a client is clipped.
    share : each client is asked in a round with this probability, 1 for all of them.
    epsilon, delta : the budget for one client; delta None means ``min(1e-5, 1 / (10 clients))``.
    ledger, dataset_id : the server's ledger; the unit is ``"client"``.
    timeout, patience : seconds for a round, and to wait for clients.

    **Privacy.** All iterates are (epsilon, delta)-DP for one *client*, with everything it holds, against
    everybody who sees them. The server is trusted: it sees updates, and with ``share < 1`` it must keep to
    itself who was asked.
    """

    recipe: FederatedRecipe
    clients: int
    update_clip: float
    epsilon: float
    delta: float | None = None
    share: float = 1.0
    kept: int = 0
    ledger: Any = None
    dataset_id: str | None = None
    timeout: float = 3600.0
    patience: float = 600.0

    def __post_init__(self) -> None:
        check_clip(self.update_clip)
        if not 0 < self.share <= 1:
            raise InvalidInputError(f"Expected a share of clients in (0, 1], got {self.share}.")

    def plan(self, start: Weights) -> Plan:
        sampling = Full() if self.share == 1 else Poisson(self.share)
        release = Release(UpdateSum(self.update_clip), Gaussian(), sampling, self.recipe.rounds)
        return Plan({"update": release}, self.recipe.relation, self.clients, unit="client")

    def run(self, curator: Curator, start: Weights) -> Iterator[Weights]:
        w = np.asarray(start, dtype=np.float64)
        for _ in range(self.recipe.rounds):
            moved = w + curator.release("update", w)
            w = hard_threshold(moved, self.recipe.sparsity, self.kept).astype(start.dtype).astype(np.float64)
            yield w

    def fit(self, grid: Grid, start: Weights) -> tuple[Weights, PrivacyReport]:
        """Run all rounds; the budget is reserved before the first one."""
        budget = Ask.checked(self.epsilon, self.delta, self.clients, self.ledger, self.dataset_id)
        nodes = tuple(waited_for(grid, self.clients, self.patience))
        executor = FederationExecutor(grid, nodes, self.recipe, self.timeout)
        task = Task(
            self,
            start,
            f"client-level {self.recipe.algorithm(private=False)}",
            public=(f"number of clients: {self.clients}", "the recipe and the model's shape"),
            notes=("noise at the server, which is trusted; nothing is promised for single records",),
            finish=lambda last: np.asarray(last, dtype=start.dtype),
        )
        fitted = run(task, executor, budget)
        return fitted.result, fitted.report


def client_level_server_app(
    strategy: ClientLevelHardThresholding | Callable[[Context], ClientLevelHardThresholding],
    start: Weights | Callable[[Context], Weights],
    *,
    done: Callable[[FederatedResult], None] | None = None,
) -> ServerApp:
    """Return the ServerApp of a run with privacy for whole clients, who need ``protection="client"``."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        chosen = strategy(context) if callable(strategy) else strategy
        first = np.asarray(start(context) if callable(start) else start)
        weights, report = chosen.fit(grid, first)
        farewell(grid, chosen.clients)
        if done is not None:
            done(FederatedResult(weights, report))

    return app
