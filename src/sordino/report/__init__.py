"""Pages and plots for people."""

from sordino.report.page import Page, ledger_html, write_ledger_report
from sordino.report.run_page import report_html, write_report

__all__ = ["Page", "ledger_html", "report_html", "write_ledger_report", "write_report"]
