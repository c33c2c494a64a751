"""Whom a member runs with is its own decision: names, certificates, how many may collude, and which plan."""

import asyncio
import copy
import hashlib
import os
import stat
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from tests.parties.helpers import NAMES, Consortium, write_credentials

from sordino.cli import main
from sordino.errors import InvalidInputError, SordinoError
from sordino.execute.parties import Member
from sordino.execute.parties.links import Link, Mesh
from sordino.parties import mpc_plan, mpc_tasks
from sordino.parties.approval import Approvals, in_words
from sordino.parties.mpc_plan import JointPlan, make_plan
from sordino.parties.partners import Partners, check_partners
from sordino.parties.party import PartyRun
from sordino.parties.party_config import PartyConfig
from sordino.parties.policy import PlanRefusedError

TASK = {"kind": "gradient", "loss": "logistic", "features": 5, "options": {"max_iter": 4}}
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
        (_no_certificate, "is not in"),
    ],
)
def test_a_member_under_another_name_or_certificate_is_refused(change, words):
    text = copy.deepcopy(dict(_plan("abc").text))
    change(text)
    with pytest.raises(PlanRefusedError, match=words):
        check_partners(JointPlan.read(text), _partners("bc"))


@pytest.mark.parametrize("threshold", [0, 2, 3, -1])
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
    assert partners.members["m-b"] == "ab" * 32
    assert partners.proposers == (_print("a"), "ab" * 32, _print("f"))
    assert partners.may_propose(_print("f"))
    assert not partners.may_propose("")
    assert not partners.may_ask("")
    assert not partners.may_ask(_print("9"))


# ------------------------------------------------------------------------------------- the member itself


def _take_part(three, i, path, approve):
    config = PartyConfig.load(three.folder / NAMES[i] / "party.toml")
    plan = JointPlan.load(path)
    if approve:
        Approvals(config.state).add(plan)
    return PartyRun(config, plan, lambda _: None).run()


def test_settings_without_a_list_of_members_are_refused(tmp_path):
    three = Consortium(tmp_path)
    path = tmp_path / "north" / "party.toml"
    before = path.read_text()
    for cut in ("[members]", "trusted"):
        path.write_text("\n".join(x for x in before.splitlines() if not x.startswith(cut)))
        with pytest.raises(InvalidInputError):
            PartyConfig.load(path)
    assert not three.history(0)


@pytest.mark.parametrize("approve", [True, False])
def test_a_plan_of_strangers_touches_neither_network_nor_ledger_nor_data(tmp_path, monkeypatch, approve):
    three = Consortium(tmp_path)
    three.write_config(0, members={"south": three.fingerprint("south")})
    monkeypatch.setattr("sordino.parties.party.MpycEngine", None)
    monkeypatch.setattr("sordino.parties.party.load_records", None)
    with pytest.raises(PlanRefusedError, match="'west' with the certificate"):
        _take_part(three, 0, three.plan_path, approve)
    assert not three.history(0)


def test_a_plan_that_was_edited_after_its_approval_is_another_plan(tmp_path, monkeypatch):
    three = Consortium(tmp_path)
    monkeypatch.setattr("sordino.parties.party.load_records", None)
    Approvals(tmp_path / "north" / "state").add(JointPlan.load(three.plan_path))
    text = copy.deepcopy(dict(JointPlan.load(three.plan_path).text))
    text["task"]["options"]["step_size"] = 1.0
    edited = tmp_path / "edited.json"
    JointPlan.read(text).save(edited)
    with pytest.raises(PlanRefusedError, match="not approved here"):
        _take_part(three, 0, edited, approve=False)
    assert not three.history(0)


def test_an_approval_is_of_the_whole_digest(tmp_path):
    plan, approvals = _plan(), Approvals(tmp_path)
    (tmp_path / "approved").write_text(plan.digest[:63] + "\n" + plan.digest[:60] + "ffff now\n")
    with pytest.raises(PlanRefusedError, match="not approved here"):
        approvals.require(plan)
    approvals.add(plan)
    approvals.require(plan)


def test_an_unapproved_plan_is_not_run_and_nobody_pays(tmp_path):
    three = Consortium(tmp_path)
    codes, said = three.run(approve=False)
    assert codes == [1, 1, 1]
    assert all("not approved here" in text for text in said)
    assert not any(three.history(i) for i in range(3))


def test_approving_shows_the_plan_in_words_and_asks(tmp_path):
    three = Consortium(tmp_path)
    words = ["party", "approve", "--config", str(tmp_path / "north" / "party.toml"), str(three.plan_path)]
    plan = JointPlan.load(three.plan_path)
    result = CliRunner().invoke(main, words, input="n\n")
    assert result.exit_code != 0
    assert plan.digest not in Approvals(tmp_path / "north" / "state")
    for line in in_words(plan):
        assert line in result.output
    for fact in ("south: 60 records", "If more than 1 of them pool", "3 x gradient", "epsilon 0.99"):
        assert fact in result.output
    assert CliRunner().invoke(main, [*words, "--yes"]).exit_code == 0
    assert plan.digest in Approvals(tmp_path / "north" / "state")


def test_a_plan_that_the_settings_refuse_cannot_be_approved(tmp_path):
    three = Consortium(tmp_path)
    three.write_config(0, max_epsilon=0.5)
    config = str(tmp_path / "north" / "party.toml")
    result = CliRunner().invoke(main, ["party", "approve", "--yes", "--config", config, str(three.plan_path)])
    assert result.exit_code == 1
    assert "max_epsilon" in result.output
    assert not (tmp_path / "north" / "state").exists()


def test_a_run_builds_its_task_once_and_plans_once(tmp_path, monkeypatch):
    """As far as a member comes alone: checks, words, connecting."""
    three, built, planned = Consortium(tmp_path, connect=0.2), [], []
    make, plan = mpc_tasks.make_task, mpc_tasks.Task.plan
    monkeypatch.setattr(mpc_plan, "make_task", lambda *a: built.append(1) or make(*a))
    monkeypatch.setattr(mpc_tasks.Task, "plan", lambda self: planned.append(1) or plan(self))
    with pytest.raises(SordinoError, match="Connecting"):
        _take_part(three, 0, three.plan_path, approve=True)
    assert (len(built), len(planned)) == (1, 1)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_what_a_member_keeps_is_its_own(tmp_path):
    os.umask(0o022)
    three = Consortium(tmp_path)
    codes, said = three.run()
    assert codes == [0, 0, 0], said
    kept = [tmp_path / "north" / "state", *(tmp_path / "north" / "state").rglob("*")]
    assert {p.name for p in kept} >= {"state", "approved", "transcript.jsonl", "result.npz"}
    for path in kept:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


# ------------------------------------------------------------------------------------- the pinned fingerprint


class _Transport:
    def __init__(self, certificate):
        self.written, self.aborted, self.certificate = b"", False, certificate

    def get_extra_info(self, _):
        return SimpleNamespace(getpeercert=lambda binary_form: self.certificate)

    def write(self, data):
        self.written += data

    def abort(self):
        self.aborted = True


def _meeting(certificate, calling):
    """Return the mesh of party 0 or 1 after meeting the other one, who shows this certificate."""
    pinned = hashlib.sha256(b"the right one").hexdigest()
    members = tuple(Member(n, "h", 1, pinned if n == "south" else _print("a")) for n in NAMES)
    loop = asyncio.new_event_loop()
    try:
        mesh, transport = Mesh(members, 0, loop), _Transport(certificate)
        link = Link(mesh, 1 if calling else None, True)
        link.connection_made(transport)
        if not calling:
            link.data_received((1).to_bytes(2, "little"))
    finally:
        loop.close()
    return mesh, transport


@pytest.mark.parametrize("calling", [True, False])
def test_a_peer_with_another_certificate_than_the_pinned_one_is_turned_away(calling):
    mesh, transport = _meeting(b"the right one", calling)
    assert list(mesh.links) == [1]
    assert not transport.aborted
    for wrong in (b"signed by the same authority", None):
        mesh, transport = _meeting(wrong, calling)
        assert transport.aborted
        assert not mesh.links
        assert not transport.written
        said = str(mesh.failure) if calling else mesh.notes[0]
        assert "its certificate is not the one that the plan pins" in said


def test_a_certificate_of_the_same_authority_does_not_pass_for_a_member(tmp_path, monkeypatch):
    """West runs with a new certificate and hides it from itself: the others notice."""
    three = Consortium(tmp_path, connect=4.0)
    write_credentials(tmp_path / "west", "west", three.key, three.certificate)

    def blind():
        monkeypatch.setattr("sordino.parties.party.check_partners", lambda *_: None)

    codes, said = three.run(sabotage=(None, None, blind))
    assert codes == [1, 1, 1]
    assert all("its certificate is not the one that the plan pins" in text for text in said[:2])
    assert not any(three.history(i) for i in range(3))
