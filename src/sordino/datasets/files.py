"""Where the files are: the folder ``SORDINO_DATA``, then the cache, then the public source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from sordino.datasets.registry import DataFile, Dataset
from sordino.errors import DataNotFoundError, InvalidInputError, require_extra

Download = bool | Literal["unverified"]


def roots(data_home: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Return the folders that are searched, the one that downloads go to last."""
    from sordino.kernel.machine_code import cache_folder

    if data_home is not None:
        return (Path(data_home).expanduser(),)
    given = os.environ.get("SORDINO_DATA")
    folders = [Path(given).expanduser()] if given else []
    return (*folders, cache_folder() / "data")


class Files:
    """The files of one data set, found on disk or downloaded when they are asked for."""

    def __init__(
        self, row: Dataset, data_home: str | os.PathLike[str] | None = None, download: Download = True
    ) -> None:
        if download not in (True, False, "unverified"):
            raise InvalidInputError(
                'Expected download to be True, False or "unverified", got '
                f"{download!r}. Only the last one takes files without a published digest."
            )
        offline = os.environ.get("SORDINO_OFFLINE", "") not in ("", "0")
        self.row = row
        self.folders = tuple(root / row.folder for root in roots(data_home))
        self.used: list[Path] = []
        self._download: Download = False if offline else download

    @property
    def home(self) -> Path:
        """The folder that downloads and conversions go to."""
        return self.folders[-1]

    def on_disk(self, part: str) -> Path | None:
        """Return the path of a part, or None where it is in no folder."""
        names = [file.name for file in self.row.files if file.part == part]
        paths = [folder / name for folder in self.folders for name in names]
        return next((path for path in paths if path.is_file()), None)

    def path(self, part: str) -> Path:
        """Return the path of a part, downloaded if need be.

        Raises
        ------
        DataNotFoundError
            If it is neither there nor downloadable. The message says which file to put where.
        """
        found = self.on_disk(part)
        reasons: list[str] = []
        for file in self.row.files:
            if found is None and file.part == part:
                found = self._fetched(file, reasons)
        if found is None:
            raise DataNotFoundError(self._advice(part, reasons))
        self.used.append(found)
        return found

    def _fetched(self, file: DataFile, reasons: list[str]) -> Path | None:
        """Download a file, or write down why that was not to be."""
        if not file.urls:
            return None
        if not self._download:
            reasons.append(f"Downloads are off, so {file.name} was not fetched.")
            return None
        if file.digest is None and self._download != "unverified":
            reasons.append(
                f"No digest of {file.name} is published, so it is not downloaded by itself; allow it "
                'with download="unverified".'
            )
            return None
        return fetch(file, self.home, reasons)

    def _advice(self, part: str, reasons: list[str]) -> str:
        wanted = [file for file in self.row.files if file.part in (part, "archive")]
        urls = [url for file in wanted for url in file.urls]
        sentences = [
            f"The data set {self.row.name!r} is not on this machine.",
            *reasons,
            f"Put {' or '.join(file.name for file in wanted)} into "
            f"{' or '.join(map(str, self.folders))}, or set SORDINO_DATA to a folder that has a folder "
            f"{self.row.folder!r} with it.",
            f"Public source: {', '.join(urls)}." if urls else f"See {self.row.source}.",
            *([self.row.note] if self.row.note else []),
        ]
        return " ".join(sentences)


def fetch(file: DataFile, folder: Path, reasons: list[str]) -> Path | None:
    """Download a file with pooch, which checks its digest before it gets its name.

    Addresses are tried in turn; each that fails adds a reason.
    """
    try:
        import pooch
    except ImportError as error:
        raise require_extra("pooch", "datasets") from error
    for url in file.urls:
        try:
            return Path(pooch.retrieve(url, file.digest, file.name, folder))
        except (OSError, ValueError) as error:
            reasons.append(f"{url} failed ({error}).")
    return None
