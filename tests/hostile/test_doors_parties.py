"""Joint runs: which fact about the data, the price or the status could get lost between the members."""

import os
import time
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from tests.parties import sabotage
from tests.parties.helpers import NAMES, Consortium, linear_task

import sordino
from sordino import LogisticRegression, private_estimator
from sordino.cli import main
from sordino.errors import InvalidInputError, LedgerError, PartyError, PlanSpentError
from sordino.ledger import BudgetPolicy, Ledger, Status
from sordino.parties.mpc import control, links, shamir
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.lasting import Lasting
from sordino.parties.mpc.party import load_local
from sordino.parties.mpc.plan import JointPlan, in_words, joint_task
from sordino.problems.scales import BINS
from sordino.runs import Ask, Fitted, PrivacyReport, Promise
from sordino.solvers.base import NoisyCoefficients

BUDGET = {"epsilon": 0.8, "delta": 1e-6, "relation": "add-remove", "unit": "record"}
TASK = linear_task(5, max_iter=4)


def _members(records=100):
    return [
        {"name": n, "host": "h", "port": 1 + i, "records": records, "fingerprint": f"{i:064d}"}
        for i, n in enumerate(NAMES)
    ]


def _write_labels(three, negative, positive):
    """Give every member the same records with other names for the two classes; return them all."""
    rows, labels = [], []
    for name in NAMES:
        path = three.folder / name / "data.npz"
        with np.load(path) as data:
            x, y = data["X"], np.where(data["y"] > 0, positive, negative)
        np.savez(path, X=x, y=y)
        rows, labels = [*rows, x], [*labels, y]
    return np.concatenate(rows), np.concatenate(labels)


@pytest.mark.parametrize("names", [(0, 1), ("ill", "well")])
def test_door_12_auto_learns_labels_of_any_name_between_members(tmp_path, names):
    task = linear_task(solver="auto", classes=list(names), fit_intercept=True)
    three = Consortium(tmp_path, records=2000, epsilon=2.0, mode="secure-aggregation", task=task)
    x, y = _write_labels(three, *names)
    codes, said = three.run(limit=120)
    assert codes == [0, 0, 0], said
    found = sordino.load(three.state(0) / "model.sordino")
    assert list(found.classes_) == sorted(names)
    chosen = found.predict(x)
    assert found.coef_noise_.shape == found.coef_[0].shape
    plain = LogisticRegression(
        epsilon=2.0, delta=1e-6, data_norm=1.0, classes=list(names), solver="auto"
    ).fit(x, y)
    # About .96 and .97; the noise of 6,000 records at epsilon 2 moves either by less than .02.
    assert np.mean(chosen == y) > plain.score(x, y) - 0.08 > 0.8


@pytest.mark.parametrize("intercept", [0.0, 0.25])
@pytest.mark.parametrize("noisy", [True, False])
def test_door_12_a_joint_run_finishes_as_an_estimator_does(monkeypatch, intercept, noisy):
    """The same last iterate gives the same numbers, to the last bit."""
    public = np.random.default_rng(2)
    w = public.standard_normal(4 if intercept else 3)
    last = NoisyCoefficients(w, np.abs(w[:3])) if noisy else w
    params = {"classes": [0, 1], "data_norm": 1.0, "fit_intercept": bool(intercept)}
    text = {"estimator": "LogisticRegression", "features": 3, "params": params}
    ours, task = joint_task(text, 50, {"epsilon": 1.0, "delta": 1e-5, "relation": "add-remove"})
    joint = task.finish(last)
    report = Promise.made(Ask(1.0, 1e-5), task.plan()).report()
    monkeypatch.setattr(private_estimator, "run", lambda own, *_, **__: Fitted(own.finish(last), 1, report))
    model = LogisticRegression(data_norm=1.0, classes=[0, 1], fit_intercept=bool(intercept))
    model.fit(public.standard_normal((50, 3)), public.integers(0, 2, 50))
    assert np.array_equal(joint["coef_"], model.coef_)
    assert np.array_equal(joint["intercept_"], model.intercept_)
    assert np.array_equal(ours.classes_, model.classes_)
    for stated in (joint["coef_noise_"], model.coef_noise_):
        assert np.array_equal(stated, np.abs(w[:3])) if noisy else stated is None


@pytest.mark.parametrize("damage", ["labels", "no y", "text", "nan"])
def test_door_12_targets_that_do_not_fit_are_refused_before_anything_is_booked(tmp_path, damage):
    three = Consortium(tmp_path)
    path = tmp_path / "south" / "data.npz"
    with np.load(path) as data:
        x, y = data["X"], data["y"]
    secret = 7.125
    y = {"labels": np.where(np.arange(60) == 11, secret, y), "text": np.full(60, "unexpected")}.get(damage, y)
    if damage == "nan":
        x = np.where(np.arange(60)[:, None] == 11, np.nan, x)
    np.savez(path, X=x, **({} if damage == "no y" else {"y": y}))
    config = str(tmp_path / "south" / "party.toml")
    approving = CliRunner().invoke(
        main, ["party", "approve", "--yes", "--config", config, str(three.plan_path)]
    )
    assert approving.exit_code == 1
    assert not (tmp_path / "south" / "state").exists()
    codes, said = three.run()
    assert codes == [1, 1, 1]
    assert not any(three.history(i) for i in range(3))
    for text in (said[0], said[2]):  # the others learn that south refuses, and not that it is its records
        assert "south refuses the plan: for a reason of its own" in text
    for text in (*said, approving.output):
        assert str(secret) not in text
        assert "unexpected" not in text


def _history(three, plan=None):
    digest = JointPlan.load(plan or three.plan_path).digest
    return [[e.status.value for e in three.history(i) if e.plan_digest == digest] for i in range(3)]


@pytest.mark.parametrize(
    ("stage", "action"),
    [
        ("plan", sabotage.kill),  # before it has called anybody
        *((s, a) for s in ("session", "commitment", "reserved") for a in (sabotage.kill, sabotage.reset)),
    ],
)
def test_door_13_who_leaves_before_the_first_question_costs_nobody_anything(tmp_path, stage, action):
    three = Consortium(tmp_path, message=2.0, connect=1.0 if stage == "plan" else 4.0)
    three.run(sabotage=(None, None, sabotage.at(stage, action)))
    booked = _history(three)
    assert all(statuses in ([], ["returned"]) for statuses in booked[:2]), booked
    for i in range(2):
        with Ledger.open(three.folder / NAMES[i] / "ledger.sqlite") as ledger:
            assert ledger.spent("patients").epsilon == 0
            assert ledger.verify().reservations == len(booked[i])
    if not booked[2] or booked[2] == ["returned"]:  # one that was killed cannot say that nothing was asked
        three.wait_at_most(4.0)
        codes, said = three.run()
        assert codes == [0, 0, 0], said
        assert [statuses[-1] for statuses in _history(three)] == ["settled"] * 3


@pytest.mark.parametrize("stage", [("release", 1), ("release", 2), ("finished", 1)])
def test_door_13_who_leaves_after_the_first_question_leaves_it_spent(tmp_path, stage):
    three = Consortium(tmp_path, message=2.0, connect=4.0)
    three.run(sabotage=(None, None, sabotage.at(stage[0], sabotage.kill, stage[1])))
    assert _history(three) == [["failed"], ["failed"], ["reserved"]]
    three.wait_at_most(1.0, 2)  # nobody comes
    codes, said = three.run()
    assert codes == [1, 1, 1]
    assert all("was run here before" in text for text in said[:2])
    assert _history(three)[2] == ["failed"]  # it came back, and the others did not wait for it


def _deaf_to_north():
    """Tell south that one has booked, and north nothing any more."""
    send = links.Link.send
    links.Link.send = lambda self, label, payload: send(self, label, payload) if self.peer_pid else None


def test_door_13_one_who_tells_only_some_that_it_booked_costs_nobody_anything(tmp_path):
    three = Consortium(tmp_path, message=2.0, connect=10.0)
    codes, _ = three.run(sabotage=(None, None, sabotage.at("reserved", _deaf_to_north)))
    assert codes == [1, 1, 1]
    assert _history(three) == [["returned"]] * 3
    assert three.check_books() == 0  # south and west have begun to share, and without north nothing is opened
    assert three.run()[0] == [0, 0, 0]
    assert _history(three) == [["returned", "settled"]] * 3


def test_door_13_nothing_that_was_opened_or_belongs_to_others_is_given_back(tmp_path):
    from sordino.execute import LocalExecutor

    task = joint_task(TASK, 60, {"epsilon": 1.0, "delta": 1e-5, "relation": "add-remove"})[1]
    with Ledger.open(tmp_path / "l.sqlite") as ledger:
        ledger.create("d", BudgetPolicy(3.0, 1e-4))

        def booked():
            return Promise.made(Ask(1.0, 1e-5, ledger, "d"), task.plan()).reserved("a run")

        opened = booked()
        opened.curate(LocalExecutor(np.zeros((60, 5)), np.ones(60)))
        with pytest.raises(PlanSpentError, match="stays spent"):
            opened.give_back()
        before = ledger.spent("d")
        unused = booked()
        unused.give_back()
        assert ledger.spent("d").epsilon == before.epsilon
        with pytest.raises(PlanSpentError):
            unused.curate(LocalExecutor(np.zeros((60, 5)), np.ones(60)))
        with pytest.raises(PlanSpentError):
            unused.give_back()
        with pytest.raises(LedgerError, match="cannot be given back"):
            ledger.give_back("d", unused.place[1])
        ledger.finish("d", opened.place[1], Status.SETTLED)
        with pytest.raises(LedgerError, match="cannot be given back"):
            ledger.give_back("d", opened.place[1])
        pid = os.fork()
        if pid == 0:  # another process knows nothing of what was asked
            try:
                ledger.give_back("d", 1)
            except LedgerError:
                os._exit(17)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 17
        third = booked()
        pid = os.fork()
        if pid == 0:
            try:
                ledger.give_back("d", third.place[1])
            except LedgerError:
                os._exit(17)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 17
        assert ledger.verify().reservations == 3


def _slow_sums(seconds):
    """Let a member take its time over its own records."""

    def install():
        from sordino.execute.parties import executor

        quantise = executor.quantise

        def slowly(*arguments):
            time.sleep(seconds)
            return quantise(*arguments)

        executor.quantise = slowly

    return install


def test_door_14_a_member_that_works_longer_than_the_limit_of_a_message_is_waited_for(tmp_path):
    three = Consortium(tmp_path, message=1.5, task=linear_task(max_iter=1, solver_options={"step_size": 2.0}))
    codes, said = three.run(sabotage=(None, _slow_sums(4.0), None), limit=90)
    assert codes == [0, 0, 0], said


def test_door_14_a_release_of_many_columns_is_a_row_of_short_messages(tmp_path, monkeypatch):
    monkeypatch.setattr(shamir, "INSIDE", 30)
    monkeypatch.setattr(links, "MAX_PAYLOAD", 1 << 16)
    monkeypatch.setattr(shamir, "PIECE", 256)
    three = Consortium(
        tmp_path, features=70, task=linear_task(70, max_iter=2, solver_options={"step_size": 1.0})
    )
    codes, said = three.run(limit=120)
    assert codes == [0, 0, 0], said
    found = [sordino.load(three.state(i) / "model.sordino").coef_[0] for i in range(3)]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    assert np.unique(found[0]).size == 70


def test_door_14_no_key_of_a_proof_is_used_for_two_parts_of_a_release():
    from sordino.execute.parties import CoarseLaw, Draw

    draw = Draw(4, np.zeros((3, 8)), CoarseLaw.against(1), b"s" * 32, b"c" * 32)
    parts = [draw.part(i, slice(2 * i, 2 * i + 2)) for i in range(4)]
    assert len({p.secret for p in parts} | {p.coin for p in parts} | {draw.secret, draw.coin}) == 10
    assert all(p.signs.shape == (3, 2) for p in parts)


def test_door_14_a_plan_says_how_much_it_opens_and_a_run_opens_no_more(tmp_path):
    task = linear_task(solver="auto", fit_intercept=True)
    three = Consortium(tmp_path, records=2000, mode="secure-aggregation", task=task)
    plan = JointPlan.load(three.plan_path)
    codes, said = three.run(limit=120)
    assert codes == [0, 0, 0], said
    opened = plan.rehearsal.largest
    assert opened["units"] == 4 * BINS  # more than the five coefficients that were counted before
    assert opened["moments"] == 4
    assert opened["second"] == 5 * 6 // 2  # with the constant entry
    times = {name: release.times for name, release in plan.kernel_plan.releases.items()}
    assert plan.coordinates >= sum(opened[name] * times[name] for name in times)
    transcript = SimpleNamespace(path=three.state(0) / "transcript.jsonl")
    size = Lasting(None, None, None, transcript, 0, 0.0, print).kept.answer(0).size
    meter = Lasting(None, None, None, transcript, size, 0.0, print)
    assert meter.sum(np.zeros(size), None).size == size
    with pytest.raises(PartyError, match="more numbers than its plan has counted"):
        meter.sum(np.zeros(1), None)
    assert f"{plan.coordinates} numbers at most" in "\n".join(in_words(plan))


def test_door_12_a_text_label_in_a_csv_is_read_and_a_broken_one_is_refused_without_it(tmp_path):
    three = Consortium(
        tmp_path, task=linear_task(classes=["no", "yes"], max_iter=3, solver_options={"step_size": 2.0})
    )
    path = tmp_path / "north" / "data.csv"
    rows = "\n".join(f"0.1,0.2,0.3,{i / 60},{'yes' if i % 2 else 'no'}" for i in range(60))
    path.write_text(f"a,b,c,d,y\n{rows}\n")
    config = PartyConfig.load(tmp_path / "north" / "party.toml")
    object.__setattr__(config, "data", path)
    plan = JointPlan.load(three.plan_path)
    assert set(load_local(config, plan).targets) == {-1.0, 1.0}
    path.write_text(path.read_text().replace("0.1,0.2", "secret,0.2", 1))
    with pytest.raises(InvalidInputError) as refused:
        load_local(config, plan)
    assert "secret" not in str(refused.value)


def test_door_16_what_is_cut_by_default_is_said_at_approval_and_in_the_report(tmp_path):
    three = Consortium(
        tmp_path,
        task=linear_task(
            4,
            "SparseLinearRegression",
            classes=None,
            target_bound=1.0,
            max_iter=3,
            solver_options={"step_size": 2.0},
        ),
    )
    lines = "\n".join(in_words(JointPlan.load(three.plan_path)))
    assert "data_norm = 1 (rows are clipped to it)" in lines
    assert "target_bound = 1 (targets are clipped to it)" in lines
    codes, said = three.run()
    assert codes == [0, 0, 0], said
    report = PrivacyReport.from_json((three.state(1) / "report.json").read_text("utf-8"))
    assert {"target_bound = 1 (targets are clipped to it)"} <= set(report.public)
    assert tuple(sordino.load(three.state(1) / "model.sordino").target_range_) == (-1.0, 1.0)


@pytest.mark.parametrize(
    "wrong",
    [{"max_epsilon": True}, {"max_epsilon": "1"}, {"max_delta": 2.0}, {"min_parties": 2.5}, {"modes": ["x"]}],
)
def test_door_16_a_members_own_limits_are_numbers_of_their_range(tmp_path, wrong):
    three = Consortium(tmp_path)
    three.write_config(0, **wrong)
    with pytest.raises(InvalidInputError, match="policy"):
        PartyConfig.load(tmp_path / "north" / "party.toml")


def test_door_14_a_run_is_waited_for_as_long_as_its_members_wait_for_each_other(monkeypatch):
    """`consortium run` gave up after ten minutes, while members went on for the hour that they may take."""
    plan = SimpleNamespace(
        text={"members": [{"name": "anna", "fingerprint": "f"}]},
        members=["anna"],
        coordinates=4,
        share="one",
        digest="d",
    )
    limits = links.Limits(work=2000.0, patience=1000.0)
    own = SimpleNamespace(credentials=None, limits=limits, partners=SimpleNamespace(members={}))
    clock = [0.0]
    monkeypatch.setattr(control.JointPlan, "load", lambda path: plan)
    monkeypatch.setattr(control.PartyConfig, "load", lambda path: own)
    monkeypatch.setattr(control, "seconds_of", lambda coordinates, share: 5.0)
    monkeypatch.setattr(control, "ask", lambda *question: control.Answer("running"))
    monkeypatch.setattr(control.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(control.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + 100.0))
    with pytest.raises(PartyError, match="did not end within 3000 s"):
        list(control.run_everywhere("plan.json", "party.toml", None))
    assert clock[0] > 3000.0
