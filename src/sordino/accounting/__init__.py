"""What plans cost: events in, proven epsilons out."""

from sordino.accounting.calibration import Certificate, calibrate, certify, certify_by, rdp_curve, solve_scale
from sordino.accounting.conversions import default_delta, gaussian_epsilon, gaussian_mu, gaussian_multiplier
from sordino.accounting.renyi import rdp_epsilon
from sordino.accounting.trees import canonical, decode, encode

__all__ = [
    "Certificate", "calibrate", "canonical", "certify", "certify_by", "decode", "default_delta",
    "encode", "gaussian_epsilon", "gaussian_mu", "gaussian_multiplier", "rdp_curve", "rdp_epsilon",
    "solve_scale",
]  # fmt: skip
