"""A charter is what all members have signed; a plan beyond it is refused, and so is what was edited."""

import datetime
import json
import shutil

import pytest
import tomli_w
from click.testing import CliRunner
from tests.parties.helpers import NAMES, Consortium

from sordino.cli import main
from sordino.errors import InvalidInputError
from sordino.parties.mpc.charter import Charter, charter_in_words, proposal
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.links import fingerprint_of, make_key
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.words import Code, PlanRefusedError

TASK = {
    "estimator": "SparseLogisticRegression",
    "features": 4,
    "params": {
        "classes": [-1, 1],
        "data_norm": 1.0,
        "solver": "ight",
        "max_iter": 3,
        "solver_options": {"step_size": 2.0},
    },
}


def _text(members, **changes):
    rules = {
        "consortium": "three hospitals",
        "expires": "2999-12-31",
        "threshold": 1,
        "estimators": ["SparseLogisticRegression"],
        "max_epsilon": 1.0,
        "max_delta": 1e-5,
        "ranges": {"max_iter": [1, 10]},
    }
    return {**rules, "members": members, **changes}


def _row(name, *certificates, **changes):
    return {
        "name": name,
        "certificates": list(certificates) or [f"{name}/certificate.pem"],
        "roles": ["data", "proposer"] if name == "north" else ["data"],
        "epsilon": 2.5,
        "delta": 1e-5,
        **changes,
    }


def _propose(folder, before=None, members=None, **changes):
    path = folder / "charter.toml"
    path.write_text(tomli_w.dumps(_text(members or [_row(name) for name in NAMES], **changes)))
    return proposal(path, before)


def _signed(folder, charter, names=NAMES, key="key.pem"):
    for name in names:
        charter = charter.sign_as(name, folder / name / key)
    return charter


@pytest.fixture
def three(tmp_path):
    return Consortium(tmp_path, task=TASK)


def _install(three, charter):
    """Put a charter in force at all members, and return a plan under it."""
    for i, name in enumerate(NAMES):
        home = three.folder / name
        charter.save(home / "charter.json")
        three.write_config(i)
        text = (home / "party.toml").read_text()
        head, _, rest = text.partition("[members]")
        rest = rest[rest.index("[tls]") :].replace('authorities = "authority.pem"', "")
        text = head.replace("[party]", '[party]\ncharter = "charter.json"') + rest
        (home / "party.toml").write_text(text)
    charter.save(three.folder / "charter.json")
    return three.replan(charter="charter.json")


def test_a_plan_under_a_charter_runs_without_an_authority_while_a_certificate_is_exchanged(three):
    folder = three.folder
    first = _signed(folder, _propose(folder))
    first.require_in_force()
    for name in NAMES:
        (folder / name / "authority.pem").unlink()
    make_key(folder / "south", "south", "-2")
    both = [_row("south", "south/certificate.pem", "south/certificate-2.pem")]
    both += [_row(name) for name in NAMES if name != "south"]
    second = _signed(folder, _propose(folder, first, both))
    second.require_follows(first)
    assert second.text["version"] == 2
    (new,) = [line for line in charter_in_words(second, first) if line.startswith("New: ")]
    assert new.startswith("New: 'south', certificates: ")
    plan = _install(three, second)  # it pins the old certificate
    for file in ("key", "certificate"):
        shutil.copy(folder / "south" / f"{file}-2.pem", folder / "south" / f"{file}.pem")
    assert fingerprint_of(folder / "south" / "certificate.pem") == second.pins["south"][1]
    old = JointPlan.load(plan)
    codes, said = three.run(plans=(plan,) * 3)
    assert codes == [0, 0, 0], said
    # The last step: the new certificate alone. A plan under the old charter does not run any more.
    third = _signed(folder, _propose(folder, second))
    other = _install(three, third)
    config = PartyConfig.load(folder / "north" / "party.toml")
    with pytest.raises(PlanRefusedError, match="in force is") as refused:
        config.check_charter(old)
    assert refused.value.code is Code.CHARTER
    config.check_charter(JointPlan.load(other))


def _plan(three, charter, **changes):
    charter.save(three.folder / "charter.json")
    return JointPlan.load(three.replan(charter="charter.json", **changes))


SRM = {
    "estimator": "LogisticRegression",
    "features": 4,
    "params": {
        "classes": [-1, 1],
        "data_norm": 1.0,
        "solver": "srm",
        "max_iter": 2,
        "solver_options": {"gamma": 0.5},
    },
}


@pytest.mark.parametrize(
    ("rules", "plan", "words"),
    [
        ({"max_epsilon": 0.5}, {}, "epsilon <= 0.5"),
        ({"max_delta": 1e-7}, {}, "delta <= 1e-07"),
        ({"max_features": 3}, {}, "features <= 3"),
        ({"estimators": ["PCA"]}, {}, "estimator out of"),
        ({"modes": ["secure-aggregation"]}, {}, "a mode out of"),
        ({"ranges": {"max_iter": [1, 2]}}, {}, "max_iter in"),
        (
            {"ranges": {"alpha": [0.1, 1.0]}},
            {},
            "alpha in .* stated in the plan",
        ),  # the estimator would choose
        ({"ranges": {"gamma": [0.1, 0.2]}}, {"task": SRM}, "gamma in"),  # among the options of a solver
        ({"min_parties": 4}, {}, "4 parties"),
        ({"threshold": 2}, {}, "a threshold of 2"),
        ({"consortium": "others"}, {}, "in force is"),
        ({"members": [_row(n, epsilon=0.5) for n in NAMES]}, {}, "epsilon of all plans <= 0.5"),
        ({"members": [_row(n, roles=["proposer"]) for n in NAMES]}, {}, "no members of the charter"),
    ],
)
def test_a_plan_beyond_the_charter_is_refused(three, rules, plan, words):
    charter = _signed(three.folder, _propose(three.folder, **rules))
    with pytest.raises(PlanRefusedError, match=words):
        charter.check(_plan(three, charter, **plan), "north", {"epsilon": 0.0, "delta": 0.0})


def test_what_plans_have_cost_counts_against_the_budget_of_a_member(three):
    charter = _signed(three.folder, _propose(three.folder))
    plan = _plan(three, charter)
    charter.check(plan, "north", {"epsilon": 1.5, "delta": 0.0})
    with pytest.raises(PlanRefusedError, match="epsilon of all plans"):
        charter.check(plan, "north", {"epsilon": 1.6, "delta": 0.0})


def test_a_charter_holds_only_as_it_was_signed_by_all_and_until_it_expires(three):
    folder = three.folder
    charter = _propose(folder)
    assert charter.missing == list(NAMES)
    partly = _signed(folder, charter, NAMES[:2])
    with pytest.raises(PlanRefusedError, match="not signed by \\['west'\\]"):
        partly.require_in_force()
    whole = _signed(folder, charter)
    whole.require_in_force()
    edited = Charter({**whole.text, "max_epsilon": 9.0}, whole.signatures)
    assert edited.missing == list(NAMES)
    swapped = Charter(whole.text, {**whole.signatures, "west": whole.signatures["north"]})
    assert swapped.missing == ["west"]
    yesterday = (datetime.date.today() - datetime.timedelta(days=2)).isoformat()
    with pytest.raises(PlanRefusedError, match="expired"):
        _signed(folder, _propose(folder, expires=yesterday)).require_in_force()
    with pytest.raises(InvalidInputError, match="another certificate"):
        charter.sign_as("north", folder / "south" / "key.pem")
    with pytest.raises(InvalidInputError, match="Expected version 1"):
        _propose(folder, whole).require_follows(None)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"version": 0},
        {"expires": "soon"},
        {"estimators": ["os.system"]},
        {"estimators": ["PCA", "PCA"]},
        {"ranges": {"max_iter": [2, 1]}},
        {"members": []},
        {"surprise": 1},
    ],
)
def test_words_that_are_none_are_refused(three, change):
    text = {**_propose(three.folder).text, **change}
    path = three.folder / "charter.json"
    path.write_text(json.dumps({"charter": text, "signatures": {}}))
    with pytest.raises(InvalidInputError):
        Charter.load(path)


def test_members_join_and_leave_by_a_new_version(three):
    folder = three.folder
    first = _signed(folder, _propose(folder))
    (folder / "east").mkdir()
    make_key(folder / "east", "east")
    rows = [_row(name) for name in ("south", "west", "east")]
    second = _propose(folder, first, rows)
    words = charter_in_words(second, first)
    assert "New: 'north', epsilon: 2.5 -> absent" in words
    assert "New: 'east', epsilon: absent -> 2.5" in words
    with pytest.raises(PlanRefusedError, match="east"):
        _signed(folder, second, ("south", "west")).require_in_force()
    _signed(folder, second, ("south", "west", "east")).require_in_force()


def test_a_plan_that_its_charter_refuses_is_not_made(three):
    charter = _signed(three.folder, _propose(three.folder, ranges={"max_iter": [1, 2]}))
    charter.save(three.folder / "charter.json")
    with pytest.raises(PlanRefusedError, match="Expected max_iter in"):
        three.replan(charter="charter.json")


def test_every_fact_that_differs_from_the_charter_before_is_named(three):
    first = _signed(three.folder, _propose(three.folder))
    rows = [_row(name) for name in NAMES]
    rows[1] |= {"roles": ["data", "proposer"], "epsilon": 300.0}
    rows[2] |= {"delta": 1e-4}
    words = charter_in_words(_propose(three.folder, first, rows), first)
    assert [line for line in words if line.startswith("New: ")] == [
        "New: 'south', roles: ['data'] -> ['data', 'proposer']",
        "New: 'south', epsilon: 2.5 -> 300.0",
        "New: 'west', delta: 1e-05 -> 0.0001",
    ]


def test_settings_without_the_charter_of_a_plan_refuse_it_and_the_other_way_round(three):
    charter = _signed(three.folder, _propose(three.folder))
    under = _plan(three, charter)
    plain = JointPlan.load(three.replan("plain.json"))
    config = PartyConfig.load(three.folder / "north" / "party.toml")
    with pytest.raises(PlanRefusedError, match="my settings have none"):
        config.check_charter(under)
    _install(three, charter)
    config = PartyConfig.load(three.folder / "north" / "party.toml")
    config.check_charter(under)
    with pytest.raises(PlanRefusedError, match="in force is"):
        config.check_charter(plain)


def test_the_commands_make_keys_and_sign_a_charter(tmp_path):
    def call(*words, given=None):
        found = CliRunner().invoke(main, ["party", *map(str, words)], input=given)
        assert found.exit_code == 0, found.output
        return found.output

    for name in NAMES:
        said = call("init", tmp_path / name, "--name", name, "--epsilon", 3, "--delta", 1e-5)
        assert fingerprint_of(tmp_path / name / "certificate.pem") in said
        assert (tmp_path / name / "key.pem").stat().st_mode & 0o077 == 0
    (tmp_path / "charter.toml").write_text(tomli_w.dumps(_text([_row(name) for name in NAMES])))
    path = tmp_path / "charter.json"
    call("charter", "propose", "--config", tmp_path / "charter.toml", "--output", path)
    assert "missing" in call("charter", "show", path)
    for name in NAMES:
        call("charter", "sign", path, "--name", name, "--key", tmp_path / name / "key.pem", given="y\n")
    assert "missing" not in call("charter", "show", path)
    assert Charter.load(path).missing == []
    assert "certificate-2.pem" in call("csr", tmp_path / "north", "--name", "north")
    assert json.loads(call("charter", "show", path, "--json"))["missing"] == []
