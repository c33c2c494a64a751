"""The PCA page: its Python blocks run as they are printed, its tables are those of the kept results."""

import json
import re
from dataclasses import asdict
from pathlib import Path

from benchmarks.bars import FOLDER
from benchmarks.pca import RESULT
from benchmarks.pca_bars import judged
from docs.figures.pca_tables import PAGE, page


def test_the_blocks_of_the_pca_page_run():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["pca"].privacy_.status == "private"
    assert names["model"].privacy_.status == "private"


def kept(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def test_the_tables_of_the_page_are_those_of_the_kept_results():
    text = PAGE.read_text("utf-8")
    assert page(text, kept(RESULT), kept(FOLDER / "pca.json")) == text


def test_the_kept_verdicts_are_what_the_kept_figures_give():
    assert kept(FOLDER / "pca.json")["bars"] == [asdict(bar) for bar in judged(kept(RESULT))]
