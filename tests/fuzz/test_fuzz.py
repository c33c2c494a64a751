"""Hostile bytes end in an answer or in a typed refusal; `tools/fuzz.py` feeds a million of them at night."""

import random

import pytest
from tests.fuzz.bytes import Chooser, mutate
from tests.fuzz.run import judge, run
from tests.fuzz.targets import FIXTURES, SECRET, TARGETS, Target

from sordino import LinearRegression, PrivateSearchCV
from sordino.errors import InvalidInputError

CASES = {
    "estimators": 40,
    "statistics": 60,
    "tables": 20,
    "scores": 30,
    "searches": 20,
    "groups": 60,
    "commands": 60,
    "ledger": 60,
    "csv": 80,
    "model": 200,
}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.filterwarnings("ignore")
def test_hostile_bytes_end_in_an_answer_or_a_typed_refusal(target):
    found = run(target, CASES.get(target.name, 400), seed=1)
    assert found.kinds == {}
    assert found.cases == CASES.get(target.name, 400)


CHOSEN = ("estimators", "statistics", "tables", "scores", "searches", "groups", "commands")
READERS = [target for target in TARGETS if target.name not in CHOSEN]


@pytest.mark.parametrize("target", READERS, ids=lambda target: target.name)
@pytest.mark.filterwarnings("ignore")
def test_the_first_seed_of_a_reader_is_read(target):
    assert judge(target, target.seeds()[0]) is None


def _raise(error):
    def feed(data):
        raise error

    return feed


def test_the_judge_knows_a_crash_a_leak_a_hang_and_a_silent_refusal(monkeypatch):
    def kind_of(feed):
        return judge(Target("twin", lambda: [b""], feed), b"")[0]

    assert kind_of(_raise(KeyError("x"))).startswith("KeyError")
    assert "planted" in kind_of(_raise(InvalidInputError(f"Expected less than 1, got {SECRET}.")))
    assert "without words" in kind_of(_raise(InvalidInputError("")))
    assert kind_of(_raise(InvalidInputError("Expected epsilon > 0, got -1."))) == ""
    monkeypatch.setattr("tests.fuzz.run.SECONDS", 1)

    def hang(data):
        while data is not None:
            pass

    found = run(Target("twin", lambda: [b""], hang), 1, 0)
    assert [kind.split()[0] for kind in found.kinds] == ["HangError"]


def test_memory_that_only_a_document_claims_is_found():
    found = run(Target("twin", lambda: [b""], lambda data: bytearray(2**40)), 1, 0)
    assert [kind.split()[0] for kind in found.kinds] == ["MemoryError"]


def test_mutations_change_documents_and_choosers_end():
    seed = (FIXTURES / "report.json").read_bytes()
    changed = {mutate(seed, random.Random(i)) for i in range(100)}
    assert len(changed) > 90
    assert Chooser(b"").one_of("abc") == "a"
    assert Chooser(b"\x05").number(4) == 1


def test_a_search_refuses_names_of_steps_that_are_no_list():
    with pytest.raises(InvalidInputError, match="assume_public"):
        PrivateSearchCV(LinearRegression(), {"max_iter": [1]}, assume_public=0.5).fit([[0.0]], [0.0])
