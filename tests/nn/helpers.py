"""Small networks and records for the tests of `sordino.nn`."""

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


def accuracy(model, x, y):
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())
