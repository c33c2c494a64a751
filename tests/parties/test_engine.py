"""The real engine opens sums with the declared noise, and its daemon answers only what it should."""

import json
import math
import multiprocessing
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from tests.parties import sabotage
from tests.parties.helpers import NAMES, Consortium, authority, free_ports, write_credentials

from sordino.errors import InvalidInputError, PartyError
from sordino.execute.parties import Mode, NoiseShare
from sordino.execute.parties.engine import Lattice
from sordino.kernel import NoiseSource
from sordino.parties.mpc import control as party_daemon
from sordino.parties.mpc.charter import Approvals
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.control import Answer, ask
from sordino.parties.mpc.links import Credentials, Limits, Member
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.shamir import ShamirEngine, check_threshold
from sordino.parties.words import Code

LATTICE = Lattice(1.0, 2.0**28.4, 2**50)


def _member(members, index, share, values, releases, pipe, cheat=None):
    if cheat is not None:
        cheat()
    engine = ShamirEngine(members, index, share.threshold, None, Limits(20.0, 60.0))
    engine.connect()
    noise, opened = NoiseSource.seeded_not_private(100 + index), []
    for _ in range(releases):
        mine, draw = share.draw(values * (index + 1), LATTICE, index, noise)
        reaches = share.reaches(LATTICE, (100,) * len(members), values.size)
        opened.append(engine.sum(mine, replace(draw, reaches=reaches)))
    engine.exchange(b"done", "Ending")
    pipe.send((np.concatenate(opened), engine.bytes_sent))
    engine.close()


def _opened(mode, values, releases=1, parties=3, threshold=1):
    """Return what each of several forked members opened."""
    share, fork = NoiseShare(mode, parties, threshold), multiprocessing.get_context("fork")
    members = tuple(Member(f"p{i}", "127.0.0.1", port) for i, port in enumerate(free_ports(parties)))
    pipes = [fork.Pipe(duplex=False) for _ in range(parties)]
    processes = [
        fork.Process(target=_member, args=(members, i, share, values, releases, pipes[i][1]), daemon=True)
        for i in range(parties)
    ]
    for process in processes:
        process.start()
    found = [pipe[0].recv() for pipe in pipes]
    for process in processes:
        process.join(30)
    return [f[0] for f in found], found[0][1], share


@pytest.mark.statistical
@pytest.mark.parametrize(("mode", "count"), [(Mode.INSIDE, 500), (Mode.AGGREGATION, 4000)])
def test_noise_opened_over_a_zero_sum_has_the_declared_law(mode, count):
    opened, _, share = _opened(mode, np.zeros(count, dtype=np.int64), releases=2)
    assert all(np.array_equal(opened[0], other) for other in opened)
    sample = opened[0].astype(float) / LATTICE.std
    std = math.sqrt(share.copies)
    assert stats.kstest(sample, stats.norm(scale=std).cdf).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(sample, stats.norm(scale=std * wrong).cdf).pvalue < 1e-4
    assert abs(np.corrcoef(sample[:-1], sample[1:])[0, 1]) < 4.5 / math.sqrt(sample.size)


def test_five_members_of_whom_two_may_collude_add_up_negative_and_large_numbers():
    values = np.array([-(2**44), 3, 2**45, 0])
    opened, _, _ = _opened(Mode.INSIDE, values, parties=5, threshold=2)
    expected = 15 * values.astype(float)
    assert np.abs(opened[0].astype(float) - expected).max() < 10 * LATTICE.std
    assert np.array_equal(opened[0], opened[4])


@pytest.mark.parametrize(("members", "threshold"), [(2, 1), (3, 0), (3, 2), (4, 2)])
def test_a_threshold_without_an_honest_majority_is_refused(members, threshold):
    with pytest.raises(InvalidInputError):
        check_threshold(members, threshold)


def refusals(*cheats):
    """Return what the honest members of three say of those who run something else."""
    share, fork = NoiseShare(Mode.INSIDE, 3, 1), multiprocessing.get_context("fork")
    members = tuple(Member(f"p{i}", "127.0.0.1", port) for i, port in enumerate(free_ports(3)))
    pipes = [fork.Pipe(duplex=False) for _ in range(3)]

    def take_part(i):
        try:
            _member(members, i, share, np.zeros(4, dtype=np.int64), 1, pipes[i][1], cheats[i])
        except PartyError as error:
            pipes[i][1].send(str(error))

    processes = [fork.Process(target=take_part, args=(i,), daemon=True) for i in range(3)]
    for process in processes:
        process.start()
    said = [pipe[0].recv() for pipe in pipes]
    for process in processes:
        process.join(30)
    return [s for s, cheat in zip(said, cheats) if cheat is None]


@pytest.mark.parametrize(
    ("cheat", "words"),
    [
        (sabotage.no_signs, "(p2) failed the sign check"),
        (sabotage.bent_products, "Product check"),
        (sabotage.late_coin, "Coin check: p2"),
        (sabotage.two_faced, "was promised another coin"),
        (sabotage.crooked_sharing, "do not fit together"),
        (sabotage.short_shares, "sent shares of a broken length"),
        (sabotage.huge_value, "(p2) contributed more than its records can"),
        (sabotage.half_the_field, "(p2) contributed more than its records can"),
        (sabotage.bits_that_are_none, "(p2) failed the sign check"),
    ],
)
def test_a_cheating_member_is_refused_before_anything_is_opened(cheat, words):
    for said in refusals(None, None, cheat):
        assert words in said, said


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """A daemon of the first member whose runs end at once."""
    three = Consortium(tmp_path)
    monkeypatch.setattr(party_daemon, "_COMMAND", [sys.executable, "-c", "pass"])
    path = tmp_path / NAMES[0] / "party.toml"
    ready = threading.Event()
    threading.Thread(
        target=party_daemon.serve, args=(PartyConfig.load(path), path, ready), daemon=True
    ).start()
    assert ready.wait(10)
    return three, PartyConfig.load(path).credentials, json.loads(three.plan_path.read_text())


def test_a_daemon_starts_a_run_of_its_own_and_says_how_it_is(daemon):
    three, credentials, text = daemon
    first = text["members"][0]
    digest = JointPlan.read(text).digest
    assert ask(first, credentials, {"op": "status", "plan": digest}) == Answer("unknown")
    assert ask(first, credentials, {"op": "run", "plan": text}) == Answer("refused", Code.APPROVAL)
    saved = three.folder / "north" / "state" / "proposals" / f"{digest}.json"
    assert JointPlan.load(saved).digest == digest  # kept, so that it can be read and approved
    Approvals(three.folder / "north" / "state").add(JointPlan.load(saved))
    assert ask(first, credentials, {"op": "run", "plan": text}) == Answer("proposed")
    assert ask(first, credentials, {"op": "status", "plan": digest}).status in ("starting", "died")


@pytest.mark.parametrize(
    "question", [{"op": "shell"}, {"op": "run", "plan": {"x": 1}}, {"op": "status", "plan": "../x"}, [], {}]
)
def test_a_daemon_refuses_what_it_does_not_understand(daemon, question):
    _, credentials, text = daemon
    assert ask(text["members"][0], credentials, question) == Answer("refused", Code.QUESTION)


def _credentials(folder, name):
    return Credentials(*(folder / name / f"{file}.pem" for file in ("certificate", "key", "authority")))


def test_a_daemon_takes_plans_from_its_proposers_only(daemon, tmp_path):
    three, _, text = daemon
    Approvals(tmp_path / "north" / "state").add(JointPlan.read(text))
    answer = ask(text["members"][0], _credentials(tmp_path, "south"), {"op": "run", "plan": text})
    assert answer == Answer("refused", Code.CALLER)
    digest = JointPlan.read(text).digest
    answer = ask(text["members"][0], _credentials(tmp_path, "south"), {"op": "status", "plan": digest})
    assert answer == Answer("unknown")
    assert not (tmp_path / "north" / "state" / "proposals").exists()
    assert not three.history(0)


def test_a_daemon_tells_nothing_to_a_certificate_that_its_member_did_not_list(daemon, tmp_path):
    three, _, text = daemon
    (tmp_path / "mallory").mkdir()
    write_credentials(tmp_path / "mallory", "mallory", three.key, three.certificate)
    for question in ({"op": "run", "plan": text}, {"op": "status", "plan": JointPlan.read(text).digest}):
        answer = ask(text["members"][0], _credentials(tmp_path, "mallory"), question)
        assert answer == Answer("refused", Code.CALLER)


def test_a_daemon_does_not_even_keep_a_plan_of_strangers(daemon, tmp_path):
    _, credentials, text = daemon
    text["members"][2]["fingerprint"] = "f" * 64
    answer = ask(text["members"][0], credentials, {"op": "run", "plan": text})
    assert answer == Answer("refused", Code.MEMBERS)
    assert not (tmp_path / "north" / "state" / "proposals").exists()


def test_a_daemon_keeps_a_bounded_number_of_proposals(daemon, monkeypatch):
    three, credentials, text = daemon
    monkeypatch.setattr(party_daemon, "MAX_WAITING", 1)
    for path, code in ((three.plan_path, Code.APPROVAL), (three.replan("b.json"), Code.BUSY)):
        answer = ask(text["members"][0], credentials, {"op": "run", "plan": json.loads(path.read_text())})
        assert answer == Answer("refused", code)


def test_a_daemon_does_not_talk_to_a_stranger(daemon, tmp_path):
    _, _, text = daemon
    (tmp_path / "stranger").mkdir()
    write_credentials(tmp_path / "stranger", "stranger", *authority())
    files = [tmp_path / "stranger" / f"{name}.pem" for name in ("certificate", "key", "authority")]
    with pytest.raises(PartyError, match="north does not answer"):
        ask(text["members"][0], Credentials(*files), {"op": "status", "plan": "x"})
