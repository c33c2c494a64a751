"""Wang's dissertation, chapter 3: knowledge transfer (DPSL-KT), tables 3.2 and 3.3."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sordino.reproduce import sparse_data
from sordino.reproduce.linear import Method, Task, rows_of
from sordino.reproduce.tables import Row, Table

DELTA = 1e-5
_GRID = (1.0, 4.0, 16.0)
_SETTINGS = (
    "Half of the rows are private, the other half public features without targets. DPSL-KT's teacher has no "
    "bounded sensitivity: paper mode puts its printed noise on the certified teacher."
)
_E2006 = {
    "Frank-Wolfe": (4.471, 2.004, 1.535, 1.206, 1.099),
    "two-stage": (4.022, 1.803, 1.326, 1.107, 1.053),
    "DP-IGHT": (3.731, 1.687, 1.304, 1.067, 0.968),
    "DPSL-KT": (1.227, 1.178, 1.065, 0.971, 0.952),
}
_RCV1 = {
    "Frank-Wolfe": (0.1381, 0.1134, 0.0978, 0.0882),
    "two-stage": (0.1272, 0.1061, 0.0949, 0.0866),
    "DP-IGHT": (0.1179, 0.1026, 0.0922, 0.0824),
    "DPSL-KT": (0.1105, 0.0974, 0.0885, 0.0787),
}


def table_2(quick: bool) -> Table:
    """E2006 with half of the rows public."""
    rows = _rows("E2006, half public", "e2006", _E2006, (0.8, 1.5, 2.5, 3.5, 4.5), 0.8541, quick)
    return Table(
        "transfer-e2006",
        "Wang, dissertation, table 3.2: E2006, k = 2,000, half of the rows public",
        "half of the mean squared error",
        "lower",
        sparse_data.REVIEWS,
        "stand-in",
        rows,
        _SETTINGS,
        needs=("imdb",),
    )


def table_3(quick: bool) -> Table:
    """RCV1 with half of the rows public."""
    rows = _rows("RCV1, half public", "rcv1", _RCV1, (2.0, 4.0, 6.0, 8.0), 0.0645, quick)
    return Table(
        "transfer-rcv1",
        "Wang, dissertation, table 3.3: RCV1, k = 500, half of the rows public",
        "test error",
        "lower",
        sparse_data.RCV1,
        "like",
        rows,
        _SETTINGS,
        needs=("rcv1_sample",),
    )


def _rows(
    group: str,
    name: str,
    published: Mapping[str, tuple[float, ...]],
    epsilons: tuple[float, ...],
    plain: float,
    quick: bool,
) -> list[Row]:
    numbers = {method: dict(zip(epsilons, row)) for method, row in published.items()}
    task = partial(sparse_data.halves, name)
    return rows_of(group, task, _methods(task), numbers, DELTA, plain=plain, quick=quick)


def _methods(task: Any) -> tuple[Method, ...]:
    laplace = {"solver_options": {"selection": "laplace"}}
    return (
        Method("Frank-Wolfe", "frank-wolfe", {"max_iter": 50}, (), laplace),
        Method("two-stage", "two-stage", {}, (), "no formula printed"),
        Method("DP-IGHT", "ight", {"max_iter": 50}, _GRID),
        Method("DPSL-KT", "transfer", _Public(task), (), {"solver_options": {"mode": "R"}}),
    )


class _Public(Mapping[str, Any]):
    """The settings of the student; its public rows are read when they are needed, not before."""

    def __init__(self, task: Any) -> None:
        self._task = task

    def __getitem__(self, name: str) -> Any:
        if name != "solver_options":
            raise KeyError(name)
        task: Task = self._task()
        return {"public_features": task.public, "student_steps": 50}

    def __iter__(self) -> Any:
        return iter(("solver_options",))

    def __len__(self) -> int:
        return 1
