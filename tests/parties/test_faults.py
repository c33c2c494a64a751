"""Whatever happens to one member: no hang, no release without all reservations, no ledger that is wrong."""

import shutil

import numpy as np
import pytest
from tests.parties import sabotage
from tests.parties.helpers import NAMES, Consortium, authority, write_credentials

from sordino.parties.mpc.plan import JointPlan


@pytest.fixture
def three(tmp_path):
    return Consortium(tmp_path, message=2.0, connect=4.0)


def _broken(three, victim, damage):
    plans = [None] * 3
    plans[victim] = damage
    codes, said = three.run(sabotage=tuple(plans))
    opened = three.check_books()
    healthy = [i for i in range(3) if i != victim]
    return codes, [said[i] for i in healthy], opened, [codes[i] for i in healthy]


def test_a_member_that_is_killed_before_it_reserves_opens_nothing(three):
    codes, said, opened, others = _broken(three, 1, sabotage.at("reserved", sabotage.kill))
    assert codes[1] == -9
    assert others == [1, 1]
    assert opened == 0
    assert all("party 1 (south) closed its connection" in text for text in said)


def test_a_member_that_is_killed_half_way_is_named_and_its_reservation_stays(three):
    _, said, opened, others = _broken(three, 2, sabotage.at("release", sabotage.kill, count=2))
    assert others == [1, 1]
    assert opened >= 1
    assert all("party 2 (west) closed its connection" in text for text in said)
    assert three.history(2)[-1].status.value == "reserved"
    assert three.history(0)[-1].status.value == "failed"
    three.wait_at_most(1.0, 2)
    codes, said = three.run()  # the others have given it up, so it does not go on
    assert codes == [1, 1, 1]
    assert all("was run here before" in text for text in said[:2])
    assert three.history(2)[-1].status.value == "failed"


def test_a_member_that_stalls_is_named_after_the_time_out(three):
    plans = (None, sabotage.at("release", sabotage.stall), None)
    processes = [three.fork(i, sabotage=plans[i]) for i in range(3)]
    for i in (0, 2):
        processes[i].join(40)
    codes = [processes[0].exitcode, processes[2].exitcode]
    processes[1].kill()
    processes[1].join()
    assert codes == [1, 1]
    assert "no message from party 1 (south) for 2 s" in (three.folder / "north" / "log.txt").read_text()
    three.check_books()


def test_shares_out_of_range_are_refused_with_the_name_of_the_sender(three):
    _, said, opened, others = _broken(three, 0, sabotage.out_of_range)
    assert others == [1, 1]
    assert opened == 0
    assert any("party 0 (north) sent shares out of range" in text for text in said)


def test_a_wrong_share_at_the_opening_is_noticed_by_everybody(three):
    _, said, opened, _ = _broken(three, 1, sabotage.wrong_share)
    assert opened == 0
    assert any("do not fit together" in text for text in said)


def test_a_certificate_of_another_authority_does_not_get_in(three):
    write_credentials(three.folder / "west", "west", *authority())
    shutil.copy(three.folder / "north" / "authority.pem", three.folder / "west" / "authority.pem")
    three.wait_at_most(1.0)  # all of them pin the new certificate
    plan = three.replan("stranger.json")
    codes, said = three.run(plans=(plan, plan, plan))
    assert codes == [1, 1, 1]
    assert three.check_books(plan) == 0
    assert all(not three.history(i) for i in range(3))
    assert "(west)" in said[0]


def test_another_members_certificate_does_not_pass_for_ones_own(three):
    three.wait_at_most(1.0, 0, 2)
    for name in ("key.pem", "certificate.pem"):
        shutil.copy(three.folder / "north" / name, three.folder / "south" / name)
    codes, said = three.run()
    assert codes == [1, 1, 1]
    assert "Two members of [members] have the same fingerprint" in said[1]
    assert three.check_books() == 0


def test_a_member_with_another_plan_is_named_and_nothing_is_reserved(three):
    other = three.replan("other.json")
    codes, said = three.run(plans=(None, None, other))
    assert codes == [1, 1, 1]
    assert "west has another plan" in said[0]
    assert all(not three.history(i) for i in range(3))


ACTIONS = (
    sabotage.kill, sabotage.stall, sabotage.reset, sabotage.garbage, sabotage.replay,
    sabotage.out_of_range, sabotage.truncated, sabotage.wrong_share, sabotage.no_signs,
    sabotage.bent_products, sabotage.late_coin, sabotage.crooked_sharing, sabotage.short_shares,
    sabotage.huge_value, sabotage.half_the_field, sabotage.bits_that_are_none,
)  # fmt: skip
POINTS = [(stage, 1) for stage in sabotage.STAGES] + [("opening", 2), ("release", 2), ("release", 3)]
INJECTIONS = 200


def injection(seed):
    """Return what goes wrong, when, at whom, and whether that member comes back; all stages come in turn."""
    public = np.random.default_rng(seed)
    action = ACTIONS[seed % len(ACTIONS)]
    stage = POINTS[seed // len(ACTIONS) % len(POINTS)]
    return action, stage, int(public.integers(3)), bool(public.integers(2))


def _join(processes, seconds):
    for process in processes:
        process.join(seconds)
    late = [process.is_alive() for process in processes]
    for process in processes:
        process.kill()
        process.join()
    return any(late)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(INJECTIONS))
def test_an_injection_ends_without_a_hang_an_unpaid_release_a_wrong_ledger_or_a_lost_epsilon(tmp_path, seed):
    action, stage, victim, comes_back = injection(seed)
    three = Consortium(tmp_path, message=2.0, connect=3.0, patience=4.0)
    plans = [None] * 3
    plans[victim] = sabotage.at(stage[0], action, stage[1])
    processes = [three.fork(i, sabotage=plans[i]) for i in range(3)]
    if comes_back and action is sabotage.kill:
        processes[victim].join(30)
        processes[victim] = three.fork(victim)
    healthy = [process for i, process in enumerate(processes) if i != victim]
    assert not _join(healthy, 60), "a member hangs"
    _join([processes[victim]], 20 if action is not sabotage.stall else 0.1)
    three.check_books()
    three.patience = 0.0
    for i in range(3):
        three.write_config(i)
    # Whoever was stopped is started again, as its waiting process would do, and the others are gone.
    for i in range(3):
        story = three.story(i)
        if story is not None and story.status == "unfinished":
            assert not _join([three.fork(i)], 60)
    with three.daemons(0, 1, 2):  # and who was ready and sent nothing asks the others
        assert not _join([three.fork(i) for i in range(3) if three.story(i).is_in_doubt], 60)
    opened = three.check_books()
    digest = JointPlan.load(three.plan_path).digest
    is_open = any(three.story(i).find("opening") for i in range(3))
    for i in range(3):
        booked = [e for e in three.history(i) if e.plan_digest == digest]
        assert not three.story(i).is_in_doubt
        if not is_open or not three.story(i).find("ready"):  # no share of an answer has left anybody
            assert all(e.status.value == "returned" for e in booked), (NAMES[i], opened)


def test_the_injections_are_of_all_kinds_at_all_stages_and_members():
    found = [injection(seed) for seed in range(INJECTIONS)]
    assert {action for action, *_ in found} == set(ACTIONS)
    assert len({(action, stage) for action, stage, *_ in found}) >= 100
    assert {victim for *_, victim, _ in found} == {0, 1, 2}
