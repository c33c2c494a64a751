"""Private training on a GPU: the cost of a step, and the time to a test error.

Command: python benchmarks/nn_gpu.py steps --batch 2048 [--tf32]
         python benchmarks/nn_gpu.py steps --models encoder distilbert gpt2 vit lora --batch 512 [--tf32]
         python benchmarks/nn_gpu.py error --mnist FOLDER --epsilon 3 --target 4 [--tf32]

Opacus is measured beside it if it can be imported.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.nn_models import SHAPES, next_word

# ---------------------------------------------------------------------------- models


def mnist_cnn() -> nn.Module:
    """Return the four-layer network of 26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


class Block(nn.Module):
    """A pre-activation block of a wide residual network, with GroupNorm."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(16, inputs), nn.GroupNorm(16, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        same = inputs == outputs and stride == 1
        self.skip = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        h = torch.relu(self.norm1(x))
        x = x if self.skip is None else self.skip(h)
        return x + self.conv2(torch.relu(self.norm2(self.conv1(h))))


def wide_resnet() -> nn.Module:
    """Return WRN-16-4 with GroupNorm, 2.7 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    for inputs, outputs, stride in ((16, 64, 1), (64, 128, 2), (128, 256, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
    head = [nn.GroupNorm(16, 256), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)]
    return nn.Sequential(*layers, *head)


IMAGES = {"mnist-cnn": (mnist_cnn, (1, 28, 28)), "wrn-16-4": (wide_resnet, (3, 32, 32))}

MODELS = (*IMAGES, *SHAPES)


def task_of(name: str, batch: int, device, tiny: bool):
    """Return how to make a model, a batch of made-up records, and the loss."""
    classes, loss = torch.randint(0, 10, (batch,), device=device), nn.CrossEntropyLoss()
    if name in IMAGES:
        make, shape = IMAGES[name]
        return make, torch.randn(batch, *shape, device=device), classes, loss
    build, size, kind = SHAPES[name]
    size = size.tiny() if tiny else size

    def make():
        return build(size)

    if kind == "image":
        return make, torch.randn(batch, 3, 32, 32, device=device), classes, loss
    words = torch.randint(0, size.words, (batch, size.length), device=device)
    return (make, words, words, next_word) if kind == "next" else (make, words, classes, loss)


# ---------------------------------------------------------------------------- timing


def timed(step, device, repeats: int) -> dict:
    """Return median milliseconds and peak memory of a step; two warm-ups include compilation."""
    begin = time.perf_counter()
    step()
    step()
    _wait(device)
    warm = time.perf_counter() - begin
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        step()
        _wait(device)
        times.append(1e3 * (time.perf_counter() - begin))
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
    return {"ms": statistics.median(times), "gib": peak, "warm_s": warm}


def _wait(device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def candidates(make, x, y, device, chunk: int, loss):
    """Yield (name, how to make the step) for each way; made lazily, so that one failure is one row."""
    from sordino.execute.torch import NoisePool
    from sordino.kernel import NoiseSource
    from sordino.nn.compiled import CompiledEngine
    from sordino.nn.engines import GhostEngine, VmapEngine
    from sordino.nn.network import Network

    def plain(compiled):
        model = make().to(device)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, 0.1, momentum=0.9)
        forward = torch.compile(model) if compiled else model

        def step():
            optimizer.zero_grad()
            loss(forward(x), y).backward()
            optimizer.step()

        return step

    def ours(kind, compiled, mode=None, block=chunk):
        network = Network(make().to(device), loss)
        engine = kind(network)
        if compiled:
            engine = CompiledEngine(engine, block, mode=mode)
        vector, momentum = network.flat(), torch.zeros(network.size, device=device)
        pool, noise = NoisePool(device), NoiseSource.from_os()

        def step():
            nonlocal vector
            total = torch.zeros_like(vector)
            for a, b in zip(x.split(block), y.split(block), strict=True):
                part = engine.clipped_sum(vector, a, b, 1.0)
                if not bool(torch.isfinite(part).all()):  # as the query does
                    raise RuntimeError("not finite")
                total += part
            total += pool.take(noise, vector.numel())  # the noise is part of the step
            momentum.mul_(0.9).add_(total / len(x))
            vector = vector - 0.1 * momentum

        return step

    small = min(chunk, 512)
    yield "plain", lambda: plain(False)
    yield "plain compiled", lambda: plain(True)
    yield "sordino ghost", lambda: ours(GhostEngine, False)
    yield "sordino ghost compiled", lambda: ours(GhostEngine, True)
    yield "sordino ghost compiled, CUDA graph", lambda: ours(GhostEngine, True, "reduce-overhead")
    yield "sordino vmap", lambda: ours(VmapEngine, False, block=small)
    yield "sordino vmap compiled", lambda: ours(VmapEngine, True, block=small)
    if importlib.util.find_spec("opacus"):
        for mode in ("hooks", "ghost"):
            yield f"opacus {mode}", lambda mode=mode: opacus_step(make, x, y, device, mode, loss)


def opacus_step(make, x, y, device, mode, loss):
    """Return Opacus's step on the same batch; attention and places as it needs them."""
    from opacus import PrivacyEngine
    from opacus.validators import ModuleValidator

    if loss is next_word:  # it would leave out what the table adds as the last product, without a word
        raise NotImplementedError("a table that is looked up and multiplied")
    model = ModuleValidator.fix(make()).to(device)
    for part in model.modules():
        if hasattr(part, "spread"):
            part.spread = True
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(x))
    settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "poisson_sampling": False}
    criterion = nn.CrossEntropyLoss()
    made = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, criterion=criterion,
        grad_sample_mode=mode, **settings,
    )  # fmt: skip
    model, optimizer = made[0], made[1]
    criterion = made[2] if mode == "ghost" else criterion

    def step():
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()

    return step


def measure_steps(args, device) -> list[dict]:
    rows = []
    for name in args.models:
        torch.manual_seed(0)
        make, x, y, loss = task_of(name, args.batch, device, args.tiny)
        base = {}
        for way, build in candidates(make, x, y, device, args.chunk or args.batch, loss):
            wanted = not args.only or any(word in way for word in args.only)
            if not wanted or any(word in way for word in args.without):
                continue
            row = {"model": name, "way": way}
            try:
                row |= timed(build(), device, args.repeats)
                base.setdefault(way, row["ms"])
                best = min((base[w] for w in ("plain", "plain compiled") if w in base), default=row["ms"])
                row["over_plain"] = row["ms"] / base.get("plain", row["ms"])
                row["over_best_plain"] = row["ms"] / best
            except Exception as error:  # one way that fails must not lose the others
                row["error"] = f"{type(error).__name__}: {str(error)[:160]}"
            rows.append(row)
            print(json.dumps(row), flush=True)
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return rows


# ---------------------------------------------------------------------------- time to error


def load_mnist(folder: Path):
    def read(name: str, offset: int) -> np.ndarray:
        packed = folder / f"{name}.gz"
        raw = gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()
        return np.frombuffer(raw, np.uint8, offset=offset)

    parts = []
    for kind in ("train", "t10k"):
        images = read(f"{kind}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
        parts.append(torch.from_numpy(images.astype(np.float32) / 255))
        parts.append(torch.from_numpy(read(f"{kind}-labels-idx1-ubyte", 8).astype(np.int64)))
    return parts


RECIPES = {
    1.2: {"batch": 2048, "steps": 293, "learning_rate": 1.0},
    3.0: {"batch": 2048, "steps": 439, "learning_rate": 1.0},
    7.0: {"batch": 2048, "steps": 586, "learning_rate": 1.0},
}


def asked(args) -> dict:
    """Return what the command line sets in place of the recipe."""
    wanted = {"batch": args.expected, "steps": args.steps, "learning_rate": args.rate}
    return {name: value for name, value in wanted.items() if value}


def measure_error(args, device) -> list[dict]:
    from sordino.accounting import calibrate
    from sordino.execute.torch import TorchExecutor
    from sordino.kernel import Curator, NoiseSource, Relation
    from sordino.nn.compiled import CompiledEngine
    from sordino.nn.engine_choice import make_engine
    from sordino.nn.network import Network
    from sordino.nn.solvers import Descent, NetworkTask, Recipe, Srm

    x, y, test_x, test_y = (part.to(device) for part in load_mnist(Path(args.mnist)))
    rows = []
    for epsilon in args.epsilon:
        setting = RECIPES[epsilon] | asked(args)
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            network = Network(mnist_cnn().to(device), nn.CrossEntropyLoss())
            engine = make_engine(network, x[:1], y[:1])
            chunk = setting["batch"] + 256
            if args.compiled:
                mode = None if args.compiled == "default" else args.compiled
                engine = CompiledEngine(engine, chunk, mode=mode)
            task = NetworkTask(engine, len(x), Relation.ADD_REMOVE)
            recipe = Recipe(setting["steps"], setting["batch"], 1.0, setting["learning_rate"])
            solver = Srm(recipe) if args.optimizer == "srm" else Descent(recipe)
            plan = calibrate(solver.plan(task), epsilon, 1e-5)
            multiplier = next(iter(plan.releases.values())).mechanism.multiplier
            executor = TorchExecutor((x, y), device, chunk, device_noise=device.type == "cuda")
            curator = Curator(executor, plan, NoiseSource.from_os())
            row = {"epsilon": epsilon, "multiplier": multiplier, "seed": seed, **setting}
            row |= train(solver, curator, task, test_x, test_y, args, device)
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def train(solver, curator, task, test_x, test_y, args, device) -> dict:
    """Return the last error, and the first time at which the test error is below the target."""
    spent, reached, error, best = 0.0, None, None, 100.0
    begin = time.perf_counter()
    states = solver.run(curator, task, solver.start(task))
    for step, state in enumerate(states, start=1):
        if step == args.stop:
            break
        if step % args.look and step != solver.recipe.steps:
            continue
        _wait(device)
        spent += time.perf_counter() - begin  # looking at the test error is not training
        error = test_error(task.engine.network, state.result, test_x, test_y)
        best = min(best, error)
        if reached is None and error <= args.target:
            reached = spent
        begin = time.perf_counter()
    return {
        "error": error,
        "best_error": best,
        "train_s": spent,
        "seconds_to_target": reached,
        "target": args.target,
    }


def test_error(network, vector, x, y) -> float:
    with torch.no_grad():
        params = network.unflatten(vector)
        out = torch.cat([network.outputs(params, block) for block in x.split(2000)])
    return 100.0 * float((out.argmax(dim=1) != y).float().mean())


def opacus_error(args, device, ours: list[dict]) -> list[dict]:
    """Train Opacus's DP-SGD with our batches, steps and multipliers."""
    from opacus import PrivacyEngine

    x, y, test_x, test_y = (part.to(device) for part in load_mnist(Path(args.mnist)))
    rows = []
    for epsilon in args.epsilon:
        setting = RECIPES[epsilon] | asked(args)
        model = mnist_cnn().to(device)
        optimizer = torch.optim.SGD(model.parameters(), setting["learning_rate"], momentum=0.9)
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(x, y), batch_size=setting["batch"]
        )
        multiplier = next(row["multiplier"] for row in ours if row["epsilon"] == epsilon)
        model, optimizer, loader = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=loader,
            noise_multiplier=multiplier, max_grad_norm=1.0,
        )  # fmt: skip
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, setting["steps"])
        spent, reached, step, begin = 0.0, None, 0, time.perf_counter()
        while step < setting["steps"]:
            for a, b in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(a), b).backward()
                optimizer.step()
                schedule.step()
                step += 1
                if step % args.look == 0 or step == setting["steps"]:
                    _wait(device)
                    spent += time.perf_counter() - begin
                    with torch.no_grad():
                        out = torch.cat([model(block) for block in test_x.split(2000)])
                    error = 100.0 * float((out.argmax(dim=1) != test_y).float().mean())
                    reached = spent if reached is None and error <= args.target else reached
                    begin = time.perf_counter()
                if step == setting["steps"]:
                    break
        row = {"way": "opacus", "epsilon": epsilon, "error": error, "train_s": spent}
        rows.append(row | {"seconds_to_target": reached, "target": args.target})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("steps", "error"))
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--chunk", type=int, default=0, help="records differentiated at once; 0: the batch")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--models", nargs="+", default=list(IMAGES), choices=list(MODELS))
    parser.add_argument("--tiny", action="store_true", help="small transformers, to try the script on a CPU")
    parser.add_argument("--only", nargs="*", default=[], help="words of the ways to measure")
    parser.add_argument("--without", nargs="*", default=[], help="words of the ways to leave out")
    parser.add_argument("--tf32", action="store_true", help="allow TF32 in our matrix products too")
    parser.add_argument("--mnist", default="", help="folder with the four idx files")
    parser.add_argument("--epsilon", type=float, nargs="+", default=list(RECIPES))
    parser.add_argument("--expected", type=int, default=0, help="expected batch size of `error`")
    parser.add_argument("--steps", type=int, default=0, help="steps of `error`")
    parser.add_argument("--rate", type=float, default=0.0, help="learning rate of `error`")
    parser.add_argument("--clip", type=float, default=1.0, help="clip norm of `error`")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--optimizer", choices=("sgd", "srm"), default="sgd")
    parser.add_argument("--target", type=float, default=4.0, help="test error in percent")
    parser.add_argument("--look", type=int, default=20, help="steps between two looks at the test error")
    parser.add_argument("--stop", type=int, default=0, help="stop after this many steps, to try the script")
    parser.add_argument("--compiled", default="", help="default or reduce-overhead; nothing: eager")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default="", help="also write the rows to this JSON file")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.backends.cuda.matmul.allow_tf32 = args.tf32
    about = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "tf32_convolutions": torch.backends.cudnn.allow_tf32,
        "tf32_products": args.tf32,
        "opacus": importlib.util.find_spec("opacus") is not None,
        "command": " ".join(sys.argv),
    }
    print(json.dumps(about), flush=True)
    if args.what == "steps":
        rows = measure_steps(args, device)
    else:
        rows = measure_error(args, device)
        rows += opacus_error(args, device, rows) if about["opacus"] else []
    if args.out:
        Path(args.out).write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
