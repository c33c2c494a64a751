"""Pages and plots for people."""

from typing import TYPE_CHECKING

from sordino.late import import_late

__all__ = ["ledger_html", "report_html", "write_ledger_report", "write_report"]

if TYPE_CHECKING:
    from sordino.report.page import ledger_html, write_ledger_report
    from sordino.report.run_page import report_html, write_report
else:  # a run reads the digest of the code, and writes no page
    _EXPORTS = dict.fromkeys(("ledger_html", "write_ledger_report"), "sordino.report.page")
    _EXPORTS |= dict.fromkeys(("report_html", "write_report"), "sordino.report.run_page")
    __getattr__, __dir__ = import_late(__name__, _EXPORTS)
