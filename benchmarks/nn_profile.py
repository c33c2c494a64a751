"""Where the time of a step goes: the kernels of plain and private steps, and operations by shapes.

Command: python benchmarks/nn_profile.py --models wrn-16-4 --batch 2048 [--tiny --device cpu] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.nn_gpu import MODELS, candidates, task_of, timed

WAYS = ("plain compiled", "sordino ghost compiled")
STEPS = 2
# a word in a kernel's name -> what it is; the first that fits
KINDS = {
    "wgrad": "cuDNN, weight gradients", "dgrad": "cuDNN, input gradients", "fprop": "cuDNN, forward",
    "nchwtonhwc": "cuDNN, order of axes", "nhwctonchw": "cuDNN, order of axes", "fft": "cuDNN, by FFT",
    "fmha": "attention", "flash": "attention", "_stream": "noise", "_pairs": "noise", "memcpy": "copies",
    "memset": "copies", "triton_red": "compiled reductions", "triton_per": "compiled reductions",
    "triton_poi": "compiled element by element", "_rows": "gradients of windows", "_halve": "rounding",
    "gemm": "matrix products",
    "splitk": "matrix products", "gemv": "matrix products",
}  # fmt: skip


def kind_of(kernel: str) -> str:
    """Return what a kernel does, as far as its name tells."""
    return next((kind for word, kind in KINDS.items() if word in kernel.lower()), "other")


def look(step, device) -> dict:
    """Return milliseconds a step by kind, by kernel and by operation and shapes."""
    there = device.type.upper()
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if there == "CUDA" else [])
    with profile(activities=activities, record_shapes=True) as seen:
        for _ in range(STEPS):
            step()
        if there == "CUDA":
            torch.cuda.synchronize()
    kernels, kinds = Counter(), Counter()
    for event in seen.events():
        if str(event.device_type).endswith(there) and not event.is_user_annotation:
            spent = event.device_time if there == "CUDA" else event.self_cpu_time_total
            kernels[event.name] += spent / STEPS / 1e3
            kinds[kind_of(event.name)] += spent / STEPS / 1e3
    operations = Counter()
    for event in seen.key_averages(group_by_input_shape=True):
        spent = event.self_device_time_total if there == "CUDA" else event.self_cpu_time_total
        operations[f"{event.key} {event.input_shapes}"] += spent / STEPS / 1e3
    found = {"kinds": kinds, "kernels": kernels, "operations": operations}
    return {name: {k: round(v, 3) for k, v in part.most_common(40) if v > 0} for name, part in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["wrn-16-4"], choices=list(MODELS))
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    device, rows = torch.device(args.device), []
    torch.backends.cuda.matmul.allow_tf32 = True
    for name in args.models:
        torch.manual_seed(0)
        make, x, y, loss = task_of(name, args.batch, device, args.tiny)
        for way, build in candidates(make, x, y, device, args.batch, loss):
            if way in args.ways:
                step = build()
                rows.append({"model": name, "way": way} | timed(step, device, 5) | look(step, device))
                print(json.dumps({key: rows[-1][key] for key in ("model", "way", "ms", "kinds")}), flush=True)
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
