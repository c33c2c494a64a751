"""The example that logs to MLflow logs what was released, and nothing else."""

import runpy
import subprocess
import sys
import types
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import sordino
from sordino.errors import InvalidInputError

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "mlflow_logger.py"


@pytest.fixture
def logged(monkeypatch):
    """Stand in for MLflow; return what was logged."""
    out = {"params": {}, "metrics": {}, "tags": {}, "texts": {}, "files": {}}
    fake = types.ModuleType("mlflow")
    fake.log_params, fake.log_metrics = out["params"].update, out["metrics"].update
    fake.set_tags = out["tags"].update
    fake.log_text = lambda text, place: out["texts"].update({place: text})
    fake.log_artifact = lambda path, folder: out["files"].update(
        {f"{folder}/{Path(path).name}": Path(path).read_bytes()}
    )
    fake.set_experiment, fake.start_run = (lambda name: None), (lambda run_name: nullcontext())
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return out


def test_the_guarantee_the_report_and_the_model_are_logged(logged, tmp_path, capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "logged epsilon" in capsys.readouterr().out
    assert 1.9 < logged["metrics"]["epsilon"] <= 2.0
    assert logged["metrics"]["accuracy epsilon"] <= 0.5
    assert logged["tags"]["privacy.status"] == "private"
    assert set(logged["texts"]) == {"model/privacy.json", "model/report.html"}
    (tmp_path / "m.sordino").write_bytes(logged["files"]["model/model.sordino"])
    assert sordino.load(tmp_path / "m.sordino").classes_.tolist() == ["ill", "well"]


def test_a_ledgers_address_is_not_logged_and_an_exact_score_is_refused(logged, tmp_path):
    log = runpy.run_path(str(EXAMPLE))["log_private_model"]
    address = tmp_path / "secret-place.db"
    with sordino.Ledger.open(address, create=True) as ledger:
        ledger.create("d", sordino.BudgetPolicy(9.0, 1e-3))
    model = sordino.LogisticRegression(1.0, 1e-5, data_norm=1.0, ledger=address, dataset_id="d")
    model.fit(np.eye(90, 3), np.arange(90) % 2)
    log(model)
    assert "secret-place" not in str(logged)
    with pytest.raises(InvalidInputError, match="private_score"):
        log(model, scores={"accuracy": 0.9})


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
@pytest.mark.long
def test_it_runs_on_mlflow_itself(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLE], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("model.sordino"))
