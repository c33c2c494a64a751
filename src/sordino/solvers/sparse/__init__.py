"""Solvers that keep few coefficients: thresholding, selection, knowledge transfer."""
