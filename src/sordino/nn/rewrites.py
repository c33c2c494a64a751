"""What is changed in a traced graph before a compiler for a GPU sees it: order of axes, and sums twice."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

_aten = torch.ops.aten
_PURE = (_aten.mul.Tensor, _aten.sum.dim_IntList)


def _group_norm_backward(
    slope: Tensor, images: Tensor, means: Tensor, scales: Tensor, gamma: Tensor | None,
    count: int, channels: int, places: int, groups: int, asked: list[bool],
) -> Any:  # fmt: skip
    """Return the slope of a group norm, in the shape of the images from beginning to end.

    Taken apart by groups, as torch does it, a compiler writes it in the order of the groups and turns it.
    """
    if asked != [True, False, False] or images.dtype != torch.float32 or images.dim() < 3:
        return NotImplemented
    each, over = channels // groups, list(range(2, images.dim()))
    both, alone = (slope * images).sum(over), slope.sum(over)  # (records, channels)
    weight = torch.ones_like(both[:1]) if gamma is None else gamma[None]

    def of_group(values: Tensor) -> Tensor:
        return (values * weight).reshape(count, groups, each).sum(2)

    def to_images(values: Tensor) -> Tensor:
        spread = values[:, :, None].expand(count, groups, each).reshape(count, channels)
        return spread.reshape(count, channels, *[1] * len(over))

    second = (of_group(alone) * means - of_group(both)) * scales**3 / (places * each)
    third = -second * means - of_group(alone) * scales / (places * each)
    first = to_images(scales) * weight.reshape(1, channels, *[1] * len(over))
    return slope * first + images * to_images(second) + to_images(third), None, None


IN_PARTS: dict[Any, Any] = {_aten.native_group_norm_backward.default: _group_norm_backward}


def computed_once(graph: GraphModule) -> int:
    """Take the first of equal products and sums for all of them; return how many were left out.

    Gradients of group norms, record by record, are made of the same sums over places as the slope is. What
    is written in place somewhere, or is a view of it, stays as it is.
    """
    nodes, seen, left = list(graph.graph.nodes), dict[Any, Node](), 0
    written = {_base(arg) for node in nodes if _writes(node) for arg in node.all_input_nodes}
    for node in nodes:
        if node.target not in _PURE or written & {_base(part) for part in (node, *node.all_input_nodes)}:
            continue
        key = node.target, map_arg(_hashable(node.args), _source), _hashable(node.kwargs)
        first = seen.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.graph.erase_node(node)
            left += 1
    graph.recompile()
    return left


def _source(node: Node) -> str:
    """Return the name of what a node is a copy of without a history."""
    while node.target is _aten.detach.default and isinstance(node.args[0], Node):
        node = node.args[0]
    return node.name


def _base(node: Node) -> Node:
    """Return what a node is a view of; one of several parts counts as the whole."""
    while node.args and isinstance(node.args[0], Node) and _is_view(node):
        node = node.args[0]
    return node


def _is_view(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return node.target is operator.getitem
    return any(given.alias_info is not None for given in schema.returns)


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(part) for part in value)
    if isinstance(value, dict):
        return tuple((name, _hashable(part)) for name, part in sorted(value.items()))
    return value


def transposed(graph: GraphModule) -> int:
    """Write slopes of images as transposed convolutions; return how many.

    A backward convolution keeps the order of axes in which it was traced, channels first, and reads an input
    that it does not need; a transposed one is computed channels last, as forward ones are.
    """
    backward, forward = torch.ops.aten.convolution_backward.default, torch.ops.aten.convolution.default
    found = [node for node in graph.graph.nodes if node.target is backward and _is_of_images(node)]
    for node in found:
        slope, images, kernel, _, stride, padding, dilation, _, _, groups, _ = node.args
        sizes = zip(
            *(_shape(part)[2:] for part in (images, slope, kernel)), stride, padding, dilation, strict=True
        )
        beyond = [whole - ((o - 1) * s - 2 * p + d * (k - 1) + 1) for whole, o, k, s, p, d in sizes]
        with graph.graph.inserting_before(node):
            made = graph.graph.call_function(
                forward, (slope, kernel, None, stride, padding, dilation, True, beyond, groups)
            )
        for user in list(node.users):
            if user.args[1] == 0:
                user.replace_all_uses_with(made)
            graph.graph.erase_node(user)
        graph.graph.erase_node(node)
    graph.recompile()
    return len(found)


def _is_of_images(node: Node) -> bool:
    """Tell whether only the slope of a convolution of two axes is asked for."""
    stride, is_transposed, asked = node.args[4], node.args[7], node.args[10]
    return len(stride) == 2 and not is_transposed and list(asked) == [True, False, False]


def _shape(node: Node) -> torch.Size:
    return torch.Size(
        node.meta["tensor_meta"].shape if "tensor_meta" in node.meta else node.meta["val"].shape
    )
