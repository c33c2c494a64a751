"""Every query over records that is not a neural network, with parameters that stress it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from tests.hostile.contributions import MATRICES, Case, D, numbers

from sordino.kernel import Norm
from sordino.problems.affine import (
    Affine,
    AffineGradient,
    ColumnMoments,
    ConstantGradient,
    GradientShells,
    GramShells,
    MappedCurvature,
    MappedGram,
    MappedSum,
    MarginFit,
    OwnPart,
    SizeCounts,
)
from sordino.problems.covariance import (
    AxisSquares,
    Ball,
    GramMatrix,
    GramProduct,
    GramTriangle,
    RowMoments,
    SquaredColumns,
)
from sordino.problems.losses import LOSSES, Huber, QuantileLoss
from sordino.problems.queries import (
    ClassSums,
    CoordinateScores,
    GlmDifference,
    GlmGradient,
    GradientCounts,
    MovedScores,
    RecursiveGradient,
    RestrictedGradient,
    TargetCounts,
    TotalWeight,
    VertexScores,
)
from sordino.problems.robust import (
    BoundedMoments,
    GradientPoint,
    Part,
    PartSizes,
    PartSum,
    RobustGradient,
    RobustSum,
    Truncation,
)
from sordino.problems.scales import (
    CellMoments,
    ColumnScales,
    ColumnUnits,
    CountsBelow,
    FeatureScales,
    GradientScales,
    Grid,
    PairMoments,
    PairScales,
    RankLosses,
    RankTree,
    TargetsBelow,
    growing,
)
from sordino.solvers.heavy.learners import GradientStep, Step

SQUARED = LOSSES["squared"]
W = np.array([0.4, -1.3, 0.0, 2.0, 0.7])
signs = st.sampled_from([-1.0, 1.0])
labels = st.sampled_from([0.0, 1.0, 2.0])
ALL = (*MATRICES, "lazy", "persons dense", "persons csr")
DENSE = ("dense", "dense float32")
SCALES = np.array([1e-3, 2.0, 1e5, 0.8])
POINT, SCALED = GradientPoint(W[:D], 0.6), GradientPoint(W[:D], 0.6, SCALES)
SHIFTED = GradientPoint(W[:D], 0.6, SCALES, np.array([0.3, -2e3, 0.0, 0.5]))
TRUNCATIONS = {
    "edge": Truncation(),
    "zero": Truncation(zero=True),
    "joint": Truncation(joint=1.2),
    "zero joint": Truncation(zero=True, joint=0.7),
    "norm": Truncation(by="norm"),
    "norm zero": Truncation(by="norm", zero=True),
    "norm in general": Truncation(by="norm", joint=9.0),
}
CELL_POWERS = ((0, 0.7), (1, 1.0), (2, 0.35))
POWERS = ((2, 1.0), (1, 0.35), (4, 0.35))
BASIS = np.linalg.qr(np.arange(16.0).reshape(4, 4) ** 2 + np.eye(4))[0][:, :3]
CENTRE = np.array([0.3, -0.2, 0.0, 0.5])
SKEWED = np.array([[2.0, -1.0, 0.3], [0.0, 1e3, -0.5]])
LESS = Part(slice(0, 2), 0.7, less=np.array([0.3, -1e3]))
AFFINE = Affine(np.array([0.5, 0.0, -1.0, 0.1]), np.array([3.0, 1.0, 0.2, 1e3]), 0.25)
PLAIN = Affine(np.zeros(D), np.array([3.0, 1.0, 0.2, 1e-3]), 0.0)
BARE = Affine(CENTRE, np.ones(D), 0.0)
LISTED = Affine(np.array([0.5, -1.0]), np.array([3.0, 0.2]), 0.25, np.array([0, 2]), 1e3)
CHOSEN_MAP = Affine(np.array([0.5, -1.0]), np.array([3.0, 1e3]), 0.25, np.array([0, 2]))

OWN = OwnPart(AFFINE, 2.0, 0.0, 0.3, 0.35, True)
BIG = OwnPart(BARE, 1e9, 1e5, -3.0, 0.7, False)
MARGINS = [
    ("signs", LOSSES["logistic"], True, W, 1.0, OWN, signs),
    ("signs without offset", LOSSES["logistic"], False, W, 1.0, BIG, signs),
    ("numbers", SQUARED, True, W, 3.0, BIG, numbers),
    ("huber", Huber(0.7), False, W, 1e-3, OWN, numbers),
    ("some columns", LOSSES["logistic"], True, W[:3], 1.0, replace(OWN, affine=CHOSEN_MAP), signs),
    ("labels", LOSSES["multinomial"], False, np.stack([W, -W, W[::-1]]), 1.0, OWN, labels),
]

GLM = [
    Case("squared, rows clipped", GlmGradient(SQUARED, 0.7), W, 1.3, 0.9, kinds=ALL),
    Case("squared, rows as they are", GlmGradient(SQUARED, 0.7), W[:D], kinds=ALL),
    Case("squared, small clip", GlmGradient(SQUARED, 1e-9), W[:D], 1e-3, kinds=ALL),
    Case("squared, small clip on rows as they are", GlmGradient(SQUARED, 1e-12), 0 * W[:D]),
    Case("logistic", GlmGradient(LOSSES["logistic"], 0.4), W, 1.3, 0.9, signs, ALL),
    Case("huber", GlmGradient(Huber(0.7), 0.3), W, 1.3, 0.9, kinds=ALL),
    Case("poisson", GlmGradient(LOSSES["poisson"], 0.7), W, 1.3, 0.9, kinds=ALL),
    Case(
        "multinomial", GlmGradient(LOSSES["multinomial"], 0.7), np.stack([W, -W, W[::-1]]), 1.3, 0.9, labels
    ),
    Case("difference", GlmDifference(SQUARED, 0.7, 1.6), (W, -W), 1.3, 0.9, kinds=ALL),
    Case("near difference", GlmDifference(SQUARED, 0.7, 1.6), (W, W + 1e-9), 1.3, 0.9, kinds=ALL),
    Case("recursive", RecursiveGradient(SQUARED, 0.7, 0.3, 0.4, 1.6), (W, -W), 1.3, 0.9, kinds=ALL[:-3]),
]
AFFINES = [
    Case("affine", AffineGradient(SQUARED, 0.7), (W, AFFINE, None, 1.0), 1.3),
    Case("affine without shift", AffineGradient(SQUARED, 0.7), (W[:D], PLAIN, None, 2.0), 1.3),
    Case("affine without intercept", AffineGradient(SQUARED, 0.7), (W[:D], BARE, None, 1.0), 1.3),
    Case("affine on a mask", AffineGradient(SQUARED, 0.7), (W, AFFINE, np.arange(5) > 1, 1.0), 1.3),
    Case("affine, the constant alone", ConstantGradient(SQUARED, 0.7), (W, AFFINE, None, 1.0), 1.3),
    Case("ranks", AffineGradient(QuantileLoss(0.9), 0.7), (W, AFFINE, None, 0.5), 1.3),
    Case(
        "ranks, whole rows",
        AffineGradient(QuantileLoss(0.9), 0.7, whole=True),
        (W[:D], PLAIN, None, 2.0),
        1.3,
    ),
    Case("sum of mapped rows", MappedSum(), PLAIN, 1.3),
    Case("sum of mapped rows with intercept", MappedSum(), AFFINE, 1.3),
    Case("second moments", MappedGram(), AFFINE, 1.3),
    Case("second moments without shift", MappedGram(), PLAIN, 1.3),
    Case("second moments without intercept", MappedGram(), BARE, 1.3),
    Case("long rows", GramShells(), (AFFINE, 9.0), 1.3),
    Case("long rows without intercept", GramShells(), (BARE, 1.0), 1.3),
    Case("gradients in shells", GradientShells(SQUARED), (W, AFFINE, 2.5, 3), 1.3, 0.9),
    Case("gradients without shells", GradientShells(SQUARED), (W[:D], BARE, 0.1, 0), 1.3, 0.9),
    Case("curvature of counts", MappedCurvature(LOSSES["poisson"]), (W, AFFINE, 2.5), 1.3, 0.9),
    Case("curvature of numbers", MappedCurvature(SQUARED), (W, AFFINE, 0.3), 1.3, 0.9),
    Case("curvature without intercept", MappedCurvature(LOSSES["poisson"]), (W[:D], BARE, 0.1), 1.3, 0.9),
    Case("affine, whole rows", AffineGradient(SQUARED, 0.7, whole=True), (W, AFFINE, None, 1.0), 1.3),
    Case(
        "fair affine, whole rows",
        AffineGradient(LOSSES["logistic"], 0.3, True, True),
        (W, AFFINE, None, 1.0),
        1.3,
        0.9,
        signs,
    ),
    Case(
        "affine, a list", AffineGradient(SQUARED, 0.7), (W, LISTED, None, 1.0), 1.3, kinds=(*MATRICES, "lazy")
    ),
    Case(
        "whole affine, a list",
        AffineGradient(SQUARED, 0.7, whole=True),
        (W, LISTED, None, 1.0),
        1.3,
        kinds=(*MATRICES, "lazy"),
    ),
    Case("affine on some columns", AffineGradient(SQUARED, 0.7), (W[:3], CHOSEN_MAP, None, 1.0), 1.3, 0.9),
    Case("column moments", ColumnMoments(1.3), None, 1.3, exact=False, kinds=(*MATRICES, "lazy")),
    Case("column squares", ColumnMoments(1.3, square=True), None, 1.3, exact=False),
    Case("sizes of rows", SizeCounts("rows", 3), AFFINE, 1.3, exact=False),
    Case("sizes, a list", SizeCounts("rows", 3), LISTED, 1.3, exact=False, kinds=(*MATRICES, "lazy")),
    Case("sizes of targets", SizeCounts("targets"), (0.3, 2.5), 1.3, exact=False),
    Case("sizes of gradients", GradientCounts(SQUARED), (W, AFFINE, 2.5), 1.3, 0.9, exact=False),
    Case(
        "sizes of gradients on some columns",
        GradientCounts(SQUARED),
        (W[:3], CHOSEN_MAP, 0.1),
        1.3,
        exact=False,
    ),
    Case("places of targets", TargetCounts(), (-2.0, 1.0), 1.3, exact=False),
    Case("weight of all records", TotalWeight(), None, 1.3, exact=False),
    Case("two classes", ClassSums(1), None, 1.3, 0.9, signs, exact=False),
    Case("classes", ClassSums(3), None, 1.3, 0.9, labels, exact=False),
    Case("classes of any number", ClassSums(3), None, 1.3, exact=False),
    Case(
        "fair affine", AffineGradient(LOSSES["logistic"], 0.3, True), (W, AFFINE, None, 1.0), 1.3, 0.9, signs
    ),
    *[
        Case(f"margins, {name}", MarginFit(loss, 0.4, one), (w, 0.1, 0.8, unit, own), 1.3, 0.9, targets)
        for name, loss, one, w, unit, own, targets in MARGINS
    ],
    *[
        Case(
            f"{word} margins, {name}",
            MarginFit(loss, 9.0, one),
            (w, 0.1, 0.8, unit, replace(own, narrow=narrow)),
            1.3,
            0.9,
            targets,
        )
        for name, loss, one, w, unit, own, targets in MARGINS
        for word, narrow in (("wide", 1.0), ("narrow", 0.1))
        if loss in (LOSSES["logistic"], LOSSES["multinomial"])
    ],
]
ROBUST = [
    *[Case(f"sum, {n}", RobustSum(D, t), (CENTRE, SCALES), kinds=DENSE) for n, t in TRUNCATIONS.items()],
    *[
        Case(f"powers, {n}", RobustSum(D, t, powers=POWERS), (CENTRE, SCALES), kinds=DENSE, exact=False)
        for n, t in TRUNCATIONS.items()
    ],
    *[
        Case(
            f"powers apart, {n}",
            RobustSum(D, t, powers=((1, 1.0),), apart=((2, 0.65),)),
            (CENTRE, SCALES),
            kinds=DENSE,
            exact=False,
        )
        for n, t in TRUNCATIONS.items()
    ],
    *[Case(f"gradient, {n}", RobustGradient(SQUARED, t), SCALED) for n, t in TRUNCATIONS.items()],
    *[
        Case(f"centred gradient, {n}", RobustGradient(SQUARED, t), SHIFTED, kinds=DENSE)
        for n, t in TRUNCATIONS.items()
    ],
    Case("parts", PartSum(), Part(slice(1, None), 0.4), kinds=DENSE),
    Case("squares of parts", PartSum(True), Part(slice(0, 3), 0.7, SKEWED), kinds=DENSE, exact=False),
    Case("parts less a curvature", PartSum(), LESS, kinds=DENSE, exact=False),
    Case("squares of parts less a curvature", PartSum(True), LESS, kinds=DENSE, exact=False),
    Case("sizes of parts", PartSizes("parts", 3), Part(slice(0, 3), 0.7, SKEWED), kinds=DENSE, exact=False),
    Case("gradient, unscaled", RobustGradient(SQUARED), POINT),
    Case(
        "step", GradientStep(SQUARED, 7.0), Step(GradientPoint(np.zeros(D), 0.6, SCALES), 0.3, np.arange(3))
    ),
    Case(
        "joint step",
        GradientStep(SQUARED, 7.0, norm=Norm.L2, joint=1.2),
        Step(GradientPoint(np.zeros(D), 0.6, SCALES), 0.3, np.arange(3)),
        exact=False,
    ),
]
PAIR = (0.3, -1.0, 1e9, 0.0)
BOUNDED = [
    Case(
        f"{name} between bounds, {norm.value}",
        BoundedMoments(D, *w, norm),
        (CENTRE, SCALES),
        kinds=DENSE,
        exact=False,
    )
    for name, w in {"means": (1.0, 0.2), "squares": (0.25, 1.0)}.items()
    for norm in (Norm.L1, Norm.L2)
]
HUGE = Grid(growing(-(2.0**40), 2.0**40, 0.3, 2.0**-40, 0.0, 4), penalty=3.0)
NEAR = Grid(growing(-2.0, 7.0, 0.3, 0.5, -1.5, 4), coarse=0.4)
OCTAVES = [[(j, (HUGE,), ()) for j in range(D)]]
LINEAR = [[(j, (Grid(np.linspace(-2.0, 7.0, 17)),), ()) for j in range(D)]]
LOSSES_OF_RANKS = [[(j, (NEAR, HUGE), [(-0.1, 0.5), (0.3, 0.95)]) for j in range(D)]]
LOSSES_OF_DISTANCES = [[(2, (replace(HUGE, pole=1e3),), [(0.0, 0.5)])]]
LOSSES_BY_CELL = [[(1, (NEAR, HUGE), [(0.0, 0.1), (-2.0, 0.5)])]] * 3
COUNTS = [
    Case("column scales", ColumnScales(D), None, exact=False),
    Case("column units", ColumnUnits(D), CENTRE, 1.3, exact=False),
    Case("column scales by side", ColumnScales(D, sides=True), None, exact=False),
    Case("gradient scales", GradientScales(SQUARED), SCALED, exact=False),
    Case("gradient scales, centred", GradientScales(SQUARED), SHIFTED, kinds=DENSE, exact=False),
    Case("targets below", TargetsBelow(), 0.3, exact=False),
    Case("gradient scales by entry", GradientScales(SQUARED, "coordinate"), SCALED, exact=False),
    Case("feature scales", FeatureScales(D), SCALES, exact=False),
    Case("pair scales", PairScales(D), None, kinds=DENSE, beside=PAIR, exact=False),
    Case("pair norms", PairScales(D, norms=True), SCALES, kinds=DENSE, beside=PAIR, exact=False),
    Case("counts below", CountsBelow(D), CENTRE, kinds=DENSE, exact=False),
    Case("pair products", PairMoments(D), SCALES, kinds=DENSE, beside=PAIR, exact=False),
    Case("ranks", RankTree(D, 4), OCTAVES, kinds=DENSE, exact=False),
    Case("ranks between bounds", RankTree(D, 4), LINEAR, kinds=DENSE, exact=False),
    Case("losses of ranks", RankLosses(), LOSSES_OF_RANKS, kinds=DENSE, exact=False),
    Case("losses of distances", RankLosses(), LOSSES_OF_DISTANCES, kinds=DENSE, exact=False),
    Case("losses by cell", RankLosses(by_cell=True), LOSSES_BY_CELL, kinds=DENSE, exact=False),
    Case("counts by cell", CellMoments(3), None, kinds=DENSE, exact=False),
    Case("moments by cell", CellMoments(3, CELL_POWERS, 0.4, 2.5), None, kinds=DENSE, exact=False),
    Case("sums by cell", CellMoments(3, ((1, 1.0),), 0.0, 1e-3), None, kinds=DENSE, exact=False),
    Case("trees by cell", RankTree(3, 4, by_cell=True), [LINEAR[0][1:2]] * 3, kinds=DENSE, exact=False),
]
GRAMS = [
    Case("moments", RowMoments(1.3), None, 1.3, exact=False),
    Case("moments in a ball", RowMoments(1.3, 1.0), Ball(0.7, CENTRE), 1.3, exact=False),
    Case("moments far away", RowMoments(1.3), Ball(0.7, 1e4 * CENTRE), 1.3, exact=False),
    Case(
        "moments of some columns",
        RowMoments(1.3),
        Ball(0.7, CENTRE[[0, 2]], np.array([0, 2])),
        1.3,
        exact=False,
    ),
    Case("gram", GramMatrix(1.3), None, 1.3),
    Case("gram in a ball", GramMatrix(1.3), Ball(0.7, CENTRE), 1.3),
    Case("gram far away", GramMatrix(1.3), Ball(0.7, 1e4 * CENTRE), 1.3),
    Case("gram of some columns", GramMatrix(1.3), Ball(0.7, None, np.array([0, 2])), 1.3),
    Case("triangle", GramTriangle(1.3), Ball(0.7), 1.3),
    Case("squares", SquaredColumns(1.3), None, 1.3),
    Case("product", GramProduct(1.3), (BASIS, None), 1.3),
    Case("product in a ball", GramProduct(1.3), (BASIS, Ball(0.7, CENTRE)), 1.3),
    Case("squares along axes", AxisSquares(1.3), (BASIS, None), 1.3),
    Case("squares along axes in a ball", AxisSquares(1.3), (BASIS, Ball(0.7, CENTRE)), 1.3),
]
CHOSEN = np.array([0, 2, 4])
SCORES = [
    Case("vertices", VertexScores(SQUARED, 0.7), W, 1.3, 0.9, kinds=ALL[:6]),
    Case("coordinates", CoordinateScores(SQUARED, 0.7, 0.0, D), W, 1.3, 0.9, kinds=ALL[:6]),
    Case("steps", MovedScores(SQUARED, 0.7, 0.0, D), np.zeros(5), 1.3, 0.9, kinds=ALL[:6]),
    Case("restricted", RestrictedGradient(SQUARED, 0.5, 0.7), (W, CHOSEN), 1.3, 0.9),
    Case("classes", VertexScores(LOSSES["multinomial"], 0.3), np.stack([W, -W, W]), 1.3, 0.9, labels),
]
CASES = [*GLM, *AFFINES, *ROBUST, *COUNTS, *BOUNDED, *GRAMS, *SCORES]
