"""Where parameters enter a model: read off the graph that autograd keeps, operation by operation.

No list of layers is needed: whatever a model calls (layers, functions, attention, adapters), autograd notes
one node for each operation, with an edge to each parameter that goes in. From a parameter the edges are
followed up to the first operation whose output holds the records apart. What lies between is a function of
parameters alone (a transpose, a slice, a cast, an exponential).

Which axis of an output holds the records is found once, on made-up records: the loss of one record has a
gradient only in that record's part.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

_NONE = -1  # what has no gradient


@dataclass(frozen=True)
class Layout:
    """The axis of a tensor that holds the records; ``major`` and ``minor`` if they share it with places."""

    axis: int
    part: str = ""

    def records(self, values: Tensor, batch: int) -> Tensor:
        """Return the tensor with the records in front."""
        if not self.part:
            return values.movedim(self.axis, 0) if self.axis else values
        major = self.part == "major"
        apart = values.unflatten(self.axis, (batch, -1) if major else (-1, batch))
        return apart.movedim(self.axis + (not major), 0)


@dataclass(frozen=True)
class Step:
    """A node that holds no records, between a parameter and its use: its output, and the input followed."""

    node: int
    output: int
    slot: int


@dataclass(frozen=True)
class Use:
    """A parameter entering an operation on records; ``path`` leads from there down to the parameter."""

    name: str
    path: tuple[Step, ...]
    node: int
    slot: int
    layout: Layout


Routes: TypeAlias = tuple[tuple[Use, ...], dict[str, str]]
"""All uses of the parameters, and why some have none that is known."""


@dataclass(eq=False)
class Graph:
    """The nodes of one forward pass, in a fixed order, and what goes into each: (node, its output)."""

    nodes: list[Any]
    inputs: tuple[tuple[tuple[int, int], ...], ...]
    leaves: dict[str, int]
    signature: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.signature = tuple([type(node).__name__ for node in self.nodes])

    @cached_property
    def form(self) -> Hashable:
        """What two graphs share that use the same parameters by the same operations in the same order."""
        return self.signature, self.inputs, tuple(self.leaves.items())

    @cached_property
    def consumers(self) -> dict[int, list[tuple[int, int, int]]]:
        """Who consumes each node: (consumer, its input, the node's output)."""
        found: dict[int, list[tuple[int, int, int]]] = {}
        for at, inputs in enumerate(self.inputs):
            for slot, (child, output) in enumerate(inputs):
                found.setdefault(child, []).append((at, slot, output))
        found.pop(_NONE, None)
        return found

    def shape(self, node: int, slot: int) -> torch.Size:
        """Return the shape of an input of a node."""
        child, output = self.nodes[node].next_functions[slot]
        if hasattr(child, "variable"):
            return torch.Size(child.variable.shape)
        return torch.Size(child._input_metadata[output].shape)


def read_graph(root: Any, params: dict[str, Tensor]) -> Graph:
    """Walk from the loss to the parameters."""
    owners = {id(value): name for name, value in params.items()}
    nodes, numbers, leaves = [root], {root: 0, None: _NONE}, dict[str, int]()
    inputs = list[tuple[tuple[int, int], ...]]()
    for at, node in enumerate(nodes):  # grows while it is read
        found = node.next_functions
        for child, _ in found:
            if child not in numbers:
                numbers[child] = len(nodes)
                nodes.append(child)
        inputs.append(tuple([(numbers[child], output) for child, output in found]))
        if not found and (name := owners.get(id(getattr(node, "variable", None)))) is not None:
            leaves[name] = at
    return Graph(nodes, tuple(inputs), leaves)


def find_layouts(graph: Graph, losses: Tensor) -> list[Layout | None]:
    """Return where each node's output holds the records; None if it does not hold them apart."""
    batch, seen, possible = len(losses), set[int](), dict[int, list[Layout]]()
    for at, node in enumerate(graph.nodes):  # the axes of a parameter hold no records
        shape = () if hasattr(node, "variable") else tuple(node._input_metadata[0].shape)
        axes = [Layout(axis) for axis, size in enumerate(shape) if size == batch]
        parts = [axis for axis, size in enumerate(shape) if size > batch and size % batch == 0]
        axes += [Layout(axis, part) for axis in parts for part in ("major", "minor")]
        if axes:
            possible[at] = axes
    edges = [GradientEdge(graph.nodes[at], 0) for at in possible]
    for j in range(batch):
        slopes = torch.autograd.grad(losses[j], edges, retain_graph=True, allow_unused=True)
        for at, slope in zip(possible, slopes, strict=True):
            if slope is not None and bool((nonzero := slope != 0).any()):
                seen.add(at)
                apart = [(one, one.records(nonzero, batch)) for one in possible[at]]
                possible[at] = [one for one, v in apart if int(v.sum()) == int(v[j].sum())]
    found_at = {at: found[0] for at, found in possible.items() if at in seen and found}
    return [found_at.get(at) for at in range(len(graph.nodes))]


def find_routes(graph: Graph, layouts: list[Layout | None], known: Any) -> Routes:
    """Follow each parameter up to the operations that use it on records."""
    uses, unknown = list[Use](), dict[str, str]()
    for name, leaf in graph.leaves.items():
        found = list(_follow(graph, layouts, name, leaf, None, ()))
        odd = [use for use in found if use is None or not known(graph, use)]
        if not odd and found:
            uses += [use for use in found if use is not None]
        else:
            first = odd[0] if odd else None
            unknown[name] = "mixing records" if first is None else graph.signature[first.node]
    return tuple(uses), unknown


def _follow(
    graph: Graph, layouts: list[Layout | None], name: str, at: int, slot: int | None, below: tuple[Step, ...]
) -> Iterator[Use | None]:
    for consumer, its_slot, output in graph.consumers.get(at, []):
        path = below if slot is None else (Step(at, output, slot), *below)
        layout = layouts[consumer]
        if layout is not None:
            yield Use(name, path, consumer, its_slot, layout)
        elif consumer == 0:  # the loss itself: nowhere were the records apart
            yield None
        else:
            yield from _follow(graph, layouts, name, consumer, its_slot, path)


def pull_back(graph: Graph, path: tuple[Step, ...], value: Tensor) -> Tensor:
    """Return the gradient at the parameter from that at the end of its path."""
    for step in path:
        node = graph.nodes[step.node]
        outputs: list[Any] = [None] * len(node._input_metadata)
        outputs[step.output] = value
        inputs = node(*outputs)
        value = inputs[step.slot] if isinstance(inputs, tuple) else inputs
        # nodes leave the sum over axes along which something was spread to autograd
        value = value.sum_to_size(graph.shape(step.node, step.slot))
    return value
