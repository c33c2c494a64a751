"""A whole federation in one process, without Ray: the same apps, messages handed over in memory."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.task_identity import TaskIdentity


class InProcessGrid(Grid):
    """Hands each message to the client's app at once; ``nodes`` are what ``--node-config`` would give."""

    def __init__(
        self,
        app: ClientApp,
        nodes: Sequence[Mapping[str, Any]],
        run_config: Mapping[str, Any] | None = None,
        run_id: int = 1,
    ) -> None:
        self._app, self._answers, self._ids = app, {}, itertools.count(1)  # type: ignore[var-annotated]
        self._run: Any = SimpleNamespace(run_id=run_id)
        self._contexts = {
            node: Context(run_id, node, dict(config), RecordDict(), dict(run_config or {}))
            for node, config in enumerate(nodes, start=1)
        }

    def set_run(self, run: Any) -> None:
        self._run = run

    @property
    def run(self) -> Any:
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = []
        for message in messages:
            name = f"message-{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = name  # what the superlink does
            self._answers[name] = self._answer(message)
            pushed.append(name)
        return pushed

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._answers.pop(name) for name in message_ids if name in self._answers]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        try:
            message = copy.deepcopy(message)  # as on the way: nobody changes what another one holds
            return self._app(message, self._contexts[message.metadata.dst_node_id])
        except Exception as error:  # as a supernode does: the server hears of it
            reason = f"{type(error)}:<'{error}'>"
            return Message(Error(code=2, reason=reason), reply_to=message)


def simulate(
    server: ServerApp,
    client: ClientApp,
    nodes: Sequence[Mapping[str, Any]],
    run_config: Mapping[str, Any] | None = None,
    run_id: int = 1,
) -> None:
    """Run a federation in this process: one configuration per member; each ``run_id`` has its budget."""
    grid = InProcessGrid(client, nodes, run_config, run_id)
    with server_identity(run_id):
        server(grid, Context(run_id, 0, {}, RecordDict(), dict(run_config or {})))


@contextmanager
def server_identity(run_id: int = 1) -> Iterator[None]:
    """Let this process make messages of a server: elsewhere Flower's launcher says who it is."""
    names = ("_task_id", "_run_id", "_node_id")
    before = {name: getattr(TaskIdentity, name) for name in names}
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 0, run_id, 0
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(TaskIdentity, name, value)
