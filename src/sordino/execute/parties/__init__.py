"""Records that stay with their owners: sums with noise by secure multi-party computation."""

from sordino.execute.parties.engine import Draw, Engine, Mode, NoiseShare
from sordino.execute.parties.executor import PartiesExecutor, SimulatedParties
from sordino.execute.parties.law import CoarseLaw
from sordino.execute.parties.links import Credentials, Member, PartyError

__all__ = [
    "CoarseLaw",
    "Credentials",
    "Draw",
    "Engine",
    "Member",
    "Mode",
    "NoiseShare",
    "PartiesExecutor",
    "PartyError",
    "SimulatedParties",
]
