"""A proposal runs only if its proposer is listed and the member approved of its plan."""

import json
import sys

from tests.parties.helpers import Consortium

from sordino.parties.mpc import party as party_daemon
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.plan import JointPlan


def test_a_proposal_runs_only_if_its_proposer_is_listed_and_the_member_approved_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(party_daemon, "_COMMAND", [sys.executable, "-c", "pass"])
    three = Consortium(tmp_path)
    path = tmp_path / "south" / "party.toml"
    daemon = party_daemon.Daemon(PartyConfig.load(path), path)
    question = {"op": "run", "plan": json.loads(three.plan_path.read_text())}
    for caller in (three.fingerprint("west"), three.fingerprint("north")):
        assert daemon.answer(question, caller)["status"] == "refused"
    assert not daemon.running
    (tmp_path / "south" / "state" / "approved").write_text(JointPlan.load(three.plan_path).digest + "\n")
    assert daemon.answer(question, three.fingerprint("west"))["status"] == "refused"
    assert daemon.answer(question, three.fingerprint("north"))["status"] == "proposed"
    for process in daemon.running.values():
        process.wait(30)
