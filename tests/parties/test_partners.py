"""Whom a member runs with is its own decision: names, certificates, how many may collude, and which plan."""

import copy

import pytest
from tests.parties.helpers import linear_task

from sordino.errors import InvalidInputError, SordinoError
from sordino.parties.mpc.config import Partners, check_partners
from sordino.parties.mpc.plan import JointPlan, make_plan
from sordino.parties.words import PlanRefusedError

TASK = linear_task(5, max_iter=4)
BUDGET = {"epsilon": 0.8, "delta": 1e-6, "relation": "add-remove", "unit": "record"}
LETTERS = "abcdef"


def _print(letter):
    return letter * 64


def _plan(letters="abc", threshold=1):
    members = [
        {"name": f"m-{x}", "host": "h", "port": 1, "records": 100, "fingerprint": _print(x)} for x in letters
    ]
    return make_plan("tests", members, TASK, BUDGET, threshold=threshold)


def _partners(trusted="b", others="bcde", **more):
    pinned = {f"m-{x}": _print(x) for x in others}
    return Partners("m-a", _print("a"), pinned, tuple(f"m-{x}" for x in trusted), **more)


def test_a_plan_of_ones_own_list_with_one_who_may_be_curious_is_taken():
    check_partners(_plan("abc"), _partners("b"))
    check_partners(_plan("abcde", threshold=2), _partners("bc"))


@pytest.mark.parametrize(
    ("plan", "partners", "words"),
    [
        (_plan("abc"), _partners("b", others="bd"), "is not in"),
        (_plan("abf"), _partners("b"), "is not in"),
        (_plan("acd"), _partners("c", others="cd", min_trusted=1), None),
        (_plan("acd"), _partners("be"), "at least 1 trusted"),
        (_plan("abcd"), _partners("b"), "more than the plan's threshold of 1"),
        (_plan("abcde", threshold=2), _partners("b"), "more than the plan's threshold of 2"),
        (_plan("abc"), _partners("bd", min_trusted=2), "at least 2 trusted"),
        (_plan("bcd"), _partners("b"), "once among"),
    ],
)
def test_a_plan_of_others_or_with_too_many_who_may_collude_is_refused(plan, partners, words):
    if words is None:
        check_partners(plan, partners)
        return
    with pytest.raises(PlanRefusedError, match=words):
        check_partners(plan, partners)


def _renamed(text):
    text["members"][1]["name"] = "m-c"


def _twice_oneself(text):
    text["members"][1]["name"] = "m-a"


def _own_certificate_twice(text):
    text["members"][1]["fingerprint"] = _print("a")


def _another_certificate(text):
    text["members"][1]["fingerprint"] = _print("f")


def _another_certificate_for_me(text):
    text["members"][0]["fingerprint"] = _print("f")


def _no_certificate(text):
    text["members"][1]["fingerprint"] = ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_renamed, "same name"),
        (_twice_oneself, "once among"),
        (_own_certificate_twice, "same certificate"),
        (_another_certificate, "is not in"),
        (_another_certificate_for_me, "than mine"),
        (_no_certificate, "a fingerprint of the right kind"),
    ],
)
def test_a_member_under_another_name_or_certificate_is_refused(change, words):
    text = copy.deepcopy(dict(_plan("abc").text))
    change(text)
    with pytest.raises(SordinoError, match=words):
        check_partners(JointPlan.read(text), _partners("bc"))


@pytest.mark.parametrize("threshold", [0, 2, 3])
def test_a_threshold_that_is_no_minority_is_refused(threshold):
    plan = JointPlan.read({**_plan("abc").text, "threshold": threshold})
    with pytest.raises(InvalidInputError, match=r"threshold in \[1, 1\] for 3 parties"):
        check_partners(plan, _partners("bc"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": True},
        {"threshold": 1.5},
        {"threshold": "1"},
        {"members": {}},
        {"members": [1]},
        {"members": [{}]},
    ],
)
def test_a_plan_of_the_wrong_kinds_is_refused(wrong):
    with pytest.raises(InvalidInputError, match="Expected"):
        JointPlan.read({**_plan().text, **wrong})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trusted": ("m-z",)}, "trusted members out of"),
        ({"trusted": ("m-a",)}, "trusted members out of"),
        ({"trusted": ()}, "min_trusted"),
        ({"min_trusted": 0}, "min_trusted"),
        ({"min_trusted": 3}, "min_trusted"),
        ({"members": {"m-b": "beef"}}, "64 hexadecimal"),
        ({"members": {"m-b": _print("b"), "m-c": _print("b")}}, "same fingerprint"),
        ({"members": {"m-b": _print("a")}}, "same fingerprint"),
        ({"members": {"m-a": _print("f"), "m-b": _print("b")}}, "than its own"),
        ({"proposers": ("nobody",)}, "name of"),
    ],
)
def test_settings_that_contradict_themselves_are_refused(settings, words):
    good = {"members": {"m-b": _print("b"), "m-c": _print("c")}, "trusted": ("m-b",)}
    with pytest.raises(InvalidInputError, match=words):
        Partners("m-a", _print("a"), **{**good, **settings})


def test_fingerprints_are_read_as_openssl_prints_them():
    spelled = ":".join(["AB"] * 32)
    partners = Partners("m-a", _print("a"), {"m-b": spelled}, ("m-b",), proposers=("m-a", "m-b", _print("f")))
    assert partners.members["m-b"] == ("ab" * 32,)
    assert partners.proposers == (_print("a"), "ab" * 32, _print("f"))
    assert all(partners.may_ask(x) for x in (_print("a"), "ab" * 32, _print("f")))
    assert not partners.may_ask("")
    assert not partners.may_ask(_print("9"))
