"""Losses and per-record functions."""
