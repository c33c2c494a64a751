"""What each of two processes does in the tests of sharded models; run as a program."""

import json
import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from tests.nn.helpers import be_two, blobs
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard
from torch.utils.checkpoint import checkpoint

from sordino.errors import SordinoError
from sordino.nn import Trainer, make_private
from sordino.testing import seeded_noise_not_private

LOSS = nn.CrossEntropyLoss()


class Block(nn.Module):
    def __init__(self, width, again):
        super().__init__()
        self.wide, self.norm, self.again = nn.Linear(width, 9), nn.LayerNorm(9), again
        self.back = nn.Linear(9, width)

    def forward(self, x):
        return x + (checkpoint(self.inner, x, use_reentrant=False) if self.again else self.inner(x))

    def inner(self, x):
        return self.back(torch.tanh(self.norm(self.wide(x))))


class Net(nn.Module):
    """A block and a head; 9, 7 and 3 rows are no multiples of two processes."""

    def __init__(self, again=False, width=6):
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList(Block(width, again) for _ in range(1))
        self.middle, self.head = nn.Linear(width, 7), nn.Linear(7, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(torch.relu(self.middle(x)))


def sharded(model, **settings):
    if dist.is_initialized():
        for block in getattr(model, "blocks", ()):
            fully_shard(block, **settings)
        fully_shard(model, **settings)
    return model


def whole(model):
    """Return all parameters, which only a test of small models may do."""
    parts = [p.detach() for p in model.parameters()]
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in parts]
    return [float(v) for p in full for v in p.reshape(-1)]


def fitted(model, records=None, **settings):
    settings = {"epsilon": float("inf"), "delta": 1e-4, "batch_size": 120, "steps": 3, **settings}
    with seeded_noise_not_private(7):
        got = Trainer(model, LOSS, **settings).fit(*(blobs() if records is None else records))
    return {"model": whole(got.model), "epsilon": got.privacy.epsilon, "notes": got.privacy.notes}


def spoilt():
    """Some records whose gradients are not finite, though they are; two stand in one block."""
    x, y = blobs()
    x = x.clone()
    x[[5, 6, 40]] = 3e38
    return x, y


def looped(**settings):
    model = sharded(Net())
    settings = {"epsilon": float("inf"), "delta": 1e-4, "steps": 3, "batch_size": 120, **settings}
    with seeded_noise_not_private(7):
        steps = make_private(model, LOSS, blobs(), **settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    for _ in steps:
        optimizer.step()
    return {"model": whole(model), "epsilon": steps.privacy.epsilon, "notes": steps.privacy.notes}


def half():
    return sharded(Net(), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16))


# some run with every suite, the others with the long tests
SAME = {
    "Poisson batch": lambda: fitted(
        sharded(Net(again=True)), batch_size=30, steps=1, chunk_size=7, clip_norm=0.3
    ),
}
LONG = {
    "all records": lambda: fitted(sharded(Net()), clip_norm=0.3),
    "few records": lambda: fitted(sharded(Net()), batch_size=2, steps=1, chunk_size=2),
    "checkpointed": lambda: fitted(sharded(Net(again=True))),
    "not finite": lambda: fitted(sharded(Net()), spoilt(), chunk_size=8),
    "loop": looped,
    "frozen": lambda: fitted(sharded(frozen()), optimizer="adam", average=0.5),
}


def frozen():
    model = Net()
    model.blocks.requires_grad_(False)
    return model


def noise(rank):
    """Return what one release adds, in units of its multiplier, in this process's shard."""
    torch.manual_seed(0)
    model = sharded(nn.Sequential(nn.Linear(6, 4000), nn.Tanh(), nn.Linear(4000, 3)))
    steps = make_private(model, LOSS, blobs(), epsilon=1.0, delta=1e-4, steps=2, batch_size=40, clip_norm=0.7)
    grads = [torch.cat([p.grad.to_local().reshape(-1) for p in model.parameters()]) for _ in steps]
    mechanism = steps._session.curator.plan.releases["gradient"].mechanism
    return {
        "grads": [[float(v) for v in g[:12000]] for g in grads],
        "multiplier": mechanism.multiplier if rank == 0 else None,
    }


class Divided(nn.Module):
    """A parameter that is divided by: its gradient needs it again."""

    def __init__(self):
        super().__init__()
        self.head, self.scale = nn.Linear(6, 3), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.head(x) / self.scale


class Made(nn.Module):
    """Something is made of a parameter before it is used."""

    def __init__(self):
        super().__init__()
        self.weight, self.size = nn.Parameter(torch.randn(3, 6)), nn.Parameter(torch.ones(3, 1))

    def forward(self, x):
        return F.linear(x, self.weight * self.size)


def ignored():
    model = Net()
    return sharded(model, ignored_params={model.head.weight})


def inside():
    model = Net()
    fully_shard(model.blocks[0])
    return model


def replicated():
    return sharded(Net(), mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard")))


def along_columns():
    return sharded(
        Net(), shard_placement_fn=lambda p: Shard(1) if p.dim() == 2 and p.shape[1] % 2 == 0 else None
    )


REFUSED = {
    "ignored": (lambda: fitted(ignored()), "InvalidInputError: Expected every trained parameter sharded"),
    "inside": (lambda: fitted(inside()), r"InvalidInputError: Expected fully_shard\(model\) on the whole"),
    "replicated": (lambda: fitted(replicated()), r"UnsupportedError: .*replicated too \(HSDP\)"),
    "columns": (lambda: fitted(along_columns()), "UnsupportedError: .*no shard_placement_fn"),
    "offloaded": (
        lambda: fitted(sharded(Net(), offload_policy=CPUOffloadPolicy(pin_memory=False))),
        ".*CPUOffloadPolicy",
    ),
    "divided": (
        lambda: fitted(sharded(Divided())),
        "UnsupportedError: The parameter 'scale'.* enters by Div",
    ),
    "made": (lambda: fitted(sharded(Made())), "UnsupportedError: The parameter '.*enters by Mul"),
    "batch norm": (lambda: fitted(sharded(nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)))), ".*GroupNorm"),
    "persons": (lambda: grouped(), "UnsupportedError: .*without groups"),
    "srm": (lambda: fitted(sharded(Net()), optimizer="srm"), "UnsupportedError: .*without optimizer='srm'"),
    "smoothed": (lambda: fitted(sharded(Net()), optimizer="ls-sgd"), "UnsupportedError: .*without smoothing"),
    "exact": (lambda: fitted(sharded(Net()), secure_noise=True), "UnsupportedError: .*without secure_noise"),
    "correlated": (
        lambda: fitted(sharded(Net()), noise="banded"),
        "UnsupportedError: .*without noise='banded'",
    ),
    "saved": (lambda: fitted(sharded(Net()), checkpoint="here"), "UnsupportedError: .*without checkpoint="),
    "scored": (lambda: fitted(sharded(Net()), validation=blobs()), "UnsupportedError: .*without validation="),
    "compiled": (lambda: fitted(sharded(Net()), compiled=True), "UnsupportedError: .*without compiled="),
    "vmap": (lambda: fitted(sharded(Net()), engine="vmap"), "UnsupportedError: .*without engine='vmap'"),
    "alone": (
        lambda: fitted(sharded(Net()), distributed=False),
        "UnsupportedError: .*without distributed=False",
    ),
}


def grouped():
    x, y = blobs()
    return Trainer(sharded(Net()), LOSS, steps=1).fit(x, y, groups=torch.arange(120).numpy() // 3)


def own_backward():
    """Return what is said of a backward pass of the caller's own inside of a private loop."""
    model = sharded(Net())
    x, y = blobs()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in make_private(model, LOSS, (x, y), epsilon=8.0, delta=1e-4, steps=1, batch_size=40):
            LOSS(model(x[:4]), y[:4]).backward()
    return [str(one.message) for one in said]


def main(rank, folder, which):
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    out = {}
    if which == "long":
        jobs = LONG | {"half": lambda: fitted(half(), clip_norm=0.3), "own backward": own_backward}
    else:
        jobs = SAME | {name: job for name, (job, _) in REFUSED.items()} | {"noise": lambda: noise(rank)}
    for name, job in jobs.items():
        try:
            out[name] = job()
        except SordinoError as error:
            out[name] = f"{type(error).__name__}: {error}"
    (Path(folder) / f"{rank}.json").write_text(json.dumps(out))
    os._exit(0)


if __name__ == "__main__":
    be_two(main, *sys.argv[1:])
