"""Pages and plots for people."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Page", "ledger_html", "report_html", "write_ledger_report", "write_report"]

if TYPE_CHECKING:
    from sordino.report.page import Page, ledger_html, write_ledger_report
    from sordino.report.run_page import report_html, write_report
else:

    def __getattr__(name: str) -> Any:  # a run reads the digest of the code, and writes no page
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "run_page" if name in ("report_html", "write_report") else "page"
        return getattr(import_module(f"{__name__}.{module}"), name)
