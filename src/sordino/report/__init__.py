"""Pages and plots for people."""

from sordino.report.page import Page
from sordino.report.run_page import report_html, write_report

__all__ = ["Page", "report_html", "write_report"]
