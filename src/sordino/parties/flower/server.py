"""Servers of a federation: with noise at the clients, or at the server, which is another mechanism.

Noise per client: each client sends the plain result of its local steps, the *server* clips the whole update
and adds the noise. It protects which clients took part, and everything they hold, against those who see the
model; it protects nothing from the server.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel import Batch, Curator, Full, Gaussian, Offer, Plan, Poisson, Question, Release
from sordino.kernel.arrays import Floats
from sordino.kernel.query import ClientUpdates, check_clip
from sordino.parties.flower.client import CLIENT_LEVEL, RECORD_LEVEL, record_of
from sordino.parties.flower.models import AdaptiveSum, FederatedRecipe, UpdateSum, Weights, fits
from sordino.parties.words import show
from sordino.runs import Ask, Task, run
from sordino.runs.report import Fact
from sordino.solvers.steps import hard_threshold
from sordino.values import check_range

Evaluate = Callable[[int, Weights], dict[str, float] | None]
ADAPTATION = 0.2  # how fast a clip follows its quantile: that of Andrew et al. 2021 on six data sets

# What clients send back, checked before it is used: one answer per client and round, of the right shape.


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
    """Return the answers of this round by client; who answers twice, or was not asked, has none."""
    mine = [m for m in replies if m.metadata.group_id == group]
    times = Counter(m.metadata.src_node_id for m in mine)
    wanted = [node for node in dict.fromkeys(asked) if times[node] == 1]
    found = {m.metadata.src_node_id: m for m in mine if not m.has_error()}
    return {node: found[node] for node in wanted if node in found}


def stated_number(facts: object, name: str, high: float, node: int) -> float:
    """Return a number of what a client says of itself, or refuse one that cannot be."""
    low = 1.0 if name == "num-examples" else 0.0
    try:
        found = float(facts[name])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, OverflowError):
        found = math.nan
    if not low <= found <= high:
        what = "no number of records" if low else "a guarantee that is none"
        raise PlanError(f"Node {node} states {what}: expected {name} in [{low:g}, {high:g}].")
    return found


@dataclass(frozen=True)
class FederatedPrivacy:
    """What a run guarantees to a record: that of the client with the weakest guarantee.

    A record lives at one client; to all others its influence is a post-processing of what that client
    released. So (epsilon, delta) is the maximum over clients (parallel composition). With shared noise the
    unit is a client, and all of them have booked the same.

    **Privacy.** Assumed: no record is held by two clients. The numbers are what the clients said of
    themselves; each client's own ledger is what enforces them.
    """

    clients: dict[int, tuple[float, float]]
    seeded: bool = False
    unit: str = "record"

    @property
    def epsilon(self) -> float:
        return max((epsilon for epsilon, _ in self.clients.values()), default=float("inf"))

    @property
    def delta(self) -> float:
        return max((delta for _, delta in self.clients.values()), default=1.0)


@dataclass(frozen=True, eq=False)
class FederatedResult:
    """The model after the last round, the guarantee, and what was evaluated on public data."""

    weights: Weights
    privacy: Any
    history: dict[int, dict[str, float]] = field(default_factory=dict)


@dataclass(eq=False)
class HardThresholdAveraging:
    """DP-FedSGD-HT, DP-FedGD-HT and FedSGD-HT: ``w <- H_k(sum_i p_i w_i)``.

    Which of them it is the clients decide: by the recipe's batches and by their own budgets.

    Parameters
    ----------
    recipe : what the members agreed on.
    clients : the number of clients to wait for; all of them are asked in each round.
    weighting : ``"size"`` for p_i = n_i / n (the n_i are public here), ``"equal"`` for 1 / clients.
    least : how many answers make a round. By default all: a client that fails stops the run; with fewer
        the round goes on with those who answered, their weights adding up to one. Shared noise has its own.
    patience : how many seconds to wait for clients to appear.
    kept : the number of trailing weights that are never thresholded (1 for an intercept).

    **Privacy.** The server adds nothing and is not trusted with records: see :class:`FederatedClient`. No
    amplification by choosing clients is claimed.
    """

    recipe: FederatedRecipe
    clients: int
    _: KW_ONLY
    weighting: str = "size"
    least: int = 0
    patience: float = 600.0
    kept: int = 0
    _said: dict[int, tuple[float, float]] = field(default_factory=dict, init=False)
    _seeded: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.weighting not in ("size", "equal"):
            raise InvalidInputError(f"Expected weighting 'size' or 'equal', got {self.weighting!r}.")
        shared = self.recipe.shared
        self.least = (self.least or self.clients) if shared is None else shared.least

    @property
    def privacy(self) -> FederatedPrivacy:
        unit = "record" if self.recipe.shared is None else "client"
        return FederatedPrivacy(dict(self._said), self._seeded, unit)

    def note(self, node: int, facts: Any) -> None:
        """Keep the weakest guarantee that a client has stated in any round."""
        epsilon, delta = self._said.get(node, (0.0, 0.0))
        epsilon = max(epsilon, stated_number(facts, "epsilon", math.inf, node))
        self._said[node] = epsilon, max(delta, stated_number(facts, "delta", 1.0, node))
        self._seeded |= bool(facts.get("seeded", 1))

    def _ask(self, grid: Grid, number: int, weights: Weights, timeout: float | None) -> Weights:
        """Ask all clients in a round and return the average of those who answered."""
        nodes = wait_for(grid, self.clients, self.patience)
        good, bad = ask_clients(grid, self.recipe, RECORD_LEVEL, weights, nodes, number, timeout)
        if len(good) < self.least:
            reasons = "; ".join(f"node {node}: {show(reason, 300)}" for node, reason in bad.items())
            raise PlanError(
                f"Round {number}: {len(good)} clients answered once with finite weights of shape "
                f"{weights.shape}, {self.least} are needed. {reasons or 'Time is up.'}"
            )
        sizes, by_size = [], self.weighting == "size"
        for node, (message, _) in good.items():
            facts = message.content.metric_records.get("metrics", {})
            self.note(node, facts)
            sizes.append(stated_number(facts, "num-examples", 2.0**53, node) if by_size else 1.0)
        return self.average([w for _, w in good.values()], np.array(sizes) / sum(sizes))

    def average(self, vectors: list[Weights], shares: Weights) -> Weights:
        total = sum(p * v.astype(np.float64) for p, v in zip(shares, vectors, strict=True))
        return hard_threshold(total, self.recipe.sparsity, self.kept).astype(vectors[0].dtype)

    def federate(
        self,
        grid: Grid,
        context: Context,
        start: Weights,
        evaluate: Evaluate | None,
        timeout: float | None,
        ask: Callable[[Grid, int, Weights, float | None], Weights] | None = None,
    ) -> FederatedResult:
        weights, history = start, {}
        for number in range(self.recipe.rounds + 1):
            weights = (ask or self._ask)(grid, number, weights, timeout) if number else start
            # On public data at the server: an accuracy on the clients' records would be one more release.
            found = None if evaluate is None else evaluate(number, weights)
            history.update({} if found is None else {number: dict(found)})
        return FederatedResult(weights, self.privacy, history)


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
        return len(self.nodes)

    def total(self, question: Question, batch: Batch) -> Floats:
        """Ask the drawn clients and return the exact sum of their clipped updates."""
        rows = batch.rows(self.population)
        chosen = self.nodes if rows is None else [self.nodes[i] for i in rows]
        weights = question.params[0] if isinstance(question.params, tuple) else question.params
        number, grid = question.position + 1, self.grid
        good, _ = ask_clients(grid, self.recipe, CLIENT_LEVEL, weights, chosen, number, self.timeout)
        return np.asarray(question.summed([update for _, update in good.values()]))


@dataclass(frozen=True)
class ClientLevelHardThresholding:
    """``w <- H_k(w + (sum of clipped updates + noise) / expected number of clients)``.

    Parameters
    ----------
    recipe : rounds, local steps and sparsity; its clip is the one of the clients' gradients and has no part
        in the guarantee.
    clients : the public number of clients.
    update_clip : the norm to which the update of a client is clipped, or the first one with ``within``.
    within : the share of updates that the clip should leave as they are. The clip then follows it, by a count
        that is part of each answer: :class:`AdaptiveSum`.
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
    within: float | None = None

    def __post_init__(self) -> None:
        check_clip(self.update_clip)
        if self.within is not None:
            check_range("within", self.within, "(0, 1)")
        if not 0 < self.share <= 1:
            raise InvalidInputError(f"Expected a share of clients in (0, 1], got {self.share}.")

    def plan(self, start: Weights) -> Plan:
        sampling = Full() if self.share == 1 else Poisson(self.share)
        query = UpdateSum if self.within is None else AdaptiveSum
        release = Release(query(self.update_clip), Gaussian(), sampling, self.recipe.rounds)
        return Plan({"update": release}, self.recipe.relation, self.clients, unit="client")

    def run(self, curator: Curator, start: Weights) -> Iterator[Weights]:
        w, clip = np.asarray(start, dtype=np.float64), self.update_clip
        for _ in range(self.recipe.rounds):
            if self.within is None:
                moved = w + curator.release("update", w)
            else:
                *update, count = curator.release("update", (w, clip))
                moved = w + np.reshape(update, w.shape)
                found = min(1.0, max(0.0, 0.5 + 4 * count / clip))  # the share that was within the clip
                clip *= math.exp(-ADAPTATION * (found - self.within))
            w = hard_threshold(moved, self.recipe.sparsity, self.kept).astype(start.dtype).astype(np.float64)
            yield w

    def federate(
        self, grid: Grid, context: Context, start: Weights, evaluate: Evaluate | None, timeout: float | None
    ) -> FederatedResult:
        budget = Ask.checked(self.epsilon, self.delta, self.clients, self.ledger, self.dataset_id)
        nodes, n = tuple(wait_for(grid, self.clients, self.patience)), self.clients
        executor = FederationExecutor(grid, nodes, self.recipe, self.timeout)
        task = Task(
            self,
            start,
            f"client-level {self.recipe.algorithm(private=False)}",
            public=(Fact(f"number of clients: {n}", units=n), "the recipe and the model's shape"),
            notes=("noise at the server, which is trusted; nothing is promised for single records",),
            finish=lambda last: np.asarray(last, dtype=start.dtype),
        )
        fitted = run(task, executor, budget)
        return FederatedResult(fitted.result, fitted.report)


def server_app(
    strategy: Any,
    start: Weights | Callable[[Context], Weights],
    *,
    evaluate: Evaluate | None = None,
    done: Callable[[FederatedResult], None] | None = None,
    timeout: float | None = None,
) -> ServerApp:
    """Return the ServerApp of a run.

    Parameters
    ----------
    strategy : :class:`HardThresholdAveraging`, :class:`ClientLevelHardThresholding` (whose clients need
        ``protection="client"``), or a function that builds one from Flower's context.
    start : the public initial weights, or a function of the context.
    evaluate : ``evaluate(round, weights)`` on *public* data, of averaging; the history keeps what it returns.
    done : is given the result.
    timeout : how many seconds a round may take, by default an hour.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        chosen = strategy(context) if callable(strategy) else strategy
        first = np.asarray(start(context) if callable(start) else start)
        result = chosen.federate(grid, context, first, evaluate, timeout)
        # The run is over, so that clients settle; one that is gone does so later.
        nodes = list(grid.get_node_ids())[: chosen.clients]
        list(grid.send_and_receive([Message(RecordDict(), n, "query.close") for n in nodes], timeout=60.0))
        if done is not None:
            done(result)

    return app


def ask_clients(
    grid: Grid,
    recipe: FederatedRecipe,
    protection: str,
    weights: Weights,
    nodes: Sequence[int],
    number: int,
    timeout: float | None,
) -> tuple[dict[int, tuple[Message, Weights]], dict[int, str]]:
    """Send weights to clients; return by client who answered once with weights that fit, and who did not."""
    said = ConfigRecord({"recipe": recipe.digest, "protection": protection})
    content = RecordDict({"arrays": record_of(weights), "config": said})
    messages = [Message(content, node, MessageType.TRAIN, group_id=str(number)) for node in nodes]
    replies = list(grid.send_and_receive(messages, timeout=3600.0 if timeout is None else timeout))
    found = {n: (m, weights_of(m, weights.shape)) for n, m in one_each(replies, nodes, str(number)).items()}
    good = {node: (m, w) for node, (m, w) in sorted(found.items()) if w is not None}
    bad = {m.metadata.src_node_id: m.error.reason for m in replies if m.has_error()}
    return good, bad | {node: "its weights do not fit" for node in found if node not in good}


def wait_for(grid: Grid, clients: int, patience: float) -> list[int]:
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
