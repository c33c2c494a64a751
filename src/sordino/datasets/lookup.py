"""Where the files are: the folder ``SORDINO_DATA``, then the cache, then the public source."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from sordino.datasets.download import Download, fetch_file
from sordino.datasets.registry import DataFile, DatasetRow, Form
from sordino.errors import DataNotFoundError, InvalidInputError


def cache_dir() -> Path:
    """Return the folder for what Sordino keeps between runs.

    ``SORDINO_CACHE`` if it is set, else the place the operating system has for caches.
    """
    if chosen := os.environ.get("SORDINO_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local") / "sordino"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "sordino"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sordino"


def roots(data_home: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Return the folders that are searched, the one that downloads go to last."""
    if data_home is not None:
        return (Path(data_home).expanduser(),)
    given = os.environ.get("SORDINO_DATA")
    folders = [Path(given).expanduser()] if given else []
    return (*folders, cache_dir() / "data")


class Files:
    """The files of one data set, found or fetched when they are asked for.

    Parameters
    ----------
    row : DatasetRow
        The data set.
    data_home : path, optional
        Searched (and downloaded to) instead of ``SORDINO_DATA`` and the cache.
    download : bool or "unverified"
        Whether a missing file may be downloaded; ``"unverified"`` allows files of which no digest
        is published.
    """

    def __init__(
        self,
        row: DatasetRow,
        data_home: str | os.PathLike[str] | None = None,
        download: Download = True,
    ) -> None:
        if download not in (True, False, "unverified"):
            raise InvalidInputError(
                'Expected download to be True, False or "unverified", got '
                f"{download!r}. Only the last one takes files without a published digest."
            )
        self.row = row
        self._roots = roots(data_home)
        offline = os.environ.get("SORDINO_OFFLINE", "") not in ("", "0")
        self._download = False if offline else download

    @property
    def home(self) -> Path:
        """The folder that downloads and conversions go to."""
        return self._roots[-1] / self.row.directory

    def locate(self, part: str) -> tuple[Form, dict[str, Path]]:
        """Return a form and the paths of those of its files that hold a part.

        A folder that holds all of them comes first; then files scattered over the folders; then
        the public source. What would have to be converted comes after what can be read.
        """
        for form, folders in self._choices():
            paths = _present(form.needed(part), folders)
            if paths:
                return form, paths
        reasons: list[str] = []
        for form in self.row.forms:
            try:
                return form, self._fetch(form.needed(part))
            except DataNotFoundError as error:
                reasons.append(str(error))
        raise DataNotFoundError(self._advice(part, reasons))

    def _choices(self) -> Iterator[tuple[Form, tuple[Path, ...]]]:
        folders = tuple(root / self.row.directory for root in self._roots)
        for form_is_converted in (False, True):
            for some in [(folder,) for folder in folders] + [folders]:
                for form in self.row.forms:
                    if (form.converter is not None) is form_is_converted:
                        yield form, some

    def _fetch(self, files: tuple[DataFile, ...]) -> dict[str, Path]:
        if not all(file.urls for file in files):
            names = " and ".join(file.name for file in files)
            raise DataNotFoundError(f"Nobody serves {names} in this format.")
        folders = tuple(root / self.row.directory for root in self._roots)
        paths = {}
        for file in files:
            found = _present((file,), folders)
            paths.update(found or {file.part: fetch_file(file, self.home, self._download)})
        return paths

    def _advice(self, part: str, reasons: list[str]) -> str:
        """Say what was looked for, why it did not come, and which file to put where."""
        folders = " or ".join(str(root / self.row.directory) for root in self._roots)
        forms = [form.needed(part) for form in self.row.forms]
        wanted = ", or ".join(" and ".join(file.name for file in files) for files in forms)
        urls = [url for files in forms for file in files for url in file.urls]
        origin = f"Public source: {', '.join(urls)}." if urls else f"See {self.row.source}."
        sentences = [
            f"The data set {self.row.name!r} is not on this machine.",
            *dict.fromkeys(reasons),
            f"Put {wanted} into {folders}, or set SORDINO_DATA to a folder that has a folder "
            f"{self.row.directory!r} with it.",
            origin,
            *(form.note for form in self.row.forms if form.note),
        ]
        return " ".join(sentences)


def _present(files: tuple[DataFile, ...], folders: tuple[Path, ...]) -> dict[str, Path] | None:
    paths = {}
    for file in files:
        found = [folder / file.name for folder in folders if (folder / file.name).is_file()]
        if not found:
            return None
        paths[file.part] = found[0]
    return paths
