"""Files of every version, written by tools/fixtures.py, stand in tests/fixtures and are read for ever."""

import json
import shutil
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tools import fixtures

import sordino
from sordino.errors import InvalidInputError, MissingExtraError
from sordino.saving import about

UNPAID = "not private (a step reads the records and paid nothing)"
VERSIONS = sorted(path.name for path in (Path(__file__).parent / "fixtures").iterdir())


@pytest.fixture(params=VERSIONS)
def kept(request, tmp_path):
    """A copy of the folder of a version: reading may write, and fixtures are never changed."""
    return Path(shutil.copytree(Path(__file__).parent / "fixtures" / request.param, tmp_path / "kept"))


def test_files_of_the_first_version_are_kept():
    assert "0.1.0" in VERSIONS


def test_models_answer_as_they_did(kept):
    expected = json.loads((kept / "expected.json").read_text())
    assert {file.stem for file in kept.glob("*.sordino")} == set(expected)
    for name, answers in expected.items():
        try:
            model = sordino.load(kept / f"{name}.sordino")
        except MissingExtraError:
            if find_spec("torch") is not None:
                raise
            continue  # a network
        rows = None
        if name == "table":
            import pandas

            rows = pandas.DataFrame(fixtures.TABLE).drop(columns="ill").head()
        assert np.allclose(fixtures.answers(model, rows), answers, rtol=1e-6, atol=1e-9), name
        assert about(kept / f"{name}.sordino")["report"]["status"] == (
            "unverified copy" if name != "foreign" else UNPAID
        )


def test_reports_and_schemas_are_read(kept):
    report = sordino.PrivacyReport.from_json((kept / "report.json").read_text())
    assert 0.9 < report.epsilon <= 1.0
    schema = sordino.Schema.from_toml((kept / "schema.toml").read_text())
    assert [column.name for column in schema.columns] == ["age", "ward", "ill"]


def test_a_ledger_and_its_export_hold_the_same_history_and_can_be_booked_on(kept):
    with sordino.Ledger.open(kept / "ledger.db") as book, sordino.Ledger.open(kept / "new.db") as other:
        spent = book.spent("people")
        assert [entry.status.value for entry in book.history("people")] == ["settled", "settled"]
        book.verify()
        other.import_json((kept / "ledger.json").read_text())
        assert other.spent("people") == spent
        model = sordino.PCA(1, epsilon=0.5, data_norm=3.0, ledger=book, dataset_id="people")
        model.fit(fixtures.ROWS)
        assert book.spent("people").reservations == 3


def test_a_stopped_training_goes_on(kept):
    pytest.importorskip("torch")
    trainer = fixtures.trainer(kept / "training")
    report = trainer.resume(*fixtures.records()).privacy
    assert 4.0 < report.epsilon <= 5.0


def test_a_joint_plan_is_certified_or_refused_by_its_format(kept):
    """A plan is run once, by members of one version: one of version 0.1 is made again."""
    from sordino.parties.mpc.plan import FORMAT, JointPlan

    path = kept / "plan.json"
    if json.loads(path.read_text())["format"] == FORMAT:
        assert JointPlan.load(path).certificate.epsilon <= 1.0
    else:
        with pytest.raises(InvalidInputError, match="format"):
            JointPlan.load(path)


def test_rows_on_disk_are_read(kept):
    rows = sordino.on_disk(kept / "rows")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (
            sordino.LogisticRegression(1.0, data_norm=3.0, classes=[0, 1], solver="gd")
            .fit(rows, rows.target)
            .privacy_.epsilon
            <= 1.0
        )
