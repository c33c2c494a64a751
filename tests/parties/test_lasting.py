"""A run outlives lost connections and killed processes, and nothing is opened twice."""

import contextlib
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from tests.parties import sabotage
from tests.parties.helpers import NAMES, Consortium

import sordino
from sordino.cli import main
from sordino.errors import LedgerError, PartyError
from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties.mpc import control, links, shamir
from sordino.parties.mpc import lasting as lasting_module
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.lasting import Kept, Lasting
from sordino.parties.mpc.links import PartyLostError
from sordino.parties.mpc.party import PartyRun
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.transcript import Transcript, read_transcript

STOPS = [("reserved", 1), ("asking", 1), ("opening", 1), ("release", 1)]
STOPS += [("ready", 2), ("opening", 3), ("finished", 1)]


@pytest.fixture
def three(tmp_path):
    return Consortium(tmp_path, message=5.0, connect=5.0, patience=60.0)


def _end(three, processes):
    for process in processes:
        process.join(90)
    late = [p.is_alive() for p in processes]
    for process in processes:
        process.kill()
        process.join()
    assert not any(late)
    said = [(three.folder / name / "log.txt").read_text() for name in NAMES]
    assert [p.exitcode for p in processes] == [0, 0, 0], said


def _require_once(three):
    """Assert that all have one model, one settled reservation each, and no answer that is there twice."""
    assert three.check_books() == 3
    for i in range(3):
        (entry,) = [e for e in three.history(i) if e.status.value != "returned"]
        assert entry.status.value == "settled"
        numbers = [line["number"] for line in three.story(i).lines if line["kind"] == "opening"]
        assert sorted(set(numbers)) == [0, 1, 2]
    found = [sordino.load(three.state(i) / "model.sordino").coef_ for i in range(3)]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize(("stage", "count"), STOPS[2:4])
def test_a_killed_member_comes_back_and_the_run_goes_on_where_it_was(three, stage, count):
    _kill_and_restart(three, stage, count)


@pytest.mark.long
@pytest.mark.parametrize(("stage", "count"), STOPS)
@pytest.mark.parametrize("victim", [0, 2])
def test_a_member_killed_at_any_stage_comes_back(three, stage, count, victim):
    _kill_and_restart(three, stage, count, victim)


def _kill_and_restart(three, stage, count, victim=1):
    plans = [None] * 3
    plans[victim] = sabotage.at(stage, sabotage.kill, count)
    processes = [three.fork(i, sabotage=plans[i]) for i in range(3)]
    processes[victim].join(60)
    assert processes[victim].exitcode == -9
    time.sleep(1)
    if stage == "reserved":  # it had not said that it booked: the others gave back, and start again
        for process in processes:
            process.join(60)
        assert all(not three.story(i).is_spent for i in range(3) if i != victim)
        processes = [three.fork(i) for i in range(3)]
    else:
        processes[victim] = three.fork(victim)
    _end(three, processes)
    _require_once(three)


def test_a_cut_connection_is_mended_without_a_new_process(three):
    cut = sabotage.at("release", sabotage.reset, 2)
    _end(three, [three.fork(i, sabotage=cut if i == 0 else None) for i in range(3)])
    _require_once(three)


def test_a_member_that_comes_back_with_other_records_is_refused(three):
    processes = [
        three.fork(i, sabotage=sabotage.at("release", sabotage.kill, 2) if i == 1 else None) for i in range(3)
    ]
    processes[1].join(60)
    path = three.folder / "south" / "data.npz"
    with np.load(path) as data:
        x, y = data["X"].copy(), data["y"]
    x[0, 0] += 1.0
    np.savez(path, X=x, y=y)
    processes[1] = three.fork(1)
    for process in processes:
        process.join(60)
    assert [p.exitcode for p in processes] == [1, 1, 1]
    assert "not those that this run began with" in (three.folder / "south" / "log.txt").read_text()


def test_a_copy_of_the_files_of_a_run_comes_too_late(three):
    """The ledger counts turns, so that two copies of a member cannot both go on."""
    processes = [
        three.fork(i, sabotage=sabotage.at("asking", sabotage.kill) if i == 1 else None) for i in range(3)
    ]
    processes[1].join(60)
    for process in processes:
        process.kill()
        process.join()
    path, plan = three.state(1) / "transcript.jsonl", JointPlan.load(three.plan_path)
    before = path.read_bytes()

    def take_over():
        config = PartyConfig.load(three.folder / "south" / "party.toml")
        run = PartyRun(config, plan)
        with contextlib.closing(Transcript(path)) as run._transcript:
            return run._resume()

    assert [take_over().turn, take_over().turn] == [1, 2]
    path.write_bytes(before)
    with pytest.raises(LedgerError, match="A copy would release twice"):
        take_over()


def test_kept_numbers_are_read_as_they_were_written(tmp_path):
    kept = Kept(tmp_path / "answers")
    for number, values in enumerate(([-3, 0, 2**59], [1 - 2**60, 5])):
        kept.keep("answer", number, np.array(values))
        assert kept.answer(number).tolist() == values
    kept.keep("shares", 0, np.array([1, 2], dtype=object), "ab" * 16)
    kept.keep("shares", 1, np.array([3, 4], dtype=object), "cd" * 16)
    kept.forget_shares(1)
    assert kept.shares(0) is None
    assert kept.shares(1)[0] == "cd" * 16
    assert kept.shares(1)[1].tolist() == [3, 4]
    assert (kept.count, kept.answer(7)) == (2, None)


def _lasting(request, folder, heard):
    """Return a computation whose first shares are kept, and what the other member would say of itself."""
    transcript = Transcript(folder / "transcript.jsonl")
    request.addfinalizer(transcript.close)
    engine = SimpleNamespace(opened=[], members=(), bytes_sent=0, close=lambda farewell=False: None)
    engine.open = lambda shares: engine.opened.append(shares) or np.array([7, 8])
    engine.exchange = lambda payload, what: []
    facts = transcript, 100, 5.0, lambda line: None
    made = Lasting(lambda gone: engine, lambda _, state: [state, {**state, **heard}], lambda _: None, *facts)
    made.kept.keep("shares", 0, np.array([1, 2], dtype=object), "ab" * 16)
    return made, engine


@pytest.mark.parametrize("kept", [["", "cd" * 16], ["", ""], ["ab" * 16, ""], [], None, 7, [[], []]])
def test_no_share_is_sent_on_the_word_of_a_member_that_keeps_other_shares(request, tmp_path, kept):
    """Else one who lies opens one attempt with one honest member and another one with the next: two looks."""
    lasting, engine = _lasting(request, tmp_path, {"sent": True, "kept": kept})
    with pytest.raises(PartyError, match="not all have its shares"):
        lasting.start()
    assert engine.opened == []
    assert not read_transcript(tmp_path / "transcript.jsonl").find("opening")


def test_shares_of_the_same_attempt_are_opened_when_somebody_began_to(request, tmp_path):
    lasting, engine = _lasting(request, tmp_path, {"sent": True})
    lasting.start()
    assert len(engine.opened) == 1
    assert lasting.kept.answer(0).tolist() == [7, 8]


def test_a_member_that_is_lost_again_and_again_ends_the_run(request, tmp_path, monkeypatch):
    monkeypatch.setattr(lasting_module, "PAUSE", 0.0)
    lasting, _ = _lasting(request, tmp_path, {})
    tried = []

    def lose(*given):
        tried.append(given)
        raise PartyLostError("west closed its connection.", "west")

    lasting._release = lose
    draw = SimpleNamespace(part=lambda number: None)
    with pytest.raises(PartyError, match="west closed") as caught:
        lasting.sum(np.zeros(2), draw)
    assert not isinstance(caught.value, PartyLostError)
    assert len(tried) == lasting_module.TRIES


def test_nothing_is_given_back_once_another_member_can_open_an_answer(three):
    """West says to north alone that it is ready, takes north's share, and is never seen again."""
    three.patience, three.connect = 0.5, 2.0
    for i in range(3):
        three.write_config(i)

    def lie():
        send, opened = links.Link.send, shamir.ShamirEngine.open
        is_for_south = lambda link, payload: link.peer_pid == 1 and b"ready 0" in payload[:16]  # noqa: E731
        links.Link.send = lambda self, label, payload: (
            None if is_for_south(self, payload) else send(self, label, payload)
        )

        def opening(self, *given):
            time.sleep(1.0)  # north's share is here
            sabotage.kill()
            return opened(self, *given)

        shamir.ShamirEngine.open = opening

    codes, said = three.run(sabotage=(None, None, lie))
    assert codes == [1, 1, -9], said
    assert three.story(0).find("opening")
    assert not three.story(1).find("opening")
    assert three.story(1).is_in_doubt
    assert [three.history(i)[0].status.value for i in range(2)] == ["failed", "reserved"]
    with three.daemons(0):
        assert "Others have opened an answer" in _alone(three, 1)
    assert three.history(1)[0].status.value == "failed"


def test_what_was_reserved_comes_back_when_all_say_that_nobody_opened(three):
    """West dies when all keep their shares; the others said that they are ready, and cannot know more."""
    three.patience, three.connect = 0.5, 2.0
    for i in range(3):
        three.write_config(i)
    codes, said = three.run(sabotage=(None, None, sabotage.at("ready", sabotage.kill)))
    assert codes == [1, 1, -9], said
    assert [three.story(i).is_in_doubt for i in range(3)] == [True, True, False]
    assert [three.history(i)[0].status.value for i in range(3)] == ["reserved"] * 3
    with three.daemons(1):  # north asks, and west is still down
        assert "Not all members have said" in _alone(three, 0)
    _alone(three, 2)  # its files say that it was never ready; they may be old, so the others are asked
    assert three.history(2)[0].status.value == "reserved"
    for i in range(3):
        with three.daemons(*{0, 1, 2} - {i}):
            assert "given back" in _alone(three, i)
    assert [three.history(i)[0].status.value for i in range(3)] == ["returned"] * 3
    codes, said = three.run()
    assert codes == [0, 0, 0], said


def test_an_old_copy_of_the_files_of_a_run_gives_nothing_back_that_others_have_opened(three):
    processes = [
        three.fork(i, sabotage=sabotage.at("release", sabotage.kill, 3) if i == 1 else None) for i in range(3)
    ]
    processes[1].join(60)
    path = three.state(1) / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    kinds = [line["kind"] for line in read_transcript(path).lines]
    path.write_bytes(b"".join(lines[: kinds.index("kept") + 1]))  # before it was ready for the first time
    for answer in (three.state(1) / "answers").glob("answer-*"):
        answer.unlink()
    processes[1] = three.fork(1)
    for process in processes:
        process.join(60)
    assert [p.exitcode for p in processes] == [1, 1, 1]
    assert "do not agree on how many answers" in (three.folder / "south" / "log.txt").read_text()
    assert [three.history(i)[0].status.value for i in range(3)] == ["failed", "reserved", "failed"]
    with three.daemons(0, 2):
        assert "Others have opened an answer" in _alone(three, 1)
    assert three.history(1)[0].status.value == "failed"
    assert three.check_books() >= 2

    with contextlib.closing(Transcript(path)) as transcript:  # had it given back, both checks would say so
        transcript.write("returned")
    paths = [str(three.state(i) / "transcript.jsonl") for i in range(3)]
    found = CliRunner().invoke(main, ["consortium", "verify", *paths])
    assert found.exit_code == 1
    assert "Transcript 2 gave its reservation back" in found.output


def test_a_ledger_that_counts_less_than_a_transcript_opened_is_named(three):
    codes, said = three.run()
    assert codes == [0, 0, 0], said
    check = ["consortium", "verify", str(three.state(0) / "transcript.jsonl"), "--config"]
    assert CliRunner().invoke(main, [*check, str(three.config(1))]).exit_code == 0
    (three.folder / "south" / "ledger.sqlite").unlink()
    with Ledger.open(three.folder / "south" / "ledger.sqlite") as ledger:
        ledger.create("patients", BudgetPolicy(epsilon=4.0, delta=1e-5))
    found = CliRunner().invoke(main, [*check, str(three.config(1))])
    assert found.exit_code == 1
    assert "'south' has no reservation for it" in found.output


def _alone(three, i):
    process = three.fork(i)
    process.join(60)
    return (three.folder / NAMES[i] / "log.txt").read_text()


@pytest.mark.parametrize(
    ("said", "threshold", "expected"),
    [
        (["unready", "ready"], 1, False),
        (["ready", "ready"], 1, False),
        (["unready", ""], 1, None),
        (["unready", "opening"], 1, True),
        (["ready", "anything else"], 1, None),
        (
            ["unready", "unready", "", "opening"],
            1,
            True,
        ),  # of two who were "never ready" both may have old files
        (["unready", "unready", "", "ready"], 1, False),  # two of whom one is honest were never ready
        (["unready", "unready", "", "opening"], 2, True),
        (["unready", "unready", "unready", ""], 2, False),
    ],
)
def test_who_sent_nothing_learns_from_the_others_whether_an_answer_is_open(said, threshold, expected):
    assert lasting_module.may_be_open(said, threshold) is expected


def test_a_transcript_goes_on_after_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "t" / "transcript.jsonl"
    first = Transcript(path)
    first.write("plan", digest="d")
    first.write("release", opened="o")
    digest = first.shared_digest
    first.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"rel')
    again = Transcript(path)
    assert again.shared_digest == digest
    again.write("finished")
    again.close()
    assert [line["kind"] for line in read_transcript(path).lines] == ["plan", "release", "finished"]


def test_a_daemon_starts_a_stopped_run_again_once(three, monkeypatch):
    """A process needs seconds until it holds the lock of its run; the daemon looks more often than that."""
    monkeypatch.setattr(control, "_COMMAND", [sys.executable, "-c", "import time; time.sleep(20)"])
    plan = JointPlan.load(three.plan_path)
    with contextlib.closing(Transcript(three.state(1) / "transcript.jsonl")) as transcript:
        transcript.write("plan", digest=plan.digest)
        transcript.write("reserved", sequence=1)
    plan.save(three.state(1) / "plan.json")
    path, said = three.folder / "south" / "party.toml", []
    daemon = control.Daemon(PartyConfig.load(path), path, said.append)
    for _ in range(3):  # nobody approved, or somebody withdrew: it waits, and says so once
        daemon.go_on()
    assert not daemon.running
    (line,) = said
    assert "0 of 1 approvals" in line
    daemon.config.approvals.add(plan)
    for times in (1, 2):
        daemon.go_on()
        daemon.go_on()
        assert daemon.counts["started"] == times
        daemon.running[plan.digest].kill()
        daemon.running[plan.digest].wait()


def test_who_ends_its_own_doubt_still_says_that_it_sent_nothing_and_never_goes_on(three, monkeypatch):
    """Two in doubt ask each other at once, and one of them is killed between two lines of its end."""
    monkeypatch.setattr(control, "_COMMAND", [sys.executable, "-c", "pass"])
    plan = JointPlan.load(three.plan_path)
    with contextlib.closing(Transcript(three.state(1) / "transcript.jsonl")) as transcript:
        transcript.write("plan", digest=plan.digest)
        for kind in ("reserved", "ready", "failed", "resumed"):
            transcript.write(kind)
    plan.save(three.state(1) / "plan.json")
    path = three.folder / "south" / "party.toml"
    daemon = control.Daemon(PartyConfig.load(path), path, lambda line: None)
    found = daemon.answer({"op": "status", "plan": plan.digest}, three.fingerprint("north"))
    assert (found["status"], found["sharing"]) == ("failed", "ready")
    assert three.story(1).is_in_doubt
    daemon.go_on()
    assert not daemon.running
