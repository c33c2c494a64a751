"""Short names for events, so that tables of them can be read."""

import math

from dp_accounting import dp_event as dp

from sordino.kernel.events import PureDpEvent, Relation

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def gaussian(multiplier, times=1):
    return dp.SelfComposedDpEvent(dp.GaussianDpEvent(multiplier), times)


def laplace(multiplier, times=1):
    return dp.SelfComposedDpEvent(dp.LaplaceDpEvent(multiplier), times)


def pure(epsilon, times=1):
    return dp.SelfComposedDpEvent(PureDpEvent(epsilon), times)


def poisson(rate, multiplier, times=1):
    return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)), times)


def fixed_size(population, size, multiplier, times=1):
    """Fixed-size batches; ``multiplier`` is std / (two contributions), the unit of the notes."""
    inner = dp.GaussianDpEvent(2 * multiplier)
    event = dp.SampledWithoutReplacementDpEvent(population, size, inner)
    return dp.SelfComposedDpEvent(event, times)


def mixture(std, shifts, weights, times=1):
    event = dp.MixtureOfGaussiansDpEvent(std, list(shifts), list(weights))
    return dp.SelfComposedDpEvent(event, times)


def zcdp(rho, times=1):
    return dp.SelfComposedDpEvent(dp.ZCDpEvent(rho), times)


def together(*events):
    return dp.ComposedDpEvent(list(events))


def log(delta):
    return math.log(1 / delta)
