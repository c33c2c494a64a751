"""Records that stay with their owners: sums with noise by secure multi-party computation."""

from sordino.execute.parties.engine import CoarseLaw, Draw, Mode, NoiseShare
from sordino.execute.parties.executor import PartiesExecutor, SimulatedParties

__all__ = ["CoarseLaw", "Draw", "Mode", "NoiseShare", "PartiesExecutor", "SimulatedParties"]
