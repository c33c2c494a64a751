"""The published formulas, number by number."""

import math

import pytest
from tests.accounting.helpers import ADD, REPLACE, log

from sordino.errors import InvalidInputError
from sordino.literature import formulas
from sordino.literature.local import per_coordinate_laplace

N, A9A, MNIST = 20242, 32561, 50000

PRINTED = [
    ("S2", formulas.sgd_ht(2, 1e-5, population=N, batch_size=100, steps=4048), 4.9723),
    ("3.1", formulas.sgd_ht(10, 1e-5, population=N, batch_size=10, steps=40484), 0.361),
    ("4.1", formulas.lssgd(0.1, 1e-3, population=A9A, steps=A9A), 1.307),
    ("4.1", formulas.lssgd(0.1, 1e-3, population=A9A, steps=10 * A9A), 4.135),
    ("4.1", formulas.lssgd(1.0, 1e-6, population=A9A, steps=A9A), 0.188),
    ("C3", formulas.vrpca(0.1, 1e-3, population=A9A, steps=A9A), 0.1457 / 2),
    ("4.2", formulas.vrpca(0.1, 1e-3, population=A9A, steps=A9A, epochs=10, distance=1.0), 0.461),
    ("5", formulas.ight(2, 0.01, steps=1), 2.358),
    ("5", formulas.ight(10, 1e-5, steps=1), 0.803),
    ("5", formulas.ight_logistic(2, 0.01, steps=1), 1.073),
    ("5", formulas.ight_logistic(10, 1e-5, steps=1), 0.339),
    ("6.3", formulas.lssgd(0.1, 1e-5, population=MNIST, batch_size=128, steps=19531), 108.8),
    ("6.3", formulas.lssgd(0.3, 1e-5, population=MNIST, batch_size=128, steps=19531), 36.4),
    ("H1", formulas.truncated_mean(1, 1e-5) / 2, 4.84481),
    ("H3", formulas.sco(1, 1e-5, steps=10) / 2, 169.62),
    ("7.3", formulas.sco(1, 1e-5, steps=100) / 2, 576.8),
    ("Q1", formulas.peeling(1, 1e-5, sparsity=10) / 2, 60.697),
    ("I2", formulas.classical_rho(10, 0.01), 2.80799),
    ("O1", per_coordinate_laplace(122, 0.5, 0.0), 5.5227),
    ("B5", formulas.mod_sulq(0.1, 1e-3, features=123), 6934.15),
]


@pytest.mark.parametrize(("value", "expected"), [row[1:] for row in PRINTED], ids=[row[0] for row in PRINTED])
def test_formula_gives_the_printed_number(value, expected):
    assert value == pytest.approx(expected, rel=3e-3)


BY_HAND = {  # 20 digits of mpmath, cut; a delta near 1 tells ln(1/delta) from ln(1 + 1/delta)
    "mpc_gradient, table": (formulas.mpc_gradient(0.4, 0.05, steps=9, table=True), 10.606601717798),
    "truncated_mean": (formulas.truncated_mean(0.4, 0.05), 12.686362411795),
    "sco": (formulas.sco(0.4, 0.05, steps=6), 224.716172883899),
    "peeling": (formulas.peeling(0.4, 0.05, sparsity=3), 84.792437496097),
    "frank_wolfe": (formulas.frank_wolfe(0.4, 0.05, steps=7), 32.380646932140),
    "mod_sulq": (formulas.mod_sulq(0.4, 0.05, features=3), 31.786106600758),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_formula_gives_the_number_computed_by_hand(name):
    value, expected = BY_HAND[name]
    assert value == pytest.approx(expected, rel=1e-12)


def test_scsg_gives_anchor_and_correction():
    both = formulas.scsg_ht(2, 1e-5, population=N, anchor_batch=2024, batch_size=20, epochs=10)
    assert both == pytest.approx((142.327, 0.3516), rel=1e-3)  # S5
    both = formulas.scsg_ht(2, 1e-5, population=N, anchor_batch=506, batch_size=16, epochs=10)
    assert both == pytest.approx((19.9, 0.157), rel=5e-3)


def test_srm_is_the_printed_formula_written_out():
    """sigma^2 = 14 T a Cbar^2 / (beta n^2 eps) with beta = 1/2; the std of the sum is b sigma."""
    order = log(1e-5) / (0.5 * 0.2) + 1
    sigma = math.sqrt(14 * 1302 * order / (0.5 * A9A**2 * 0.2))
    found = formulas.srm(0.2, 1e-5, population=A9A, batch_size=100, steps=1302)
    assert found == pytest.approx(100 * sigma)
    assert found == pytest.approx(14.13, rel=1e-3)


def test_gradient_noise_of_the_parties_in_units_of_the_sensitivity():
    assert 2 / formulas.mpc_gradient(0.5, 1e-3, steps=1) == pytest.approx(0.13452, rel=1e-4)  # O2
    assert 2 / formulas.mpc_gradient(0.5, 1e-3, steps=1, table=True) == pytest.approx(0.70711, rel=1e-4)
    assert formulas.mpc_gradient(0.5, 1e-3, steps=9) == pytest.approx(
        3 * formulas.mpc_gradient(0.5, 1e-3, steps=1)
    )


def test_frank_wolfe_in_units_of_the_score_sensitivity():
    noise = formulas.frank_wolfe(2, 1e-5, steps=50)
    assert noise == pytest.approx(math.sqrt(8 * 50 * log(1e-5)) / 2)
    replaced, added = (formulas.paper_noise(r, "", vertex=noise).multipliers for r in (REPLACE, ADD))
    assert replaced["vertex"] == pytest.approx(added["vertex"] / 2)


@pytest.mark.parametrize("split", [0.0, 1.0, -0.5, math.nan])
def test_a_split_that_leaves_nothing_is_refused(split):
    with pytest.raises(InvalidInputError, match="split"):
        formulas.lssgd(0.1, 1e-5, population=MNIST, batch_size=128, steps=10, split=split)


def test_a_split_divides_the_budget_between_order_and_noise():
    wide = formulas.srm(0.2, 1e-5, population=100, batch_size=10, steps=5, split=0.25)
    order = log(1e-5) / (0.75 * 0.2) + 1
    assert wide == pytest.approx(0.1 * math.sqrt(14 * 5 * order / (0.25 * 0.2)))
    wide = formulas.lssgd(0.2, 1e-5, population=100, batch_size=10, steps=5, split=0.25)
    assert wide == pytest.approx(0.1 * math.sqrt(20 * 5 * order / (0.25 * 0.2)))


@pytest.mark.parametrize(
    "formula",
    [
        lambda e, d, n: formulas.sgd_ht(e, d, population=n, batch_size=1, steps=1),
        lambda e, d, n: formulas.scsg_ht(e, d, population=n, anchor_batch=1, batch_size=1, epochs=1),
        lambda e, d, n: formulas.lssgd(e, d, population=n, steps=1),
        lambda e, d, n: formulas.vrpca(e, d, population=n, steps=1),
        lambda e, d, n: formulas.srm(e, d, population=n, batch_size=1, steps=1),
    ],
)
def test_budgets_and_sizes_are_checked(formula):
    assert formula(1.0, 1e-5, 1)
    for wrong in ((0.0, 1e-5, 10), (1.0, 0.0, 10), (1.0, 1e-5, 0), (math.nan, 1e-5, 10)):
        with pytest.raises(InvalidInputError):
            formula(*wrong)


@pytest.mark.parametrize(
    "formula",
    [
        lambda e, d: formulas.ight(e, d, steps=1),
        lambda e, d: formulas.ight_logistic(e, d, steps=1),
        lambda e, d: formulas.mpc_gradient(e, d, steps=1),
        lambda e, d: formulas.mpc_gradient(e, d, steps=1, table=True),
        lambda e, d: formulas.truncated_mean(e, d),
        lambda e, d: formulas.sco(e, d, steps=1),
        lambda e, d: formulas.peeling(e, d, sparsity=1),
        lambda e, d: formulas.frank_wolfe(e, d, steps=1),
        lambda e, d: formulas.mod_sulq(e, d, features=1),
        lambda e, d: formulas.classical_rho(e, d),
    ],
)
def test_budgets_are_checked(formula):
    assert formula(1.0, 1e-5) > 0
    for wrong in ((0.0, 1e-5), (1.0, 1.0), (-1.0, 1e-5)):
        with pytest.raises(InvalidInputError):
            formula(*wrong)
