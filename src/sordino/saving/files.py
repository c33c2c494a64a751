"""Write a model with its report and schema to one file, and read it back without running anything in it."""

from __future__ import annotations

import io
import json
import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from sordino.errors import InvalidInputError, ModelFileError, UnsupportedError, require_extra
from sordino.runs import PrivacyReport
from sordino.saving.tree import PUBLIC, packed, type_name, unpacked

FORMAT = 1
_ABOUT = "sordino.json"
_MOST_ABOUT = 64 << 20  # bytes; a report is a few kilobytes
_RATIO = 200  # arrays of zeros shrink, but not without end: a file that claims more is a trap


def save(model: Any, path: str | os.PathLike[str], *, about: Mapping[str, Any] | None = None) -> Path:
    """Write a fitted model to a file that :func:`load` reads without running anything.

    Parameters
    ----------
    model : a fitted estimator of Sordino, networks included, or a scikit-learn ``Pipeline`` that ends in one.
    path : the file; it is replaced as a whole, or not at all.
    about : anything of yours to keep beside the model, in words and numbers (what JSON can hold).

    The ledger's address is left out, and so are generators in ``random_state``.

    **Privacy.** A file holds what the model object holds: released numbers, parameters, the report. It costs
    nothing to write, copy or read it.

    Examples
    --------
    >>> import numpy as np, tempfile, sordino
    >>> model = sordino.PCA(1, epsilon=2.0, data_norm=2.0).fit(np.eye(50, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = model.save(folder + "/axes.sordino")
    ...     again = sordino.load(file)
    >>> bool((again.components_ == model.components_).all()), again.privacy_.status
    (True, 'unverified copy')
    """
    check_is_fitted(model)
    target = Path(path)
    tree = _skops().dumps({"model": packed(model)})
    _refuse_foreign(tree, target, UnsupportedError)
    whole = io.BytesIO(tree)
    with zipfile.ZipFile(whole, "a") as archive:
        archive.writestr(_ABOUT, _facts(model, about))
    replace_file(target, whole.getvalue())
    return target


def load(path: str | os.PathLike[str], *, module: Callable[[int, int], Any] | None = None) -> Any:
    """Read a model that :func:`save` wrote.

    Parameters
    ----------
    path : the file.
    module : for a network that was made by a function of yours, that function.

    Nothing in the file is run: it may hold numbers, texts, arrays, Sordino's own estimators and what skops
    trusts of scikit-learn. Other types, damaged files and files of a newer version raise ``ModelFileError``.
    The report is certified again from its events, and says that it is a copy. It stands in the file twice,
    with the model and with what :func:`about` returns; where the two disagree the file is refused.
    """
    source = Path(path)
    data = _bytes(source)
    facts = _facts_of(data, source)
    _refuse_foreign(data, source, ModelFileError)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's word on versions: a step that changed fails aloud
        try:
            tree = _skops().loads(data, trusted=[])
            model = unpacked(tree["model"], module)
            if _compared(model, report_of(model)) != _compared(model, facts["report"]):
                raise ModelFileError(
                    f"{source.name!r} holds two reports that disagree: somebody changed one of them."
                )
            return model
        except (ModelFileError, InvalidInputError):
            raise
        except Exception:  # skops raises whatever a damaged tree makes of its readers
            raise _damaged(source) from None


def about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a model file says of itself, without loading the model.

    ``format``, ``version``, ``model`` (its class), ``report`` (as in ``PrivacyReport.to_dict``; certified
    again, and a copy) and ``about``, what was given to :func:`save`.
    """
    source = Path(path)
    facts = _facts_of(_bytes(source), source)
    return facts | {"report": None if facts["report"] is None else facts["report"].to_dict()}


def report_of(model: Any) -> PrivacyReport | None:
    """Return the report of a fitted model, or of all steps of a pipeline; None where nothing was paid."""
    if isinstance(model, Pipeline):
        return cast(PrivacyReport, PUBLIC.pipeline_privacy(model))
    return getattr(model, "privacy_", None)


def _compared(model: Any, report: PrivacyReport | None) -> Any:
    """Return what two reports of a model must agree on; those of a pipeline may be put in other words."""
    words = ("notes", "public", "unpaid") if isinstance(model, Pipeline) else ()
    facts = {} if report is None else report.to_dict()
    known = {key: value for key, value in facts.items() if key not in ("status", *words)}
    return known, bool(facts.get("unpaid"))


def require_saving() -> None:
    """Refuse where models cannot be saved, before anything is paid for one."""
    _skops()


def replace_file(path: Path, content: bytes, *, own: bool = False) -> None:
    """Write a file under another name and rename it when it is whole; ``own``: for its owner's eyes alone."""
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ModelFileError(
            f"Cannot write {path.name!r} into {str(path.parent)!r}: {error.strerror}."
        ) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(draft, 0o600 if own else 0o666 & ~_umask())
        os.replace(draft, path)
    except OSError as error:
        os.unlink(draft)
        raise ModelFileError(f"Cannot write {path.name!r}: {error.strerror}.") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _facts(model: Any, own: Mapping[str, Any] | None) -> str:
    report = report_of(model)
    facts = {
        "format": FORMAT,
        "version": PUBLIC.__version__,
        "model": type_name(model),
        "report": None if report is None else report.to_dict(),
        "about": dict(own or {}),
    }
    try:
        return json.dumps(facts, indent=2, allow_nan=False)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "Expected about= to hold words, finite numbers, lists and dictionaries of them."
        ) from None


def _facts_of(data: bytes, source: Path) -> dict[str, Any]:
    """Read the description first: it decides whether the rest can be understood.

    Its report is certified again: what it says of itself, its status as well, is not believed.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
            member = archive.getinfo(_ABOUT)
            if claimed > _RATIO * len(data) + _MOST_ABOUT or member.file_size > _MOST_ABOUT:
                raise ModelFileError(f"{source.name!r} unpacks to {claimed} bytes: this is no model file.")
            facts = json.loads(archive.read(member))
            made, version = int(facts["format"]), str(facts["version"])
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, OSError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise _damaged(source) from None
    if made > FORMAT:
        raise ModelFileError(
            f"{source.name!r} was written by Sordino {version} in format {made}; this is Sordino "
            f"{PUBLIC.__version__}, which reads up to {FORMAT}. Upgrade with: pip install -U sordino."
        )
    stated = facts.get("report")
    return {**facts, "report": None if stated is None else PrivacyReport.from_dict(stated)}


def _refuse_foreign(data: bytes, source: Path, kind: type[Exception]) -> None:
    try:
        foreign = _skops().get_untrusted_types(data=data)
    except Exception:  # as in load: a damaged tree
        raise _damaged(source) from None
    if foreign:
        raise kind(
            f"{source.name!r} would hold types that are not Sordino's: {', '.join(sorted(foreign))}. A model "
            "file holds numbers, texts, Sordino's estimators and what skops trusts of scikit-learn."
        )


def _bytes(source: Path) -> bytes:
    try:
        return source.read_bytes()
    except OSError as error:
        raise ModelFileError(f"Cannot read the model file {str(source)!r}: {error.strerror}.") from None


def _damaged(source: Path) -> ModelFileError:
    return ModelFileError(
        f"{source.name!r} is no model file of Sordino, or damaged. Write it again with model.save(path)."
    )


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise require_extra("skops", "save") from None
    return skops.io
