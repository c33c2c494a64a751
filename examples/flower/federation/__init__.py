"""Sparse logistic regression between hospitals."""
