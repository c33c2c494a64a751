"""A member by itself: what it refuses before it touches anything, what it approves, what it keeps."""

import copy
import os
import stat

import numpy as np
import pytest
from click.testing import CliRunner
from tests.parties.helpers import NAMES, Consortium, linear_task, write_credentials
from tests.parties.test_partners import _plan

from sordino.cli import main
from sordino.errors import InvalidInputError, SordinoError
from sordino.parties.mpc import plan as mpc_plan
from sordino.parties.mpc.charter import Approvals
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.party import PartyRun
from sordino.parties.mpc.plan import JointPlan, in_words
from sordino.parties.words import PlanRefusedError


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
    monkeypatch.setattr("sordino.parties.mpc.party.ShamirEngine", None)
    monkeypatch.setattr("sordino.parties.mpc.party.load_local", None)
    with pytest.raises(PlanRefusedError, match="'west' with the certificate"):
        _take_part(three, 0, three.plan_path, approve)
    assert not three.history(0)


def test_a_plan_that_was_edited_after_its_approval_is_another_plan(tmp_path, monkeypatch):
    three = Consortium(tmp_path)
    monkeypatch.setattr("sordino.parties.mpc.party.load_local", None)
    Approvals(tmp_path / "north" / "state").add(JointPlan.load(three.plan_path))
    text = copy.deepcopy(dict(JointPlan.load(three.plan_path).text))
    text["task"]["params"]["solver_options"] = {"step_size": 1.0}
    edited = tmp_path / "edited.json"
    JointPlan.read(text).save(edited)
    with pytest.raises(PlanRefusedError, match="not approved here"):
        _take_part(three, 0, edited, approve=False)
    assert not three.history(0)


def test_an_approval_is_of_the_whole_digest(tmp_path):
    plan, approvals = _plan(), Approvals(tmp_path)
    for digest in (plan.digest[:63], plan.digest[:60] + "ffff"):
        approvals._note("approve", digest, "anna")
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
    assert not Approvals(tmp_path / "north" / "state").story.lines
    for line in in_words(plan):
        assert line in result.output
    for fact in (
        "'south': 60 records, at '127.0.0.1' port",
        "If more than 1 of them pool",
        "3 x gradient",
        "epsilon 0.99",
    ):
        assert fact in result.output
    assert CliRunner().invoke(main, [*words, "--yes"]).exit_code == 0
    Approvals(tmp_path / "north" / "state").require(plan)


def test_a_plan_that_the_settings_refuse_cannot_be_approved(tmp_path):
    three = Consortium(tmp_path)
    three.write_config(0, max_epsilon=0.5)
    config = str(tmp_path / "north" / "party.toml")
    result = CliRunner().invoke(main, ["party", "approve", "--yes", "--config", config, str(three.plan_path)])
    assert result.exit_code == 1
    assert "max_epsilon" in result.output
    assert not (tmp_path / "north" / "state").exists()


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"control": "127.0.0.1:1"}, 0, "control has another port here"),
        ({"port": None}, 1, "for the run and for control"),
    ],
)
def test_a_member_hears_of_addresses_that_are_not_its_own(tmp_path, change, status, said):
    three = Consortium(tmp_path)
    text = copy.deepcopy(dict(JointPlan.load(three.plan_path).text))
    text["members"][1] |= {"port": three.control_of(1)[1]} if "port" in change else change
    JointPlan.read(text).save(tmp_path / "other.json")
    words = ["party", "approve", "--yes", "--config", str(three.config(1)), str(tmp_path / "other.json")]
    found = CliRunner().invoke(main, words)
    assert found.exit_code == status
    assert said in found.output
    usual = CliRunner().invoke(main, [*words[:-1], str(three.plan_path)])
    assert said not in usual.output


def test_a_member_does_not_approve_what_its_ledger_does_not_cover(tmp_path):
    three = Consortium(tmp_path, budget=0.5)
    words = ["party", "approve", "--yes", "--config", str(three.config(1)), str(three.plan_path)]
    found = CliRunner().invoke(main, words)
    assert found.exit_code == 1
    assert not Approvals(tmp_path / "south" / "state").story.lines


def test_the_first_of_two_persons_hears_that_a_second_one_is_needed(tmp_path, monkeypatch):
    three = Consortium(tmp_path)
    with three.config(1).open("a") as file:
        file.write("\n[approval]\ntwo_persons_above = 0.5\n")
    words = ["party", "approve", "--yes", "--config", str(three.config(1)), str(three.plan_path)]
    monkeypatch.setenv("SORDINO_PERSON", "anna")
    assert "1 of 2 approvals" in CliRunner().invoke(main, words).output
    monkeypatch.setenv("SORDINO_PERSON", "ben")
    assert "1 of 2" not in CliRunner().invoke(main, words).output


def _as_csv(home, names):
    with np.load(home / "data.npz") as data:
        table = np.column_stack([data["X"], data["y"]])
    np.savetxt(home / "data.csv", table, delimiter=",", header=",".join(names), comments="")
    text = (home / "party.toml").read_text()
    (home / "party.toml").write_text(text.replace("data.npz", "data.csv"))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["age", "dose", "smoke", "bmi", "ill"], None),
        (["age", "smoke", "dose", "bmi", "ill"], "Column 2 of the file here does not have the name 'dose'"),
        (["age", "dose", "smoke", "bmi", "dead"], "Column 5 of the file here does not have the name 'ill'"),
    ],
)
def test_a_file_whose_header_is_not_that_of_the_plan_is_refused_by_position(tmp_path, names, said):
    three = Consortium(tmp_path)
    task = {
        **linear_task(4, max_iter=3, solver_options={"step_size": 2.0}),
        "columns": ["age", "dose", "smoke", "bmi"],
    }
    plan = three.replan("named.json", task={**task, "target": "ill"})
    _as_csv(tmp_path / "south", names)
    words = ["party", "approve", "--yes", "--config", str(tmp_path / "south" / "party.toml"), str(plan)]
    found = CliRunner().invoke(main, words)
    assert found.exit_code == (0 if said is None else 1), found.output
    assert said is None or said in found.output
    assert "dead" not in found.output


def test_a_plan_without_names_says_that_nobody_compares_the_order_of_columns(tmp_path):
    three = Consortium(tmp_path)
    assert any("nobody compares their order" in line for line in in_words(JointPlan.load(three.plan_path)))
    task = {**linear_task(4, max_iter=3), "columns": ["age"]}
    with pytest.raises(InvalidInputError, match="names of 4 columns in the task, got 1"):
        three.replan("short.json", task=task)


def test_an_estimator_that_no_plan_knows_is_answered_with_those_that_it_may_name(tmp_path):
    with pytest.raises(InvalidInputError, match=r"estimator out of .*'PCA'"):
        Consortium(tmp_path).replan("mean.json", task={"estimator": "TruncatedMean", "features": 4})


def test_a_run_builds_its_task_once_and_plans_once(tmp_path, monkeypatch):
    """As far as a member comes alone: checks, words, connecting."""
    three, built, planned = Consortium(tmp_path, connect=0.2), [], []
    make, plan = mpc_plan.joint_task, mpc_plan.Task.plan
    monkeypatch.setattr(mpc_plan, "joint_task", lambda *a: built.append(1) or make(*a))
    monkeypatch.setattr(mpc_plan.Task, "plan", lambda self: planned.append(1) or plan(self))
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
    assert {p.name for p in kept} >= {"state", "decisions.jsonl", "transcript.jsonl", "model.sordino"}
    for path in kept:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_certificate_of_the_same_authority_does_not_pass_for_a_member(tmp_path, monkeypatch):
    """West runs with a new certificate and hides it from itself: the others notice."""
    three = Consortium(tmp_path, connect=2.0)
    write_credentials(tmp_path / "west", "west", three.key, three.certificate)

    def blind():
        monkeypatch.setattr("sordino.parties.mpc.party.check_partners", lambda *_: None)

    codes, said = three.run(sabotage=(None, None, blind))
    assert codes == [1, 1, 1]
    assert all("its certificate is not the one that the plan pins" in text for text in said[:2])
    assert not any(three.history(i) for i in range(3))
