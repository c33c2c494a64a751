"""The table of docs/papers.md: what the published noise claims, and what the accountant certifies for it.

Command: python docs/figures/verdicts.py   (writes the table into the page; --print only shows it)
No number is typed here but the settings. Those that a paper does not print are ours; the page lists them. The
papers draw batches of a fixed size, for which replace-one alone is defined; two columns are those of Poisson
batches of the same rate.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from dp_accounting import dp_event as dp

from sordino.accounting import certify
from sordino.errors import NotPrivateWarning
from sordino.kernel import Relation
from sordino.kernel.events import compose_events, laplace_event, poisson_event, pure_event, repeat_event
from sordino.literature import formulas
from sordino.literature.local import objective_noise, per_coordinate_laplace
from sordino.literature.pca import distinguishing_probability, published_solver
from sordino.problems.covariance import PcaProblem
from sordino.runs import Ask, Promise
from sordino.solvers import SOLVERS, Options

PAGE = Path(__file__).resolve().parents[1] / "papers.md"
START, END = "<!-- made by docs/figures/verdicts.py -->", "<!-- end of the table -->"
RCV1, A9A, MNIST = 20_242, 32_561, 50_000
ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


@dataclass(frozen=True)
class Verdict:
    """One row: a claim, and what is certified, by relation and for batches of a fixed size (None: none)."""

    algorithm: str
    setting: str
    epsilon: float
    delta: float
    add: float | None
    replace: float | None
    why: str
    fixed: float | None = None

    @property
    def ratio(self) -> float:
        """The worse certified epsilon over the claimed one."""
        return max(value for value in self._certified() if value is not None) / self.epsilon

    def _certified(self) -> tuple[float | None, ...]:
        return self.add, self.replace, self.fixed

    def line(self) -> str:
        """Return the row of the table; more than claimed is bold."""
        values = (_bold(value, self.epsilon) for value in self._certified())
        ratio = "none" if math.isinf(self.ratio) else _short(self.ratio)
        claim = f"{self.epsilon:g} ({_delta(self.delta)})"
        cells = (self.algorithm, self.setting, claim, *values, ratio, self.why)
        return "| " + " | ".join(cells) + " |"


def _short(value: float) -> str:
    if value < 1e-3:
        return "< .001"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _delta(value: float) -> str:
    return f"{value:g}".replace("e-0", "e-")


def _bold(value: float | None, claim: float) -> str:
    if value is None:
        return "–"
    text = "no bound" if math.isinf(value) else _short(value)
    return f"**{text}**" if value > claim else text


def gaussian(noise: float, times: int = 1) -> dp.DpEvent:
    """Event of full-batch Gaussian noise, in units of the contribution of one record."""
    return repeat_event(dp.GaussianDpEvent(noise), times)


@dataclass(frozen=True)
class Batches:
    """The same on batches of some records, so many times."""

    population: int
    size: int
    noise: float
    times: int

    def poisson(self) -> dp.DpEvent:
        """Event of batches that each record joins by itself."""
        drawn = poisson_event(self.size / self.population, dp.GaussianDpEvent(self.noise))
        return repeat_event(drawn, self.times)

    def fixed(self) -> dp.DpEvent:
        """Event of batches of exactly this size, as printed."""
        inner = dp.GaussianDpEvent(self.noise)
        if self.size == self.population:
            return repeat_event(inner, self.times)
        return repeat_event(
            dp.SampledWithoutReplacementDpEvent(self.population, self.size, inner), self.times
        )


def _both(
    name: str,
    setting: str,
    epsilon: float,
    delta: float,
    event: dp.DpEvent,
    why: str,
    fixed: float | None = None,
) -> Verdict:
    add, replace = (certify(event, delta, relation).epsilon for relation in (ADD, REPLACE))
    return Verdict(name, setting, epsilon, delta, add, replace, why, fixed)


def _sampled(name: str, setting: str, epsilon: float, delta: float, why: str, *batches: Batches) -> Verdict:
    fixed = certify(compose_events([one.fixed() for one in batches]), delta, REPLACE).epsilon
    event = compose_events([one.poisson() for one in batches])
    return _both(name, setting, epsilon, delta, event, why, fixed)


def sparse_rows() -> Iterator[Verdict]:
    """DP-SGD-HT, DP-SCSG-HT, DP-SVRG-HT, DP-IGHT, Frank-Wolfe."""
    for epsilon, batch in ((2, 100), (10, 10), (10, 1)):
        steps = 20 * RCV1 // batch
        noise = formulas.sgd_ht(epsilon, 1e-5, population=RCV1, batch_size=batch, steps=steps)
        why = "conditions of the lemma contradict each other at every batch size"
        setting = f"n = {RCV1:,}, 20 epochs, b = {batch}"
        yield _sampled("DP-SGD-HT", setting, epsilon, 1e-5, why, Batches(RCV1, batch, noise, steps))
    for anchor, batch in ((2024, 20), (506, 16), (2024, 200), (RCV1, 200)):
        yield _scsg(anchor, batch)
    for epsilon in (2, 10):
        event = gaussian(formulas.ight(epsilon, 0.01, steps=1))
        yield _both("DP-IGHT, Thm 5.2", "any T", epsilon, 0.01, event, "replace-one costs 2 rho, not rho")
    for epsilon in (2, 10):
        event = gaussian(formulas.ight_logistic(epsilon, 0.01, steps=1))
        yield _both("DP-IGHT, Cor 5.8", "any T", epsilon, 0.01, event, "a constant is lost")
    for epsilon, delta in ((2, 1e-5), (10, 0.01)):
        yield _frank_wolfe(epsilon, delta)


def _scsg(anchor: int, batch: int) -> Verdict:
    one, two = formulas.scsg_ht(2, 1e-5, population=RCV1, anchor_batch=anchor, batch_size=batch, epochs=10)
    snapshots = Batches(RCV1, anchor, one, 10)
    corrections = Batches(RCV1, batch, two, 10 * math.floor(anchor / batch))
    name = "DP-SVRG-HT" if anchor == RCV1 else "DP-SCSG-HT"
    why = "the lemma does not apply" + ("" if anchor == RCV1 else "; two constants are swapped")
    why += "; worst case over states"
    setting = f"B = {anchor:,}, b = {batch}, 10 epochs"
    return _sampled(name, setting, 2, 1e-5, why, snapshots, corrections)


def _frank_wolfe(epsilon: float, delta: float) -> Verdict:
    noise = formulas.frank_wolfe(epsilon, delta, steps=50)
    add, replace = (
        certify(repeat_event(pure_event(2 * r.contributions / noise), 50), delta, r).epsilon
        for r in (ADD, REPLACE)
    )
    why = "upper bounds: where above the claim, not certified and not refuted"
    return Verdict("Frank-Wolfe, Laplace", "T = 50", epsilon, delta, add, replace, why)


def pca_rows() -> Iterator[Verdict]:
    """DP-SPCA, DP-VRPCA, Analyze-Gauss, MOD-SULQ, PPI, Wishart."""
    for epsilon in (0.1, 1):
        noise = formulas.lssgd(epsilon, 1e-3, population=A9A, steps=A9A)
        why = "conditions of the lemma fail; T is ours; worst case over states"
        yield _sampled("DP-SPCA", "a9a, T = n", epsilon, 1e-3, why, Batches(A9A, 1, noise, A9A))
    for epochs in (1, 10):
        noise = formulas.vrpca(0.1, 1e-3, population=A9A, steps=A9A, epochs=epochs)
        draws = Batches(A9A, 1, noise, A9A * epochs)
        why = "the one-record difference (up to 2) is ignored; worst case over the two bases"
        yield _sampled("DP-VRPCA", f"a9a, T = n, epochs: {epochs}", 0.1, 1e-3, why, draws)
    yield _pca("Analyze-Gauss", "classical noise", "gauss", "sound, loose")
    yield _pca("MOD-SULQ", "a9a", "mod-sulq", "sound, hundreds of times too much noise")
    yield _pca("PPI", "p = 10, largest entry .05", "power", "protects an entry, not a record", d=400)
    missed = distinguishing_probability(0.1)
    why = f"supports differ: delta is at least {missed:.4f} for every epsilon"
    yield Verdict("Wishart", "any d and n", 0.1, 0, math.inf, math.inf, why)


def _pca(name: str, setting: str, solver: str, why: str, d: int = 123) -> Verdict:
    found = []
    for relation in (ADD, REPLACE):
        problem = PcaProblem(A9A, d, 10, relation, 0.1, 1e-3, center=False, adaptive=False)
        own = SOLVERS["pca"][solver].capabilities.options if solver in SOLVERS["pca"] else ()
        options = Options(extra={"n_oversamples": 0} if "n_oversamples" in own else {})
        budget = Ask(0.1, 1e-3)
        made, noise = published_solver(solver, problem, options, budget)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            found.append(Promise.made(budget, made.plan(problem), noise).certificate.epsilon)
    return Verdict(name, setting, 0.1, 1e-3, *found, why)


def nonconvex_rows() -> Iterator[Verdict]:
    """DP-SRM and DP-LSSGD."""
    for epsilon, passes in ((0.2, 4), (0.5, 5)):
        steps = passes * A9A // 100
        noise = formulas.srm(epsilon, 1e-5, population=A9A, batch_size=100, steps=steps)
        setting = f"a9a, b = 100, {passes} passes"
        why = "conditions fail; over-noised; worst case over states"
        yield _sampled("DP-SRM", setting, epsilon, 1e-5, why, Batches(A9A, 100, noise, steps))
    for epsilon in (0.1, 0.3):
        steps = 50 * MNIST // 128
        noise = formulas.lssgd(epsilon, 1e-5, population=MNIST, batch_size=128, steps=steps)
        setting, why = "MNIST, b = 128, 50 epochs", "conditions fail; over-noised"
        yield _sampled("DP-LSSGD", setting, epsilon, 1e-5, why, Batches(MNIST, 128, noise, steps))


def party_rows() -> Iterator[Verdict]:
    """Output, gradient and objective perturbation between parties."""
    pure = per_coordinate_laplace(122, 0.5, 0.0)
    why = "Laplace noise per coordinate, sensitivity in L2"
    yield Verdict("MPC Out P", "KDD Cup 99, d = 122", 0.5, 0, None, pure, why)
    event = gaussian(formulas.mpc_gradient(0.5, 1e-3, steps=1500), 1500)
    yield _both("MPC Grad P, formula", "T = 1,500", 0.5, 1e-3, event, "sound, loose")
    event = gaussian(formulas.mpc_gradient(0.5, 1e-3, steps=100, table=True), 100)
    why = "the logarithm of delta and a factor of 4 in the variance are left out"
    yield _both("MPC Grad P, its table", "T = 100", 0.5, 1e-3, event, why)
    extra = objective_noise(0.5, 50, 1e-3, 0.25)[1]
    why = f"nothing is left for the noise; needs {extra:.4f} more curvature"
    yield Verdict("Local Obj P", "50 records, ridge .001", 0.5, 0, None, math.inf, why)


def heavy_rows() -> Iterator[Verdict]:
    """Heavy tails."""
    event = gaussian(formulas.truncated_mean(1, 1e-5))
    yield _both("DPODME, DPHDME", "any", 1, 1e-5, event, "sound, loose")
    event = gaussian(formulas.sco(1, 1e-5, steps=100), 100)
    yield _both("DP-SCO, convex", "T = 100", 1, 1e-5, event, "sound, very loose")
    for steps in (10, 100):
        event = gaussian(formulas.truncated_mean(1, 1e-5), steps)
        why = "the listing uses X where the proof needs X_t"
        yield _both("DP-SCO, strongly convex, as listed", f"T = {steps}", 1, 1e-5, event, why)
    scale = formulas.peeling(1, 1e-5, sparsity=10) / REPLACE.contributions
    event = compose_events([repeat_event(pure_event(2 / scale), 10), repeat_event(laplace_event(scale), 10)])
    found = certify(event, 1e-5, REPLACE).epsilon
    yield Verdict("Peeling", "s = 10", 1, 1e-5, None, found, "sound, loose; an upper bound")


def table() -> str:
    """Return the table in Markdown."""
    titles = ["algorithm", "setting", "claimed (delta)", "add-remove", "replace-one"]
    titles += ["replace-one, batches of a fixed size", "ratio", "why"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    for rows in (sparse_rows, pca_rows, nonconvex_rows, party_rows, heavy_rows):
        lines += [row.line() for row in rows()]
    return "\n".join(lines)


def lemma() -> str:
    """Return what lemma 4.3.7 of the dissertation asks of DP-SRM, and what an accountant certifies for it.

    With s the deviation over the sensitivity and t the sampling rate, T steps cost
    ``3.5 t^2 a T / s^2 + ln(1/delta) / (a - 1)`` at an order ``a <= 1 + 2 s^2 / 3 ln(1 / (t a (1 + s^2)))``.
    """
    titles = ["set", "claimed epsilon", "passes", "batch", "noise of the lemma over that of theorem 4.5.1"]
    titles += ["order it needs", "largest order it allows", "least epsilon of any noise it allows"]
    titles += ["certified (replace-one, Poisson batches)", "at most, batches of a fixed size"]
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    grid = np.meshgrid(np.geomspace(0.7, 5000, 400), np.linspace(1.01, 200, 2000))
    log = math.log(1e5)
    for name, n, (epsilon, passes), size in product_of_settings():
        steps, rate = passes * n // size, size / n
        left = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2  # epsilon = left + 2 sqrt(left log) at best
        square, order = 3.5 * rate**2 * steps / left, 1 + math.sqrt(log / left)
        allowed = 1 + 2 * grid[0] / 3 * np.log(1 / (rate * grid[1] * (1 + grid[0])))
        costs = 3.5 * rate**2 * grid[1] * steps / grid[0] + log / (grid[1] - 1)
        printed = formulas.srm(epsilon, 1e-5, population=n, batch_size=size, steps=steps)
        drawn = Batches(n, size, 2 * math.sqrt(square), steps)  # a record contributes half of the sensitivity
        most = 1 + 2 * square / 3 * math.log(1 / (rate * order * (1 + square)))
        found = [certify(event, 1e-5, REPLACE).epsilon for event in (drawn.poisson(), drawn.fixed())]
        numbers = (2 * math.sqrt(square) / printed, order, most, costs[grid[1] <= allowed].min(), *found)
        written = ["none" if number < 0 else f"{number:.3g}" for number in numbers]
        cells = (name, f"{epsilon:g}", str(passes), str(size), *written)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def product_of_settings() -> Iterator[tuple[str, int, tuple[float, int], int]]:
    """Yield the settings of table 4.2: sets, claims with their passes, and the printed grid of batches."""
    sets, claims = (("a9a", A9A), ("ijcnn1", 49_990)), ((0.2, 4), (0.5, 5))
    for (name, n), claim, size in product(sets, claims, (50, 100, 200)):
        yield name, n, claim, size


def main() -> None:
    """Compute the table and put it into the page."""
    made = table()
    if "--print" in sys.argv:
        print(made)
        return
    before, _, rest = PAGE.read_text("utf-8").partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n\n{made}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
