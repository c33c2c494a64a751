"""Joint runs: what members, strangers and the text of a plan can do to a member."""

import contextlib
import copy
import json
import os
import resource
import signal
import socket
import threading
import time

import numpy as np
import pytest
from tests.parties.helpers import NAMES, Consortium, free_ports, linear_task, write_credentials

import sordino
from sordino.errors import InvalidInputError, PartyError
from sordino.ledger import Ledger
from sordino.parties.mpc import control as party_daemon
from sordino.parties.mpc import links, shamir
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.control import Answer, ask
from sordino.parties.mpc.links import Link, Member, Mesh
from sordino.parties.mpc.plan import JointPlan, in_words, joint_task, make_plan
from sordino.parties.words import Code, PlanRefusedError
from sordino.runs import Ask, Promise

BUDGET = {"epsilon": 0.8, "delta": 1e-6, "relation": "add-remove", "unit": "record"}
TASK = linear_task(5, max_iter=4)


def _members(records=100):
    return [
        {"name": n, "host": "h", "port": 1 + i, "records": records, "fingerprint": f"{i:064d}"}
        for i, n in enumerate(NAMES)
    ]


def test_door_15_a_certificate_of_the_same_authority_does_not_stand_in_for_a_daemon(tmp_path):
    three = Consortium(tmp_path)
    (tmp_path / "mallory").mkdir()
    write_credentials(tmp_path / "mallory", "mallory", three.key, three.certificate)
    context = PartyConfig.load(tmp_path / "north" / "party.toml").credentials
    files = [tmp_path / "mallory" / f"{name}.pem" for name in ("certificate", "key", "authority")]
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def stand_in():
            raw, _ = server.accept()
            with links.Credentials(*files).context(server=True).wrap_socket(raw, server_side=True) as link:
                heard.append(link.recv(100))

        thread = threading.Thread(target=stand_in, daemon=True)
        thread.start()
        member = dict(JointPlan.load(three.plan_path).text["members"][0])
        member["control"] = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(PartyError, match="not the one that the plan pins"):
            ask(member, context, {"op": "status", "plan": "x"})
        thread.join(10)
    assert heard in ([b""], [])


def _listening(path):
    """Keep what a member sends."""

    def install():
        exchange = shamir.ShamirEngine.exchange

        def heard(self, payload, what):
            with path.open("ab") as file:
                file.write(payload)
            return exchange(self, payload, what)

        shamir.ShamirEngine.exchange = heard

    return install


def test_door_15_refusals_name_neither_paths_nor_figures_nor_kinds_of_errors(tmp_path):
    three = Consortium(tmp_path)
    (tmp_path / "south" / "data.npz").write_bytes(b"no such thing")
    with Ledger.open(tmp_path / "west" / "ledger.sqlite") as ledger:  # most of its budget is gone
        task = joint_task(TASK, 60, {"epsilon": 3.7, "delta": 9e-6, "relation": "add-remove"})[1]
        Promise.made(Ask(3.7, 9e-6, ledger, "patients"), task.plan()).reserved("before")
    codes, said = three.run(sabotage=(None, _listening(tmp_path / "sent"), None))
    assert codes == [1, 1, 1]
    sent = (tmp_path / "sent").read_bytes()
    assert b'"refusal": "own"' in sent
    assert str(tmp_path).encode() not in sent
    assert "south refuses the plan: for a reason of its own" in said[0]
    for text in (said[0], said[2]):
        for word in (str(tmp_path), "data.npz", "Error", "3.7", "%"):
            assert word not in text.replace(f"Error: {NAMES[0]}", "").replace("Error: south", "")
    # What the daemon tells others comes from the same codes.
    path = tmp_path / "south" / "party.toml"
    digest = JointPlan.load(three.plan_path).digest
    answer = party_daemon.Daemon(PartyConfig.load(path), path, lambda _: None).answer(
        {"op": "status", "plan": digest}, three.fingerprint("north")
    )
    assert answer == {"status": "refused", "releases": 0, "code": "own", "sharing": "unready"}
    assert "data.npz" in three.story(1).lines[-1]["reason"]  # its owner can read more


def test_door_15_what_a_member_says_is_read_as_one_of_few_words():
    raw = json.dumps({"status": "\x1b[2J settled", "code": "\x1b]0;x\x07", "releases": "9" * 99}).encode()
    assert Answer.read(raw) == Answer("unknown", Code.OWN, 0)
    assert Code.parse(["a list"]) is Code.OWN


def _deaf_at_the_end():
    """Hear the others' last word, and keep one's own."""
    exchange = shamir.ShamirEngine.exchange

    def silent(self, payload, what):
        if what.startswith("Comparing"):
            os.kill(os.getpid(), signal.SIGKILL)
        return exchange(self, payload, what)

    shamir.ShamirEngine.exchange = silent


def test_door_16_the_last_speaker_does_not_keep_the_model_to_itself(tmp_path):
    three = Consortium(tmp_path, message=2.0)
    codes, _ = three.run(sabotage=(None, None, _deaf_at_the_end))
    assert codes[:2] == [1, 1]
    found = [sordino.load(three.state(i) / "model.sordino").coef_[0] for i in range(3)]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert [three.story(i).status for i in range(2)] == ["failed", "failed"]


def _changed(**changes):
    text = copy.deepcopy(dict(make_plan("tests", _members(), TASK, BUDGET).text))
    for where, value in changes.items():
        *path, last = where.split("__")
        inner = text
        for step in path:
            inner = inner[int(step) if step.isdigit() else step]
        inner[last] = value
    return text


FORGED = "x\nCost for one record (add-remove): epsilon 0.01\x1b[8m"


@pytest.mark.parametrize(
    "changes",
    [
        {"task__note": FORGED},
        {"task__params__note": FORGED},
        {"task__loss": FORGED},
        {"task__solver": FORGED},
        {"task__classes": [0, 1, 2]},
        {"task__classes": [1, 1]},
        {"task__classes": [0, "x"]},
        {"task__outputs": 2},
        {"task__features": 10**12},
        {"task__data_norm": 1e200},
        {"task__data_norm": "1"},
        {"task__intercept": -1.0},
        {"task__params__max_iter": 10**9},
        {"task__params__step_size": 1.0},  # it is one of solver_options
        {"task__params__solver_options": {"step_size": -1.0}},
        {"consortium": FORGED},
        {"nonce": FORGED},
        {"members__0__host": FORGED},
        {"members__0__name": FORGED},
        {"members__0__note": FORGED},
        {"members__0__control": "nowhere"},
        {"members__0__port": 70000},
        {"members__0__records": 10**18},
        {"members__0__records": -1},
        {"members__0__records": 2**53},  # together with those of the others it is more
        {"members__0__fingerprint": "00"},
        {"budget__note": 1},
        {"budget__epsilon": 1e9},
        {"budget__epsilon": True},
        {"budget__delta": 0.9},
        {"budget__unit": "person"},
        {"noise__note": 1},
        {"noise__multipliers": {"gradient": -1.0}},
        {"noise__multipliers": {"gradient": 1e300}},
        {"threshold": 10**9},
        {"mode": "loud"},
        {"format": 1},
    ],
)
def test_door_16_a_plan_of_unknown_words_or_numbers_out_of_range_is_no_plan(changes):
    with pytest.raises(InvalidInputError) as refused:
        JointPlan.read(_changed(**changes)).bare_plan  # noqa: B018
    assert str(refused.value).isprintable()


def test_door_16_everything_on_the_approval_screen_is_one_printable_line():
    text = _changed(consortium="Zürich \u202e'\" Cost for one record: epsilon 0.01")
    text["members"][1]["name"] = "\u2028south\u202e"
    text["members"][2]["control"] = "[::1]:26505"
    lines = in_words(JointPlan.read(text))
    assert all(line.isprintable() and line.isascii() for line in lines)
    assert sum(line.startswith("Cost for one record") for line in lines) == 1
    assert sum("epsilon 0.01" in line for line in lines) == 1  # inside quotes, behind the plan's name
    assert any("at 'h' port 2" in line for line in lines)
    assert any("control '[::1]:26505'" in line for line in lines)


@pytest.mark.filterwarnings("ignore:delta = 1e-06 is at least 1/n")
def test_door_16_records_that_no_field_can_add_up_are_refused_before_approval():
    members = _members(2**51)
    with pytest.raises((InvalidInputError, PlanRefusedError, Exception), match=r"overflow|bits") as refused:
        make_plan("tests", members, linear_task(5, max_iter=1, solver_options={"clip_norm": 1.0}), BUDGET)
    assert refused.type.__name__ == "UnsupportedError"


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """A daemon in a thread that may hold few files."""
    three = Consortium(tmp_path)
    path = tmp_path / "north" / "party.toml"
    ready = threading.Event()
    arguments = (PartyConfig.load(path), path, ready)
    threading.Thread(target=party_daemon.serve, args=arguments, daemon=True).start()
    assert ready.wait(10)
    return three


def test_door_16_silent_connections_do_not_end_a_daemon(waiting):
    three, held = waiting, []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2048), hard))
        address = ("127.0.0.1", three.ports[3])
        held += [socket.create_connection(address, timeout=5) for _ in range(400)]
        assert threading.active_count() < 2 * links.MAX_CALLERS + 20
        member = JointPlan.load(three.plan_path).text["members"][0]
        credentials = PartyConfig.load(three.folder / "north" / "party.toml").credentials
        assert ask(member, credentials, {"op": "status", "plan": "0" * 64}) == Answer("unknown")
    finally:
        for one in held:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_door_16_a_caller_that_sends_drop_by_drop_is_cut_off(waiting, monkeypatch):
    monkeypatch.setattr(party_daemon, "SECONDS", 1.0)
    with socket.create_connection(("127.0.0.1", waiting.ports[3]), timeout=5) as slow:
        began = time.monotonic()
        with contextlib.suppress(OSError):  # a reset or a broken pipe, as the system likes
            while time.monotonic() - began < 20:
                slow.sendall(b"\x16")
                time.sleep(0.2)
        assert time.monotonic() - began < 15


def test_door_16_silent_callers_of_a_run_are_bounded_and_the_right_ones_get_in(tmp_path):
    three, held = Consortium(tmp_path, connect=30.0), []
    processes = [three.fork(i) for i in (1, 2)]
    try:
        deadline = time.monotonic() + 20
        while len(held) < 100 and time.monotonic() < deadline:
            try:
                held.append(socket.create_connection(("127.0.0.1", three.ports[2]), timeout=1))
            except OSError:
                time.sleep(0.1)
        assert len(held) == 100
        processes.append(three.fork(0))
        for process in processes:
            process.join(60)
        assert [p.exitcode for p in processes] == [0, 0, 0]
    finally:
        for one in held:
            one.close()
        for process in processes:
            process.kill()


class _Transport:
    def __init__(self):
        self.aborted = False

    def get_extra_info(self, _):
        return None

    def write(self, _):
        pass

    def abort(self):
        self.aborted = True


def test_door_16_what_a_peer_can_make_a_member_hold_is_bounded(monkeypatch):
    import asyncio

    monkeypatch.setattr(links, "MAX_AHEAD", 1 << 20)
    loop = asyncio.new_event_loop()
    try:
        mesh = Mesh(tuple(Member(n, "h", p) for n, p in zip(NAMES, free_ports(3))), 0, loop)
        link, transport = Link(mesh, 1, False), _Transport()
        link.connection_made(transport)
        for label in range(100):
            link.data_received(links._HEADER.pack(label, 1 << 16) + bytes(1 << 16))
            if transport.aborted:
                break
        assert label == 16
        assert "sent too many" in str(mesh.failure)
    finally:
        loop.close()
