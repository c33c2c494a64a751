"""From a registry row to a Bunch: the options every loader shares, and what it does with them."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from sklearn.utils import Bunch

from sordino.datasets.bunch import Deferred, LazyBunch
from sordino.datasets.catalogue import REGISTRY
from sordino.datasets.corpora import convert
from sordino.datasets.download import Download
from sordino.datasets.lookup import Files
from sordino.datasets.parse import Part, parse, read_bytes
from sordino.datasets.registry import DatasetRow
from sordino.errors import InvalidInputError
from sordino.kernel.noise import public_generator

Split = Literal["train", "test", "all"]
Loaded: TypeAlias = "Bunch | tuple[Any, Any]"
Prepare = Callable[[Part, np.dtype], Part]
_Function = TypeVar("_Function", bound=Callable[..., Any])


class LoadOptions(TypedDict, total=False):
    """The keywords that every loader takes; see :class:`Options` for what they mean."""

    split: Split
    return_X_y: bool
    dtype: DTypeLike | None
    shuffle: bool
    random_state: object
    data_home: str | os.PathLike[str] | None
    download: Download


@dataclass(frozen=True)
class Options:
    """The checked options of one call."""

    split: Split = "train"
    return_X_y: bool = False
    dtype: DTypeLike | None = None
    shuffle: bool = False
    random_state: object = None
    data_home: str | os.PathLike[str] | None = None
    download: Download = True

    def check(self, row: DatasetRow, kinds: tuple[str, ...]) -> None:
        """Refuse a split the data set does not have and a type the loader cannot return."""
        if self.split not in row.splits:
            raise InvalidInputError(
                f"Expected split to be one of {', '.join(row.splits)} for the data set "
                f"{row.name!r}, got {self.split!r}."
            )
        if self.dtype is not None and _dtype_name(self.dtype) not in kinds:
            raise InvalidInputError(f"Expected dtype to be one of {', '.join(kinds)}, got {self.dtype!r}.")


def _dtype_name(dtype: object) -> str:
    try:
        return str(np.dtype(dtype))  # type: ignore[call-overload]
    except TypeError:
        return ""


_PARAMETERS = """split : {"train", "test", "all"}
        Which rows ``data`` and ``target`` hold. ``"all"`` is the training rows, then the test rows.
    return_X_y : bool
        Return ``(data, target)`` instead of a Bunch.
    dtype : dtype, optional
        The type of the features; by default float64, for images float32.
    shuffle : bool
        Permute the rows. The permutation is public: it is drawn without looking at the data.
    random_state : int, optional
        The seed of the permutation.
    data_home : path, optional
        A folder to search, and to download to, instead of ``SORDINO_DATA`` and the cache.
    download : bool or "unverified"
        Whether a missing file may be downloaded. ``"unverified"`` also takes files of which no
        digest is published."""
_RETURNS = """Bunch or (data, target)
        Keys ``data``, ``target``, ``target_names``, ``DESCR``, ``shape``, ``licence``,
        ``citation``, ``source``, ``name``; with ``split="train"`` also ``test_data`` and
        ``test_target`` where there is a test part, and ``feature_names`` where the source names its
        columns. The last three are read from disk at first use."""


def loader(function: _Function) -> _Function:
    """Give a loader the shared keywords in its signature and its documentation."""
    own = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    shared = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=option.type,
        )
        for option in dataclasses.fields(Options)
    ]
    function.__signature__ = inspect.Signature(own + shared)  # type: ignore[attr-defined]
    if function.__doc__ is not None:
        filled = function.__doc__.replace("{parameters}", _PARAMETERS)
        function.__doc__ = filled.replace("{returns}", _RETURNS)
    return function


def to_dtype(part: Part, dtype: np.dtype) -> Part:
    """Cast the features; sparse stays sparse."""
    return dataclasses.replace(part, data=part.data.astype(dtype, copy=False))


class Reader:
    """Reads the parts of one data set, each once."""

    def __init__(self, row: DatasetRow, options: Options, prepare: Prepare, dtype: np.dtype):
        self._row, self._prepare, self._dtype = row, prepare, dtype
        self._files = Files(row, options.data_home, options.download)

    def part(self, part: str) -> Part:
        """Find, parse, check and prepare one part."""
        form, paths = self._files.locate(part)
        if form.converter is not None:
            convert(form.converter, paths["archive"], self._files.home)
            form, paths = self._files.locate(part)
        return self._prepare(parse(form.parser, paths, part, self._row), self._dtype)

    def split(self, split: str) -> Part:
        """Return a split: a part, or both one after the other."""
        if split != "all":
            return self.part(split)
        parts = [self.part("train")] + ([self.part("test")] if self._row.test_shape else [])
        return stack(parts)

    @cached_property
    def test(self) -> Part:
        """The test part, kept after the first use."""
        return self.part("test")

    def test_extra(self, key: str) -> Any:
        """Return what else is known of the test rows."""
        return self.test.extra[key]

    def vocabulary(self) -> list[str]:
        """Return the terms of a text collection in the order of its columns."""
        form, paths = self._files.locate("vocabulary")
        if form.converter is not None:
            convert(form.converter, paths["archive"], self._files.home)
            _, paths = self._files.locate("vocabulary")
        return read_bytes(paths["vocabulary"]).decode().removesuffix("\n").split("\n")


def stack(parts: list[Part]) -> Part:
    """Put parts one after the other."""
    if len(parts) == 1:
        return parts[0]
    data = [part.data for part in parts]
    join = sparse.vstack(data, format="csr") if sparse.issparse(data[0]) else np.concatenate(data)
    extra = {key: np.concatenate([part.extra[key] for part in parts]) for key in parts[0].extra}
    return Part(join, np.concatenate([part.target for part in parts]), extra)


def shuffled(part: Part, random_state: object) -> Part:
    """Permute the rows of a part."""
    public = public_generator(random_state)
    order = public.permutation(len(part.target))
    extra = {key: values[order] for key, values in part.extra.items()}
    return Part(part.data[order], part.target[order], extra)


def load(
    name: str,
    options: LoadOptions,
    prepare: Prepare = to_dtype,
    default: str = "float64",
    kinds: tuple[str, ...] = ("float64", "float32"),
    **more: Any,
) -> Loaded:
    """Load a data set of the registry.

    Parameters
    ----------
    name : str
        Its name in the registry.
    options : LoadOptions
        What the caller of the loader asked for.
    prepare : callable
        From a parsed part and a dtype to the part the loader returns.
    default, kinds : str, tuple of str
        The default dtype and the ones that can be asked for.
    **more
        Further keys of the Bunch, for example ``feature_names``.
    """
    row = REGISTRY[name]
    chosen = Options(**options)
    chosen.check(row, kinds)
    reader = Reader(row, chosen, prepare, np.dtype(chosen.dtype or default))
    part = reader.split(chosen.split)
    if chosen.shuffle:
        part = shuffled(part, chosen.random_state)
    if chosen.return_X_y:
        return part.data, part.target
    return _bunch(row, chosen, reader, part, more)


def _bunch(row: DatasetRow, options: Options, reader: Reader, part: Part, more: dict[str, Any]) -> LazyBunch:
    out = LazyBunch(
        data=part.data,
        target=part.target,
        **part.extra,
        target_names=list(row.target_names),
        DESCR=row.describe(),
        name=row.name,
        shape=part.data.shape,
        licence=row.licence,
        citation=row.citation,
        source=row.source,
    )
    if options.split == "train" and row.test_shape:
        out["test_data"] = Deferred(lambda: reader.test.data)
        out["test_target"] = Deferred(lambda: reader.test.target)
        for key in part.extra:
            out[f"test_{key}"] = Deferred(partial(reader.test_extra, key))
    if any(file.part == "vocabulary" for file in row.files()):
        out["feature_names"] = Deferred(reader.vocabulary)
    out.update(more)
    return out
