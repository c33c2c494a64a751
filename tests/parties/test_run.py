"""Three members, three processes, mutual TLS: the run as it is meant to be."""

import subprocess
import time

import numpy as np
import pytest
from click.testing import CliRunner
from tests.parties.helpers import COMMAND, NAMES, Consortium, authority, linear_task, write_credentials

import sordino
from sordino.cli import main
from sordino.errors import PartyError
from sordino.ledger import BudgetPolicy, Ledger
from sordino.parties.mpc.control import ask
from sordino.parties.mpc.links import Credentials
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.transcript import TranscriptError, compare, read_transcript
from sordino.report import report_html
from sordino.runs import PrivacyReport


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    three = Consortium(tmp_path_factory.mktemp("three"), records=400, epsilon=2.0)
    codes, said = three.run()
    assert codes == [0, 0, 0], said
    return three


def test_all_members_have_the_same_model_and_it_has_learned(done):
    found = [sordino.load(done.state(i) / "model.sordino").coef_[0] for i in range(3)]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    with np.load(done.folder / "north" / "data.npz") as data:
        assert np.mean(np.sign(data["X"] @ found[0]) == data["y"]) > 0.8


def test_a_joint_run_has_a_report_for_the_board(done):
    report = PrivacyReport.from_json((done.state(0) / "report.json").read_text("utf-8"))
    assert report.epsilon <= 2.0
    assert any("joint run of 3 parties" in note for note in report.notes)
    assert "number of records of" in report_html(report)


def test_every_ledger_is_settled_with_the_plan_it_paid_for(done):
    assert done.check_books() == 3
    digest = JointPlan.load(done.plan_path).digest
    for i in range(3):
        (entry,) = done.history(i)
        assert (entry.status.value, entry.plan_digest) == ("settled", digest)


def test_transcripts_agree_and_verify_says_so(done):
    paths = [str(done.state(i) / "transcript.jsonl") for i in range(3)]
    result = CliRunner().invoke(main, ["consortium", "verify", *paths])
    assert result.exit_code == 0, result.output
    assert "3 transcript(s) agree on 3 release(s)" in result.output


def test_a_changed_transcript_is_noticed(done, tmp_path):
    text = (done.state(0) / "transcript.jsonl").read_bytes().splitlines(keepends=True)
    changed = tmp_path / "changed.jsonl"
    changed.write_bytes(b"".join(text).replace(b'"kind":"session"', b'"kind":"Session"'))
    with pytest.raises(TranscriptError, match="changed"):
        read_transcript(changed)
    stories = [done.story(0), done.story(1)]
    other = stories[1].lines
    bent = tuple({**x, "opened": "0" * 64} if x["kind"] == "release" else x for x in other)
    with pytest.raises(TranscriptError, match="disagrees"):
        compare([stories[0], type(stories[1])(bent)])


def test_a_plan_is_not_run_twice(done):
    codes, said = done.run()
    assert codes == [1, 1, 1]
    assert all("was run here before" in text for text in said)
    assert all(len(done.history(i)) == 1 for i in range(3))


def test_a_member_whose_policy_is_stricter_refuses_and_everybody_hears_why(tmp_path):
    three = Consortium(tmp_path)
    three.write_config(1, max_epsilon=0.5)
    codes, said = three.run()
    assert codes == [1, 1, 1]
    assert "south refuses the plan: Expected at most max_epsilon = 0.5" in said[1]
    for text in (said[0], said[2]):  # a code, not the figures of south
        assert "south refuses the plan: the policy there is stricter than the plan" in text
        assert "0.5" not in text
    assert all(not three.history(i) for i in range(3))


def test_a_member_without_budget_refuses_before_anybody_reserves(tmp_path):
    three = Consortium(tmp_path)
    place = tmp_path / "west" / "ledger.sqlite"
    place.unlink()
    with Ledger.open(place) as ledger:
        ledger.create("patients", BudgetPolicy(epsilon=0.1, delta=1e-5))
    codes, said = three.run()
    assert codes == [1, 1, 1]
    assert all("west refuses the plan" in text for text in said)
    assert [three.story(i).lines[-1]["code"] for i in range(3)] == ["peer", "peer", "budget"]
    assert all(not three.history(i) for i in range(3))


POWER = {"estimator": "PCA", "features": 4}
POWER["params"] = {"data_norm": 1.0, "solver": "power", "n_components": 1, "max_iter": 2}


@pytest.mark.parametrize(
    ("task", "mode"),
    [
        (linear_task(max_iter=3, n_nonzero_coefs=2), "secure-aggregation"),
        ({**linear_task(alpha=0.1), "method": "output"}, "noise-inside"),
        (POWER, "noise-inside"),
    ],
)
def test_other_tasks_run_between_the_same_three(tmp_path, task, mode):
    three = Consortium(tmp_path, task=task, mode=mode)
    codes, said = three.run()
    assert codes == [0, 0, 0], said
    models = [sordino.load(three.state(i) / "model.sordino") for i in range(3)]
    released = [{k: v for k, v in vars(m).items() if isinstance(v, np.ndarray)} for m in models]
    assert released[0]
    assert all(np.array_equal(released[0][k], released[1][k]) for k in released[0])
    assert 0.98 < models[0].privacy_.epsilon <= 1.0


@pytest.mark.long
def test_the_commands_as_a_coordinator_types_them(tmp_path):
    three = Consortium(tmp_path, epsilon=1.5)
    configs = [str(tmp_path / name / "party.toml") for name in NAMES]
    daemons = [
        subprocess.Popen([*COMMAND, "party", "serve", "--config", c], stdout=subprocess.PIPE, text=True)
        for c in configs
    ]
    try:
        for daemon in daemons:
            assert "waits for plans" in daemon.stdout.readline()
        made = [*COMMAND, "consortium", "plan", "--config", str(tmp_path / "consortium.toml")]
        made += ["--output", str(three.plan_path)]
        subprocess.run(made, check=True, timeout=120, capture_output=True)
        common = ["--plan", str(three.plan_path), "--config", configs[0]]
        result = CliRunner().invoke(main, ["consortium", "run", *common, "--timeout", "120"])
        assert "north refuses the plan" in result.output
        assert "the plan is not approved there" in result.output
        for config in configs:
            words = ["party", "approve", "--config", config, str(three.plan_path)]
            result = CliRunner().invoke(main, words, input="y\n")
            assert result.exit_code == 0, result.output
        result = CliRunner().invoke(main, ["consortium", "run", *common, "--timeout", "120"])
        assert result.exit_code == 0, result.output
        assert result.output.count("settled, 3 release(s)") == 3
        result = CliRunner().invoke(main, ["consortium", "status", *common])
        assert "south: settled, 3 release(s)" in result.output
        result = CliRunner().invoke(main, ["consortium", "run", *common])
        assert result.exit_code == 1
        assert "what was paid for is spent" in result.output
        daemons[2].kill()
        daemons[2].wait()
        result = CliRunner().invoke(main, ["consortium", "run", *common])
        assert "west does not answer" in result.output
        assert "north: " not in result.output  # nobody was asked to start
        result = CliRunner().invoke(main, ["consortium", "status", *common])
        assert "west: out of reach" in result.output
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.communicate()
    assert three.check_books() == 3


def test_a_coordinator_is_told_who_does_not_answer(tmp_path):
    three = Consortium(tmp_path)
    started = time.monotonic()
    common = ["--plan", str(three.plan_path), "--config", str(tmp_path / "north" / "party.toml")]
    result = CliRunner().invoke(main, ["consortium", "run", *common])
    assert result.exit_code == 1
    assert "north does not answer" in result.output
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(("trusts", "said"), [("own", "it hung up"), ("other", "certificate")])
def test_a_caller_hears_which_certificate_does_not_pass(tmp_path, trusts, said):
    three = Consortium(tmp_path)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    write_credentials(stranger, "north", *authority())  # of another authority than the others'
    trusted = tmp_path / "north" if trusts == "own" else stranger
    names = stranger / "certificate.pem", stranger / "key.pem", trusted / "authority.pem"
    row = JointPlan.load(three.plan_path).text["members"][1]
    with three.daemons(1), pytest.raises(PartyError, match=said) as caught:
        ask(row, Credentials(*names), {"op": "status", "plan": "0" * 64})
    assert "Error" not in str(caught.value)
