"""Rows of networks: every optimiser, engine and unit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.replay.neighbours import Data
from tests.replay.subjects import BUDGET, LEVELS, LONG, PLAIN, Subject

from sordino import nn
from sordino.kernel import Relation
from sordino.nn.solvers import OPTIMIZERS

# Sums of two dozen gradients in single precision: 24 * 2^-24, and as much for the norm of the difference.
SINGLE = 4e-6
SETTINGS: Mapping[str, Any] = {"batch_size": 12, "clip_norm": 0.7}
HOMES = ("memory", "persons")


def network_rows() -> Iterator[Subject]:
    """Yield rows of both estimators with every optimiser, of trainers, and of a loop of one's own."""
    for optimizer in OPTIMIZERS:
        for name, kind in (("NeuralClassifier", "signs"), ("NeuralRegressor", "numbers")):
            level = PLAIN if kind == "signs" else LONG
            fit = _estimator(name, kind, {"optimizer": optimizer})
            yield Subject(f"{name}/{optimizer}", kind, fit, HOMES, rounding=SINGLE, level=level)
    kept = _estimator("NeuralRegressor", "numbers", {"n_nonzero_coefs": 4})
    yield Subject("NeuralRegressor/kept", "numbers", kept, rounding=SINGLE, level=PLAIN)
    for engine in ("vmap", "ghost"):
        yield _trainer(f"Trainer/{engine}", {"engine": engine}, HOMES)
    yield _trainer("Trainer/secure", {"secure_noise": True}, HOMES)
    for noise in ("banded", "blt", "regenerated"):
        yield _trainer(f"Trainer/{noise}", {"noise": noise, "batch_size": 5}, HOMES)
    # Views get numbers in the order of their records: one that leaves moves the numbers of those behind it,
    # and not their law. So one record takes the place of another here.
    views = {"augment": Moved(), "multiplicity": 2}
    yield _trainer("Trainer/views", views, ("memory",), (Relation.REPLACE_ONE.value,))
    unknown = {"rows_per_person": 3}
    learn = _estimator("NeuralClassifier", "signs", unknown)
    for known in (
        _trainer("Trainer/rows_per_person=3", unknown, ("persons",)),
        Subject("NeuralClassifier/unknown rows", "signs", learn, ("persons",), rounding=SINGLE, level=PLAIN),
    ):

        def fit(data: Data, relation: str, known: Subject = known) -> Any:
            return known.fit(replace(data, groups=None), relation)

        yield replace(known, fit=fit)
    yield Subject("PrivateTrainer", "numbers", _hugging_face, HOMES, rounding=SINGLE, level=PLAIN)
    yield Subject("make_private", "numbers", _loop, HOMES, rounding=SINGLE, level=PLAIN)


class Moved:
    """A view of a record: all entries moved by one random number."""

    draws = 1

    def __call__(self, record: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return record + 0.1 * numbers[0]


def tensors_of(data: Data) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the records as tensors whose squares are numbers: networks have no bound on rows."""
    clipped = np.clip(np.nan_to_num(np.asarray(data.X)), -1e15, 1e15)
    return torch.from_numpy(clipped).float(), torch.from_numpy(np.clip(data.y, -3.0, 3.0)).float()[:, None]


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))


def _estimator(name: str, kind: str, options: Mapping[str, Any]) -> Callable[[Data, str], Any]:
    known = {"classes": LEVELS[kind]} if kind in LEVELS else {"target_bound": 3.0}

    def fit(data: Data, relation: str) -> Any:
        settings = {**BUDGET, **SETTINGS, **known, **options, "relation": relation}
        model = getattr(nn, name)(max_iter=3, hidden=3, data_norm=2.0, random_state=0, **settings)
        return model.fit(data.X, data.y, groups=data.groups)

    return fit


def _trainer(
    name: str, options: Mapping[str, Any], places: tuple[str, ...], relations: tuple[str, ...] | None = None
) -> Subject:
    def fit(data: Data, relation: str) -> Any:
        settings = {**BUDGET, **SETTINGS, **options, "relation": relation}
        trainer = nn.Trainer(_model(), torch.nn.functional.mse_loss, steps=3, **settings)
        return trainer.fit(*tensors_of(data), groups=data.groups)

    known = {} if relations is None else {"relations": relations}
    return Subject(name, "numbers", fit, places, rounding=SINGLE, level=PLAIN, **known)


def _loop(data: Data, relation: str) -> Any:
    model = _model()
    settings = {**BUDGET, **SETTINGS, "relation": relation, "groups": data.groups}
    steps = nn.make_private(model, torch.nn.functional.mse_loss, tensors_of(data), steps=3, **settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in steps:
        optimizer.step()
    return model, steps.privacy


def _hugging_face(data: Data, relation: str) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs the extra 'transformers'")
    x, y = tensors_of(data)
    rows = [{"input": a, "labels": b} for a, b in zip(x, y, strict=True)]
    known = {"clip_norm": 0.7, "relation": relation, "groups": data.groups}
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            folder, max_steps=3, per_device_train_batch_size=12, report_to=[], save_strategy="no",
            disable_tqdm=True, use_cpu=True, learning_rate=0.1, optim="sgd", remove_unused_columns=False,
        )  # fmt: skip
        trainer = nn.PrivateTrainer(
            _model(), args, train_dataset=rows, loss=torch.nn.functional.mse_loss, private=known, **BUDGET
        )
        trainer.remove_callback(transformers.PrinterCallback)  # it prints how long it took
        trainer.train()
    return trainer.model, trainer.privacy
