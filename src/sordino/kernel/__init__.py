"""Where data meets noise, the only room that may hold both."""

from sordino.kernel.curator import Curator, Executor, NoisyExecutor
from sordino.kernel.lazy import LazyVector, SparseVector
from sordino.kernel.matrix import SymmetricGaussian
from sordino.kernel.mechanism import Gaussian, Laplace, Mechanism, NormGamma
from sordino.kernel.noise import NoiseSource, public_generator
from sordino.kernel.objective import TiltedObjective
from sordino.kernel.offer import Offer, check_offer
from sordino.kernel.quarantine import PaperNoise, Printed
from sordino.kernel.query import ClippedSum, FromSum, Norm, OnLattice, Query
from sordino.kernel.question import Question
from sordino.kernel.relation import Relation
from sordino.kernel.release import Plan, Release
from sordino.kernel.sampling import Disjoint, FixedSize, Full, Poisson, Sampling
from sordino.kernel.selection import GumbelTopK, LaplaceMax, LaplacePeeling
from sordino.kernel.shares import Batch
from sordino.kernel.stable import StableCounts

__all__ = [
    "Batch",
    "ClippedSum",
    "Curator",
    "Disjoint",
    "Executor",
    "FixedSize",
    "FromSum",
    "Full",
    "Gaussian",
    "GumbelTopK",
    "Laplace",
    "LaplaceMax",
    "LaplacePeeling",
    "LazyVector",
    "Mechanism",
    "NoiseSource",
    "NoisyExecutor",
    "Norm",
    "NormGamma",
    "Offer",
    "OnLattice",
    "PaperNoise",
    "Plan",
    "Poisson",
    "Printed",
    "Query",
    "Question",
    "Relation",
    "Release",
    "Sampling",
    "SparseVector",
    "StableCounts",
    "SymmetricGaussian",
    "TiltedObjective",
    "check_offer",
    "public_generator",
]
