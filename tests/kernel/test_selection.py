"""Selections: exact laws (softmax, peeling), dense as lazy, and their price."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from scipy import stats
from tests.kernel.toys import source
from tests.statistical.laws import LEVEL, assert_counts, assert_scale

from sordino.errors import InvalidInputError
from sordino.kernel import (
    GumbelTopK,
    JointSelection,
    LaplaceMax,
    LaplacePeeling,
    NoiseSource,
    Relation,
    SparseVector,
)
from sordino.kernel.events import PureDpEvent
from sordino.kernel.mechanism import Rounding, top_indices

AR, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE
MULTIPLIER, SENSITIVITY = 1.3, 2.7
SCALE = MULTIPLIER * SENSITIVITY
SCORES = np.array([4.0, -3.0, 0.0, 1.5, 0.0])


def peeled_probabilities(scores, count, scale=SCALE):
    """Return the law of ``count`` peeled exponential mechanisms, by ordered choice."""
    weights = np.exp(np.asarray(scores) / scale)
    law = {}
    for order in itertools.permutations(range(len(scores)), count):
        left, p = weights.sum(), 1.0
        for i in order:
            p, left = p * weights[i] / left, left - weights[i]
        law[order] = p
    return law


def observed(draw, law, runs):
    counts = dict.fromkeys(law, 0)
    for _ in range(runs):
        counts[tuple(int(i) for i in draw())] += 1
    return np.array([counts[k] for k in law]), runs * np.array(list(law.values()))


def values_of(scores, kind):
    if kind == "dense":
        return np.asarray(scores)
    at = np.flatnonzero(scores)[::-1]
    return SparseVector(at, np.asarray(scores)[at], len(scores))


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["dense", "lazy"])
@pytest.mark.parametrize("absolute", [False, True])
def test_one_shot_gumbel_noise_is_the_peeled_exponential_mechanism(kind, absolute):
    noise, value = source(51), values_of(SCORES, kind)
    mechanism = GumbelTopK(MULTIPLIER, count=2, absolute=absolute)
    law = peeled_probabilities(np.abs(SCORES) if absolute else SCORES, 2)
    counts, expected = observed(lambda: mechanism.privatise(value, SENSITIVITY, noise), law, 9000)
    assert_counts(counts, expected, tests=4)
    for wrong in (2 / 3, 3 / 2):
        other = peeled_probabilities(np.abs(SCORES) if absolute else SCORES, 2, wrong * SCALE)
        with pytest.raises(AssertionError):
            assert_counts(counts, 9000 * np.array(list(other.values())))


@pytest.mark.statistical
def test_lazy_and_dense_selections_agree_when_many_scores_are_untouched():
    scores = np.zeros(60)
    scores[[3, 50, 20]] = [9.0, -2.0, 6.0]
    noise, counts = source(52), {}
    for kind in ("dense", "lazy"):
        value, mechanism = values_of(scores, kind), GumbelTopK(MULTIPLIER, count=3)
        drawn = np.array([mechanism.privatise(value, SENSITIVITY, noise) for _ in range(6000)])
        assert all(np.unique(row).size == 3 for row in drawn[:200])
        counts[kind] = [np.bincount(drawn[:, place], minlength=60) for place in range(3)]
    for dense, lazy in zip(counts["dense"], counts["lazy"]):
        pooled = [np.append(c[[3, 20, 50]], np.delete(c, [3, 20, 50])) for c in (dense, lazy)]
        assert stats.chi2_contingency(pooled)[1] > LEVEL / 3
    assert_counts(np.delete(counts["lazy"][0], [3, 20, 50]), np.full(57, 57.0))


@pytest.mark.parametrize("kind", ["dense", "lazy"])
def test_asking_for_more_than_there_is_returns_everything_once(kind):
    chosen = GumbelTopK(MULTIPLIER, count=99).privatise(values_of(SCORES, kind), SENSITIVITY, source())
    assert sorted(chosen) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["dense", "lazy"])
def test_without_noise_the_best_are_chosen_in_order(kind):
    value = values_of(SCORES, kind)
    assert GumbelTopK(0.0, count=2).privatise(value, SENSITIVITY, source()).tolist() == [0, 3]
    best = GumbelTopK(0.0, count=3, absolute=True).privatise(value, SENSITIVITY, source())
    assert best.tolist() == [0, 1, 3]


def test_a_lazy_value_that_touches_everything_needs_no_untouched_ones():
    value = SparseVector(np.arange(5)[::-1], SCORES[::-1], 5)
    assert sorted(GumbelTopK(MULTIPLIER, count=5).privatise(value, SENSITIVITY, source())) == [0, 1, 2, 3, 4]


def test_the_largest_come_first():
    assert top_indices(np.array([1.0, 9.0, 3.0, 7.0]), 3).tolist() == [1, 3, 2]
    assert top_indices(np.array([1.0, 9.0]), 5).tolist() == [1, 0]


# ------------------------------------------------------------------------- one of each row, together

LOSSES = np.array([[0.0, 3.0, 3.0, 7.5], [4.0, 1.0, 0.5, 9.0], [2.0, 2.0, 6.0, 2.0]])


def joint_law(losses, scale=SCALE):
    """Return the probability of each combination of columns."""
    weights = {
        c: math.exp(-max(losses[j, i] for j, i in enumerate(c)) / scale)
        for c in itertools.product(range(losses.shape[1]), repeat=len(losses))
    }
    return {c: w / sum(weights.values()) for c, w in weights.items()}


def draws(exactly, losses, seed):
    noise, mechanism = source(seed), JointSelection(MULTIPLIER, secure=exactly)
    if exactly:
        return lambda: mechanism.privatise_exactly(losses[None], SENSITIVITY, Rounding(), noise)[0]
    return lambda: mechanism.privatise(losses[None], SENSITIVITY, noise)[0]


@pytest.mark.statistical
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("exactly", [False, True])
def test_a_joint_selection_is_the_exponential_mechanism_on_combinations(rows, exactly):
    losses = LOSSES[:rows]
    law = joint_law(losses)
    counts, expected = observed(draws(exactly, losses, 57), law, 9000)
    assert_counts(counts, expected, tests=6)
    for wrong in (2 / 3, 3 / 2):
        with pytest.raises(AssertionError):
            assert_counts(counts, 9000 * np.array(list(joint_law(losses, wrong * SCALE).values())))


def test_the_privacy_loss_of_a_joint_selection_reaches_its_price_and_stays_below():
    far, epsilon = np.full((2, 300), SENSITIVITY), 2.0 / MULTIPLIER
    ours, theirs = far.copy(), np.zeros_like(far)
    ours[:, 0], theirs[:, 0] = 0.0, SENSITIVITY  # two neighbours: each loss moves by the sensitivity
    some, pairs = [], np.array([joint_law(one[:, :40]) for one in (ours, theirs)])
    for a, b in itertools.permutations(pairs, 2):
        some += [math.log(a[c] / b[c]) for c in a]
    assert 0.9 * epsilon < max(some) <= epsilon * (1 + 1e-12)


@pytest.mark.statistical
def test_groups_of_rows_are_chosen_from_one_by_one():
    noise, groups = source(58), np.stack([LOSSES[:2], LOSSES[1:] + 1.0])
    drawn = np.array([JointSelection(MULTIPLIER).privatise(groups, SENSITIVITY, noise) for _ in range(9000)])
    assert drawn.shape == (9000, 2, 2)
    for group, losses in zip(drawn.transpose(1, 0, 2), groups):
        law = joint_law(losses)
        assert_counts(
            np.array([(group == c).all(axis=1).sum() for c in law]), 9000 * np.array(list(law.values()))
        )
    both = np.array(
        [
            [
                ((drawn[:, 0] == a).all(axis=1) & (drawn[:, 1] == b).all(axis=1)).sum()
                for b in ((0, 0), (1, 1), (2, 3))
            ]
            for a in ((0, 0), (0, 1), (0, 2))
        ]
    )
    assert stats.chi2_contingency(both + 1)[1] > LEVEL


def test_without_noise_a_joint_selection_takes_the_middle_of_the_best():
    losses = np.array([[[5.0, 1.0, 1.0, 1.0, 2.0], [0.0, 9.0, 0.0, 0.0, 4.0]]])
    assert JointSelection(0.0).privatise(losses, SENSITIVITY, source()).tolist() == [[2, 2]]


def test_the_levels_of_an_exact_race_have_room_for_their_rounding(monkeypatch):
    seen = []

    def race(self, scores, scale, count):
        seen.append(scores)
        return np.zeros(1, dtype=int)

    monkeypatch.setattr(NoiseSource, "race", race)
    for groups, error in ((1, 0.0), (1, 0.1), (3, 0.1)):  # the rows of a person may lie in all groups
        seen.clear()
        losses = np.stack([LOSSES[:1]] * groups)
        JointSelection(MULTIPLIER, secure=True).privatise_exactly(
            losses, SENSITIVITY, Rounding(error), source()
        )
        width = MULTIPLIER * (SENSITIVITY + 4.0 * groups * error)
        wider = np.log(np.expm1(-4.5 / width) / np.expm1(-3.0 / width))
        assert [-3.0 / (logs[1] - logs[0] - np.log(3) - wider) for logs in seen] == pytest.approx(
            [width] * groups, rel=1e-9
        )


# ------------------------------------------------------------------------------------------ Laplace


@pytest.mark.statistical
def test_report_noisy_max_has_the_law_of_the_largest_noisy_score():
    noise, mechanism = source(53), LaplaceMax(MULTIPLIER)
    wins = np.bincount([mechanism.privatise(SCORES, SENSITIVITY, noise)[0] for _ in range(9000)], minlength=5)
    grid = np.linspace(-80, 80, 40_001)
    laws = [stats.laplace(s, SCALE) for s in SCORES]
    cdf = np.prod([law.cdf(grid) for law in laws], axis=0)
    chance = [np.trapezoid(law.pdf(grid) * cdf / law.cdf(grid), grid) for law in laws]
    assert_counts(wins, 9000 * np.array(chance))


@pytest.mark.statistical
def test_peeling_chooses_without_return_and_adds_laplace_noise_to_the_values():
    noise, mechanism, values = (
        source(54),
        LaplacePeeling(MULTIPLIER, count=2),
        np.array([50.0, -90.0, 0.0, 1.0]),
    )
    drawn = [mechanism.privatise(values, SENSITIVITY, noise) for _ in range(5000)]
    assert all(d.indices[0] == 1 and d.indices[1] == 0 for d in drawn[:50])
    assert all(d.size == 4 for d in drawn)
    assert_scale(np.array([d.values - values[d.indices] for d in drawn]) / SCALE, stats.laplace)


@pytest.mark.statistical
def test_the_first_peeled_coordinate_has_the_law_of_noisy_max():
    noise, mechanism = source(55), LaplacePeeling(MULTIPLIER, count=1)
    wins = np.bincount(
        [mechanism.privatise(SCORES, SENSITIVITY, noise).indices[0] for _ in range(6000)], minlength=5
    )
    best = np.bincount(
        [LaplaceMax(MULTIPLIER).privatise(np.abs(SCORES), SENSITIVITY, noise)[0] for _ in range(6000)]
    )
    assert stats.chi2_contingency([wins, best])[1] > LEVEL


def test_one_coordinate_is_chosen_unless_more_are_asked():
    assert GumbelTopK().count == LaplacePeeling().count == 1
    assert LaplaceMax(MULTIPLIER).privatise(SCORES, SENSITIVITY, source()).shape == (1,)


def test_noise_is_added_to_scores_and_values():
    gumbel, laplace = source(56).gumbel(5), source(56).laplace(5)
    for seed_free, kind in ((gumbel, GumbelTopK), (laplace, LaplaceMax)):
        best = np.argmax(SCORES + SCALE * seed_free)
        assert kind(MULTIPLIER).privatise(SCORES, SENSITIVITY, source(56))[0] == best
        assert np.argmax(SCORES - SCALE * seed_free) != best
    peeled, again = LaplacePeeling(MULTIPLIER).privatise(SCORES, SENSITIVITY, source(56)), source(56)
    best = np.argmax(np.abs(SCORES) + SCALE * again.laplace(5))
    assert peeled.indices[0] == best != np.argmax(np.abs(SCORES) - SCALE * laplace)
    assert peeled.values[0] == pytest.approx(SCORES[best] + SCALE * again.laplace(1)[0])


def test_peeling_takes_a_sparse_value_and_at_most_what_there_is():
    value = SparseVector(np.array([2]), np.array([5.0]), 4)
    out = LaplacePeeling(0.0, count=9).privatise(value, SENSITIVITY, source())
    assert sorted(out.indices) == [0, 1, 2, 3]
    np.testing.assert_array_equal(out.to_dense(), value.to_dense())


# -------------------------------------------------------------------------------------------- price


def test_the_price_of_a_selection():
    m = 1.7
    assert GumbelTopK(m, count=4).event(AR) == dp.ZCDpEvent(4 / (2 * m**2))
    assert GumbelTopK(m, count=4).event(RO) == dp.ZCDpEvent(4 / (2 * m**2))
    assert LaplaceMax(m).event(AR) == PureDpEvent(2 / m)
    assert JointSelection(m).event(AR) == JointSelection(m).event(RO) == PureDpEvent(2 / m)
    assert JointSelection(m, once=False).event(AR) == dp.ZCDpEvent((2 / m) ** 2 / 8)
    assert (JointSelection().rho(), JointSelection(once=False).rho()) == (2.0, 0.5)
    rounds, values = (
        dp.SelfComposedDpEvent(PureDpEvent(2 / m), 3),
        dp.SelfComposedDpEvent(dp.LaplaceDpEvent(m), 3),
    )
    assert LaplacePeeling(m, count=3).event(AR) == dp.ComposedDpEvent([rounds, values])


def test_scores_that_move_together_cost_a_quarter_unless_a_record_is_replaced():
    m = 1.7
    assert GumbelTopK(m, count=4, monotone=True).event(AR) == dp.ZCDpEvent(4 / (8 * m**2))
    assert GumbelTopK(m, count=4, monotone=True).event(RO) == dp.ZCDpEvent(4 / (2 * m**2))
    assert GumbelTopK(count=4, monotone=True).rho() == 0.5
    assert GumbelTopK(count=4).rho() == 2.0
    assert LaplacePeeling(count=4).rho() == 10.0
    assert LaplaceMax().rho() == 2.0


def test_without_noise_there_is_no_privacy():
    assert GumbelTopK(0.0).event(AR) == LaplaceMax(0.0).event(AR) == dp.NonPrivateDpEvent()
    assert (
        JointSelection(0.0).event(AR) == JointSelection(0.0, once=False).event(AR) == dp.NonPrivateDpEvent()
    )
    assert LaplacePeeling(0.0).event(AR) == dp.ComposedDpEvent([dp.NonPrivateDpEvent()] * 2)


@pytest.mark.parametrize("kind", [GumbelTopK, LaplacePeeling])
@pytest.mark.parametrize("count", [0, -3])
def test_selecting_nothing_is_refused(kind, count):
    with pytest.raises(InvalidInputError, match="at least one"):
        kind(count=count)
    with pytest.raises(InvalidInputError, match="noise multiplier"):
        kind(-1.0, count=2)


def test_magnitudes_are_never_taken_to_move_together():
    with pytest.raises(InvalidInputError, match="monotone=False"):
        GumbelTopK(absolute=True, monotone=True)


@pytest.mark.statistical
def test_a_selection_is_no_more_telling_than_its_price():
    # The bounded range of one choice is 2 / m, so no outcome is e^(2/m) times likelier on a neighbour.
    one, other = SCORES, SCORES + SENSITIVITY * np.array([1, -1, -1, 1, -1])
    laws = [peeled_probabilities(s, 1) for s in (one, other)]
    ratios = [math.log(laws[0][k] / laws[1][k]) for k in laws[0]]
    assert max(ratios) - min(ratios) == pytest.approx(2 / MULTIPLIER)
    alpha = 3.0
    renyi = math.log(sum(laws[0][k] ** alpha * laws[1][k] ** (1 - alpha) for k in laws[0])) / (alpha - 1)
    assert renyi <= alpha * GumbelTopK(MULTIPLIER).event(AR).rho
