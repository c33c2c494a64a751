"""Two processes train as one: same result, one noise, one booking; whoever differs or dies stops all."""

import numpy as np
import pytest
import torch
from tests.nn import process_jobs
from tests.nn.helpers import blobs, run_two

from sordino.errors import InvalidInputError
from sordino.execute.processes import fingerprint
from sordino.ledger import BudgetPolicy, Ledger


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def seen(folder):
    """What the two processes report."""
    with Ledger.open(folder / "ledger.db", create=True) as ledger:
        for what in process_jobs.APART:
            unit = "person" if what == "owners" else "record"
            ledger.create(what, BudgetPolicy(epsilon=20.0, delta=1e-2, unit=unit))
    codes, said, reports = run_two("tests.nn.process_jobs", folder)
    assert codes == [0, 9], said
    return reports


@pytest.mark.parametrize("name", process_jobs.SAME)
def test_two_processes_are_one_to_rounding(name, seen):
    alone = process_jobs.SAME[name]()
    assert np.allclose(seen[0][name]["model"], alone["model"], atol=2e-6)
    assert seen[0][name]["model"] == seen[1][name]["model"]
    assert {seen[rank][name]["epsilon"] for rank in range(2)} == {alone["epsilon"]}
    assert any("2 processes" in note for note in seen[1][name]["notes"])


def test_sums_in_integers_are_the_same_whoever_adds_them_up(seen):
    assert seen[0]["integers"]["model"] == process_jobs.SAME["integers"]()["model"]


def test_a_run_is_resumed_from_the_files_of_the_first_process(seen):
    for rank in range(2):
        assert seen[rank]["resumed"]["steps"] == 0
        assert seen[rank]["resumed"]["again"] == seen[0]["resumed"]["model"]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("size", "number of records"),
        ("parameters", "parameters at the start"),
        ("order", "data"),
        ("owners", "owners of records"),
        ("settings", "setting"),
        ("items", "data"),
    ],
)
def test_processes_that_differ_are_refused_everywhere_and_nothing_is_booked(what, words, seen, folder):
    for rank in range(2):
        assert seen[rank][what].startswith("InvalidInputError: Expected the same training in all processes")
        assert f"another {words}" in seen[rank][what]
    with Ledger.open(folder / "ledger.db") as ledger:
        assert not ledger.history(what)


def test_a_record_that_cannot_be_read_is_refused_in_all_processes_before_booking(seen, folder):
    for rank in range(2):
        assert seen[rank]["reading"].startswith("InvalidInputError: The data set failed on some records")
        assert "secret" not in seen[rank]["reading"]
    with Ledger.open(folder / "ledger.db") as ledger:
        assert not ledger.history("reading")


def test_a_budget_that_the_first_process_lacks_stops_all(seen, folder):
    assert seen[0]["refused"].startswith("BudgetExceededError")
    assert seen[1]["refused"].startswith("WorkerError: The first process has refused this training")
    with Ledger.open(folder / "ledger.db") as ledger:
        assert not ledger.history("refused")


@pytest.mark.parametrize(
    ("what", "first", "second"),
    [
        ("steps", "WorkerError: The processes of this training are not at", None),
        ("stopped", "SordinoError: enough", "WorkerError: The first process has stopped"),
        (
            "failing",
            "WorkerError: Another process",
            "InvalidInputError: The model, the loss or the device fails",
        ),
    ],
)
def test_a_failure_in_one_process_stops_all_and_stays_spent(what, first, second, seen, folder):
    assert seen[0][what].startswith(first)
    assert seen[1][what].startswith(second or first)
    assert not any("secret" in seen[rank][what] for rank in range(2))
    with Ledger.open(folder / "ledger.db") as ledger:
        assert [entry.status for entry in ledger.history(what)] == ["failed"]
        assert ledger.spent(what).epsilon > 1


def test_the_death_of_a_process_is_noticed_and_stays_spent(seen, folder):
    assert seen[0]["death"].startswith("WorkerError: A process of this training is gone")
    with Ledger.open(folder / "ledger.db") as ledger:
        assert [entry.status for entry in ledger.history("death")] == ["failed"]


def test_several_processes_are_refused_where_there_is_one():
    with pytest.raises(InvalidInputError, match="torchrun"):
        process_jobs.trainer(distributed=True).fit(*blobs())


def test_a_fingerprint_sees_every_bit_and_place():
    x = torch.arange(12.0).reshape(3, 4)
    assert fingerprint(x) == fingerprint(x.clone()) != fingerprint(x.flip(0))
    turned = x.clone()
    turned[2, 1] = torch.nextafter(turned[2, 1], torch.tensor(99.0))
    assert fingerprint(turned) != fingerprint(x)
    assert fingerprint([x, x]) != fingerprint([x])
    assert fingerprint(torch.tensor([0.0])) != fingerprint(torch.tensor([-0.0]))


@pytest.mark.parametrize("name", ["DistributedDataParallel", "FullyShardedDataParallel"])
def test_wrapped_models_are_refused_with_a_remedy(name):
    wrapper = type(name, (torch.nn.Sequential,), {})(torch.nn.Linear(6, 3))
    with pytest.raises(InvalidInputError, match=r"itself|FSDP"):
        process_jobs.trainer(wrapper).fit(*blobs())
