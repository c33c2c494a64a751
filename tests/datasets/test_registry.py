"""Every row of the registry is complete, loadable and documented."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from sordino import datasets
from sordino.datasets import REGISTRY
from sordino.datasets.corpora import _READERS
from sordino.datasets.parse import PARSERS
from sordino.errors import InvalidInputError

DOCS = Path(__file__).resolve().parents[2] / "docs" / "datasets.md"
ROWS = pytest.mark.parametrize("row", list(REGISTRY), ids=lambda row: row.name)
LOADERS = sorted(name for name in datasets.__all__ if name.startswith("load_"))
MAKERS = sorted(name for name in datasets.__all__ if name.startswith(("make_", "open_")))


@ROWS
def test_a_row_says_what_it_is_and_under_which_terms(row):
    for name in ("title", "task", "licence", "citation", "source", "description"):
        assert len(getattr(row, name)) > 8, name
    assert re.search(r"(19|20)\d\d|collection", row.citation)
    assert row.source.startswith("http")
    assert row.licence.endswith(".")


@ROWS
def test_a_row_has_forms_that_a_parser_can_read(row):
    assert row.forms
    for form in row.forms:
        assert form.parser in PARSERS
        assert form.converter is None or form.converter in _READERS
        parts = [part for part in row.splits if part != "all"]
        assert all(form.needed(part) for part in parts)


@ROWS
def test_a_row_is_public_or_says_that_it_is_repacked(row):
    """Some form can be downloaded and checked, or a note tells that nobody serves the file."""
    served = [form for form in row.forms if all(file.urls for file in form.files)]
    assert served or any("no public original" in form.note for form in row.forms)
    for form in row.forms:
        if form not in served:
            assert form.note


@ROWS
def test_digests_are_well_formed_and_files_are_known_by_one(row):
    for file in row.files():
        for digest, length in [(file.sha256, 64), (file.md5, 32), *((c, 64) for c in file.copies)]:
            assert digest is None or re.fullmatch(rf"[0-9a-f]{{{length}}}", digest)
        unverified = file.name == "E2006.test.bz2"
        assert unverified is not bool(file.digest or file.known_sha256)


@ROWS
def test_a_row_names_a_loader_that_is_exported(row):
    assert row.loader in datasets.__all__


def test_every_loader_has_a_row_or_comes_with_scikit_learn():
    named = {row.loader for row in REGISTRY} | {"load_digits", "load_breast_cancer"}
    assert named == set(LOADERS)


@pytest.mark.parametrize("name", LOADERS + MAKERS)
def test_the_guide_mentions_every_loader_and_maker(name):
    assert f"`{name}`" in DOCS.read_text("utf-8")


@pytest.mark.parametrize("name", sorted(set(LOADERS) - {"load_digits", "load_breast_cancer"}))
def test_a_loader_shows_the_shared_keywords(name):
    function = getattr(datasets, name)
    shared = {"split", "return_X_y", "dtype", "shuffle", "random_state", "data_home", "download"}
    assert shared <= set(inspect.signature(function).parameters)
    assert all(f"\n    {key} :" in function.__doc__ for key in shared)
    assert "{" not in re.sub(r"\{\"[^}]*\}", "", function.__doc__)


def test_rows_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        REGISTRY["a9a"].licence = "mine"


def test_the_description_holds_shape_licence_and_citation():
    row = REGISTRY["a9a"]
    text = row.describe()
    for part in (row.title, "32,561 x 123", "16,281 x 123", row.licence, row.citation, row.source):
        assert part in text


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InvalidInputError, match=r"'nope'.*a9a, ijcnn1"):
        REGISTRY["nope"]
