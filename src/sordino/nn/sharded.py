"""Models whose parameters are sharded over processes by ``torch.distributed.fsdp.fully_shard``.

Each process runs whole records through the whole model, whose layers FSDP gathers one after the other. So the
norm of a record's gradient is known where the record is: no norm crosses processes. The weighted sum of one
parameter at a time is added up over the processes and cut into shards: nobody holds a gradient of the whole
model. The flat vector of a process is its shard of each parameter, and an update rule that works entry by
entry works on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule
from torch.distributed.tensor import DTensor, Partial, Shard

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute.torch import ShardedExecutor, TorchExecutor
from sordino.kernel.clip.tensors import LARGEST_CLIP
from sordino.nn.compiled import even_block
from sordino.nn.engines import KEEPING, GhostEngine
from sordino.nn.network import Network, make_up_records
from sordino.nn.operations import Graph, Routes, Use, find_saved


class ShardedNetwork(Network):
    """A module that ``fully_shard`` has sharded; it is trained in place, because nobody holds all of it."""

    sharded: ClassVar[bool] = True
    _held: dict[str, Any]  # FSDP's own word for each parameter
    groups: list[tuple[Any, list[str]]]  # modules, and the parameters that are gathered for each

    def __post_init__(self) -> None:
        groups = _groups(self.model)
        self.rest()
        self._lay_out()
        found = {id(one.sharded_param): one for group, _ in groups for one in group.fsdp_params}
        own = {name: p for name, p in self.model.named_parameters() if name in self.names}
        world = dist.get_world_size()
        for name, p in own.items():
            if not isinstance(p, DTensor) or id(p) not in found:
                raise InvalidInputError(
                    f"Expected every trained parameter sharded by fully_shard, got {name!r} whole or "
                    "sharded otherwise (ignored_params): nobody would keep its copies alike. Freeze it, or "
                    "shard it too."
                )
            mesh = p.device_mesh
            if mesh.ndim != 1 or mesh.size() != world or tuple(p.placements) != (Shard(0),):
                raise UnsupportedError(
                    f"Expected shards along the first axis over all {world} processes, got {name!r} as "
                    f"{tuple(p.placements)} on a mesh of shape {tuple(mesh.shape)}. Where shards are "
                    "replicated too (HSDP), or layers split (tensor parallelism), a record or its noise "
                    "would count twice. Use a mesh of one axis with all processes, and no shard_placement_fn."
                )
        held = {name: found[id(p)] for name, p in own.items()}
        together = [
            (module, [name for name, one in held.items() if one in group.fsdp_params])
            for group, module in groups
        ]
        kinds = {group.mp_policy.param_dtype for group, _ in groups} - {None}
        object.__setattr__(self, "_held", held)
        object.__setattr__(self, "groups", [pair for pair in together if pair[1]])
        object.__setattr__(self, "halves", bool(kinds - {torch.float32}))

    @property
    def copies(self) -> int:  # type: ignore[override]
        return dist.get_world_size()

    def own(self, model: nn.Module) -> dict[str, Any]:
        return {name: one.sharded_param for name, one in self._held.items()}

    @property
    def _shards(self) -> dict[str, Any]:
        """What this process holds of each parameter."""
        return {name: p.detach().to_local() for name, p in self.own(self.model).items()}

    @property
    def device(self) -> torch.device:
        return next(iter(self._shards.values())).device

    @property
    def parts(self) -> tuple[torch.Size, ...]:
        return tuple(part.shape for part in self._shards.values())

    def flat(self, model: nn.Module | None = None) -> Tensor:
        return torch.cat([part.reshape(-1).float() for part in self._shards.values()])

    def load(self, vector: Tensor, into: nn.Module) -> None:
        """Copy the vector into the shards, which the next forward pass gathers anew."""
        self._put(self.unflatten(vector))

    def rest(self) -> None:
        """Let go of whole parameters, which a forward pass without a backward pass leaves behind."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def _put(self, params: dict[str, Tensor]) -> None:
        self.rest()
        with torch.no_grad():
            for name, shard in self._shards.items():
                shard.copy_(params[name])

    @contextmanager
    def _at(self, params: dict[str, Tensor] | None) -> Iterator[None]:
        """Let the module hold these shards in a block, and its own ones again afterwards."""
        if params is None:
            yield
            return
        own = self.flat()
        self._put(params)
        try:
            yield
        finally:
            self._put(self.unflatten(own))

    def outputs(self, params: dict[str, Tensor] | None, inputs: Tensor) -> Tensor:
        with self._at(params):
            made = super().outputs(None, inputs).float()
            if not torch.is_grad_enabled():
                self.rest()
            return made

    def holding(self, params: dict[str, Tensor], action: Callable[[], Any]) -> Any:
        with self._at(params):
            return action()

    def part_of(self, name: str, gradient: Tensor | None, shape: torch.Size) -> Tensor:
        """Return this process's shard of the sum over all processes, added up in float32."""
        whole = torch.zeros(shape, device=self.device) if gradient is None else gradient.float()
        placed = self._held[name].sharded_param
        added = DTensor.from_local(whole.reshape(shape), placed.device_mesh, [Partial()], run_check=False)
        return added.redistribute(placements=placed.placements).to_local().reshape(-1)

    def leaves(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: one.unsharded_param for name, one in self._held.items()}

    def gradient(self, total: Tensor, params: dict[str, Tensor], retain_graph: bool = False) -> Tensor:
        """Return the mean over processes, which have the same made-up records, of one group at a time."""
        leaves, shapes = self.leaves(params), dict(zip(self.names, self.shapes, strict=True))
        found: dict[str, Tensor] = {}
        for _, names in self.groups:
            some = torch.autograd.grad(
                total, [leaves[n] for n in names], retain_graph=True, allow_unused=True
            )
            found |= {n: self.part_of(n, g, shapes[n]) for n, g in zip(names, some, strict=True)}
        return torch.cat([found[name] for name in self.names]) / self.copies

    def norm(self, values: Tensor, dim: int | None = None) -> Tensor:
        squares = values.double().square()
        total = squares.sum() if dim is None else squares.sum(dim)
        dist.all_reduce(total)
        return total.sqrt().float()

    def agree(self, number: int) -> int:
        least = torch.tensor([number], device=self.device)
        dist.all_reduce(least, dist.ReduceOp.MIN)
        return int(least)

    def set_gradients(self, model: nn.Module, vector: Tensor) -> None:
        for name, part in self.unflatten(vector).items():
            like = self.own(model)[name]
            mesh, places, (shape, stride) = like.device_mesh, like.placements, (like.shape, like.stride())
            like.grad = DTensor.from_local(
                part.to(like.dtype), mesh, places, run_check=False, shape=shape, stride=stride
            )


def _groups(model: nn.Module) -> list[tuple[Any, Any]]:
    """Return the groups of parameters that are gathered together, each with its module."""
    if not isinstance(model, FSDPModule):
        raise InvalidInputError(
            "Expected fully_shard(model) on the whole model after its parts, got sharded parts of a module "
            "that is not sharded itself."
        )
    found: dict[int, tuple[Any, Any]] = {}
    for module in model.modules():
        if isinstance(module, FSDPModule):
            state: Any = module._get_fsdp_state()
            one = getattr(state, "_fsdp_param_group", None)
            several = getattr(state, "_fsdp_param_groups", [one])
            found |= {id(group): (group, module) for group in several if group is not None}
    if any(isinstance(group.offload_policy, CPUOffloadPolicy) for group, _ in found.values()):
        raise UnsupportedError(
            "Shards that are kept on the processor (CPUOffloadPolicy) are not trained here: sums and noise "
            "are made on the device of the model. Leave offload_policy out, or train adapters (LoRA)."
        )
    return list(found.values())


class ShardedEngine(GhostEngine):
    """Ghost norms of records of this process; weighted sums over the records of all, in shards.

    Every process runs the same passes in the same order. What a model does for one process's records only
    (another graph for some values) would leave the others waiting, so all graphs are known beforehand.
    """

    _closed = _gathers = False

    def per_record(self, vector: Tensor, x: Tensor, y: Tensor, present: Tensor | None = None) -> Tensor:
        """Return shards of the gradients of made-up records, the same in all processes: one pass for each."""
        alone = torch.eye(len(x), device=x.device)
        return torch.stack([self.clipped_sum(vector, x, y, LARGEST_CLIP, one) for one in alone]) / (
            self.network.copies
        )

    def close(self, x: Tensor, y: Tensor, count: int) -> None:
        """Find the graphs of blocks of this size; others are refused from now on."""
        for full in (False, True):
            self.clipped_sum(self.network.flat(), *make_up_records(self.network, x, y, count, 1.0, full), 1.0)
        object.__setattr__(self, "_closed", True)

    def _slopes(self, params: dict[str, Tensor], *block: Any) -> Any:
        known, found = len(self._routes), super()._slopes(params, *block)
        if len(self._routes) > known:  # found out elsewhere, and the parameters there are held now
            found = self.network.holding(params, lambda: super(ShardedEngine, self)._slopes(params, *block))
        return found

    def _read_saved(self, graph: Graph, uses: Iterable[Use]) -> list[Any]:
        if not self._gathers:
            return super()._read_saved(graph, uses)
        found: dict[Use, Any] = {}
        network: Any = self.network
        for module, names in network.groups:
            module.unshard()
            found |= {use: find_saved(graph, use) for use in uses if use.name in names}
            module.reshard()
        return [found[use] for use in uses]

    def _routes_of(self, graph: Graph, x: Tensor, y: Tensor) -> Routes:
        if self._closed and graph.form not in self._routes:
            raise UnsupportedError(
                "A sharded model ran other operations on some records than on made-up ones. They may not "
                "depend on values: processes would wait for each other. What was asked is spent."
            )
        return super()._routes_of(graph, x, y)

    def _find_uses(self, graph: Graph, losses: Tensor) -> Routes:
        uses, unknown = super()._find_uses(graph, losses)
        try:
            kept = self._read_saved(graph, uses)
        except RuntimeError:  # a checkpoint inside of a layer runs it again, and finds shards
            object.__setattr__(self, "_gathers", True)
            kept = self._read_saved(graph, uses)
        whole = {leaf.untyped_storage()._cdata for leaf in self.network.leaves({}).values()}
        odd = dict(unknown)
        for use, values in zip(uses, kept, strict=True):
            kinds = [graph.signature[step.node] for step in use.path]
            tensors = (v for v in vars(values).values() if isinstance(v, Tensor))
            if any(kind not in KEEPING for kind in kinds):
                odd[use.name] = next(kind for kind in kinds if kind not in KEEPING)
            elif any(v.untyped_storage()._cdata in whole for v in tensors):
                odd[use.name] = graph.signature[use.node]
        if odd:
            name, kind = next(iter(odd.items()))
            raise UnsupportedError(
                f"The parameter {name!r} of a sharded model enters by {kind.removesuffix('Backward0')}, "
                "which has no rule there: its gradient would need the whole parameter again. Use layers that "
                "have a rule, freeze it, or train whole copies (distributed=True without fully_shard)."
            )
        return uses, unknown


def sharded_executor(
    plain: TorchExecutor, engine: ShardedEngine, example: tuple[Tensor, Tensor], expected: int
) -> ShardedExecutor:
    """Return the executor of a sharded model: blocks of one size, whose graphs are found now."""
    size = max(2, even_block(plain.chunk, -(-expected // engine.network.copies)))
    engine.close(*example, size)
    own = {f.name: getattr(plain, f.name) for f in fields(plain) if f.init}
    return ShardedExecutor(**{**own, "chunk": size})
