"""Secure aggregation: the server learns the average of the clients' weights, not those of one client.

Flower 1.41 has SecAgg+ only in its older workflow, so these apps speak that dialect. The guarantee of the
records is that of the local noise, as without it: SecAgg+ hides single clients from a curious server, it
replaces no noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext, SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp import Grid, ServerApp

from sordino.errors import PlanError
from sordino.parties.flower.client import RECORD_LEVEL, FederatedClient, fits, guard, register_close
from sordino.parties.flower.models import Weights
from sordino.parties.flower.server import (
    Evaluate,
    FederatedResult,
    HardThresholdAveraging,
    server_app,
    wait_for,
)


def secure_client_app(make: Callable[[Context], FederatedClient]) -> ClientApp:
    """Return the ClientApp of a member that shows the server only masked weights; see :func:`client_app`."""
    app = ClientApp()

    @app.train(mods=[secaggplus_mod])
    def train(message: Message, context: Context) -> Message:
        return guard(lambda: _answer(make(context), message, context))

    register_close(app, make)
    return app


def _answer(client: FederatedClient, message: Message, context: Context) -> Message:
    asked = compat.recorddict_to_fitins(message.content, keep_input=True)
    client.require(asked.config)
    received = parameters_to_ndarrays(asked.parameters)[0]
    weights, report = client.round(str(context.run_id), received)
    share = client.population if asked.config["weighting"] == "size" else 1
    facts: dict[str, Any] = dict(client.facts(report))
    parameters = ndarrays_to_parameters([weights])
    result = FitRes(Status(Code.OK, ""), parameters, share, facts)
    return Message(compat.fitres_to_recorddict(result, keep_input=False), reply_to=message)


def secure_server_app(
    strategy: HardThresholdAveraging | Callable[[Context], HardThresholdAveraging],
    start: Weights | Callable[[Context], Weights],
    *,
    largest: int,
    weight_bound: float = 8.0,
    threshold: float = 0.67,
    evaluate: Evaluate | None = None,
    done: Callable[[FederatedResult], None] | None = None,
    timeout: float | None = None,
) -> ServerApp:
    """Return the ServerApp of a run whose rounds are aggregated by SecAgg+.

    Parameters
    ----------
    strategy, start, evaluate, done, timeout : see :func:`server_app`.
    largest : a public bound on the number of records of a client.
    weight_bound : weights are cut to ``[-weight_bound, weight_bound]`` and rounded to a grid of 2^22 points.
    threshold : the share of clients that can together unmask a client that has dropped out.

    **Privacy.** That of the clients, as without SecAgg+.
    """

    def build(context: Context) -> _Masked:
        chosen = strategy(context) if callable(strategy) else strategy
        protocol = SecAggPlusWorkflow(
            num_shares=1.0,
            reconstruction_threshold=threshold,
            max_weight=float(largest if chosen.weighting == "size" else 1),
            clipping_range=weight_bound,
            timeout=timeout,
        )
        return _Masked(chosen, protocol)

    return server_app(build, start, evaluate=evaluate, done=done)


class _Masked(FedAvg):
    """The averaging as the older workflow wants it: it is handed the average, and thresholds it."""

    def __init__(self, chosen: HardThresholdAveraging, protocol: SecAggPlusWorkflow) -> None:
        super().__init__()
        self._chosen, self._protocol, self.clients = chosen, protocol, chosen.clients
        self._weights: Weights = np.zeros(0)
        self._done = 0

    def federate(
        self, grid: Grid, context: Context, start: Weights, evaluate: Evaluate | None, timeout: float | None
    ) -> FederatedResult:
        """Run all rounds, four stages each; the workflow only logs that it gave up, this raises."""
        manager, history, self._weights = SimpleClientManager(), {}, start
        for node in wait_for(grid, self.clients, self._chosen.patience):
            manager.register(GridClientProxy(node, grid, context.run_id))
        legacy = LegacyContext(context, None, self, manager)
        for server_round in range(1, self._chosen.recipe.rounds + 1):
            parameters = compat.parameters_to_arrayrecord(ndarrays_to_parameters([self._weights]), True)
            legacy.state.array_records[MAIN_PARAMS_RECORD] = parameters
            legacy.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: server_round})
            self._protocol(grid, legacy)
            if self._done < server_round:
                raise PlanError(
                    f"Round {server_round}: secure aggregation was given up, too few clients answered. See "
                    "the logs of server and clients."
                )
            found = None if evaluate is None else evaluate(server_round, self._weights)
            history.update({} if found is None else {server_round: dict(found)})
        return FederatedResult(self._weights, self._chosen.privacy, history)

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        said = {"recipe": self._chosen.recipe.digest, "protection": RECORD_LEVEL}
        asked = FitIns(parameters, {**said, "weighting": self._chosen.weighting})
        return [(proxy, asked) for proxy in client_manager.all().values()]

    def aggregate_fit(self, server_round: int, results: list[Any], failures: list[Any]) -> tuple[Any, Any]:
        """Threshold the average, which every result carries; the workflow has removed the masks."""
        if len({proxy.node_id for proxy, _ in results}) < self._chosen.least:
            return None, {}
        for proxy, result in results:
            self._chosen.note(proxy.node_id, result.metrics)
        mean, *more = parameters_to_ndarrays(results[0][1].parameters)
        if more or not fits(mean, self._weights.shape):
            raise PlanError(f"Round {server_round}: expected finite weights of shape {self._weights.shape}.")
        self._weights = self._chosen.average([mean.astype(self._weights.dtype)], np.ones(1))
        self._done = server_round
        return None, {}
