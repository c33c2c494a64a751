"""Switches for tests; nothing made with them is private."""

from sordino.kernel.noise import NoiseSource, seeded_noise_not_private

__all__ = ["NoiseSource", "seeded_noise_not_private"]
