"""DP-SVRG-HT: DP-SCSG-HT whose snapshots see all records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from sordino.kernel import Full
from sordino.problems.problem import Problem
from sordino.solvers.base import Options, among
from sordino.solvers.capabilities import Capabilities
from sordino.solvers.sparse.scsg_ht import ScsgHt, _assembled, _extra, _lengths

SHARE = 10


@dataclass(frozen=True)
class SvrgHt(ScsgHt):
    r"""Snapshots on all records, ``n / b`` corrected steps between them.

    **Privacy.** One Gaussian release per snapshot (no sampling, so no amplification), one Poisson-sampled
    release per correction; see :class:`ScsgHt`.

    References: Liang et al. (DP-SVRG-HT). Departure: their subsampling lemma needs a rate below .147 and
    does not apply to full snapshots; we account for them as they are.
    """

    capabilities: ClassVar[Capabilities] = replace(
        ScsgHt.capabilities,
        asks="full snapshots, mini-batch corrections",
        options=tuple(name for name in ScsgHt.capabilities.options if name != "snapshot_batch"),
        paper="DP-SVRG-HT",
        page="svrg-ht",
    )

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> SvrgHt:
        """Fill what the user left open from public facts."""
        extra = _extra(options, option="II")
        mean = problem.population / options.batch(problem, SHARE)
        option = among("option", extra["option"], ("I", "II"))
        lengths = _lengths(extra, options, option, mean, problem)
        batches = Full(), options.minibatches(problem, SHARE)
        solver: SvrgHt = _assembled(cls, problem, options, extra, batches, lengths)
        return replace(solver, drawn=option == "I")
