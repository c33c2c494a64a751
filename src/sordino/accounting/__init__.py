"""What plans cost: events in, proven epsilons out."""

from sordino.accounting.calibration import (
    Certificate,
    calibrate,
    certify,
    certify_by,
    rdp_curve,
    solve_scale,
)
from sordino.accounting.codec import canonical, decode, encode
from sordino.accounting.conversions import (
    check_delta,
    check_epsilon,
    default_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_multiplier,
)
from sordino.accounting.renyi import ORDERS, rdp_epsilon

__all__ = [
    "ORDERS",
    "Certificate",
    "calibrate",
    "canonical",
    "certify",
    "certify_by",
    "check_delta",
    "check_epsilon",
    "decode",
    "default_delta",
    "encode",
    "gaussian_epsilon",
    "gaussian_mu",
    "gaussian_multiplier",
    "rdp_curve",
    "rdp_epsilon",
    "solve_scale",
]
