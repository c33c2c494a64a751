"""What each of two processes does in the tests of several processes; run as a program."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from tests.nn.helpers import be_two, blobs, perceptron
from torch import nn

from sordino.errors import SordinoError
from sordino.execute.torch import TorchExecutor
from sordino.nn import Trainer, make_private
from sordino.testing import seeded_noise_not_private

LOSS = nn.CrossEntropyLoss()
GROUPS = np.arange(120) // 3


def trainer(model=None, **settings):
    settings = {"epsilon": 8.0, "delta": 1e-4, "steps": 4, "batch_size": 40, **settings}
    return Trainer(perceptron() if model is None else model, LOSS, **settings)


def vector(model):
    return [float(v) for p in model.parameters() for v in p.detach().reshape(-1)]


def fitted(groups=None, **settings):
    with seeded_noise_not_private(7):
        got = trainer(**settings).fit(*blobs(), groups=groups)
    return {"model": vector(got.model), "epsilon": got.privacy.epsilon, "notes": got.privacy.notes}


def looped(**settings):
    model = perceptron()
    settings = {"epsilon": 8.0, "delta": 1e-4, "steps": 4, "batch_size": 40, **settings}
    with seeded_noise_not_private(7):
        steps = make_private(model, LOSS, blobs(), **settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in steps:
        optimizer.step()
    return {"model": vector(model), "epsilon": steps.privacy.epsilon, "notes": steps.privacy.notes}


SAME = {
    "sgd": lambda: fitted(),
    "srm": lambda: fitted(optimizer="srm"),
    "persons": lambda: fitted(groups=GROUPS, batch_size=15),
    "all records": lambda: fitted(batch_size=120),
    "integers": lambda: fitted(secure_noise=True),
    "loop": lambda: looped(),
}


class Faulty(torch.utils.data.Dataset):
    """Records of which one cannot be read; the message would quote it."""

    def __init__(self):
        self.x, self.y = blobs()

    def __len__(self):
        return 120

    def __getitem__(self, i):
        if i == 33:
            raise ValueError(f"secret {self.x[i]}")
        return self.x[i], self.y[i]


def apart(rank, what, booked):
    """Let process 1 differ from process 0, or fail."""
    x, y = blobs()
    if what == "size":
        trainer(**booked).fit(x[: 120 - rank], y[: 120 - rank])
    elif what == "parameters":
        trainer(perceptron(seed=rank), **booked).fit(x, y)
    elif what == "order":
        trainer(**booked).fit(x.roll(rank, 0), y.roll(rank, 0))
    elif what == "owners":  # records that are one person here are several there
        trainer(batch_size=15, **booked).fit(x, y, groups=np.roll(GROUPS, rank))
    elif what == "settings":
        trainer(clip_norm=1.0 + rank, **booked).fit(x, y)
    elif what == "refused":
        trainer(**{**booked, "epsilon": 1000.0}).fit(x, y)
    elif what == "items":  # two records of a data set that is read item by item change places
        order = np.arange(120)
        order[[51, 52]] = order[[52, 51]] if rank else order[[51, 52]]
        trainer(**booked).fit(torch.utils.data.DataLoader(list(zip(x[order], y[order], strict=True))))
    elif what == "reading":
        trainer(**{**booked, "batch_size": 120}).fit(Faulty())
    elif what == "failing":
        real = TorchExecutor.records
        TorchExecutor.records = lambda self, rows: real(self, rows) if rank == 0 else None
        try:
            trainer(**booked).fit(x, y)
        finally:
            TorchExecutor.records = real
    elif what == "steps":
        model = perceptron()
        for _ in make_private(model, LOSS, (x, y), epsilon=8.0, delta=1e-4, steps=3, batch_size=40, **booked):
            with torch.no_grad():
                model[0].weight += rank  # the processes drift apart
    elif what == "stopped":
        steps = make_private(
            perceptron(), LOSS, (x, y), epsilon=8.0, delta=1e-4, steps=9, batch_size=40, **booked
        )
        for step in steps:
            if rank == 0 and step == 1:
                raise SordinoError("enough")
    elif what == "death":
        steps = make_private(
            perceptron(), LOSS, (x, y), epsilon=8.0, delta=1e-4, steps=9, batch_size=40, **booked
        )
        for step in steps:
            if rank == 1 and step == 1:
                os._exit(9)


APART = (
    "size",
    "parameters",
    "order",
    "owners",
    "settings",
    "refused",
    "items",
    "reading",
    "failing",
    "steps",
    "stopped",
    "death",
)


def resumed(rank, folder):
    """Run half of a training, as if it had crashed, and go on; only the first process has the files."""
    x, y = blobs()
    path = folder / "run" if rank == 0 else folder / "nowhere"
    made = trainer(checkpoint=path, checkpoint_every=1, steps=4)
    got = made.fit(x, y)
    again = made.resume(x, y)
    return {"model": vector(got.model), "again": vector(again.model), "steps": again.steps}


def main(rank, folder):
    folder = Path(folder)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    out = {name: job() for name, job in SAME.items()}
    out["resumed"] = resumed(rank, folder)
    for what in APART:
        booked = {"ledger": str(folder / "ledger.db"), "dataset_id": what}
        try:
            apart(rank, what, booked)
            out[what] = "nothing"
        except SordinoError as error:
            out[what] = f"{type(error).__name__}: {error}"
        (folder / f"{rank}.json").write_text(json.dumps(out))
    os._exit(0)  # a broken group would wait


if __name__ == "__main__":
    be_two(main, *sys.argv[1:])
