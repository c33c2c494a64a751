"""A proposal runs only if its proposer is listed and the member approved of its plan."""

import json
import shutil
import sys
import time

import pytest
from click.testing import CliRunner
from tests.parties.helpers import Consortium

from sordino.cli import main
from sordino.errors import InvalidInputError
from sordino.parties.mpc import control as party_daemon
from sordino.parties.mpc.charter import Approvals, Rules
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.plan import JointPlan, in_words
from sordino.parties.mpc.transcript import Transcript, TranscriptError
from sordino.parties.words import PlanRefusedError


def test_a_proposal_runs_only_if_its_proposer_is_listed_and_the_member_approved_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(party_daemon, "_COMMAND", [sys.executable, "-c", "pass"])
    three = Consortium(tmp_path)
    path = tmp_path / "south" / "party.toml"
    daemon = party_daemon.Daemon(PartyConfig.load(path), path)
    question = {"op": "run", "plan": json.loads(three.plan_path.read_text())}
    for caller in (three.fingerprint("west"), three.fingerprint("north")):
        assert daemon.answer(question, caller)["status"] == "refused"
    assert not daemon.running
    Approvals(tmp_path / "south" / "state").add(JointPlan.load(three.plan_path))
    assert daemon.answer(question, three.fingerprint("west"))["status"] == "refused"
    assert daemon.answer(question, three.fingerprint("north"))["status"] == "proposed"
    for process in daemon.running.values():
        process.wait(30)


@pytest.fixture
def plan(tmp_path):
    return JointPlan.load(Consortium(tmp_path / "three").plan_path)


def _by(monkeypatch, person):
    monkeypatch.setenv("SORDINO_PERSON", person)


def test_a_decision_has_a_name_a_time_and_an_end(plan, tmp_path, monkeypatch):
    approvals = Approvals(tmp_path / "state")
    _by(monkeypatch, "anna")
    assert approvals.add(plan) == "anna"
    (line,) = approvals.story.lines
    assert (line["kind"], line["plan"], line["person"]) == ("approve", plan.digest, "anna")
    assert line["at"] < line["expires"]
    approvals.require(plan)
    assert approvals.withdraw(plan.digest) == "anna"
    with pytest.raises(PlanRefusedError, match="0 of 1"):
        approvals.require(plan)
    approvals.add(plan)
    approvals.require(plan)
    head = approvals.story.head
    approvals.add(plan)
    assert approvals.story.head != head


def test_an_approval_expires(plan, tmp_path):
    approvals = Approvals(tmp_path / "state", Rules(days=1e-6))
    approvals.add(plan)
    time.sleep(1.1)
    with pytest.raises(PlanRefusedError, match="not approved"):
        approvals.require(plan)


def test_a_plan_above_the_threshold_needs_two_different_persons(plan, tmp_path, monkeypatch):
    approvals = Approvals(tmp_path / "state", Rules(two_persons_above=0.5))
    for _ in range(2):
        _by(monkeypatch, "anna")
        approvals.add(plan)
        with pytest.raises(PlanRefusedError, match="1 of 2"):
            approvals.require(plan)
    _by(monkeypatch, "ben")
    approvals.add(plan)
    approvals.require(plan)
    Approvals(tmp_path / "other", Rules(two_persons_above=2.0)).add(plan)
    Approvals(tmp_path / "other", Rules(two_persons_above=2.0)).require(plan)
    with pytest.raises(PlanRefusedError, match="1 of 2"):  # the charter asks for two already above 0.5
        Approvals(tmp_path / "other", Rules(two_persons_above=2.0)).require(plan, 0.5)


def test_only_those_who_are_named_may_decide(plan, tmp_path, monkeypatch):
    approvals = Approvals(tmp_path / "state", Rules(persons=("anna",)))
    _by(monkeypatch, "mallory")
    for decide in (lambda: approvals.add(plan), lambda: approvals.withdraw(plan.digest)):
        with pytest.raises(InvalidInputError, match="anna"):
            decide()
    assert approvals.story.lines == ()


def test_a_rule_approves_and_is_written_down_but_not_above_the_threshold_of_two(tmp_path):
    task = {
        "estimator": "PCA",
        "features": 4,
        "params": {"n_components": 1, "solver": "power", "max_iter": 2},
    }
    task["params"] |= {"data_norm": 1.0}
    plan = JointPlan.load(Consortium(tmp_path / "three", task=task).plan_path)
    rule = {"max_epsilon": 1.0, "estimators": ["PCA"]}
    approvals = Approvals(tmp_path / "state", Rules(rule=rule))
    approvals.require(plan)
    assert [line["person"] for line in approvals.story.lines] == ["by rule"]
    approvals.withdraw(plan.digest)
    with pytest.raises(PlanRefusedError):
        approvals.require(plan)
    for rules in (
        Rules(rule={**rule, "max_epsilon": 0.5}),
        Rules(rule={**rule, "estimators": ["LinearRegression"]}),
        Rules(rule=rule, two_persons_above=0.5),
    ):
        with pytest.raises(PlanRefusedError):
            Approvals(tmp_path / "other", rules).require(plan)


def test_a_rule_is_no_person_and_who_is_not_named_any_more_counts_no_more(tmp_path, monkeypatch):
    params = {"classes": [-1, 1], "data_norm": 1.0, "solver": "ight", "max_iter": 2}
    task = {"estimator": "SparseLogisticRegression", "features": 4, "params": params}
    plan = JointPlan.load(Consortium(tmp_path / "three", task=task).plan_path)
    rule = {"max_epsilon": 1.0, "estimators": ["SparseLogisticRegression"]}
    Approvals(tmp_path / "state", Rules(rule=rule)).require(plan)
    _by(monkeypatch, "anna")
    approvals = Approvals(tmp_path / "state", Rules(rule=rule, two_persons_above=0.5))
    approvals.add(plan)
    with pytest.raises(PlanRefusedError, match="1 of 2"):
        approvals.require(plan)
    with pytest.raises(PlanRefusedError, match="0 of 1"):
        Approvals(tmp_path / "state", Rules(persons=("ben",))).require(plan)
    Approvals(tmp_path / "state", Rules(persons=("anna",))).require(plan)


def test_nothing_is_computed_of_a_plan_that_nobody_here_has_read(plan, tmp_path, monkeypatch):
    """A proposer could keep a waiting member busy for hours with the certificate of a huge plan."""
    monkeypatch.setattr(JointPlan, "certificate", property(lambda self: pytest.fail("computed")))
    with pytest.raises(PlanRefusedError, match="0 of 1"):
        Approvals(tmp_path / "state").require(plan)


def test_a_changed_decision_is_noticed(plan, tmp_path, monkeypatch):
    approvals = Approvals(tmp_path / "state")
    for person in ("anna", "ben"):
        _by(monkeypatch, person)
        approvals.add(plan)
    path = tmp_path / "state" / "decisions.jsonl"
    path.write_bytes(path.read_bytes().replace(b"anna", b"carl"))
    with pytest.raises(TranscriptError, match="changed"):
        approvals.require(plan)


def _rewrite(path, **facts):
    """Replace facts of the decisions, and make their chain anew."""
    lines = Approvals(path.parent).story.lines
    path.unlink()
    chain = Transcript(path)
    for line in lines:
        kept = {name: value for name, value in line.items() if name not in ("kind", "at", "previous")}
        chain.write(line["kind"], **{**kept, **facts})
    chain.close()


def test_the_head_of_the_decisions_is_part_of_the_reservation(tmp_path):
    three = Consortium(tmp_path)
    codes, said = three.run()
    assert codes == [0, 0, 0], said
    head = Approvals(tmp_path / "north" / "state").story.head
    assert three.history(0)[0].description.endswith(f"decisions {head[:16]}")
    config = str(tmp_path / "north" / "party.toml")
    listed = CliRunner().invoke(main, ["party", "decisions", "--config", config])
    assert "approve" in listed.output
    assert JointPlan.load(three.plan_path).digest[:12] in listed.output
    _rewrite(tmp_path / "north" / "state" / "decisions.jsonl", person="eve")  # with hashes that fit
    changed = CliRunner().invoke(main, ["party", "decisions", "--config", config])
    assert changed.exit_code == 1
    assert "Reservation 1 on the ledger" in changed.output
    assert "a line after line 0 was changed" in changed.output
    (tmp_path / "north" / "state" / "decisions.jsonl").unlink()
    assert CliRunner().invoke(main, ["party", "decisions", "--config", config]).exit_code == 1
    transcript = str(three.state(0) / "transcript.jsonl")
    check = ["party", "commitment", "--config", config, transcript]
    assert CliRunner().invoke(main, check).exit_code == 0
    shutil.copy(tmp_path / "south" / "data.npz", tmp_path / "north" / "data.npz")
    found = CliRunner().invoke(main, check)
    assert found.exit_code == 1
    assert "not those" in found.output


def test_the_screen_shows_no_epsilon_below_the_one_that_is_booked(plan):
    (said,) = [line for line in in_words(plan) if line.startswith("Cost for one record")]
    shown = float(said.split("epsilon ")[1].split(",")[0])
    assert plan.certificate.epsilon <= shown <= 1.001 * plan.certificate.epsilon
