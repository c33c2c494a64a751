"""Counts, histograms, cross tables and statistics by declared groups, from the outside."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import sordino
from sordino.errors import BudgetExceededError, InvalidInputError
from sordino.estimators.group_statistics import PrivateTable
from sordino.tables import Flag
from sordino.testing import seeded_noise_not_private

INF = float("inf")
RNG = np.random.default_rng(0)
N = 3000
WARD = RNG.choice(["a", "b", "c", "elsewhere"], N, p=[0.6, 0.3, 0.05, 0.05])
AGE = RNG.integers(0, 100, N)
PAY = RNG.lognormal(2.0, 1.0, N)


def test_without_noise_counts_are_exact():
    assert sordino.count(AGE > 50, INF) == (AGE > 50).sum()
    np.testing.assert_array_equal(
        sordino.count(WARD, INF, levels=["a", "b", "none"]).value,
        [(WARD == "a").sum(), (WARD == "b").sum(), 0],
    )
    edges = [0, 18, 65, 99]
    np.testing.assert_array_equal(sordino.histogram(AGE, edges, INF).value, np.histogram(AGE, edges)[0])
    table = sordino.crosstab(WARD, AGE > 50, INF, levels=(["a", "b"], [False, True]))
    expected = [[((w == WARD) & ((AGE > 50) == old)).sum() for old in (False, True)] for w in ("a", "b")]
    np.testing.assert_array_equal(np.asarray(table), expected)


def test_without_noise_sums_means_and_quantiles_of_groups_are_those_of_pandas():
    frame = pd.DataFrame({"ward": WARD, "age": AGE})
    groups = sordino.group_by(frame, levels={"ward": ["a", "b"]}, edges={"age": [0, 50, 100]})
    bins = pd.cut(frame["age"], [0, 50, 100], right=False)
    wanted = (
        pd.Series(PAY).groupby([frame["ward"], bins], observed=True).agg(["count", "sum", "mean", "median"])
    )
    wanted = wanted.loc[["a", "b"]]
    bounds = (0.0, 4096.0)
    np.testing.assert_array_equal(groups.count(INF).value, wanted["count"])
    np.testing.assert_allclose(groups.sum(PAY, INF, bounds=bounds).value, wanted["sum"])
    np.testing.assert_allclose(groups.mean(PAY, INF, bounds=bounds).value, wanted["mean"])
    median = groups.quantile(PAY, 0.5, INF, bounds=bounds, resolution=16)
    np.testing.assert_allclose(median.value, wanted["median"], rtol=0.02)


def test_a_count_is_a_whole_number_between_zero_and_n_inside_of_its_interval():
    with seeded_noise_not_private(1):
        for _ in range(20):
            table = sordino.count(WARD[:30], 0.1, levels=["a", "c", "nobody"])
            assert (table.value == np.rint(table.value)).all()
            assert (np.stack([table.low, table.value, table.high]) >= 0).all()
            assert (table.high <= 30).all()
            assert ((table.low <= table.value) & (table.value <= table.high)).all()


def test_all_groups_together_cost_what_one_does():
    bounds = (0.0, 100.0)
    few, many = sordino.group_by(WARD, levels=["a"]), sordino.group_by(AGE, levels=range(100))
    same = sordino.group_by(WARD, levels=["a", *map(str, range(99))])  # one of a hundred groups has records
    for ask, one in (
        (lambda g: g.count(0.7), few),
        (lambda g: g.sum(PAY, 0.7, bounds=bounds), few),
        (lambda g: g.mean(PAY, 0.7, bounds=bounds), few),
        (lambda g: g.quantile(PAY, [0.1, 0.9], 0.7, bounds=bounds), same),
    ):
        ours, theirs = ask(one).privacy, ask(many).privacy
        assert 0.99 * 0.7 < ours.epsilon <= 0.7
        assert [r.noise_multiplier for r in ours.releases] == [r.noise_multiplier for r in theirs.releases]


def test_a_selection_in_all_groups_costs_what_one_does():
    few, many = sordino.group_by(WARD, levels=["a"]), sordino.group_by(AGE, levels=range(100))
    found = [g.quantile(PAY, 0.5, 0.7, bounds=(0.0, 100.0)).privacy for g in (few, many)]
    by_name = [{r.name: r for r in report.releases} for report in found]
    assert [report.epsilon == pytest.approx(0.7, rel=0.01) for report in found] == [True, True]
    assert {one["values"].sensitivity for one in by_name} == {"1 (Linf)"}
    assert (
        by_name[1]["values"].noise_multiplier < by_name[0]["values"].noise_multiplier
    )  # it has no tree to pay


def test_a_count_has_sensitivity_one_and_a_replaced_record_the_root_of_two():
    by_relation = {r: sordino.count(AGE > 50, 1.0, relation=r).privacy for r in ("add-remove", "replace-one")}
    assert by_relation["add-remove"].releases[0].sensitivity == "1 (L2)"
    assert by_relation["replace-one"].releases[0].sensitivity == "1.414 (L2)"


def test_a_person_counts_once_with_all_rows():
    persons = np.arange(N) // 3
    found = sordino.count(WARD, INF, levels=["a", "b"], groups=persons)
    assert found.value.tolist() == pytest.approx([(WARD == "a").sum() / 3, (WARD == "b").sum() / 3])
    assert found.privacy.unit == "person"
    assert "number of persons: 1000" in found.privacy.public
    named = sordino.count(WARD, INF, levels=["a", "b"], groups=[f"p{i}" for i in persons])
    assert named.value.tolist() == found.value.tolist()


def test_so_many_rows_of_a_person_count_in_full():
    persons, levels = np.arange(N) // 3, ["a", "b"]
    truth = [(WARD == "a").sum(), (WARD == "b").sum()]
    for owners in (persons, None):
        found = sordino.count(WARD, INF, levels=levels, groups=owners, rows_per_person=3)
        assert found.value.tolist() == pytest.approx(truth)
        assert found.privacy.unit == "person"
    two = sordino.count(WARD, INF, levels=levels, groups=persons, rows_per_person=2)
    kept = WARD[np.arange(N) % 3 < 2]
    assert two.value.tolist() == pytest.approx([(kept == "a").sum(), (kept == "b").sum()])
    ages = np.where(WARD == "a", 20.0, 60.0)
    mean = sordino.group_by(WARD, levels=levels, rows_per_person=3).mean(ages, INF, bounds=(0, 100))
    assert mean.value.tolist() == pytest.approx([20.0, 60.0])
    assert "no person has more than 3 rows, declared" in mean.privacy.public
    with pytest.raises(InvalidInputError, match="rows_per_person"):
        sordino.count(WARD, levels=levels, rows_per_person=0)


def test_noise_grows_with_the_rows_of_a_person():
    one = sordino.count(WARD, 1.0, 1e-6, levels=["a", "b"])
    five = sordino.count(WARD, 1.0, 1e-6, levels=["a", "b"], rows_per_person=5)
    wide = five.high - five.low
    assert np.all(wide / (one.high - one.low) > 4.5)
    assert np.all(wide / (one.high - one.low) < 5.7)


def test_one_person_with_many_records_moves_a_count_by_one():
    persons = np.r_[np.zeros(500, dtype=int), np.arange(1, 501)]
    ward = np.r_[["a"] * 500, ["b"] * 500]
    without = sordino.count(ward[500:], INF, levels=["a", "b"], groups=persons[500:])
    found = sordino.count(ward, INF, levels=["a", "b"], groups=persons)
    assert (found.value - without.value).tolist() == pytest.approx([1.0, 0.0], abs=1e-8)
    assert (found.value - without.value)[0] <= 1.0


def test_a_statistic_is_booked_on_the_ledger(tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "budget.db")
    ledger.create("ward", sordino.BudgetPolicy(1.0, 1e-5))
    sordino.count(AGE > 50, 0.8, 1e-5, ledger=ledger, dataset_id="ward")
    with pytest.raises(BudgetExceededError):
        sordino.group_by(WARD, levels=["a"]).count(0.8, 1e-5, ledger=ledger, dataset_id="ward")


def test_a_group_of_nobody_has_the_bounds_as_its_interval():
    with seeded_noise_not_private(1):
        table = sordino.group_by(WARD, levels=["a", "nobody"]).mean(PAY, 1.0, bounds=(0.0, 100.0))
    assert table.interval("nobody") == (0.0, 100.0)
    assert 0.0 <= table["nobody"] <= 100.0


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, dict], ids=["pandas", "polars", "dict"])
def test_keys_come_as_frames_of_either_kind_or_as_dicts(frame):
    keys = frame({"ward": WARD.tolist(), "age": AGE.tolist()})
    found = sordino.group_by(keys, levels={"ward": ["a"], "age": [3, 4]}).count(INF)
    assert found.value.tolist() == [((WARD == "a") & (k == AGE)).sum() for k in (3, 4)]
    assert found.keys == ("ward", "age")


def test_a_table_can_be_read_as_a_frame_a_page_and_a_plot():
    table = sordino.group_by(WARD, levels=["a", "<b>"]).quantile(PAY, [0.5, 0.9], 1.0, bounds=(0, 100))
    frame = table.to_frame()
    assert list(frame.columns) == ["group", "q", "quantile", "low", "high"]
    assert len(frame) == len(table) == 4
    assert np.asarray(table).shape == (2, 2)
    assert table["a", 0.5] == frame["quantile"][0]
    assert "&lt;b&gt;" in table._repr_html_()
    axes = table.plot()
    assert "quantile" in axes.get_xlabel()
    assert isinstance(table, PrivateTable)


def test_secure_noise_counts_too():
    assert abs(sordino.count(AGE > 50, secure_noise=True) - (AGE > 50).sum()) < 40


@pytest.mark.parametrize(
    "call",
    [
        lambda: sordino.count(np.full(N, 1j), 1.0),
        lambda: sordino.count(np.ones((N, 2)), 1.0),
        lambda: sordino.count(np.full(N, np.datetime64("2020-01-01")), 1.0),
        lambda: sordino.count([], 1.0),
        lambda: sordino.count(WARD, 1.0, levels=[]),
        lambda: sordino.count(WARD, 1.0, levels="abc"),
        lambda: sordino.count(WARD, 1.0, levels=["a", "a"]),
        lambda: sordino.count(WARD, 1.0, levels=[None]),
        lambda: sordino.count(WARD, 1.0, levels=[["a"]]),
        lambda: sordino.count(WARD, 1.0, levels=["a"], groups=[1, 2]),
        lambda: sordino.count(WARD, 1.0, levels=["a"], confidence=1.0),
        lambda: sordino.histogram(AGE, [3], 1.0),
        lambda: sordino.histogram(AGE, [3, 2], 1.0),
        lambda: sordino.histogram(AGE, [0, np.inf], 1.0),
        lambda: sordino.histogram(WARD, [0, 1], 1.0),
        lambda: sordino.crosstab(WARD, AGE, 1.0, levels=["a"]),
        lambda: sordino.crosstab(WARD, AGE[:5], 1.0, levels=(["a"], [1])),
        lambda: sordino.group_by({"a": WARD}, levels={"b": ["a"]}),
        lambda: sordino.group_by({"a": WARD}, levels=["a"]),
        lambda: sordino.group_by(WARD),
        lambda: sordino.group_by({}, levels={}),
        lambda: sordino.group_by(AGE, levels=range(2_000_000)),
        lambda: sordino.group_by(WARD, levels=["a"]).mean(PAY, 1.0, bounds=None),
        lambda: sordino.group_by(WARD, levels=["a"]).mean(PAY, 1.0, bounds=(3, 2)),
        lambda: sordino.group_by(WARD, levels=["a"]).mean(PAY[:5], 1.0, bounds=(0, 2)),
        lambda: sordino.group_by(WARD, levels=["a"]).mean(np.full(N, np.nan), 1.0, bounds=(0, 2)),
        lambda: sordino.group_by(WARD, levels=["a"]).sum(WARD, 1.0, bounds=(0, 2)),
        lambda: sordino.group_by(WARD, levels=["a"]).quantile(PAY, 1.5, 1.0, bounds=(0, 2)),
        lambda: sordino.group_by(WARD, levels=["a"]).count(1.0, colour="red"),
    ],
)
def test_bad_input_is_refused_without_its_values(call):
    with pytest.raises(InvalidInputError) as caught:
        call()
    assert "elsewhere" not in str(caught.value)


def test_a_record_that_fits_no_level_is_in_no_group():
    odd = np.array(["a", None, float("nan"), 3, ["a"], "a"], dtype=object)
    assert sordino.count(odd, INF, levels=["a", 3]).value.tolist() == [2.0, 1.0]
    assert sordino.histogram([np.nan, -np.inf, np.inf, 1.0, 2.0], [1.0, 2.0], INF).value.tolist() == [2.0]


def test_huge_and_tiny_bounds_do_not_overflow():
    for bounds in ((-1e308, 1e308), (0.0, 1e-323), (1e300, 1.1e300)):
        table = sordino.group_by(WARD, levels=["a"]).mean(PAY, 1.0, bounds=bounds)
        assert bounds[0] <= table["a"] <= bounds[1]


def test_bounds_too_close_to_divide_by_are_refused_rather_than_answered_with_nan():
    wards = sordino.group_by(["a", "b"] * 50, levels=["a", "b"])
    with pytest.raises(InvalidInputError, match="farther apart"):
        wards.mean([0.0, 5e-324] * 50, bounds=(0.0, 5e-324))


def test_a_wrong_label_is_told_what_labels_look_like():
    """An interval ended with "tuple.index(x): x not in tuple", a number with a KeyError."""
    table = sordino.group_by(WARD, levels=["a", "b"]).quantile(PAY, [0.5, 0.9], INF, bounds=(0, 4096))
    for ask in (table.interval, table.__getitem__):
        with pytest.raises(InvalidInputError, match=r"by group, q, such as \('a', 0.5\), got 'a'"):
            ask("a")
    low, high = table.interval(("a", 0.5))
    assert low <= table["a", 0.5] <= high


def test_an_unknown_option_is_named_and_groups_are_sent_to_group_by():
    wards = sordino.group_by(WARD, levels=["a", "b"])
    with pytest.raises(InvalidInputError, match=r"got 'groups'; .*groups.* belong in group_by"):
        wards.mean(PAY, bounds=(0, 4096), groups=AGE)
    with pytest.raises(InvalidInputError, match="got 'confidense'"):
        wards.count(confidense=0.9)


def test_a_flag_of_a_schema_stands_for_no_and_yes():
    table = sordino.count(["yes", "N", "1", "perhaps", None, True], INF, levels=Flag("ill"))
    assert dict(zip(table.rows, table.value)) == {("no",): 1, ("yes",): 3}
