"""Archives of texts, counted once into sparse matrices that are kept in the cache."""

from __future__ import annotations

import lzma
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from sordino.errors import DataNotFoundError

# (class, file name, text): sorting puts documents in the order of the packed form.
Document = tuple[str, str, str]


def convert(converter: str, archive: Path, folder: Path) -> None:
    """Turn an archive into the packed files of its data set, written to ``folder``.

    Raises
    ------
    DataNotFoundError
        If the archive is damaged.
    """
    try:
        documents = _READERS[converter](archive)
    except (OSError, EOFError, tarfile.TarError, UnicodeDecodeError):
        raise DataNotFoundError(
            f"{archive} cannot be read as an archive of texts. Delete it and load again."
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, documents, with_ratings=converter == "imdb")


def _write(folder: Path, documents: dict[str, list[Document]], with_ratings: bool) -> None:
    classes = sorted({document[0] for document in documents["train"]})
    # Headers, quotes and short words stay: these are scikit-learn's defaults, as in the packed form.
    vectoriser = CountVectorizer(dtype=np.int16)
    counts = {"train": vectoriser.fit_transform(text for _, _, text in documents["train"])}
    counts["test"] = vectoriser.transform(text for _, _, text in documents["test"])
    labels: dict[str, Any] = {"target_names": np.array(classes)}
    for part, rows in documents.items():
        labels[f"y_{part}"] = np.array([classes.index(row[0]) for row in rows], dtype=np.int8)
        if with_ratings:
            stars = [int(PurePosixPath(row[1]).stem.rpartition("_")[2]) for row in rows]
            labels[f"rating_{part}"] = np.array(stars, dtype=np.int8)
        _replace(folder / f"{part}_counts.npz", partial(sparse.save_npz, matrix=counts[part]))
    terms = "\n".join(vectoriser.get_feature_names_out()) + "\n"
    _replace(folder / "vocabulary.txt.xz", lambda f: f.write(lzma.compress(terms.encode())))
    _replace(folder / "labels.npz", lambda f: np.savez_compressed(f, **labels))


def _replace(path: Path, write: Callable[[Any], object]) -> None:
    """Write a file under another name and rename it when it is whole."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def _members(archive: Path) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """Walk over the files of an archive without unpacking it to disk."""
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            if member.isfile() and (stream := tar.extractfile(member)) is not None:
                yield PurePosixPath(member.name).parts, stream.read()


def _newsgroups(archive: Path) -> dict[str, list[Document]]:
    """Read ``20news-bydate-train/GROUP/NUMBER`` and the same of the test part."""
    found: dict[str, list[Document]] = {"train": [], "test": []}
    for parts, raw in _members(archive):
        part = parts[0].rpartition("-")[2]
        if len(parts) == 3 and part in found:
            found[part].append((parts[1], parts[2], raw.decode("latin-1")))
    return {part: sorted(documents) for part, documents in found.items()}


def _imdb(archive: Path) -> dict[str, list[Document]]:
    """Read ``aclImdb/train/neg/ID_STARS.txt`` and its siblings, not the unlabelled reviews."""
    found: dict[str, list[Document]] = {"train": [], "test": []}
    for parts, raw in _members(archive):
        if len(parts) == 4 and parts[1] in found and parts[2] in ("neg", "pos"):
            found[parts[1]].append((parts[2], parts[3], raw.decode("utf-8")))
    return {part: sorted(documents) for part, documents in found.items()}


_READERS = {"newsgroups": _newsgroups, "imdb": _imdb}
