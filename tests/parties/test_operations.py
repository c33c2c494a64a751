"""What a monitor and a service see of a member: health, counts, lines of JSON, and beats while it works."""

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.parties.helpers import NAMES, Consortium, free_ports

from sordino.cli.program import main
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.control import Daemon, _tell_health
from sordino.parties.mpc.links import Limits, Member, Mesh, PartyLostError
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.shamir import ShamirEngine

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "parties" / "operations.md").read_text("utf-8")


@pytest.fixture
def member(tmp_path):
    """The waiting process of the first member, and what it has said."""
    Consortium(tmp_path)
    path, said = tmp_path / NAMES[0] / "party.toml", []
    return Daemon(PartyConfig.load(path), path, said.append), said


def test_a_monitor_hears_that_a_member_is_there_and_counts_that_no_record_decides(member):
    daemon, _ = member
    daemon.answer({"op": "shell"}, next(iter(daemon.config.partners.proposers)))
    daemon.answer({"op": "status", "plan": "x"}, "")
    (port,) = free_ports(1)
    _tell_health(daemon, f"127.0.0.1:{port}")

    def read(place):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{place}", timeout=10) as answer:
            return answer.read().decode()

    assert read("/health") == "ok\n"
    lines = read("/metrics").splitlines()
    assert 'sordino_party_events_total{event="refused"} 2' in lines
    assert "sordino_party_releases_total 0" in lines
    assert all(re.fullmatch(r'sordino_party_[a-z_]+(\{[a-z]+="[a-z ]+"\})? \d+', line) for line in lines)
    for name in {line.split("{")[0].split()[0] for line in lines}:
        assert name in PAGE
    with pytest.raises(urllib.error.HTTPError, match="404"):
        read("/records")


def test_each_line_of_a_waiting_member_is_json_and_names_a_caller_by_its_first_digits(member):
    daemon, said = member
    caller = "ab" * 32
    assert daemon.answer({"op": "run", "plan": {}}, caller)["status"] == "refused"
    (line,) = map(json.loads, said)
    assert (line["party"], line["event"], line["code"]) == (NAMES[0], "refused", "caller")
    assert line["caller"] == caller[:16]
    assert set(line) == {"at", "party", "event", "code", "caller", "words"}
    told = re.search(r"`event` \((.*?)\)", PAGE).group(1)
    source = (ROOT / "src" / "sordino" / "parties" / "mpc" / "control.py").read_text("utf-8")
    assert set(re.findall(r'self\.log\("([a-z ]+)"', source)) == set(re.findall(r"`([a-z ]+)`", told))


def test_the_service_and_the_image_start_commands_that_exist():
    service = (ROOT / "distribution" / "sordino-party.service").read_text("utf-8")
    image = (ROOT / "distribution" / "Containerfile.party").read_text("utf-8")
    start = re.search(r"ExecStart=\S+/sordino (.*)", service).group(1).split()
    entry = json.loads(re.search(r"ENTRYPOINT (\[.*\])", image).group(1))[1:]
    for words in (start, entry):
        command = main
        for word in words[:2]:
            command = command.commands[word]
        options = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options
    port = re.search(r"127\.0\.0\.1:(\d+)/health", image).group(1)
    assert f'health = "127.0.0.1:{port}"' in PAGE


def _work(members, index, seconds, message):
    """Be a member that computes for so long before it says anything; return whether all were heard."""
    engine = ShamirEngine(members, index, 1, None, Limits(20.0, message))
    engine.connect()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(20_000))
    try:
        return len(engine.exchange(b"done", "Working")) == 3
    except PartyLostError:
        return False
    finally:
        engine.close()


def _all_heard(seconds=4.0, message=2.0):
    members = tuple(Member(f"p{i}", "127.0.0.1", port) for i, port in enumerate(free_ports(3)))
    with ThreadPoolExecutor(3) as pool:
        return all(pool.map(lambda i: _work(members, i, seconds if i == 2 else 0.0, message), range(3)))


def test_a_member_that_works_for_longer_than_a_message_may_take_is_not_taken_for_lost():
    assert _all_heard()


def test_without_beats_it_would_be(monkeypatch):
    async def silent(self):
        return None

    monkeypatch.setattr(Mesh, "beat", silent)
    assert not _all_heard()


def test_a_member_whose_processor_is_busy_elsewhere_beats_all_the_same():
    """Four more processes on the machine compute and never pause."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        assert _all_heard()
    finally:
        for process in others:
            process.kill()
            process.wait()


def test_a_proposal_that_waits_is_counted(member):
    daemon, _ = member
    plan = JointPlan.load(daemon.path.parents[1] / "plan.json")
    proposer = next(iter(daemon.config.partners.proposers))
    assert daemon.answer({"op": "run", "plan": plan.text}, proposer)["code"] == "approval"
    assert "sordino_party_proposals 1\n" in daemon.metrics()
