"""The page on Flower says what is so."""

import re
from pathlib import Path

import numpy as np
from tests.parties.flower_toys import D, records

from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties import flower

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "parties" / "flower.md").read_text("utf-8")


def test_the_code_on_the_page_runs_and_pays(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for i in range(2):
        Ledger.open(f"ledger-{i}.sqlite").create("patients", BudgetPolicy(epsilon=2.0, delta=1e-5))
    parts = [records(200, i) for i in range(3)]
    names = {"X": [x for x, _ in parts], "y": [y for _, y in parts], "start": np.zeros(D)}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, names)
    assert capsys.readouterr().out.count("FederatedResult") == 2
    for i in range(2):
        entry = Ledger.open(f"ledger-{i}.sqlite").history("patients")[0]
        assert entry.status.value == "settled"


def test_every_name_of_the_page_exists():
    said = set(re.findall(r"`([A-Za-z_]+)(?:\(|`)", PAGE))
    apps = {name for name in said if name.endswith(("_app", "Client", "Averaging", "Thresholding", "Recipe"))}
    assert len(apps) >= 6
    assert apps <= set(flower.__all__)
    for name in flower.__all__:
        assert getattr(flower, name).__doc__
