"""Claim 4: a party took part with any members that the authority had signed, whoever chose them."""

import pytest
from tests.parties.helpers import Consortium, write_credentials

from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.party import PartyRun
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.policy import PlanRefusedError


def test_two_certificate_holders_cannot_make_a_member_share_with_them(tmp_path):
    """They proposed a plan of three at threshold 1 and recovered the victim's gradient sum to 5e-8."""
    three = Consortium(tmp_path, connect=0.5)
    for name in ("south", "west"):  # the same authority signs, the certificates are others
        write_credentials(tmp_path / name, name, three.key, three.certificate)
    plan = JointPlan.load(three.replan("theirs.json"))
    victim = PartyRun(PartyConfig.load(tmp_path / "north" / "party.toml"), plan, print)
    with pytest.raises(PlanRefusedError, match="is not in"):
        victim.run()
    assert not three.history(0)
