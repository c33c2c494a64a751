"""Claim 11: a scale in the calibration cache that was edited by 1/1000 runs epsilon=1 at 37,051."""

import json

from dp_accounting import dp_event as dp

from sordino.accounting import cache, certify, solve_scale
from sordino.kernel.relation import Relation

ADD = Relation.ADD_REMOVE


def event_at(scale):
    return dp.SelfComposedDpEvent(dp.GaussianDpEvent(scale), 10)


def test_a_scale_edited_in_the_cache_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_MEMORY", {}, raising=False)
    scale = solve_scale(event_at, 1.0, 1e-5, ADD)
    (file,) = tmp_path.rglob("*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "scale": scale / 1000}))
    cache._MEMORY.clear()  # as a new process does, which has the file only
    found = certify(event_at(solve_scale(event_at, 1.0, 1e-5, ADD)), 1e-5, ADD).epsilon
    assert 0.99 < found <= 1.0
