"""Plots have labels that can be read, and are the figure that is saved."""

import itertools

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.image import imread

import sordino
from sordino.report.plots import (
    calibration_plot,
    log_axis,
    log_ticks,
    new_axes,
    plot_coefficients,
    scree_plot,
)
from sordino.values import plain_number


@pytest.fixture(autouse=True)
def _closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def fitted():
    X = np.random.default_rng(0).normal(size=(1000, 6)) / 4
    y = (X[:, 0] > 0).astype(int)
    model = sordino.SparseLogisticRegression(2.0, 1e-6, data_norm=1.0, classes=[0, 1]).fit(X, y)
    curve = sordino.private_score(model, X, y, metric="calibration", delta=1e-6)
    return {
        "coefficients": lambda: plot_coefficients(model),
        "calibration": lambda: calibration_plot(curve),
        "scree": lambda: scree_plot(sordino.PCA(3, epsilon=2.0, delta=1e-6, data_norm=1.0).fit(X)),
    }


@pytest.mark.parametrize("name", ["coefficients", "calibration", "scree"])
def test_saving_the_current_figure_saves_the_plot(name, fitted, tmp_path):
    axes = fitted[name]()
    assert pyplot.gcf() is axes.figure
    pyplot.savefig(tmp_path / "plot.png")
    assert imread(tmp_path / "plot.png")[..., :3].std() > 0.02  # a blank image has one colour


LIMITS = [(3.1, 9.7), (0.2, 9.0), (0.25, 8.0), (1.0, 30.0), (0.9, 1.4), (1e3, 1e6), (1e-12, 1e9), (2e-5, 4e4)]


@pytest.mark.parametrize(("low", "high"), LIMITS)
def test_labels_of_a_log_axis_do_not_overlap(low, high):
    axes = new_axes(4.0, 3.0)
    axes.plot([low, high], [low, high])
    log_axis(axes, "x")
    log_axis(axes, "y")
    axes.figure.canvas.draw()
    for axis, side in ((axes.xaxis, "x"), (axes.yaxis, "y")):
        labels = [label for label in axis.get_ticklabels("both") if label.get_text() and label.get_visible()]
        boxes = sorted((label.get_window_extent() for label in labels), key=lambda b: getattr(b, f"{side}0"))
        for left, right in itertools.pairwise(boxes):
            assert getattr(left, f"{side}1") < getattr(right, f"{side}0")


@pytest.mark.parametrize(("low", "high"), LIMITS)
def test_ticks_of_a_log_axis_are_few_round_and_inside(low, high):
    ticks = log_ticks(low, high)
    assert len(ticks) <= 7
    assert all(low <= tick <= high for tick in ticks)


def test_numbers_are_written_as_people_write_them():
    assert [plain_number(x) for x in (0.25, 1.0, 5000.0, 1e7, 1e-5)] == [
        "0.25",
        "1",
        "5,000",
        "10,000,000",
        "0.00001",
    ]
    assert [plain_number(x, 3) for x in (6e4, 117_300.0, 1e15, 1e-9, 0.0)] == [
        "60,000",
        "117,000",
        "1e+15",
        "1e-09",
        "0",
    ]
