"""Joint noise: a member that shares 0 as its row of signs leaves a third of the noise."""

import pytest
from tests.parties import sabotage
from tests.parties.test_engine import refusals


@pytest.mark.parametrize("cheat", [sabotage.no_signs, sabotage.bent_products])
def test_a_member_that_takes_the_joint_noise_away_is_refused_before_anything_is_opened(cheat):
    """A third of the noise was left; now a random combination of s^2 - 1 and of all products must be 0."""
    assert all("check" in str(said) for said in refusals(None, None, cheat))
