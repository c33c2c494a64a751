"""The pictures of pages in the documentation: a report, a ledger page, and the terminal.

Command: python docs/figures/pages.py   (needs Chromium; the noise is fresh, so numbers move a little)
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import sordino
from sordino.kernel import public_generator
from sordino.ledger import ledger as clock
from sordino.report import write_ledger_report, write_report

IMAGES = Path(__file__).resolve().parents[1] / "images"
COLUMNS = [
    "age",
    "blood pressure",
    "heart rate",
    "cholesterol",
    "smoker",
    "body mass index",
    "admissions",
    "sodium",
]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def booked_by(person, when):
    """Book as somebody, on some day: the page shows both."""
    now, os.environ["SORDINO_PERSON"] = clock.now, person
    clock.now = lambda: f"{when}T09:30:00.000000+00:00"
    try:
        yield
    finally:
        clock.now = now


def table(n=6000):
    """Return made-up patients."""
    import pandas as pd

    public = public_generator(0)
    X = public.normal(size=(n, len(COLUMNS))) / 4
    risk = X @ np.array([2.0, -1.5, 1.0, 0.8, 0.0, 0.0, -0.4, 0.1])
    return pd.DataFrame(X, columns=COLUMNS), np.where(risk + public.normal(size=n) / 3 > 0, "ill", "well")


def write(folder):
    """Spend a budget in a few weeks, and write both pages."""
    X, y = table()
    ledger = sordino.Ledger.open(folder / "ledger.sqlite")
    ledger.create("ward 7", sordino.BudgetPolicy(epsilon=4.0, delta=1e-5))
    ledger.create("laboratory", sordino.BudgetPolicy(epsilon=1.0, delta=1e-6))
    ward = {"ledger": ledger, "dataset_id": "ward 7", "delta": 1e-6}
    with booked_by("Grace", "2026-03-02"):
        sordino.mean(X, epsilon=0.5, **ward)
        sordino.quantiles(
            X["age"], [0.1, 0.5, 0.9], epsilon=0.9, ledger=ledger, dataset_id="laboratory", delta=1e-7
        )
    with booked_by("Ada", "2026-03-05"):
        model = sordino.LogisticRegression(1.0, data_norm=1.5, classes=["ill", "well"], **ward).fit(X, y)
    with booked_by("Ada", "2026-03-09"):
        scores = {
            m: sordino.private_score(model, X, y, metric=m, epsilon=0.4, **ward) for m in ("accuracy", "auc")
        }
    with booked_by("Emmy", "2026-03-20"):
        sordino.PCA(3, epsilon=1.2, data_norm=1.5, **ward).fit(X)
    write_report(model, folder / "report.html", scores=scores, author="Ada", title="Admissions of ward 7")
    write_ledger_report(ledger, folder / "ledger.html")


def terminal(folder):
    """Write what `sordino ledger` prints as a page."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from sordino.cli.ledger import HISTORY, entry_row

    console = Console(record=True, width=100, file=open(os.devnull, "w"), markup=False, highlight=False)  # noqa: SIM115
    with sordino.Ledger.open(folder / "ledger.sqlite") as book:
        shown = Table(*HISTORY, box=box.SIMPLE_HEAD)
        for entry in book.history("ward 7"):
            shown.add_row(*entry_row(entry))
    console.print("$ sordino ledger history ledger.sqlite 'ward 7'")
    console.print(shown)
    (folder / "terminal.html").write_text(console.export_html(), encoding="utf-8")


def shoot(folder):
    """Take the pictures."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for name, page_name, width, height, scheme in [
            ("report", "report", 900, 1250, "light"),
            ("report-phone", "report", 360, 760, "dark"),
            ("ledger", "ledger", 900, 1100, "light"),
            ("terminal", "terminal", 860, 200, "light"),
        ]:
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.goto((folder / f"{page_name}.html").as_uri())
            page.screenshot(path=IMAGES / f"page-{name}.png")
            context.close()
        browser.close()


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        terminal(folder)
        shoot(folder)
        if len(sys.argv) > 1:  # a folder to keep the pages in
            shutil.copytree(folder, sys.argv[1], dirs_exist_ok=True)
    for path in sorted(IMAGES.glob("page-*.png")):
        smaller(path)
        print(path.name, path.stat().st_size)


def smaller(path):
    """Store a picture with few colours, which is all it has."""
    from PIL import Image

    Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main()
