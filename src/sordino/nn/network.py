"""A PyTorch module seen as a function of one flat vector of parameters."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.parameter import UninitializedParameter

from sordino.errors import InvalidInputError, InvalidTypeError, UnsupportedError
from sordino.execute.draws import TURN, generators, restore
from sordino.kernel import public_generator
from sordino.nn.data import Fields

# How far float32 numbers are rounded before they are multiplied; of eleven bits also where they are cut, and
# the product is divided by ``(1 - 2^-11)^2``: that is off by up to ``2^-11 / (1 - 2^-11)``.
INPUTS = {"none": 0.0, "ieee": 0.0, "tf32": 2.0**-11 * (1 + 2.0**-10), "bf16": 2.0**-8}
_LEGACY = {"highest": 0.0, "high": INPUTS["tf32"], "medium": 2.0**-8}
_SWITCHES = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")  # of the library behind torch on CPUs


def product_inputs(device: torch.device) -> float:
    """Return how far a float32 matrix product rounds its inputs; what is unknown counts as bfloat16."""
    room: Any = torch.backends.mkldnn if device.type == "cpu" else torch.backends.cuda
    coarse = INPUTS["bf16"]
    found = [INPUTS.get(room.matmul.fp32_precision, coarse)]
    if device.type == "cpu":
        found += [coarse for name in _SWITCHES if os.environ.get(name, "STRICT").upper() != "STRICT"]
    else:
        with suppress(RuntimeError):  # where only the new switch was set, which is read above
            found.append(_LEGACY.get(torch.get_float32_matmul_precision(), coarse))
    return max(found)


def forward_inputs(device: torch.device) -> float:
    """Return how far matrix products *and convolutions* round their inputs, as torch is set now."""
    room: Any = torch.backends.mkldnn if device.type == "cpu" else torch.backends.cudnn
    return max(product_inputs(device), INPUTS.get(room.conv.fp32_precision, INPUTS["bf16"]))


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a block in which a caller's autocast does not reach: sums of clipped gradients stay float32."""
    if not torch.is_autocast_enabled(device.type):  # to switch off what is off would cost host time each step
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Network:
    """A module, its loss, and the layout of its trainable parameters in a vector.

    Parameters
    ----------
    model : the module; it is copied, the caller's module is not touched by training.
    loss : ``loss(outputs, targets)`` of a batch, any reduction: it is called on one record at a time.
    precision : the type of the forward pass; clipping is always done in float32.
    fields : the inputs of a model that is called with keywords; None for one tensor.
    """

    sharded: ClassVar[bool] = False  # whether the vector holds the shard of one process
    copies: ClassVar[int] = 1  # processes, the sums of whose made-up records are added up
    halves: ClassVar[bool] = False  # whether parameters are gathered in a coarser type

    model: nn.Module
    loss: Loss
    precision: torch.dtype = torch.float32
    fields: Fields | None = None
    names: tuple[str, ...] = field(init=False)
    shapes: tuple[torch.Size, ...] = field(init=False)
    _places: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", copy_module(self.model))
        self._lay_out()
        # Where modules hold parameters. One that stands in two places is one place: ``functional_call`` would
        # exchange its tensors once for each name, and go on with other weights in the end.
        first = {id(p): name for name, p in self.model.named_parameters()}
        held = [(path, key, p) for path, m in self.model.named_modules() for key, p in m._parameters.items()]
        places = {f"{path}.{key}" if path else key: first[id(p)] for path, key, p in held if p is not None}
        object.__setattr__(self, "_places", places)
        for p in self.model.parameters():  # gradients are taken by hand, never accumulated
            p.requires_grad_(False)

    def _lay_out(self) -> None:
        """Note names and shapes of the trainable parameters."""
        if any(isinstance(p, UninitializedParameter) for p in self.model.parameters()):
            raise InvalidInputError(
                "Expected parameters that have shapes, got a lazy model. Call it once on a made-up record."
            )
        found = [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]
        if not found:
            raise InvalidInputError("Expected a model with at least one trainable parameter, got none.")
        for name, p in found:
            if p.is_complex():
                raise InvalidInputError(
                    f"Expected real parameters, got {name!r} of type {p.dtype}. Train its real and imaginary "
                    "parts, and join them in forward by torch.view_as_complex."
                )
        object.__setattr__(self, "names", tuple(name for name, _ in found))
        object.__setattr__(self, "shapes", tuple(p.shape for _, p in found))

    @property
    def size(self) -> int:
        """The number of trainable parameters."""
        return sum(shape.numel() for shape in self.shapes)

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return next(self.model.parameters()).device

    @property
    def parts(self) -> tuple[torch.Size, ...]:
        """The shapes of what the vector holds of each parameter: all of it, or a shard."""
        return self.shapes

    @property
    def sizes(self) -> list[int]:
        """How many entries of the vector belong to each parameter."""
        return [shape.numel() for shape in self.parts]

    def own(self, model: nn.Module) -> dict[str, Any]:
        """Return the trained parameters of a module of the same layout."""
        found = dict(model.named_parameters())
        return {name: found[name] for name in self.names}

    def flat(self, model: nn.Module | None = None) -> Tensor:
        """Return the trainable parameters, or those of a module of the same layout, as a float32 vector."""
        own = self.own(self.model if model is None else model)
        return torch.cat([p.detach().reshape(-1).float() for p in own.values()]).to(self.device)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the parameters by name, as views of the vector."""
        parts = vector.split(self.sizes)
        return {n: p.view(s) for n, p, s in zip(self.names, parts, self.parts, strict=True)}

    def flatten(self, gradient_of: Callable[[str], Tensor | None]) -> Tensor:
        """Return gradients as one vector; each is asked for by name, and zero where there is none."""
        shapes = zip(self.names, self.shapes, strict=True)
        return torch.cat([self.part_of(name, gradient_of(name), shape) for name, shape in shapes])

    def part_of(self, name: str, gradient: Tensor | None, shape: torch.Size) -> Tensor:
        """Return the entries of the vector for the gradient of one parameter."""
        return torch.zeros(shape.numel(), device=self.device) if gradient is None else gradient.reshape(-1)

    def leaves(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the leaves of the graph of a forward pass at these parameters."""
        return params

    def gradient(self, total: Tensor, params: dict[str, Tensor], retain_graph: bool = False) -> Tensor:
        """Return the gradient of a number by an ordinary backward pass, as one vector."""
        leaves = list(self.leaves(params).values())
        found = torch.autograd.grad(total, leaves, retain_graph=retain_graph, allow_unused=True)
        return self.flatten(dict(zip(params, found, strict=True)).get)

    def norm(self, values: Tensor, dim: int | None = None) -> Tensor:
        """Return the norm of gradients of made-up records, over all shards."""
        return values.norm(dim=dim)

    def agree(self, number: int) -> int:
        """Return the least of the numbers that the processes of a sharded model have; else the number."""
        return number

    def set_gradients(self, model: nn.Module, vector: Tensor) -> None:
        """Set ``.grad`` of the parameters of a module of the same layout."""
        own = self.own(model)
        for name, gradient in self.unflatten(vector).items():
            own[name].grad = gradient.to(own[name])

    def outputs(self, params: dict[str, Tensor] | None, inputs: Tensor) -> Tensor:
        """Run the model at these parameters (None: its own); return a tensor, or the logits it holds."""
        plain = self.precision is torch.float32
        args = (inputs,) if self.fields is None else ()
        with nullcontext() if plain else torch.autocast(inputs.device.type, dtype=self.precision):
            named = {} if self.fields is None else self.fields.unpack(inputs)
            if params is None:
                made = self.model(*args, **named)
            else:
                held = self._everywhere(params)
                made = functional_call(self.model, held, args, named, tie_weights=False)
            outputs = made if isinstance(made, Tensor) else getattr(made, "logits", None)
            if not isinstance(outputs, Tensor):
                raise InvalidInputError(
                    "Expected a model that returns a tensor or something with logits, got "
                    f"{type(made).__name__}. Wrap it in a module that returns what the loss needs."
                )
            return outputs if plain else outputs.float()

    def holding(self, params: dict[str, Tensor], action: Callable[[], Any]) -> Any:
        """Return what the action returns while the module holds these parameters, as checkpoints need."""
        held = {f"model.{name}": value for name, value in self._everywhere(params).items()}
        return functional_call(_Holder(self.model), held, (action,), tie_weights=False)

    def _everywhere(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters by all places that hold them, each place once."""
        return {place: params[name] for place, name in self._places.items() if name in params}

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each record: a criterion with mean reduction may be passed as it is."""
        loss: Any = self.loss
        plain = type(loss) is nn.CrossEntropyLoss and loss.weight is None and loss.ignore_index < 0
        hooked = plain and (loss._forward_hooks or loss._forward_pre_hooks)
        if plain and not hooked and loss.reduction != "none" and (outputs.dim(), targets.dim()) == (2, 1):
            smoothing = loss.label_smoothing  # the same numbers, without the host's work
            return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=smoothing)
        return vmap(lambda o, t: self.loss(o[None], t[None]).sum())(outputs, targets)

    def loss_of_one(self, vector: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss of one record as a function of the flat vector."""
        return self.loss(self.outputs(self.unflatten(vector), x[None]), y[None]).sum()

    def load(self, vector: Tensor, into: nn.Module) -> None:
        """Copy a parameter vector into a module of the same layout."""
        own = self.own(into)
        with torch.no_grad():
            for name, value in self.unflatten(vector).items():
                own[name].copy_(value)


def copy_module(model: nn.Module) -> nn.Module:
    """Return a copy of a module that can be trained, or say why there is none."""
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise InvalidTypeError(
            f"Expected model as a torch.nn.Module, got {type(model).__name__}. Of a scripted or traced model "
            "pass the module that it was made of."
        )
    layers = {type(layer).__name__ for layer in model.modules()}
    if layers & {"DistributedDataParallel", "DataParallel"}:
        raise InvalidInputError(
            "Expected the model itself, got a wrapper that averages gradients without a clip. Pass "
            "model.module; processes of torch.distributed train together by themselves."
        )
    if "FullyShardedDataParallel" in layers or is_sharded(model):
        raise InvalidInputError(
            "Expected a model with whole parameters, got one whose parameters are sharded over processes "
            "(FSDP, fully_shard). Trainer and make_private take what fully_shard makes, nothing else does; "
            "FullyShardedDataParallel flattens parameters, so that layers cannot be told apart."
        )
    for name, p in model.named_parameters():
        hooks = [*(p._backward_hooks or {}).values(), *(p._post_accumulate_grad_hooks or {}).values()]
        if any(hook.__module__ != "sordino.nn.trainer" for hook in hooks):
            raise UnsupportedError(
                f"Expected parameters without hooks, got one on {name!r}: it would not be called, as no "
                "backward pass forms the gradient of a parameter. Remove it; change .grad in a loop of "
                "make_private, or the gradient in forward."
            )
    try:
        return copy.deepcopy(model)
    except RuntimeError:
        raise InvalidInputError(
            "Expected a model that can be copied. This one holds tensors that were computed from its "
            "parameters: take them away, or use torch.nn.utils.parametrizations in place of "
            "torch.nn.utils.weight_norm."
        ) from None


def is_sharded(model: Any) -> bool:
    """Tell whether some parameters of a module are distributed tensors."""
    found = model.parameters() if isinstance(model, nn.Module) else ()
    return any(type(p.data).__name__ == "DTensor" for p in found)


class _Holder(nn.Module):
    """A module around another one: it calls whatever it is given."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, action: Callable[[], Any]) -> Any:
        return action()


def find_dropout(model: nn.Module) -> list[tuple[nn.Module, str, Any]]:
    """Return what makes a model drop numbers: a layer, or a share that one passes on (attention, LSTM)."""
    kinds, held = (nn.modules.dropout._DropoutNd,), list[tuple[nn.Module, str, Any]]()
    for m in model.modules():
        held += [(m, "training", True)] if isinstance(m, kinds) and m.training else []
        shares = ((key, value) for key, value in vars(m).items() if isinstance(value, float))
        held += [(m, k, v) for k, v in shares if "drop" in k or (k == "p" and isinstance(m, kinds))]
    return held


@contextmanager
def quiet_dropout(model: nn.Module) -> Iterator[None]:
    """Switch dropout off in a block, so that two evaluations can be compared."""
    held = find_dropout(model)
    for m, key, value in held:
        setattr(m, key, type(value)(0))
    try:
        yield
    finally:
        for m, key, value in held:
            setattr(m, key, value)


class same_draws:
    """Let dropout, and all that torch draws, draw the same in every block; then it goes on as before."""

    def __init__(self) -> None:
        self._first = self._outside = generators()

    def __enter__(self) -> None:
        TURN.acquire()
        self._outside = generators()
        restore(self._first)

    def __exit__(self, *exc: Any) -> None:
        restore(self._outside)
        TURN.release()


_LARGE = 1000.0  # how much larger than the others one record is
_SEED = 8191  # public: what is drawn here has nothing to do with the data


def make_up_records(
    network: Network, x: Tensor, y: Tensor, count: int, size: float, full: bool = False
) -> tuple[Tensor, Tensor]:
    """Return public random records of this shape and type; no two are alike.

    Masks end at different places, or with ``full`` nowhere: some models ask whether there is a mask at all.
    """
    public = public_generator(_SEED + count)
    tables = [m.num_embeddings for m in network.model.modules() if isinstance(m, nn.Embedding)]
    getter: Any = getattr(network.model, "get_input_embeddings", None)
    few, tokens = min(tables, default=2), getter() if callable(getter) else None
    few, words = max(2, few), max(2, getattr(tokens, "num_embeddings", few))
    inputs = _draw(x, count, size, few if network.fields is None else words, public)
    if network.fields is not None:
        inputs = network.fields.public(inputs, words, few, full)
    targets = _draw(y, count, 1.0, 2, public)
    if targets.is_floating_point():
        targets = targets / 4 + 0.5  # probabilities are targets too, and logarithms are taken of others
    return inputs.to(network.device), targets.to(network.device)


def uneven(network: Network, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return public random records, the last far larger than the others, which end early: alike ones would
    not show a model that looks at a whole batch for its largest number or its longest record.
    """
    inputs, targets = make_up_records(network, x, y, 4, 1.0)
    if network.fields is None and inputs.dim() > 1:  # named inputs have masks, and those end early anyway
        places = inputs.shape[1]
        found = [m.padding_idx for m in network.model.modules() if isinstance(m, nn.Embedding)]
        for i in range(len(inputs) - 1):
            inputs[i, max(1, (i + 1) * places // 5) :] = next((word for word in found if word is not None), 0)
    if inputs.is_floating_point():
        inputs[-1] = inputs[-1] * _LARGE
    return inputs, targets


def points(network: Network) -> tuple[Tensor, Tensor]:
    """Return the initial parameters and public random ones near them: zeros at the start hide much."""
    start = network.flat()
    public = public_generator(_SEED)
    drawn = torch.from_numpy(public.uniform(-1, 1, len(start))).to(start)
    return start, start + drawn * (0.2 * start.square().mean().sqrt() + 0.05)


def _draw(like: Tensor, count: int, size: float, words: int, public: Any) -> Tensor:
    uniform = torch.from_numpy(np.asarray(public.uniform(-1, 1, (count, *like.shape[1:]))))
    if like.is_floating_point():
        return (2 * size * uniform).to(like.dtype)
    # the smallest numbers exist in any vocabulary; the first two records always differ
    drawn = (0.5 * (uniform + 1) * words).floor().long()
    drawn[0], drawn[1] = drawn[1].clone(), (drawn[1] + 1) % words
    return drawn.to(like.dtype)
