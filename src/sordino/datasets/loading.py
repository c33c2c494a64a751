"""``load(name)``: from a name in the registry to features and targets."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from sklearn.preprocessing import normalize
from sklearn.utils import Bunch

from sordino.datasets.files import REGISTRY, Dataset, Download, Files, Part, Target, read
from sordino.errors import InvalidInputError
from sordino.kernel.noise import public_generator
from sordino.tables import TableEncoder


def unit_rows(data: Any) -> Any:
    """Divide each row by its Euclidean norm; rows of zeros stay. Sparse stays sparse.

    **Privacy.** A row depends on itself alone, so this is not a release. Afterwards no row has a norm
    above 1 but for rounding, and ``data_norm=1`` clips nothing that matters.

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    # By the largest entry first: squares of 1e-162 vanish and those of 1e155 overflow.
    return normalize(normalize(data, norm="max", axis=1, copy=True), norm="l2", axis=1, copy=False)


def log1p_unit(counts: Any, dtype: DTypeLike = np.float64) -> Any:
    """Map word counts to ``log(1 + count)`` and scale each row to unit norm.

    Unlike tf-idf it uses nothing but the document itself, so it is free of privacy cost.

    Parameters
    ----------
    counts : counts, at least zero.
    dtype : the floating type of the result.

    Examples
    --------
    >>> log1p_unit(np.array([[1, 0, 1]])).round(4)
    array([[0.7071, 0.    , 0.7071]])
    """
    is_sparse = sparse.issparse(counts)
    values = counts.data if is_sparse else np.asarray(counts)
    if values.size and values.min() < 0:
        raise InvalidInputError("Expected counts of at least 0, got negative entries.")
    return unit_rows(counts.astype(dtype).log1p() if is_sparse else np.log1p(values.astype(dtype)))


def centred_unit(data: Any) -> Any:
    """Subtract from each row its own mean and scale it to unit norm; columns would use other people."""
    rows = np.asarray(data)
    return unit_rows(rows - rows.mean(axis=1, keepdims=True))


_TRANSFORMS = {
    "unit": unit_rows,
    "log1p-unit": lambda rows: log1p_unit(rows, rows.dtype),
    "centred-unit": centred_unit,
}


def load(
    name: str,
    *,
    split: str | None = None,
    target: str | None = None,
    transform: Literal["unit", "log1p-unit", "centred-unit"] | None = None,
    encoding: Literal["onehot", "raw"] | None = None,
    missing: Literal["drop", "zero"] | None = None,
    flatten: bool | None = None,
    dtype: DTypeLike | None = None,
    shuffle: bool = False,
    random_state: object = None,
    return_X_y: bool = False,
    data_home: str | os.PathLike[str] | None = None,
    download: Download = True,
) -> Bunch | tuple[Any, NDArray[Any]]:
    """Load a data set of the :data:`REGISTRY` by its name, for example ``load("a9a")``.

    Parameters
    ----------
    name, split : the set and its rows: ``"train"``, ``"test"``, several joined by ``+``, or ``"all"``.
        Without a split these are the training rows, and ``test_data``, ``test_target`` come along.
    target : what to predict where there is a choice: ``"dos"``, ``"attack"``, ``"kind"`` (kddcup99),
        ``"donate"``, ``"amount"`` (donor_pva), ``"sentiment"``, ``"rating"`` (imdb), ``"digit"``, ``"high"``
        (digits).
    transform : "unit", "log1p-unit" or "centred-unit" scale each row to unit norm: as it is, after
        ``log(1 + x)``, or after subtracting its own mean.
    encoding, missing : tables: encoded by the declared schema ("onehot") or a DataFrame as read ("raw");
        incomplete records left out ("drop", the default for adult, as in the papers) or kept with zeros for
        what is missing ("zero").
    flatten, dtype : images: rows of pixels or arrays. Floats are float64, for images float32 in [0, 1]; or
        uint8.
    shuffle, random_state : permute the rows of ``data`` by a public seed, without looking at the data.
    return_X_y : return ``(data, target)`` instead of a Bunch, which also holds ``target_names``,
        ``feature_names`` where there are names, ``DESCR``, ``shape``, ``licence``, ``citation``, ``source``.
    data_home, download : a folder to use instead of ``SORDINO_DATA`` and the cache; whether to download what
        is missing, and even what has no published digest.

    Notes
    -----
    **Privacy.** Nothing here uses more than one record: levels and bounds are declared in the
    registry, transforms act on each row alone. What the *sources* did is in each description.
    """
    if name not in REGISTRY:
        raise InvalidInputError(f"There is no data set {name!r}. Choose one of: {', '.join(REGISTRY)}.")
    recipe = _Recipe(REGISTRY[name], target, transform, encoding, missing, flatten, dtype)
    files = Files(recipe.row, data_home, download)
    part = _stack([recipe.prepare(read(files, key)) for key in recipe.parts(split)])
    part = _shuffle(part, random_state) if shuffle else part
    if return_X_y:
        return part.data, part.target
    others: dict[str, Any] = {}
    for key in recipe.row.shapes if split is None else ():
        if key != "train":
            other = recipe.prepare(read(files, key))
            named = {"data": other.data, "target": other.target, **other.extra}
            others |= {f"{key}_{what}": value for what, value in named.items()}
    return recipe.bunch(part, others)


def _among(name: str, value: object, choices: Any) -> None:
    if value is not None and value not in choices:
        listed = ", ".join(map(str, choices))
        raise InvalidInputError(f"Expected {name} to be one of {listed}, got {value!r}.")


@dataclass(frozen=True)
class _Recipe:
    """What one call asked for, checked, and how a part that was read becomes that."""

    row: Dataset
    target: str | None
    transform: str | None
    encoding: str | None
    missing: str | None
    flatten: bool | None
    dtype: Any

    def __post_init__(self) -> None:
        is_table = self.row.schema is not None
        for option, is_read in (
            ("target", bool(self.row.targets)),
            ("encoding", is_table),
            ("missing", is_table),
            ("flatten", self.row.is_image),
            ("transform", self.encoding != "raw" and self.flatten is not False),
            ("dtype", self.encoding != "raw"),
        ):
            if getattr(self, option) is not None and not is_read:
                raise InvalidInputError(
                    f"{option}={getattr(self, option)!r} has no meaning for the data set {self.row.name!r} "
                    "as it was asked for. Leave it out."
                )
        _among("target", self.target, self.row.targets)
        _among("transform", self.transform, _TRANSFORMS)
        _among("encoding", self.encoding, ("onehot", "raw"))
        _among("missing", self.missing, ("drop", "zero"))
        kinds = ("float64", "float32", "uint8") if self.row.is_image else ("float64", "float32")
        _among("dtype", None if self.dtype is None else _dtype_name(self.dtype), kinds)

    def parts(self, split: str | None) -> tuple[str, ...]:
        known = tuple(self.row.shapes)
        parts = ("train",) if split is None else known if split == "all" else tuple(split.split("+"))
        if not set(parts) <= set(known) or len(set(parts)) < len(parts):
            raise InvalidInputError(
                f"Expected split to be one of {', '.join((*known, 'all'))} for the data set "
                f"{self.row.name!r}, or several joined by +, got {split!r}."
            )
        return parts

    def prepare(self, part: Part) -> Part:
        """Choose the target, encode or scale the features, transform the rows."""
        chosen = self.chosen
        if self.target and chosen.number is not None:
            part = dataclasses.replace(part, target=np.asarray(part.extra[self.target], dtype=np.float64))
        elif chosen.positive is not None:
            first, last = chosen.positive
            positive = (part.target >= first) & (part.target <= last)
            part = dataclasses.replace(part, target=positive.astype(np.int64))
        if self.row.schema is not None:
            part = self._encode(part)
        elif self.row.is_image:
            rows = part.data if self.flatten is False else part.data.reshape(len(part.data), -1)
            dtype = np.dtype(self.dtype or "float32")
            rows = rows if dtype == np.uint8 else rows.astype(dtype) / dtype.type(255)
            part = dataclasses.replace(part, data=rows)
        else:
            part = dataclasses.replace(part, data=part.data.astype(self.dtype or "float64", copy=False))
        if self.transform is None:
            return part
        return dataclasses.replace(part, data=_TRANSFORMS[self.transform](part.data))

    @property
    def chosen(self) -> Target:
        """The target that was asked for, or the first one."""
        known = self.row.targets
        return known[self.target] if self.target else next(iter(known.values()), Target())

    def _encode(self, part: Part) -> Part:
        """Encode a table, after leaving out what is incomplete, which each record decides alone."""
        frame, target = part.data, part.target
        if (self.missing or self.row.details.get("missing", "zero")) == "drop":
            whole = ~frame.isna().any(axis=1).to_numpy()
            frame, target = frame[whole], target[whole]
        if self.encoding == "raw":
            return Part(frame, target, {}, list(frame.columns))
        assert self.row.schema is not None
        encoder = TableEncoder(
            self.row.schema, sparse_output=True, dtype=_dtype_name(self.dtype or "float64")
        )
        data = encoder.fit_transform(frame)
        data.eliminate_zeros()
        return Part(data, target, {}, encoder.get_feature_names_out().tolist())

    def bunch(self, part: Part, more: dict[str, Any]) -> Bunch:
        """Return a part with what is known of its data set, and more."""
        row = self.row
        classes = row.classes if self.chosen.classes is None else self.chosen.classes
        named = {} if part.feature_names is None else {"feature_names": part.feature_names}
        if "topics" in row.details:
            named["topic_names"] = list(row.details["topics"])
        return Bunch(
            data=part.data,
            target=part.target,
            **part.extra,
            **named,
            target_names=list(classes),
            DESCR=row.describe(),
            shape=part.data.shape,
            **{key: getattr(row, key) for key in ("name", "licence", "citation", "source")},
            **more,
        )


def _dtype_name(dtype: object) -> str:
    try:
        return str(np.dtype(dtype))  # type: ignore[call-overload]
    except TypeError:
        return str(dtype)


def _stack(parts: list[Part]) -> Part:
    first, *others = parts
    if not others:
        return first
    rows = [part.data for part in parts]
    if sparse.issparse(first.data):
        data: Any = sparse.vstack(rows, format="csr")
    elif isinstance(first.data, np.ndarray):
        data = np.concatenate(rows)
    else:
        import pandas

        data = pandas.concat(rows, ignore_index=True)
    extra = {key: np.concatenate([part.extra[key] for part in parts]) for key in first.extra}
    return Part(data, np.concatenate([part.target for part in parts]), extra, first.feature_names)


def _shuffle(part: Part, random_state: object) -> Part:
    public = public_generator(random_state)
    order = public.permutation(len(part.target))
    rows = part.data if isinstance(part.data, np.ndarray) or sparse.issparse(part.data) else part.data.iloc
    extra = {key: values[order] for key, values in part.extra.items()}
    return Part(rows[order], part.target[order], extra, part.feature_names)
