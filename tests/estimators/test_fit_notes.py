"""What a fit warns of from its releases stands in the notes of its report, on pages and in files."""

import numpy as np
import pytest
from click.testing import CliRunner

import sordino
from sordino.cli import main
from sordino.errors import FitWarning
from sordino.report import report_html
from sordino.tables import Number, Schema, Target


def test_the_words_of_a_warning_are_notes_of_the_report_the_page_and_the_file(tmp_path):
    schema = Schema([Number("x", 0, 365, knots=1), Target("y", "number", low=0, high=50_000)])
    table = {"x": np.linspace(0, 30, 300), "y": 800 + 90 * np.linspace(0, 30, 300)}
    with pytest.warns(FitWarning, match="the mean of the targets") as told:
        model = sordino.LinearRegression(epsilon=0.1, delta=1e-6, schema=schema).fit(table)
    words = str(told[0].message).partition(": ")[2]
    assert model.privacy_.notes.count(words) == 1
    assert "_told" not in vars(model)
    assert "nothing that columns tell stands out of noise" in report_html(model)
    path = model.save(tmp_path / "m.sordino")
    assert words in sordino.load(path).privacy_.notes
    assert f"Note: {words}" in CliRunner().invoke(main, ["inspect", str(path)]).output
    assert words not in model.set_params(epsilon=float("inf")).fit(table).privacy_.notes
