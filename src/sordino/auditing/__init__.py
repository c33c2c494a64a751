"""Attacks on a fit: replay on neighbours, likelihood ratios of its answers, guesses from its output."""

from sordino.auditing.audit import Attack, Audit, audit

__all__ = ["Attack", "Audit", "audit"]
