"""Solvers that fit every coefficient: descent with momentum, adaptive steps, recursion, smoothing."""
