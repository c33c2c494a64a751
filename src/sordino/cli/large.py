"""Files that are too large for memory: converted once, then read from disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse

from sordino.tables.data_file import in_words
from sordino.tables.files import NUMBER, TEXT, DataFile, declared_features, read_frame, read_names

_GROWTH = 3  # bytes of memory for one of a text file, while it is read
_COPIES = 2  # of a table's numbers, while it is read


def memory_for_rows(megabytes: int | None) -> int:
    """Return the bytes that rows may take: as declared, or half of what the machine has."""
    if megabytes is not None:
        return megabytes << 20
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def is_large(file: DataFile, memory: int) -> bool:
    """Tell whether reading a file into memory would take more than this; of formats read in pieces."""
    path = Path(file.path)
    if file.path == "-" or not path.is_file() or path.suffix in (".gz", ".bz2", ".zst"):
        return False
    if file.kind == "libsvm":
        return _GROWTH * path.stat().st_size > memory
    if file.kind != "parquet":
        return False
    from pyarrow import parquet

    facts = parquet.read_metadata(path)
    return bool(_COPIES * 8 * facts.num_rows * facts.num_columns > memory)


def converted(file: DataFile, target: str | None, labels: bool, memory: int) -> tuple[Any, Any]:
    """Return rows on a disk and their targets; nothing is left there, whatever happens then.

    The files never have a name: the system takes their room back when this process ends, killed or not.
    """
    from sordino.execute.disk import without_name
    from sordino.execute.disk_files import libsvm_blocks

    click.echo(f"{file.name} is larger than the memory for rows: it is worked on from disk.", err=True)
    path = Path(file.path)
    if file.kind == "libsvm":
        blocks = _whole(file, libsvm_blocks(path, declared_features(file)))
        rows = in_words(file, lambda: without_name(blocks, memory))
        return rows, rows.target
    rows = in_words(file, lambda: without_name(_whole(file, _features(path, target)), memory))
    rows.names = [name for name in read_names(file) if name != target]
    if target is None:
        return rows, None
    column = read_frame(file, {target: TEXT if labels else NUMBER})[target]
    if labels and column.isna().any():
        raise file.refuse(f"the column {target!r} has gaps. Every record needs a label.")
    return rows, column.to_numpy()


def _whole(file: DataFile, blocks: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield blocks of rows; refuse gaps and infinite numbers, as a file that is read into memory is."""
    for block, targets in blocks:
        if not np.isfinite(block.data if sparse.issparse(block) else block).all():
            raise file.refuse(
                "a feature has a gap or is infinite. Declare a schema, or drop such rows by a public rule."
            )
        yield block, targets


def _features(path: Path, target: str | None) -> Any:
    from sordino.execute.disk_files import parquet_blocks

    return ((block, None) for block, _ in parquet_blocks(path, target))
