"""CIFAR-10 from scratch under privacy: one table of ways, at epsilon 3 and 8.

Command: SORDINO_DATA=... python -m benchmarks.nn_cifar --out rows.jsonl            (a GPU; minutes a way)
         python -m benchmarks.nn_cifar --merge rows.jsonl --to benchmarks/results/nn_cifar.json

The 20,000 training and 5,000 test images of the shared subset (or the first ``--records`` of them), delta
1e-5, add-remove one record. The ways: a linear layer and a small convolution on scattering coefficients; a
linear layer on the mean of coefficients over ten views of each image, whitened by made-up images; WRN-16-4
with eight random views of each image, and Opacus (if it can be imported) with the settings of its tutorial
"Building an image classifier with differential privacy", whose epsilon alone is changed. Our settings were
chosen on the first half of the training part (8,000 images to train, 2,000 to judge, those for scattering as
JPEG copies of quality 96), those of whitened views on its first 15,000 (12,000 and 3,000); the test part is
read once, at the end of each run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.machine import keep_row
from benchmarks.nn_gpu import wide_resnet
from sordino.nn import Scattering, Shifts, Trainer

DELTA, LOSS = 1e-5, nn.CrossEntropyLoss()
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # published ones of the whole set
TUTORIAL_STD, EPOCHS = (0.2023, 0.1994, 0.2010), 20  # of Opacus's tutorial

Images = tuple[Tensor, Tensor]
Way = Callable[[Images, Images, float, torch.device], tuple[float, float]]


def load_part(name: str, device: torch.device, std: tuple[float, ...] = STD) -> Images:
    """Return the normalised images (n, 3, 32, 32) and labels of a part."""
    with np.load(Path(os.environ["SORDINO_DATA"]) / "cifar10" / name) as found:
        images, labels = found["images"], found["labels"]
    x = torch.from_numpy(images.astype(np.float32) / 255).permute(0, 3, 1, 2).to(device)
    centre, scale = (torch.tensor(v, device=device)[:, None, None] for v in (MEAN, std))
    return ((x - centre) / scale).contiguous(), torch.from_numpy(labels.astype(np.int64)).to(device)


def accuracy(model: nn.Module, images: Images, block: int = 500) -> float:
    """Return the share of right labels."""
    model.eval()
    with torch.no_grad():
        found = torch.cat([model(part).argmax(dim=1) for part in images[0].split(block)])
    return float((found == images[1]).float().mean())


# ---------------------------------------------------------------------------- ours

# Rates of sampling, steps and learning rates were chosen on the half, at epsilon 8 for both: 20,000 records
# at epsilon 3 see about the noise of 8,000 at 8.
LINEAR = {"batch_size": 8192, "steps": 60, "learning_rate": 0.5}
CONVOLUTION = {"batch_size": 2560, "steps": 60, "learning_rate": 10.0, "clip_norm": 0.1, "average": 0.9}
# Rate and average of the wide network: 150 steps of 8,000 images, one view, against 2,000. Its steps are what
# three and four minutes of a device shared with others hold; more of them help, see the rows.
WIDE = {
    "batch_size": 1024,
    "learning_rate": 2.0,
    "optimizer_options": {"momentum": 0.0},
    "schedule": "constant",
    "average": 0.97,
}
WIDE_STEPS = {8.0: 239, 3.0: 359}


def scattered(images: Images) -> Images:
    """Return the scattering coefficients, image by image."""
    layer = Scattering(3).to(images[0].device)
    with torch.no_grad():
        return torch.cat([layer(part) for part in images[0].split(500)]), images[1]


def linear(train: Images, test: Images, epsilon: float, device: torch.device) -> tuple[float, float]:
    """Return the accuracy of a linear layer on scattering coefficients, and the certified epsilon."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(243 * 64, 10)).to(device)
    trainer = Trainer(model, LOSS, epsilon, DELTA, chunk_size=8192, **LINEAR)
    trained = trainer.fit(*scattered(train))
    return accuracy(trained.model, scattered(test)), trained.privacy.epsilon


# Whitened views: scales and angles of the wavelets, how far coefficients are whitened and what is added to
# each variance (in units of their mean), how far views are moved, how much differences of colours count.
VIEWED = {"scales": (2, 3), "power": 0.5, "ridge": 0.01, "reach": 2, "sides": False, "colours": 2.0}
VIEWED_LINEAR = {"steps": 120, "learning_rate": 0.25}
VIEWED_RATE = 8192 / 20_000


def split_colours(images: Tensor, weight: float) -> Tensor:
    """Return brightness and two differences of colours: fixed axes, whatever the images."""
    axes = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0], [0.5, 0.5, -1.0]], device=images.device)
    axes = axes / axes.norm(dim=1, keepdim=True)
    axes[1:] *= weight
    return torch.einsum("ij,bjhw->bihw", axes, images)


def view_images(images: Tensor, reach: int, sides: bool) -> Iterator[Tensor]:
    """Yield images and their mirror images, as they are and moved aslant (and to the sides)."""
    steps = [(0, 0), (1, 1), (-1, -1), (1, -1), (-1, 1)] + [(1, 0), (-1, 0), (0, 1), (0, -1)] * sides
    for down, right in steps:
        top, left = 4 + reach * down, 4 + reach * right
        for turned in (images, images.flip(-1)):
            padded = nn.functional.pad(turned, (4, 4, 4, 4), mode="reflect")
            yield padded[:, :, top : top + 32, left : left + 32]


def make_up_images(count: int, device: torch.device) -> Tensor:
    """Return images of ellipses over each other, "dead leaves", by a public seed: nobody's photographs."""
    draws = torch.Generator(device).manual_seed(5)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=draws)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, device=device, generator=draws)

    images = normal(count, 3, 1, 1).expand(count, 3, 32, 32).clone()
    lines = torch.arange(32.0, device=device)
    down, right = torch.meshgrid(lines, lines, indexing="ij")
    for _ in range(80):
        size = (2.0 / uniform(count, 1, 1).clamp(min=0.08) ** 0.7).clone()
        a, b = (side - 40 * uniform(count, 1, 1) + 4 for side in (down, right))
        turn, slant = torch.pi * uniform(count, 1, 1), 0.4 + uniform(count, 1, 1)
        along, across = a * turn.cos() + b * turn.sin(), b * turn.cos() - a * turn.sin()
        inside = (along / (size * slant)) ** 2 + (across / size) ** 2 < 1
        colour = 0.9 * normal(count, 1, 1, 1) + 0.4 * normal(count, 3, 1, 1)
        grain = 0.15 * normal(count, 1, 32, 32) * (uniform(count, 1, 1, 1) < 0.4)
        images = torch.where(inside[:, None], colour + grain, images)
    padded = nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    return (nn.functional.avg_pool2d(padded, 3, 1) + images) / 2


class Whitened:
    """Scattering coefficients, at each place times a fixed matrix that whitens those of made-up images."""

    def __init__(self, scales: int, power: float, ridge: float, colours: float, device: torch.device) -> None:
        self.layer, self.colours = Scattering(3, scales=scales).to(device), colours
        found = self._scatter(make_up_images(4000, device))
        self.mean = found.mean((0, 2))[:, None]
        rows = (found - self.mean).permute(1, 0, 2).flatten(1)
        sizes, axes = torch.linalg.eigh((rows @ rows.T / rows.shape[1]).double())
        self.matrix = ((axes * (sizes + ridge * sizes.mean()).pow(-power / 2)) @ axes.T).float()

    def _scatter(self, images: Tensor) -> Tensor:
        return self.layer.of(split_colours(images, self.colours)).flatten(2)

    def of(self, images: Tensor) -> Tensor:
        """Return the coefficients of some images, one row of length sqrt(entries) each."""
        rows = torch.einsum("ij,bjp->bip", self.matrix, self._scatter(images) - self.mean).flatten(1)
        return rows * (rows.shape[1] ** 0.5 / rows.norm(dim=1, keepdim=True))


def whitened_views(images: Tensor, scales, power, ridge, reach, sides, colours) -> Tensor:
    """Return the mean over views of whitened coefficients; what one image becomes depends on no other."""
    layers = [Whitened(one, power, ridge, colours, images.device) for one in scales]
    views, total = 0, torch.zeros((), device=images.device)
    with torch.no_grad():
        for view in view_images(images, reach, sides):
            total = total + torch.cat([layer.of(view) for layer in layers], 1)
            views += 1
    return total / views


def viewed(train: Images, test: Images, epsilon: float, device: torch.device) -> tuple[float, float]:
    """Return the same of a linear layer on the mean of whitened coefficients over views."""
    rows = [whitened_views(part[0], **VIEWED) for part in (train, test)]
    settings = VIEWED_LINEAR | {"batch_size": round(VIEWED_RATE * len(rows[0]))}
    model = nn.Linear(rows[0].shape[1], 10).to(device)
    trained = Trainer(model, LOSS, epsilon, DELTA, chunk_size=8192, **settings).fit(rows[0], train[1])
    return accuracy(trained.model, (rows[1], test[1])), trained.privacy.epsilon


def convolution(train: Images, test: Images, epsilon: float, device: torch.device) -> tuple[float, float]:
    """Return the same of one convolution on scattering coefficients."""
    model = nn.Sequential(
        nn.Conv2d(243, 64, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(1024, 10)
    )
    trainer = Trainer(model.to(device), LOSS, epsilon, DELTA, chunk_size=4096, **CONVOLUTION)
    trained = trainer.fit(*scattered(train))
    return accuracy(trained.model, scattered(test)), trained.privacy.epsilon


def wide(train: Images, test: Images, epsilon: float, device: torch.device) -> tuple[float, float]:
    """Return the same of WRN-16-4 with eight views of each image."""
    trainer = Trainer(
        wide_resnet().to(device), LOSS, epsilon, DELTA,
        augment=Shifts(4, flips=True), multiplicity=8, chunk_size=4096,
        steps=WIDE_STEPS.get(epsilon, 300), **WIDE,
    )  # fmt: skip
    trained = trainer.fit(*train)
    return accuracy(trained.model, test), trained.privacy.epsilon


# ---------------------------------------------------------------------------- Opacus


class Residual(nn.Module):
    """A block of ResNet-18, as torchvision has it but without operations in place, which Opacus refuses."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        same = inputs == outputs and stride == 1
        short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Identity() if same else short

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both paths."""
        inner = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(inner + self.short(x))


def resnet18(classes: int = 10) -> nn.Module:
    """Return ResNet-18 with the initial weights of torchvision's."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Residual(inputs, outputs, stride), Residual(outputs, outputs, 1)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return model


def opacus(train: Images, test: Images, epsilon: float, device: torch.device) -> tuple[float, float]:
    """Return the same of Opacus's tutorial: ResNet-18, RMSprop, 20 epochs of batches of 512, clip 1.2."""
    from opacus import PrivacyEngine
    from opacus.validators import ModuleValidator

    model = ModuleValidator.fix(resnet18()).to(device)
    optimizer, engine, epochs = torch.optim.RMSprop(model.parameters(), lr=1e-3), PrivacyEngine(), EPOCHS
    data = torch.utils.data.TensorDataset(*(part.cpu() for part in train))
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=torch.utils.data.DataLoader(data, batch_size=512),
        epochs=epochs, target_epsilon=epsilon, target_delta=DELTA, max_grad_norm=1.2,
    )  # fmt: skip
    model.train()
    for _ in range(epochs):
        for a, b in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(a.to(device)), b.to(device)).backward()
            optimizer.step()
    return accuracy(model, test), float(engine.get_epsilon(DELTA))


WAYS: dict[str, Way] = {
    "scattering + linear": linear,
    "scattering + convolution": convolution,
    "whitened scattering of views + linear": viewed,
    "WRN-16-4, 8 views": wide,
    "Opacus, its tutorial": opacus,
}


def measured(way: str, epsilon: float, seed: int, device: torch.device, records: int = 20_000) -> dict:
    """Return one row: the accuracy on the test part, after training on the first records."""
    std = TUTORIAL_STD if way.startswith("Opacus") else STD
    train = tuple(part[:records] for part in load_part("cifar10_train20k.npz", device, std))
    test = load_part("cifar10_test5k.npz", device, std)
    torch.manual_seed(seed)
    begun = time.perf_counter()
    right, spent = WAYS[way](train, test, epsilon, device)
    seconds = time.perf_counter() - begun
    row = {"way": way, "epsilon": epsilon, "seed": seed, "accuracy": right, "certified": spent}
    row |= {"records": records}
    where = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    return row | {"seconds": seconds, "device": where, "torch": torch.__version__}


def merged(paths: list[str], command: str) -> dict:
    """Return all rows, their means by way and epsilon, and apart from them what settings were chosen by."""
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines() if line]
    choices = [row for row in rows if str(row.get("stage", "")).startswith("choice")]
    rows = [row for row in rows if row not in choices]
    cells: dict[tuple[str, float, int], list[float]] = {}
    for row in rows:
        which = row["way"], row["epsilon"], row.get("records", 20_000)
        cells.setdefault(which, []).append(row["accuracy"])
    means = [
        {
            "way": way,
            "epsilon": epsilon,
            "records": records,
            "mean": statistics.mean(found),
            "error": statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else None,
            "runs": len(found),
        }
        for (way, epsilon, records), found in sorted(cells.items())
    ]
    return {"about": {"command": command, "delta": DELTA}, "means": means, "rows": rows, "choices": choices}


def kept(result: dict) -> str:
    """Return a result as text, one row a line."""
    parts = [f' "about": {json.dumps(result["about"])}']
    for name in ("means", "rows", "choices"):
        lines = ",\n  ".join(json.dumps(row) for row in result[name])
        parts.append(f' "{name}": [\n  {lines}\n ]' if lines else f' "{name}": []')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Measure what was asked for, or put rows together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[3.0, 8.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--records", type=int, default=20_000, help="train on the first so many images")
    parser.add_argument("--out", default="", help="append rows to this file, one JSON object a line")
    parser.add_argument("--merge", nargs="*", default=[], help="files of rows to put together")
    parser.add_argument("--to", default="benchmarks/results/nn_cifar.json")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.merge:
        Path(args.to).write_text(kept(merged(args.merge, "python -m benchmarks.nn_cifar")))
        return
    torch.set_float32_matmul_precision("high")
    for way in args.ways:
        if way.startswith("Opacus") and importlib.util.find_spec("opacus") is None:
            print("Opacus cannot be imported; its rows are left out", file=sys.stderr)
            continue
        for epsilon in args.epsilon:
            for seed in range(args.seeds):
                keep_row(measured(way, epsilon, seed, torch.device(args.device), args.records), args.out)


if __name__ == "__main__":
    main()
