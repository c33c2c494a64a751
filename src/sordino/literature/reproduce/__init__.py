"""The published tables and figures beside ours, with the epsilon that the printed noise certifies."""

from sordino.literature.reproduce.runner import (
    TABLES,
    kept_rows,
    reproduce,
    table_named,
    verdicts,
    write_page,
)

__all__ = ["TABLES", "kept_rows", "reproduce", "table_named", "verdicts", "write_page"]
