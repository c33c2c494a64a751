"""A private step as people call it: `Trainer.fit` with a device and a batch, and nothing else set.

Command: python -m benchmarks.nn_default [--models distilbert lstm] [--precision float32] [--out FILE]

Models are those of `transformers` with their own configurations and random weights, layers of torch, and a
ResNet-18 with GroupNorm. Beside them stands a plain step on the same batch, as it is and compiled; in
bfloat16 under autocast. TF32 is allowed. A run is planned as a long one and stopped by a callback, so that a
compiler is tried as in a long training; `first_s` is the time from `fit` to the end of the first step.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import warnings
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.nn_models import Encoder, Size, next_word
from sordino.nn import Trainer


class Reader(nn.Module):
    """A recurrent layer over words, mean over the places, ten classes."""

    def __init__(self, kind, size: Size) -> None:
        super().__init__()
        self.words, self.body = (
            nn.Embedding(size.words, size.width),
            kind(size.width, size.width, batch_first=True),
        )
        self.head = nn.Linear(size.width, 10)

    def forward(self, x):
        return self.head(self.body(self.words(x))[0].mean(dim=1))


class Basic(nn.Module):
    """The block of a ResNet-18, with GroupNorm."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(16, outputs), nn.GroupNorm(16, outputs)
        self.skip = nn.Identity()
        if stride > 1 or inputs != outputs:
            short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.skip = nn.Sequential(short, nn.GroupNorm(16, outputs))

    def forward(self, x):
        h = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(h + self.skip(x))


def resnet(width: int) -> nn.Module:
    """Return a ResNet-18 for images of 32 x 32."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.GroupNorm(16, width), nn.ReLU()]
    for inputs, outputs, stride in ((1, 1, 1), (1, 2, 2), (2, 4, 2), (4, 8, 2)):
        layers += [Basic(inputs * width, outputs * width, stride), Basic(outputs * width, outputs * width, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


def hugging_face(name: str, size: Size) -> nn.Module:
    """Return a model of `transformers` with random weights."""
    import transformers as hf

    inner = {"num_hidden_layers": size.depth, "hidden_size": size.width, "num_attention_heads": size.heads}
    wide, words = {"intermediate_size": 4 * size.width}, {"vocab_size": size.words}
    if name == "distilbert":
        shape = {
            "n_layers": size.depth,
            "dim": size.width,
            "n_heads": size.heads,
            "hidden_dim": 4 * size.width,
        }
        return hf.DistilBertForSequenceClassification(hf.DistilBertConfig(**shape, **words, num_labels=10))
    if name == "roberta":
        config = hf.RobertaConfig(
            **inner, **wide, **words, num_labels=10, max_position_embeddings=size.length + 2
        )
        return hf.RobertaForSequenceClassification(config)
    if name == "vit":
        return hf.ViTForImageClassification(
            hf.ViTConfig(**inner, **wide, image_size=32, patch_size=4, num_labels=10)
        )
    config = hf.LlamaConfig(
        **inner, **words, intermediate_size=2 * size.width, num_key_value_heads=size.heads // 3
    )
    return hf.LlamaForCausalLM(config)


# name -> (how to make it, its size, the keyword of its inputs or none)
MODELS = {
    "distilbert": (lambda size: hugging_face("distilbert", size), Size(384, heads=6), "input_ids"),
    "roberta": (lambda size: hugging_face("roberta", size), Size(384, heads=6), "input_ids"),
    "vit": (lambda size: hugging_face("vit", size), Size(384, heads=6), "pixel_values"),
    "llama": (lambda size: hugging_face("llama", size), Size(384, heads=6), "input_ids"),
    "encoder": (Encoder, Size(), None),
    "lstm": (lambda size: Reader(nn.LSTM, size), Size(), None),
    "gru": (lambda size: Reader(nn.GRU, size), Size(), None),
    "resnet18": (lambda size: resnet(size.width // 4), Size(), None),
}
IMAGES = ("vit", "resnet18")


def task_of(name: str, count: int, device: torch.device, tiny: bool):
    """Return a model, records and targets, the loss and the keyword of the inputs."""
    build, size, key = MODELS[name]
    if tiny:
        size = Size(64 if name == "resnet18" else 24, 2, 8, 50, 3)
    torch.manual_seed(0)
    if name in IMAGES:
        x = torch.randn(count, 3, 32, 32, device=device)
    else:
        x = torch.randint(3, size.words, (count, size.length), device=device)
    y, loss = (
        (x, next_word)
        if name == "llama"
        else (torch.randint(0, 10, (count,), device=device), F.cross_entropy)
    )
    return (
        build(size).to(device).train(),
        x,
        y,
        nn.CrossEntropyLoss() if loss is F.cross_entropy else loss,
        key,
    )


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def held(device: torch.device) -> float:
    """Return the memory that the process has from the device after what was before is given back."""
    torch.compiler.reset()  # what was compiled for another row holds its models
    gc.collect()
    if device.type != "cuda":
        return float("nan")
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() / 2**30


def peak(device: torch.device, before: float) -> float:
    """Return the memory that the process has had from the device since, what was recorded included."""
    return torch.cuda.max_memory_reserved() / 2**30 - before if device.type == "cuda" else before


def plain(task, batch: int, precision, device, repeats: int, compiled: bool) -> dict:
    """Return median milliseconds and memory of a plain step."""
    model, x, y, loss, key = task
    before, x, y = held(device), x[:batch], y[:batch]
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    forward, times = torch.compile(model) if compiled else model, []
    for turn in range(repeats + 3):
        if turn == 3 and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(device.type, precision, precision is not torch.float32):
            out = forward(x) if key is None else forward(**{key: x}).logits
            loss(out.float(), y).backward()
        optimizer.step()
        wait(device)
        times.append(1e3 * (time.perf_counter() - begin))
    return {"ms": statistics.median(times[3:]), "gib": peak(device, before)}


def private(task, batch: int, precision, device, repeats: int, settings: dict) -> dict:
    """Return median milliseconds of a step of `Trainer.fit`, the time to the first, and memory."""
    model, x, y, loss, key = task
    before, marks = held(device), [time.perf_counter()]

    def note(step):
        wait(device)
        marks.append(time.perf_counter())
        if step.number == 3 and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        return step.number > repeats + 3

    trainer = Trainer(
        model, loss, epsilon=8.0, delta=1e-6, batch_size=batch, device=device, precision=precision,
        callbacks=(note,), **({"steps": 20_000} | settings),
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trained = trainer.fit(x if key is None else {key: x}, y)
    times = [1e3 * (b - a) for a, b in pairwise(marks[4:])]
    words = [note for note in trained.privacy.notes if "gradients" in note or "compiled" in note]
    slow = [str(one.message)[:160] for one in said if "Slow" in one.category.__name__]
    found = {"ms": statistics.median(times), "gib": peak(device, before), "first_s": marks[1] - marks[0]}
    return {**found, "notes": words + slow}


def measure(name: str, precision, device, args) -> dict:
    """Return all ways of one model in one precision."""
    row: dict = {"model": name, "precision": str(precision).removeprefix("torch."), "batch": args.batch}
    ways = {
        "plain": lambda task: plain(task, args.batch, precision, device, args.repeats, False),
        "plain compiled": lambda task: plain(task, args.batch, precision, device, args.repeats, True),
        "default": lambda task: private(task, args.batch, precision, device, args.repeats, {}),
        "not compiled": lambda task: private(
            task, args.batch, precision, device, args.repeats, {"compiled": False}
        ),
    }
    for way in args.ways if name not in args.skip_compile else ("plain", "not compiled"):
        try:
            row[way] = ways[way](task_of(name, 16 * args.batch, device, args.tiny))
        except Exception as error:  # one way that fails must not lose the others
            row[way] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    best = min(
        (row[way]["ms"] for way in ("plain", "plain compiled") if "ms" in row.get(way, {})), default=0.0
    )
    for way in ("default", "not compiled"):
        if best and "ms" in row.get(way, {}):
            row[way]["over_best_plain"] = round(row[way]["ms"] / best, 2)
            if "gib" in row.get("plain", {}):
                row[way]["memory_over_plain"] = round(row[way]["gib"] / row["plain"]["gib"], 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--ways", nargs="+", default=["plain", "plain compiled", "not compiled", "default"])
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="small models, to try the script on a processor")
    parser.add_argument("--skip-compile", nargs="*", default=[], help="models that are not compiled")
    parser.add_argument("--commit", default="", help="what is measured, for the file")
    parser.add_argument("--out", default="", help="also write the rows to this JSON file")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    device, rows = torch.device(args.device), []
    for name in args.models:
        for precision in args.precision:
            rows.append(measure(name, getattr(torch, precision), device, args))
            print(json.dumps(rows[-1]), flush=True)
            if args.out:
                about = {"torch": torch.__version__, "commit": args.commit}
                about["device"] = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
                Path(args.out).write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
