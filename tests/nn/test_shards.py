"""Two processes, each with a shard of every parameter, train as one: same sum, each entry's noise once."""

import re

import numpy as np
import pytest
from tests.nn import shard_jobs
from tests.nn.helpers import blobs, run_two


def run(folder, which):
    """Return what the two processes report."""
    codes, said, reports = run_two("tests.nn.shard_jobs", folder, which)
    assert codes == [0, 0], said
    return reports


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    return run(tmp_path_factory.mktemp("shards"), "short")


@pytest.fixture(scope="module")
def more(tmp_path_factory):
    return run(tmp_path_factory.mktemp("shards"), "long")


def check_same(reports, name, alone):
    first, second = (report[name] for report in reports)
    assert np.allclose(first["model"], alone["model"], atol=2e-6)
    assert first["model"] == second["model"]
    assert any("2 processes, each of which adds the noise of its shard" in note for note in second["notes"])


@pytest.mark.parametrize("name", shard_jobs.SAME)
def test_shards_are_one_process_to_rounding(name, seen):
    check_same(seen, name, shard_jobs.SAME[name]())


@pytest.mark.long
@pytest.mark.parametrize("name", shard_jobs.LONG)
def test_shards_are_one_process_to_rounding_in_every_way(name, more):
    check_same(more, name, shard_jobs.LONG[name]())


@pytest.mark.long
def test_records_without_a_finite_gradient_count_zero_and_take_no_others_with_them(more):
    kept = np.setdiff1d(np.arange(120), [5, 6, 40])
    x, y = blobs()
    rate = 0.5 * len(kept) / 120  # sums are divided by the expected batch
    without = shard_jobs.fitted(
        shard_jobs.Net(), (x[kept], y[kept]), learning_rate=rate, batch_size=len(kept)
    )
    assert np.allclose(more[0]["not finite"]["model"], without["model"], atol=2e-6)


@pytest.mark.long
def test_parameters_gathered_in_halves_are_clipped_and_summed_in_float32(more):
    plain, half = (np.array(more[0][name]["model"]) for name in ("all records", "half"))
    assert 0 < np.abs(plain - half).max() < 0.02


def test_each_entry_has_the_noise_of_the_release_once(seen):
    multiplier = seen[0]["noise"]["multiplier"]
    shards = np.array([seen[rank]["noise"]["grads"] for rank in range(2)])  # (process, step, entry)
    each = shards.reshape(4, -1)
    deviations = each.std(axis=1) / (multiplier * 0.7 / 40)  # clip norm .7, 40 records expected
    assert np.all(np.abs(deviations - 1) < 4 / np.sqrt(2 * each.shape[1]) + 0.002)
    pairs = np.corrcoef(each)[np.triu_indices(4, 1)]
    assert np.all(np.abs(pairs) < 4.5 / np.sqrt(each.shape[1]))


@pytest.mark.parametrize("name", shard_jobs.REFUSED)
def test_what_shards_would_falsify_is_refused_by_name_in_both(name, seen):
    for rank in range(2):
        assert re.match(shard_jobs.REFUSED[name][1], seen[rank][name]), seen[rank][name]


@pytest.mark.long
def test_a_backward_pass_of_ones_own_over_shards_is_warned_about(more):
    for rank in range(2):
        assert any("A backward pass has reached the model" in said for said in more[rank]["own backward"])
