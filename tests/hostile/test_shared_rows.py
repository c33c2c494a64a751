"""All rows of a person together move a statistic as far as one record may, however many and odd they are."""

import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st
from scipy import sparse

from sordino.errors import UnsupportedError
from sordino.execute import LocalExecutor
from sordino.execute import persons as places
from sordino.execute.persons import SharedExecutor, SharedRecords
from sordino.kernel import Relation
from sordino.problems import scales
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
from sordino.problems.covariance import AxisSquares, Ball, GramMatrix, GramProduct, RowMoments, SquaredColumns
from sordino.problems.losses import LOSSES
from sordino.problems.queries import ClassSums, GradientCounts, TargetCounts, TotalWeight
from sordino.problems.robust import GradientPoint, RobustGradient, Truncation
from sordino.problems.scales import (
    CellMoments,
    ColumnScales,
    ColumnUnits,
    CountsBelow,
    FeatureScales,
    GradientScales,
    Grid,
    RankLosses,
    RankTree,
    TargetsBelow,
)

ODD = st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5, 1e308, -1e308, 5e-324, np.inf, -np.inf, np.nan, -2.0, 7.0])
CELL = st.sampled_from([0.0, 1.0, 2.0, 3.0, -1.0, 0.5, np.nan])
ROWS = st.lists(st.tuples(CELL, ODD), min_size=1, max_size=40)
QUERIES = {
    "counts": CellMoments(3),
    "moments": CellMoments(3, ((0, 0.5), (1, 1.0), (2, 0.7)), 0.4, 2.5),
    "sums": CellMoments(3, ((1, 1.0),), 0.0, 1e-3),
    "trees": RankTree(3, 4, by_cell=True),
    "losses": RankLosses(by_cell=True),
}
CELLS = Grid(np.linspace(-2.0, 7.0, 17))
PARAMS = {RankTree: [[(1, (CELLS,), ())]] * 3, RankLosses: [[(1, (CELLS,), [(0.0, 0.1), (0.0, 0.6)])]] * 3}
OTHERS = [(0.0, 1.0), (1.0, 3.0), (2.0, -1.0)]


def answer(query, mine, most):
    """Return the exact answer on three persons with a row each and one with these rows."""
    rows = np.array([*OTHERS, *mine])
    owners = [*range(len(OTHERS)), *[9] * len(mine)]
    return query.evaluate(records_of(rows, owners, most), PARAMS.get(type(query)))


def records_of(rows, owners, most, kind=SharedExecutor):
    made = kind(LocalExecutor(rows, None, None), owners, most)
    return SharedRecords(made.local.records(None), made._parts)


def moved(query, mine, yours, most):
    away = answer(query, mine, most) - answer(query, yours, most)
    if isinstance(query, RankLosses):  # one choice in each group: their largest losses add up
        return float(np.abs(away).max(axis=(1, 2)).sum())
    return float(np.linalg.norm(away))


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("most", [None, 1, 7])
@given(mine=ROWS, yours=ROWS)
@settings(max_examples=40, deadline=None)
def test_a_person_moves_an_answer_as_far_as_a_record_may(name, most, mine, yours):
    query = QUERIES[name]
    apart = {Relation.ADD_REMOVE: moved(query, mine, [(-1.0, 0.0)], most)}
    apart[Relation.REPLACE_ONE] = moved(query, mine, yours, most)
    for relation, distance in apart.items():
        share = distance / query.sensitivity(relation, None)
        target(share, label=f"{relation.value}")
        assert share <= 1.0 + 1e-12


@pytest.mark.parametrize("name", QUERIES)
def test_a_person_of_many_rows_reaches_the_bound(name):
    query = QUERIES[name]
    far = moved(query, [(1.0, 1e9)] * 30, [(-1.0, 0.0)], None)
    assert 0.7 < far / query.sensitivity(Relation.ADD_REMOVE, None) <= 1.0


def test_a_twin_whose_rows_count_in_full_is_caught(monkeypatch):
    monkeypatch.setattr(scales, "_own", lambda records: np.ones(records.count))
    with pytest.raises(AssertionError):
        test_a_person_of_many_rows_reaches_the_bound("counts")


def test_a_twin_that_keeps_more_rows_than_it_says_is_caught(monkeypatch):
    class Forgetful(SharedExecutor):
        def __post_init__(self):
            object.__setattr__(self, "most", 2)
            super().__post_init__()

    kept = records_of(np.array([(1.0, 0.0)] * 6), [1] * 6, 6, Forgetful)
    assert CellMoments(3).evaluate(kept, None)[0, 1] <= 1.0  # two halves, not six
    monkeypatch.setattr(places.Owners, "of", lambda groups, records: _each_alone(records))
    torn = records_of(np.array([(1.0, 0.0)] * 6), [1] * 6, 2)  # a person torn into six
    assert CellMoments(3).evaluate(torn, None)[0, 1] > 1.0


def _each_alone(records):
    return places.Owners(np.arange(records), np.arange(records + 1))


# ---------------------------------- second moments and robust gradients of persons, in arrays and in CSR

CENTRE, BASIS = np.array([0.4, -0.3, 0.2]), np.linalg.qr(np.arange(9.0).reshape(3, 3) + np.eye(3))[0][:, :2]
POINT = GradientPoint(np.array([0.5, -2.0, 1.0]), 0.7, np.array([0.5, 3.0, 1.0]))
SHIFTED = GradientPoint(POINT.w, 0.7, POINT.scales, CENTRE)

SQUARED = LOSSES["squared"]
MAP, LOGISTIC = Affine(CENTRE, np.array([3.0, 0.2, 1e3]), 0.25), LOSSES["logistic"]
W = np.array([0.5, -2.0, 1e-3, 0.7])
OWN = OwnPart(MAP, 2.0, 0.0, 0.3, 0.35, True)
SUMS = {
    "column moments": (ColumnMoments(1.3), None, 1.3),
    "column squares": (ColumnMoments(1.3, square=True), None, 1.3),
    "column units": (ColumnUnits(3), None, 1.3),
    "mapped rows": (MappedSum(), MAP, 1.3),
    "mapped moments": (MappedGram(), MAP, 1.3),
    "curvature": (MappedCurvature(LOSSES["poisson"]), (W, MAP, 2.5), 1.3),
    "sizes": (SizeCounts("rows", 3), MAP, 1.3),
    "sizes of targets": (SizeCounts("targets"), (0.3, 2.5), 1.3),
    "sizes of gradients": (GradientCounts(SQUARED), (W, MAP, 2.5), 1.3),
    "places of targets": (TargetCounts(), (-9.0, 1.0), 1.3),
    "weight of all records": (TotalWeight(), None, 1.3),
    "classes": (ClassSums(1), None, 1.3),
    "affine gradient": (AffineGradient(SQUARED, 0.7), (W, MAP, None, 1.0), 1.3),
    "constant gradient": (ConstantGradient(SQUARED, 0.7), (W, MAP, None, 1.0), 1.3),
    "fair gradient": (AffineGradient(LOGISTIC, 0.3, True, True), (W, MAP, None, 1.0), 1.3),
    "moments in shells": (GramShells(), (MAP, 900.0), 1.3),
    "gradient in shells": (GradientShells(SQUARED), (W, MAP, 9.0, 4), 1.3),
    "margins": (MarginFit(SQUARED, 0.4, True), (W[:3], 0.1, 0.8, 1.0, OWN), 1.3),
    "margins of signs": (MarginFit(LOGISTIC, 0.4, True), (W[:3], 0.1, 0.8, 1.0, OWN), 1.3),
    "moments": (RowMoments(1.3), Ball(0.7, CENTRE), 1.3),
    "whole moments": (RowMoments(1.3, 1.0), None, 1.3),
    "gram": (GramMatrix(1.3), Ball(0.7, CENTRE), 1.3),
    "product": (GramProduct(1.3), (BASIS, Ball(0.7, CENTRE)), 1.3),
    "axes": (AxisSquares(1.3), (BASIS, None), 1.3),
    "squares": (SquaredColumns(1.3), None, 1.3),
    "gradient": (RobustGradient(SQUARED), POINT, None),
    "gradient by entry": (RobustGradient(SQUARED, Truncation()), POINT, None),
    "centred gradient": (RobustGradient(SQUARED), SHIFTED, None),
    "gradient scales": (GradientScales(SQUARED), POINT, None),
    "centred gradient scales": (GradientScales(SQUARED), SHIFTED, None),
    "gradient scales by entry": (GradientScales(SQUARED, "coordinate"), POINT, None),
    "column scales": (ColumnScales(3), CENTRE, None),
    "column scales by side": (ColumnScales(3, sides=True), CENTRE, None),
    "feature scales": (FeatureScales(3), np.ones(3), None),
    "counts below": (CountsBelow(3), CENTRE, None),
    "targets below": (TargetsBelow(), 0.3, None),
}
DENSE_ONLY = {"centred gradient", "centred gradient scales", "counts below"}
VALUE = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e308, -1e308, 5e-324, 1e160, -7.0, 3.0])
RECORDS = st.lists(st.tuples(VALUE, VALUE, VALUE, VALUE), min_size=1, max_size=30)
KINDS = [
    (name, kind) for name in SUMS for kind in ("array", "csr") if kind == "array" or name not in DENSE_ONLY
]


def shared(name, kind, mine):
    """Return the exact answer on three persons with a row each and one with these rows (none: no rows)."""
    query, params, norm = SUMS[name]
    table = np.array([(0.1, 0.2, 0.3, 1.0), (1.0, 0.0, -1.0, 0.0), (0.0, 2.0, 0.0, -1.0), *mine])
    rows = table[:, :3] if kind == "array" else sparse.csr_matrix(table[:, :3])
    local = LocalExecutor(rows, table[:, 3], norm)
    executor = SharedExecutor(local, [0, 1, 2, *[9] * len(mine)])
    return np.asarray(query.evaluate(SharedRecords(local.records(None), executor._parts), params))


def gap(name, kind, mine, yours):
    return float(np.linalg.norm((shared(name, kind, mine) - shared(name, kind, yours)).ravel()))


@pytest.mark.parametrize(("name", "kind"), KINDS)
@given(mine=RECORDS, yours=RECORDS)
@settings(max_examples=25, deadline=None)
def test_a_person_moves_second_moments_and_gradients_as_far_as_a_record_may(name, kind, mine, yours):
    query, params, _ = SUMS[name]
    for relation, other in ((Relation.ADD_REMOVE, []), (Relation.REPLACE_ONE, yours)):
        share = gap(name, kind, mine, other) / query.sensitivity(relation, params)
        target(share, label=relation.value)
        assert share <= 1.0 + 1e-9


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_thirty_equal_rows_of_a_person_add_what_one_adds(name, kind):
    row = (-9.0, 4.0, 2.0, -5.0)
    np.testing.assert_allclose(
        shared(name, kind, [row] * 30), shared(name, kind, [row]), rtol=1e-7, atol=1e-9
    )
    assert gap(name, kind, [row] * 30, []) > 0.0 or name == "classes"  # -5 is none


def test_a_twin_that_counts_each_row_in_full_is_caught(monkeypatch):
    monkeypatch.setattr(places, "parts_of_rows", lambda rows, *_: np.ones(rows))
    for name in (
        "gram",
        "moments",
        "gradient",
        "column scales",
        "counts below",
        "mapped moments",
        "margins",
        "sizes",
    ):
        query, params, _ = SUMS[name]
        far = gap(name, "array", [(-9.0, 4.0, 2.0, -5.0)] * 30, [])
        assert far > query.sensitivity(Relation.ADD_REMOVE, params)


def test_block_sums_of_persons_are_refused():
    local = LocalExecutor(np.eye(6, 3), np.ones(6), None)
    records = SharedRecords(local.records(None), np.full(6, 0.5))
    with pytest.raises(UnsupportedError, match="several blocks"):
        RobustGradient(SQUARED, blocks=3).evaluate(records, POINT)
