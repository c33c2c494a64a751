"""The server of a federation with noise at the clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from sordino.errors import InvalidInputError, PlanError
from sordino.parties.flower.client import (
    RECORD_LEVEL,
    one_each,
    record_of,
    stated_privacy,
    stated_size,
    weights_of,
)
from sordino.parties.flower.models import FederatedRecipe, Weights
from sordino.parties.words import shown
from sordino.solvers.steps import hard_threshold

Evaluate = Callable[[int, Weights], dict[str, float] | None]


@dataclass(frozen=True)
class FederatedPrivacy:
    """What a run guarantees to a record: that of the client with the weakest guarantee.

    A record lives at one client; to all others its influence is a post-processing of what that client
    released. So (epsilon, delta) is the maximum over clients (parallel composition).

    **Privacy.** Assumed: no record is held by two clients. The numbers are what the clients said of
    themselves; each client's own ledger is what enforces them.
    """

    clients: dict[int, tuple[float, float]]
    seeded: bool = False

    @property
    def epsilon(self) -> float:
        """The largest epsilon."""
        return max((epsilon for epsilon, _ in self.clients.values()), default=float("inf"))

    @property
    def delta(self) -> float:
        """The largest delta."""
        return max((delta for _, delta in self.clients.values()), default=1.0)


@dataclass(frozen=True, eq=False)
class FederatedResult:
    """The model after the last round, the guarantee, and what was evaluated on public data."""

    weights: Weights
    privacy: Any
    history: dict[int, dict[str, float]] = field(default_factory=dict)


class HardThresholdAveraging(Strategy):
    """DP-FedSGD-HT, DP-FedGD-HT and FedSGD-HT: ``w <- H_k(sum_i p_i w_i)``.

    Which of them it is the clients decide: by the recipe's batches and by their own budgets.

    Parameters
    ----------
    recipe : what the members agreed on.
    clients : the number of clients to wait for; all of them are asked in each round.
    weighting : ``"size"`` for p_i = n_i / n (the n_i are public here), ``"equal"`` for 1 / clients.
    least : how many answers make a round. By default all: a client that fails stops the run; with fewer
        the round goes on with those who answered, their weights adding up to one.
    patience : how many seconds to wait for clients to appear.
    kept : the number of trailing weights that are never thresholded (1 for an intercept).

    **Privacy.** The server adds nothing and is not trusted with records: see :class:`FederatedClient`. No
    amplification by choosing clients is claimed.
    """

    def __init__(
        self,
        recipe: FederatedRecipe,
        clients: int,
        *,
        weighting: str = "size",
        least: int | None = None,
        patience: float = 600.0,
        kept: int = 0,
    ) -> None:
        if weighting not in ("size", "equal"):
            raise InvalidInputError(f"Expected weighting 'size' or 'equal', got {weighting!r}.")
        self.recipe, self.clients, self.weighting = recipe, clients, weighting
        self.least, self.patience, self.kept = clients if least is None else least, patience, kept
        self._said: dict[int, tuple[float, float]] = {}
        self._seeded = False
        self._asked: tuple[int, ...] = ()
        self._shape: tuple[int, ...] = ()

    @property
    def privacy(self) -> FederatedPrivacy:
        """The guarantee so far."""
        return FederatedPrivacy(dict(self._said), self._seeded)

    def note(self, node: int, facts: Any) -> None:
        """Keep the weakest guarantee that a client has stated in any round."""
        before, said = self._said.get(node, (0.0, 0.0)), stated_privacy(facts, node)
        self._said[node] = (max(before[0], said[0]), max(before[1], said[1]))
        self._seeded |= bool(facts.get("seeded", 1))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the weights to every client."""
        nodes = waited_for(grid, self.clients, self.patience)
        self._asked, self._shape = tuple(nodes), arrays["weights"].numpy().shape
        said = ConfigRecord({"recipe": self.recipe.digest, "protection": RECORD_LEVEL})
        content = RecordDict({"arrays": arrays, "config": said})
        group = str(server_round)
        return [Message(content, node, MessageType.TRAIN, group_id=group) for node in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average what came back, and threshold it."""
        good = self._answers(list(replies), server_round)
        sizes = [1.0] * len(good)
        for i, (node, (message, _)) in enumerate(good.items()):
            facts = message.content.metric_records.get("metrics", {})
            self.note(node, facts)
            sizes[i] = stated_size(facts, node) if self.weighting == "size" else 1.0
        shares = np.array(sizes) / sum(sizes)
        return record_of(self.averaged([weights for _, weights in good.values()], shares)), None

    def _answers(self, replies: list[Message], server_round: int) -> dict[int, tuple[Message, Weights]]:
        """Return who answered with weights that fit; too few stop the run, which says who failed and why."""
        single = one_each(replies, self._asked, str(server_round))
        found = {node: (m, weights_of(m, self._shape)) for node, m in sorted(single.items())}
        good = {node: (m, w) for node, (m, w) in found.items() if w is not None}
        if len(good) < self.least:
            bad = {m.metadata.src_node_id: m.error.reason for m in replies if m.has_error()}
            bad |= {node: "its weights do not fit" for node in found if node not in good}
            reasons = "; ".join(f"node {node}: {shown(reason, 300)}" for node, reason in bad.items())
            raise PlanError(
                f"Round {server_round}: {len(good)} clients answered once with finite weights of shape "
                f"{self._shape}, {self.least} are needed. {reasons or 'Time is up.'}"
            )
        return good

    def averaged(self, vectors: list[Weights], shares: Weights) -> Weights:
        """Return the thresholded average."""
        total = sum(p * v.astype(np.float64) for p, v in zip(shares, vectors, strict=True))
        return hard_threshold(total, self.recipe.sparsity, self.kept).astype(vectors[0].dtype)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nothing: an accuracy on the clients' records would be one more release."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing."""
        return None

    def summary(self) -> None:
        """Log nothing more."""


def server_app(
    strategy: HardThresholdAveraging | Callable[[Context], HardThresholdAveraging],
    start: Weights | Callable[[Context], Weights],
    *,
    evaluate: Evaluate | None = None,
    done: Callable[[FederatedResult], None] | None = None,
    timeout: float = 3600.0,
) -> ServerApp:
    """Return the ServerApp of a run with noise at the clients.

    Parameters
    ----------
    strategy : the strategy, or a function that builds it from Flower's context.
    start : the public initial weights, or a function of the context.
    evaluate : ``evaluate(round, weights)`` on *public* data; the history keeps what it returns.
    done : is given the result.
    timeout : how many seconds a round may take.
    """
    app = ServerApp()

    def on_arrays(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        found = None if evaluate is None else evaluate(server_round, arrays["weights"].numpy())
        return None if found is None else MetricRecord(dict(found))

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        chosen = strategy(context) if callable(strategy) else strategy
        first = start(context) if callable(start) else start
        result = chosen.start(
            grid,
            record_of(first),
            num_rounds=chosen.recipe.rounds,
            timeout=timeout,
            evaluate_fn=None if evaluate is None else on_arrays,
        )
        farewell(grid, chosen.clients)
        history = {r: dict(m) for r, m in result.evaluate_metrics_serverapp.items()}
        if done is not None:
            done(FederatedResult(result.arrays["weights"].numpy(), chosen.privacy, history))

    return app


def farewell(grid: Grid, clients: int, timeout: float = 60.0) -> None:
    """Tell the clients that the run is over, so that they settle; one that is gone does so later."""
    nodes = list(grid.get_node_ids())[:clients]
    messages = [Message(RecordDict(), node, "query.close") for node in nodes]
    list(grid.send_and_receive(messages, timeout=timeout))


def waited_for(grid: Grid, clients: int, patience: float) -> list[int]:
    """Return the nodes once as many are there; more of them than planned are refused."""
    deadline = time.monotonic() + patience
    while len(nodes := sorted(set(grid.get_node_ids()))) < clients:
        if time.monotonic() > deadline:
            raise PlanError(
                f"Expected {clients} clients, {len(nodes)} are connected after {patience:g} s. Start the "
                "others, or plan for fewer."
            )
        time.sleep(0.2)
    if len(nodes) > clients:
        raise PlanError(f"Expected {clients} clients, {len(nodes)} are connected. Plan for all of them.")
    return nodes
