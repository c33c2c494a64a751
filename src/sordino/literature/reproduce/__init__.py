"""The published tables and figures beside ours, with the epsilon that the printed noise certifies."""

from sordino.literature.reproduce.runner import TABLES, measure, measure_all, reproduce, table_named, verdicts

__all__ = ["TABLES", "measure", "measure_all", "reproduce", "table_named", "verdicts"]
