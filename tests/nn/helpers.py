"""Small networks and records for the tests of `sordino.nn`, and programs of two processes."""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path

import torch
from torch import nn

torch.set_num_threads(1)


def blobs(n=120, seed=0, features=6, classes=3):
    torch.manual_seed(seed)
    y = torch.randint(0, classes, (n,))
    centres = 2.0 * torch.randn(classes, features)
    return centres[y] + 0.5 * torch.randn(n, features), y


def perceptron(seed=0, features=6, classes=3, width=8):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, classes))


def reading(steps):
    """Return private steps whose gradients are read: nobody has to be told that no parameter moves."""
    steps.quiet = True
    return steps


def accuracy(model, x, y):
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


def be_two(main, *given):
    """Be two processes, which share what this one has imported; print how each ended."""
    started = [_fork(main, rank, *given) for rank in range(2)]
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in started]))


def _fork(main, *given):
    child = os.fork()
    if child:
        return child
    try:
        main(*given)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def run_two(program, folder, *given):
    """Run a program of two processes; return how each ended, what all said, and what each reports."""
    command = [sys.executable, "-W", "ignore", "-m", program, str(folder), *given]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=True)
    reports = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr, reports
