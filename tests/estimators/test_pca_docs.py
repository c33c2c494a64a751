"""The Python blocks of the PCA page run as they are printed."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pca.md"


def test_the_blocks_of_the_pca_page_run():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    names: dict = {}
    for block in blocks:
        exec(block, names)
    assert names["pca"].privacy_.status == "private"
    assert names["model"].privacy_.status == "private"
