"""Pages and plots for people."""

from sordino.report.page import Page

__all__ = ["Page"]
