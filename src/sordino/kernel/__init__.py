"""Where data meets noise, the only room that may hold both."""

from sordino.kernel.correlated import Banded, Buffered, Correlated, Regenerated
from sordino.kernel.curator import Curator, Executor, NoisyExecutor
from sordino.kernel.events import Batch, Cyclic, Disjoint, FixedSize, Full, Poisson, Relation, Sampling
from sordino.kernel.lazy import LazyVector, SparseVector
from sordino.kernel.mechanism import (
    Gaussian,
    GumbelTopK,
    JointSelection,
    Laplace,
    LaplaceMax,
    LaplacePeeling,
    Mechanism,
    NormGamma,
    StableCounts,
    SymmetricGaussian,
    TiltedObjective,
)
from sordino.kernel.noise import NoiseSource, public_generator
from sordino.kernel.plan import Offer, PaperNoise, Plan, Printed, Question, Release, check_offer
from sordino.kernel.query import ClippedSum, FromSum, Norm, OnLattice, Query

__all__ = [
    "Banded", "Batch", "Buffered", "ClippedSum", "Correlated", "Curator", "Cyclic", "Disjoint",
    "Executor", "FixedSize", "FromSum", "Full", "Gaussian", "GumbelTopK", "JointSelection", "Laplace",
    "LaplaceMax", "LaplacePeeling", "LazyVector", "Mechanism", "NoiseSource", "NoisyExecutor", "Norm",
    "NormGamma", "Offer", "OnLattice", "PaperNoise", "Plan", "Poisson", "Printed", "Query", "Question",
    "Regenerated", "Relation", "Release", "Sampling", "SparseVector", "StableCounts",
    "SymmetricGaussian", "TiltedObjective", "check_offer", "public_generator",
]  # fmt: skip
