"""The code of the tutorial runs, block after block, and says what the text says."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    torch.set_num_threads(1)
    text = (ROOT / "docs" / "deep-learning.md").read_text("utf-8")
    names = {}
    for number, block in enumerate(BLOCKS.findall(text)):
        exec(compile(block, f"deep-learning.md, block {number}", "exec"), names)
    return names


def test_the_private_loop_learns_within_its_budget(told):
    assert 0.99 * 3 < told["steps"].privacy.epsilon <= 3
    assert len(told["steps"]) == 55
    assert told["accuracy"](told["model"]) > 0.6
    assert told["accuracy"](told["trained"].model) > 0.6


def test_the_other_ways_run_too(told):
    assert told["classifier"].privacy_.is_private
    assert sum(int(p.count_nonzero()) for p in told["small"].model.parameters()) <= 800
    assert [r.name for r in told["srm"].privacy.releases] == ["start", "correction"]


def test_the_example_of_a_model_and_loader_made_for_opacus_runs(monkeypatch, capsys):
    import runpy

    done = runpy.run_path(str(ROOT / "examples" / "opacus_interop.py"), run_name="example")
    done["main"](epochs=1.0)
    assert "epsilon = " in capsys.readouterr().out
