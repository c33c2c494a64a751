"""A self-contained HTML page of text, tables, figures and privacy reports."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from sordino.runs.meaning import at_most


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
                "privacy": privacy,
            }
        )
        return self

    def html(self) -> str:
        """Return the page."""
        return rendered("page.html", title=self.title, lead=self.lead, sections=self.sections)

    def write(self, path: str | Path) -> Path:
        """Write the page and return its path."""
        path = Path(path)
        path.write_text(self.html(), encoding="utf-8")
        return path


def rendered(template: str, **values: Any) -> str:
    """Return a page from one of this room's templates; every value is escaped."""
    return _templates().get_template(template).render(**values)


@lru_cache(maxsize=1)
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("sordino.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["short"] = lambda value: f"{value:.4g}"
    environment.filters["at_most"] = at_most
    environment.filters["share"] = lambda value: f"{100 * value:.1f} %"
    environment.filters["upper_first"] = lambda text: text[:1].upper() + text[1:]
    return environment


def _png(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
    return base64.b64encode(buffer.getvalue()).decode("ascii")
