"""The PCA pages: their Python blocks run as they are printed, their tables are those of the kept results."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from benchmarks.bars import FOLDER
from benchmarks.pca import RESULT
from benchmarks.pca_bars import judged
from docs.figures.pca_tables import MADE, PAGES, START, page


def test_the_blocks_of_the_pca_page_run():
    blocks = re.findall(r"```python\n(.*?)```", PAGES[0].read_text("utf-8"), flags=re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["pca"].privacy_.status == "private"
    assert names["model"].privacy_.status == "private"


def kept(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def test_the_tables_of_both_pages_are_those_of_the_kept_results():
    texts = [file.read_text("utf-8") for file in PAGES]
    assert [page(text, kept(RESULT), kept(FOLDER / "pca.json")) for text in texts] == texts
    for name in (*MADE, "reached"):
        assert sum(text.count(START.format(name)) for text in texts) == 1


def test_the_kept_verdicts_are_what_the_kept_figures_give():
    assert kept(FOLDER / "pca.json")["bars"] == [asdict(bar) for bar in judged(kept(RESULT))]
