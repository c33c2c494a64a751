"""A folder with a file of people, a budget for them, and a model of them."""

import pytest
from tests.cli.helpers import FIT, table, typed, write_csv


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SORDINO_LEDGER", raising=False)
    write_csv(tmp_path / "people.csv", *table())
    write_csv(tmp_path / "public.csv", *table())
    return tmp_path


@pytest.fixture
def booked(folder):
    typed("ledger", "create", "budget.db", "people", "--epsilon", 6, "--delta", 1e-3)
    return "--ledger", "budget.db", "--dataset", "people"


@pytest.fixture
def model(folder, booked):
    typed("fit", "people.csv", *FIT, "--classes", "no,yes", *booked, "--output", "m.sordino")
    return folder / "m.sordino"
