"""A self-contained HTML page of text, tables, figures and privacy reports."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment


@dataclass
class Page:
    """Collect sections, then write them as one file without outside references."""

    title: str
    lead: str = ""
    sections: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        heading: str,
        text: str = "",
        *,
        columns: Sequence[str] = (),
        rows: Sequence[Sequence[str]] = (),
        figure: Any = None,
        privacy: Any = None,
    ) -> Page:
        """Add a section: text, a table, a matplotlib figure, a privacy report."""
        self.sections.append(
            {
                "heading": heading,
                "text": text,
                "columns": list(columns),
                "rows": [list(row) for row in rows],
                "image": None if figure is None else _png(figure),
                "privacy": None if privacy is None else repr(privacy),
            }
        )
        return self

    def html(self) -> str:
        """Return the page."""
        source = files("sordino.report").joinpath("templates/page.html").read_text(encoding="utf-8")
        template = Environment(autoescape=True).from_string(source)
        return template.render(title=self.title, lead=self.lead, sections=self.sections)

    def write(self, path: str | Path) -> Path:
        """Write the page and return its path."""
        path = Path(path)
        path.write_text(self.html(), encoding="utf-8")
        return path


def _png(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
    return base64.b64encode(buffer.getvalue()).decode("ascii")
