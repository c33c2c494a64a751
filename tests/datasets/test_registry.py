"""Every row of the registry is complete, loadable and documented."""

import dataclasses
import re
from pathlib import Path

import pytest

from sordino import datasets
from sordino.datasets import REGISTRY
from sordino.datasets.loading import READERS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "datasets.md"
ROWS = pytest.mark.parametrize("row", list(REGISTRY.values()), ids=lambda row: row.name)
MAKERS = sorted(name for name in datasets.__all__ if name.startswith(("make_", "open_")))


@ROWS
def test_a_row_says_what_it_is_and_under_which_terms(row):
    for name in ("title", "task", "licence", "citation", "source", "description"):
        assert len(getattr(row, name)) > 8, name
    assert re.search(r"(19|20)\d\d|collection", row.citation)
    assert row.source.startswith("http")
    assert row.licence.endswith(".")


@ROWS
def test_a_row_has_a_reader_and_files_for_its_parts(row):
    assert row.format in READERS
    held = {file.part for file in row.files}
    assert row.format == "bundled" or "archive" in held or set(row.shapes) <= held


@ROWS
def test_a_row_is_public_or_says_that_it_is_repacked(row):
    """Each part can be downloaded and checked, or a note tells that nobody serves the file."""
    served = {file.part for file in row.files if file.urls}
    is_public = row.format == "bundled" or "archive" in served or set(row.shapes) <= served
    assert is_public or "no public original" in row.note


@ROWS
def test_digests_are_well_formed_and_files_are_known_by_one(row):
    for file in row.files:
        for digest, length in [(file.sha256, 64), (file.md5, 32), *((c, 64) for c in file.copies)]:
            assert digest is None or re.fullmatch(rf"[0-9a-f]{{{length}}}", digest)
        assert (file.name == "E2006.test.bz2") is (file.digest is None)


@ROWS
def test_target_classes_are_classes_of_the_set(row):
    for target in row.targets.values():
        if target.positive is not None:
            first, last = target.positive
            assert 0 < first <= last < len(row.classes)
            assert len(target.classes) == 2


@ROWS
def test_the_guide_mentions_every_data_set(row):
    name = "microarray_" if row.name.startswith("microarray_") else f"`{row.name}`"
    assert name in DOCS.read_text("utf-8")


@pytest.mark.parametrize("name", MAKERS)
def test_the_guide_mentions_every_maker(name):
    assert f"`{name}`" in DOCS.read_text("utf-8")


def test_rows_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        REGISTRY["a9a"].licence = "mine"
    with pytest.raises(TypeError):
        REGISTRY["mine"] = REGISTRY["a9a"]


def test_the_description_holds_shape_licence_and_citation():
    row = REGISTRY["a9a"]
    text = row.describe()
    for part in (row.title, "32,561 x 123", "16,281 x 123", row.licence, row.citation, row.source):
        assert part in text


def test_a_row_like_another_differs_only_in_what_it_says():
    alon, golub = REGISTRY["microarray_alon"], REGISTRY["microarray_golub"]
    assert (golub.licence, golub.folder, golub.format) == (alon.licence, "microarray", "microarray")
    assert (golub.shapes, golub.classes) == ({"train": (72, 7_129)}, ("ALL", "AML"))
