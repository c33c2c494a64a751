"""Secure aggregation: the server learns a sum over clients, not what one of them sends.

Flower 1.41 has SecAgg+ only in its older workflow, so these apps speak that dialect, with two changes: masks
come from all bits of a seed (Flower's from 32, which can be tried one after the other: its issue 7522), and
a number travels in the bits of the modulus (Flower's in 64). Clients add noise per record as without masks,
or per client in parts (:class:`SharedNoise`), which rests on them.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import Code as Done
from flwr.common import FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, RECORD_KEY_STATE
from flwr.common.secure_aggregation.secaggplus_constants import Key as Word
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp import Grid, ServerApp

from sordino.errors import PlanError
from sordino.kernel.arrays import Ints
from sordino.parties.flower.client import CLIENT_LEVEL, RECORD_LEVEL, FederatedClient, guard, register_close
from sordino.parties.flower.models import Weights, fits
from sordino.parties.flower.server import (
    Evaluate,
    FederatedResult,
    HardThresholdAveraging,
    server_app,
    wait_for,
)
from sordino.parties.words import Code, PlanRefusedError

_FLOWER = [sys.modules[part.__module__] for part in (secaggplus_mod, SecAggPlusWorkflow)]


def masks(seed: bytes, modulus: int, shapes: list[tuple[int, ...]]) -> list[Ints]:
    """Expand a seed to uniform numbers below a modulus, a power of two of at most 32 bits."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    words = np.frombuffer(hashlib.shake_256(seed).digest(4 * int(ends[-1])), dtype="<u4")
    parts = np.split(words.astype(np.int64) & (modulus - 1), ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def pack(values: Ints, bits: int) -> bytes:
    """Write numbers of so many bits, eight at least, one after the other."""
    return np.packbits((values.reshape(-1, 1) >> np.arange(bits) & 1).astype(np.uint8)).tobytes()


def unpack(raw: bytes, bits: int) -> Ints:
    each = np.unpackbits(np.frombuffer(raw, np.uint8)).astype(np.int64)
    return np.asarray(each[: each.size // bits * bits].reshape(-1, bits) @ (1 << np.arange(bits)))


@contextmanager
def changed_protocol(modulus: int) -> Iterator[None]:
    """Let SecAgg+ use these masks, and send as many bits of a number as the modulus has."""
    bits = modulus.bit_length() - 1
    packs = [("ndarray_to_bytes", partial(pack, bits=bits)), ("bytes_to_ndarray", partial(unpack, bits=bits))]
    changes = [(module, *one) for module, p in zip(_FLOWER, packs) for one in (p, ("pseudo_rand_gen", masks))]
    before = [getattr(module, name) for module, name, _ in changes]  # fails where Flower has them no more
    try:
        for module, name, work in changes:
            setattr(module, name, work)
        yield
    finally:
        for (module, name, _), old in zip(changes, before):
            setattr(module, name, old)


def secure_client_app(make: Callable[[Context], FederatedClient]) -> ClientApp:
    """Return the ClientApp of a member that shows the server only masked numbers; see :func:`client_app`."""
    app = ClientApp()

    @app.train(mods=[_mask])
    def train(message: Message, context: Context) -> Message:
        return guard(lambda: _answer(make(context), message, context))

    register_close(app, make)
    return app


def _mask(message: Message, context: Context, call_next: Any) -> Message:
    """Take the next step of SecAgg+; refuse to give both secrets of a client away, or one of them twice."""
    asked = message.content.config_records[RECORD_KEY_CONFIGS]
    named = [n for word in (Word.ACTIVE_NODE_ID_LIST, Word.DEAD_NODE_ID_LIST) for n in asked.get(word, [])]
    if len(set(named)) < len(named):
        raise PlanError("The server asks for two secrets of one client. Nothing is sent.")
    state: Any = context.state.config_records.get(RECORD_KEY_STATE, {})
    with changed_protocol(state.get("mod_range", 2)):
        return secaggplus_mod(message, context, call_next)


def _answer(client: FederatedClient, message: Message, context: Context) -> Message:
    asked = compat.recorddict_to_fitins(message.content, keep_input=True)
    client.require(asked.config)
    received, shared = parameters_to_ndarrays(asked.parameters)[0], client.recipe.shared
    if shared is not None:
        state: Any = context.state.config_records[RECORD_KEY_STATE]
        said = [state[name] for name in ("clipping_range", "target_range", "mod_range")]
        agreed = [*shared.grid(client.recipe, received.size)[1].values()]
        if said != agreed or min(state["threshold"], len(state["public_keys_dict:K"])) < shared.least:
            raise PlanRefusedError("The server masks otherwise than was agreed on.", Code.RECIPE)
    sent, report = client.round(str(context.run_id), received)
    share = client.population if shared is None and asked.config["weighting"] == "size" else 1
    facts: dict[str, Any] = dict(client.facts(report))
    result = FitRes(Status(Done.OK, ""), ndarrays_to_parameters([sent]), share, facts)
    return Message(compat.fitres_to_recorddict(result, keep_input=False), reply_to=message)


def secure_server_app(
    strategy: HardThresholdAveraging | Callable[[Context], HardThresholdAveraging],
    start: Weights | Callable[[Context], Weights],
    *,
    largest: int = 1,
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
    largest : a public bound on the number of records of a client, where those weigh the clients.
    weight_bound : weights are cut to ``[-weight_bound, weight_bound]`` and rounded to a grid of 2^22 points.
    threshold : the share of clients that can together unmask a client that has dropped out.

    With :class:`SharedNoise` in the recipe it has the grid and the threshold, and clients weigh the same.

    **Privacy.** That of the clients: per record as without SecAgg+, or per client with shared noise, against
    a server that keeps to the protocol.
    """

    def build(context: Context) -> _Masked:
        chosen = strategy(context) if callable(strategy) else strategy
        most = float(largest if chosen.weighting == "size" else 1)
        how = {"reconstruction_threshold": threshold, "clipping_range": weight_bound, "max_weight": most}
        return _Masked(chosen, {**how, "timeout": timeout})

    return server_app(build, start, evaluate=evaluate, done=done)


class _Masked:
    """The averaging as the older workflow wants it: it is handed the average, and thresholds it."""

    def __init__(self, chosen: HardThresholdAveraging, how: dict[str, Any]) -> None:
        self._chosen, self._how, self.clients = chosen, how, chosen.clients
        self._weights: Weights = np.zeros(0)
        self._nodes: list[int] = []
        self._done, self._spacing = 0, 1.0

    def federate(
        self, grid: Grid, context: Context, start: Weights, evaluate: Evaluate | None, timeout: float | None
    ) -> FederatedResult:
        recipe, shared = self._chosen.recipe, self._chosen.recipe.shared
        if shared is not None:
            self._spacing, how = shared.grid(recipe, start.size)
            self._how |= {**how, "reconstruction_threshold": shared.least, "max_weight": 1.0}
        protocol, workflow = SecAggPlusWorkflow(num_shares=1.0, **self._how), cast(Any, self)
        legacy = LegacyContext(context, None, workflow)

        def ask(grid: Grid, number: int, weights: Weights, timeout: float | None) -> Weights:
            self._weights, self._nodes = weights, wait_for(grid, self.clients, self._chosen.patience)
            parameters = compat.parameters_to_arrayrecord(ndarrays_to_parameters([weights]), True)
            legacy.state.array_records[MAIN_PARAMS_RECORD] = parameters
            legacy.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: number})
            with changed_protocol(protocol.modulus_range):
                protocol(grid, legacy)
            if self._done < number:  # the workflow only logs that it gave up
                raise PlanError(
                    f"Round {number}: secure aggregation was given up, too few clients answered. See the "
                    "logs of server and clients."
                )
            return self._weights

        return self._chosen.federate(grid, context, start, evaluate, timeout, ask)

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
        level = RECORD_LEVEL if self._chosen.recipe.shared is None else CLIENT_LEVEL
        said = {"recipe": self._chosen.recipe.digest, "protection": level}
        asked = FitIns(parameters, {**said, "weighting": self._chosen.weighting})
        return [(SimpleNamespace(node_id=node), asked) for node in self._nodes]

    def aggregate_fit(self, server_round: int, results: list[Any], failures: list[Any]) -> tuple[Any, Any]:
        """Threshold the average, which every result carries; the workflow has removed the masks."""
        count, shape = len({proxy.node_id for proxy, _ in results}), self._weights.shape
        if count < self._chosen.least:
            return None, {}
        for proxy, result in results:
            self._chosen.note(proxy.node_id, result.metrics)
        mean, *more = parameters_to_ndarrays(results[0][1].parameters)
        if more or mean.size != self._weights.size or not fits(mean := mean.reshape(shape), shape):
            raise PlanError(f"Round {server_round}: expected finite weights of shape {shape}.")
        if self._chosen.recipe.shared is not None:
            mean = self._weights + self._spacing * mean
        self._weights = self._chosen.average([mean.astype(self._weights.dtype)], np.ones(1))
        self._done = server_round
        return None, {}
