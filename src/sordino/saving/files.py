"""Write a model with its report and schema to one file, and read it back without running anything in it."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sordino.errors import (
    InvalidInputError,
    MissingExtraError,
    ModelFileError,
    UnsupportedError,
    import_extra,
)
from sordino.runs import Ask, PrivacyReport
from sordino.tables import Schema
from sordino.tables.files import replace_file

# --------------- A model as a tree of plain values and back; the list of our types is here and nowhere else

Make = Callable[[int, int], Any] | None

# The types that a file may name, and where they are: a name that is not here is never imported. They are
# looked up by name, because the rooms of estimators import this one.
PUBLIC = import_module("sordino")
ESTIMATORS: dict[str, str] = {
    name: module
    for name, module in PUBLIC._EXPORTS.items()
    if module.startswith("sordino.estimators.") and name[0].isupper()
}
ESTIMATORS |= dict.fromkeys(("NeuralClassifier", "NeuralRegressor"), "sordino.nn.estimators")
ESTIMATORS["TableEncoder"] = "sordino.tables.encoder"
# Frozen dataclasses of numbers.
SETS = dict.fromkeys(("L1Ball", "L2Ball", "Box", "Simplex"), "sordino.solvers.heavy.learners")
SETS |= {
    "Risk": "sordino.accounting.trade_off",
    "Basis": "sordino.tables.encoder",
    "Shape": "sordino.tables.shapes",
}

_PLAIN = (bool, int, float, str)
_NEVER = {"ledger", "callback"}  # parameters that a file must not hold; None stands for them
# Parameters of models of 0.1 that are entries of ``solver_options`` now.
_OLD_OPTIONS = {
    "sampling", "batch_size", "step_size", "clip_norm", "smoothing", "n_oversamples", "momentum",
    "constraint", "gradient", "joint_clip", "scale_columns", "selection", "split", "threshold", "truncation",
}  # fmt: skip


def type_name(value: Any) -> str:
    """Return module and name of a value's class."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def pack_value(value: Any) -> Any:
    """Return plain values for a model and everything in it; refuse what has no safe form."""
    name = type(value).__name__
    if value is None or type(value) in _PLAIN or sparse.issparse(value):
        return value
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray) and value.dtype != object:
        return np.ascontiguousarray(value).view(np.ndarray).reshape(value.shape)
    if isinstance(value, BaseEstimator):
        return _pack_estimator(value)
    for kind, (known, pack, _) in _FORMS.items():
        if isinstance(value, known) and not isinstance(value, np.ma.MaskedArray):
            return {"kind": kind, **pack(value)}
    if isinstance(value, _PLAIN):  # a subclass as what it is at bottom
        return next(kind for kind in _PLAIN if isinstance(value, kind))(value)
    if SETS.get(name) == type(value).__module__:
        return {"kind": "set", "class": name, "fields": {k: pack_value(v) for k, v in vars(value).items()}}
    if callable(value):
        name = getattr(value, "__qualname__", name)
        raise UnsupportedError(
            f"A model with the function {name!r} cannot be saved: loading would have to run it."
        )
    raise UnsupportedError(f"Values of type {type_name(value)} have no form in a model file.")


def unpack_value(node: Any, make: Make = None) -> Any:
    """Return what :func:`pack_value` was given; ``make`` makes the module of a network."""
    if not isinstance(node, dict):
        return node
    kind = node.get("kind")
    if kind in _FORMS:
        return _FORMS[kind][2](node, lambda entry: unpack_value(entry, make))
    if kind == "estimator":
        return _unpack_estimator(node, make)
    if kind == "foreign":
        return node["object"]
    if kind == "pipeline":
        from sklearn.pipeline import Pipeline

        return Pipeline([(str(name), unpack_value(step, make)) for name, step in node["steps"]])
    if kind != "set":
        raise ModelFileError(f"The model file holds a part of kind {kind!r}, which is not known here.")
    if node["class"] not in SETS:
        raise ModelFileError(f"The model file names {node['class']!r}, which is not known here.")
    fields = {str(key): unpack_value(entry, make) for key, entry in node["fields"].items()}
    return getattr(import_module(SETS[node["class"]]), node["class"])(**fields)


def _unpack_objects(node: dict[str, Any], of: Callable[[Any], Any]) -> Any:
    out = np.empty(len(node["items"]), dtype=object)
    out[:] = [of(item) for item in node["items"]]
    return out.reshape(node["shape"])


def _read_text(read: Callable[[str], Any]) -> Callable[[dict[str, Any], Any], Any]:
    return lambda node, of: read(str(node["text"]))


def _items(values: Any) -> dict[str, Any]:
    return {"items": [pack_value(item) for item in values]}


# The kinds of parts: the types, what a file holds of one, and the way back, given that of what is inside.
_FORMS: dict[Any, tuple[Any, Callable[[Any], dict[str, Any]], Callable[[dict[str, Any], Any], Any]]] = {
    "report": (PrivacyReport, lambda value: {"text": value.to_json()}, _read_text(PrivacyReport.from_json)),
    "schema": (Schema, lambda value: {"text": value.to_toml()}, _read_text(Schema.from_toml)),
    "scalar": (np.generic, lambda value: {"value": np.asarray(value)}, lambda node, of: node["value"][()]),
    "objects": (np.ndarray, lambda v: {"shape": [*v.shape], **_items(v.ravel())}, _unpack_objects),
    "dict": (
        Mapping, lambda value: {"items": [[pack_value(key), pack_value(one)] for key, one in value.items()]},
        lambda node, of: {of(key): of(entry) for key, entry in node["items"]},
    ),
    "list": ((list, range), _items, lambda node, of: [of(item) for item in node["items"]]),
    "tuple": (tuple, _items, lambda node, of: tuple(of(item) for item in node["items"])),
}  # fmt: skip


def _is_pipeline(value: Any) -> bool:
    """Tell a pipeline of scikit-learn; where its module is not loaded nothing is one."""
    module = sys.modules.get("sklearn.pipeline")
    return module is not None and isinstance(value, module.Pipeline)


def _pack_estimator(value: BaseEstimator) -> Any:
    if _is_pipeline(value):
        if value.memory is not None:
            raise UnsupportedError("A pipeline with memory= cannot be saved. Set memory=None.")
        return {"kind": "pipeline", "steps": [[name, pack_value(step)] for name, step in value.steps]}
    name = type(value).__name__
    if ESTIMATORS.get(name) != type(value).__module__:
        # skops reads and writes what it trusts of scikit-learn, and the rest is refused by name.
        return {"kind": "foreign", "object": value}
    params = value.get_params(deep=False)
    state = {key: entry for key, entry in vars(value).items() if key not in params and key.endswith("_")}
    module, make = state.pop("module_", None), params.pop("module", None)
    params |= dict.fromkeys(_NEVER & params.keys())
    if not isinstance(params.get("random_state"), int):
        params |= dict.fromkeys(
            {"random_state"} & params.keys()
        )  # a generator: of fits, and this one is over
    weights = None
    if module is not None:
        whole = {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}
        weights = {k: (t.float() if t.is_floating_point() else t).numpy() for k, t in whole.items()}
    return {
        "kind": "estimator",
        "class": name,
        "params": {key: pack_value(entry) for key, entry in params.items()},
        "state": {key: pack_value(entry) for key, entry in state.items()},
        "weights": weights,
        "made_by": None if make is None else getattr(make, "__qualname__", type(make).__name__),
    }


def _unpack_estimator(node: dict[str, Any], make: Make) -> Any:
    name = node["class"]
    if name not in ESTIMATORS:
        raise ModelFileError(f"The model file names the estimator {name!r}, which is not known here.")
    kind = getattr(import_module(ESTIMATORS[name]), name)
    params = {key: unpack_value(entry, make) for key, entry in node["params"].items()}
    known = set(kind._get_param_names())
    old = {key: params.pop(key) for key in _OLD_OPTIONS & set(params) - known}  # in files of 0.1
    if own := {key: entry for key, entry in old.items() if entry is not None}:
        params["solver_options"] = {**(params.get("solver_options") or {}), **own}
    if not set(params) <= known:
        others = ", ".join(sorted(set(params) - known))
        raise ModelFileError(f"The model file sets parameters that {name} does not have here: {others}.")
    model = kind(**params)
    for key, entry in node["state"].items():
        if key in known or not key.isidentifier() or not key.endswith("_") or key.startswith("_"):
            raise ModelFileError(f"The model file sets {key!r} of {name}, which is no fitted attribute.")
        setattr(model, key, unpack_value(entry, make))
    if node["weights"] is not None:
        _restore(model, node, make)
    _require_numbers(model)
    return model


def _require_numbers(model: Any) -> None:
    """Refuse fitted numbers with which a model would predict nonsense: not finite, or of another shape."""
    names, classes = getattr(model, "coef_names_", None), getattr(model, "classes_", (0, 1))
    width = getattr(model, "n_features_in_", None) if names is None else len(names)
    ordered = hasattr(model, "levels_")
    rows = 1 if len(classes) == 2 or ordered else len(classes)
    ends = len(classes) - 1 if ordered else rows
    shapes = {"coef_": ((width,), (rows, width)), "intercept_": ((), (ends,)), "components_": None}
    for key in (key for key in shapes if hasattr(model, key)):
        value = np.asarray(getattr(model, key))
        known = shapes[key] or ((len(value), width),)
        if value.shape not in known or value.dtype.kind not in "iuf" or not np.isfinite(value).all():
            raise ModelFileError(
                f"The model file holds {key} of shape {value.shape}, where finite numbers of shape "
                f"{known[-1]} belong: it was changed, or its fit failed. Fit it again."
            )


def _restore(model: Any, node: dict[str, Any], make: Make) -> None:
    """Make the module of a network and copy the weights into it."""
    import torch

    if node["made_by"] is not None and make is None:
        raise ModelFileError(
            f"The network of this file was made by {node['made_by']!r}, which is no part of the file. "
            "Pass that function: sordino.load(path, module=...)."
        )
    if make is not None:
        model.set_params(module=make)
    outputs = len(model.classes_) if hasattr(model, "classes_") else 1
    module = model._network(model.n_features_in_, outputs)
    state = {name: torch.from_numpy(np.array(value)) for name, value in node["weights"].items()}
    if not all(bool(torch.isfinite(tensor).all()) for tensor in state.values()):
        raise ModelFileError("The weights in the file are not all finite: it was changed, or the fit failed.")
    try:
        module.load_state_dict(state)
    except RuntimeError:
        raise ModelFileError(
            "The weights in the file do not fit the network that was made: names or shapes differ."
        ) from None
    model.module_ = module.eval()


# ----------------------------------------------------------------------------------------------------------
# Write a model with its report and schema to one file, and read it back without running anything in it.

FORMAT = 2  # 1, of Sordino 0.1, was one tree of skops
_ABOUT, _TREE = "sordino.json", "model.json"
_MOST_ABOUT = 64 << 20  # bytes; a report is a few kilobytes
_RATIO = 200  # arrays of zeros shrink, but not without end: a file that claims more is a trap


def save(model: Any, path: str | os.PathLike[str], *, about: Mapping[str, Any] | None = None) -> Path:
    """Write a fitted model to a file that :func:`load` reads without running anything.

    Parameters
    ----------
    model : a fitted estimator of Sordino, networks included, or a scikit-learn ``Pipeline`` that ends in one.
    path : the file; it is replaced as a whole, or not at all.
    about : anything of yours to keep beside the model, in words and numbers (what JSON can hold).

    The ledger's address is left out, and so are generators in ``random_state``. A ledger that the fit was
    booked on got the digest of the model when the fit ended, and now gets that of the file: a page made from
    it can then say that it is this one.

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
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr(
            _TREE, json.dumps(pack_value(model), default=partial(_write_member, archive, target))
        )
        archive.writestr(_ABOUT, _facts(model, about))
    replace_file(target, whole.getvalue(), error=ModelFileError)
    attest(model, _digest_of_file(whole.getvalue()))
    return target


def attest(model: Any, file: str = "") -> None:
    """Tell the ledger of a fit what it released, and how it reports that, and of a ``file`` with just these.

    Every fit does this when it ends: what somebody changes before the model is saved is something else.
    """
    for _, part in getattr(model, "steps", [("", model)]):
        if getattr(part, "ledger", None) is not None:
            digests, report = released_digests(model), report_of(model)
            schema = getattr(part, "schema", None)
            known = file, schema.digest[:12] if isinstance(schema, Schema) else ""
            if digests and report is not None:
                Ask(report.epsilon, report.delta, part.ledger, part.dataset_id).attest(
                    report, digests, *known
                )
            break


def _digest_of_file(data: bytes) -> str:
    """Return a hash of what a model file holds: of its members, not of when they were packed."""
    total = hashlib.sha256()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in sorted(archive.namelist()):
            content = archive.read(name)
            total.update(f"{name}, {len(content)}: ".encode() + content)
    return total.hexdigest()


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's word on versions: a step that changed fails aloud
        try:
            whole = facts["format"] == 1
            tree = _read_skops(data, source)["model"] if whole else _read_tree(data, source)
            model = unpack_value(tree, module)
            if not _agree(model, report_of(model), facts["report"]):
                raise ModelFileError(
                    f"{source.name!r} holds two reports that disagree: somebody changed one of them."
                )
            for _, part in getattr(model, "steps", [("", model)]):
                if getattr(part, "privacy_", None) is not None:
                    part.privacy_ = replace(part.privacy_, file=_digest_of_file(data))
            return model
        except (ModelFileError, InvalidInputError, MissingExtraError):
            raise
        except Exception:  # readers raise whatever a damaged tree makes of them
            raise _damage_error(source) from None


def about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a model file says of itself, without loading the model.

    ``format``, ``version``, ``model`` (its class), ``report`` (as in ``PrivacyReport.to_dict``; certified
    again, and a copy) and ``about``, what was given to :func:`save`.
    """
    source = Path(path)
    facts = _facts_of(_bytes(source), source)
    return facts | {"report": None if facts["report"] is None else facts["report"].to_dict()}


def model_digest(model: Any) -> str:
    """Return a hash of the released numbers of a fitted model, the same before saving and after loading.

    It is that of its class, parameters, fitted attributes and weights: of all that predictions depend on.
    What cannot be saved has none ("").
    """
    try:
        tree = pack_value(model)
    except UnsupportedError:
        return ""
    return _hash(tree)


def released_digests(model: Any) -> tuple[str, ...]:
    """Return the digests of numbers and report of each private part of a model; of a search, of its choice.

    Neither a status, which a copy has not, nor the events, which are looked up, count for that of the report.
    """
    choice, out = getattr(model, "best_estimator_", None), []
    try:
        tree = pack_value(model if choice is None else choice)
    except UnsupportedError:
        return ()
    for node in _paid_parts(tree):
        report = node["state"]["privacy_"] if choice is None else pack_value(model.privacy_)
        said = json.loads(report["text"])
        prices = [{**price, "status": None} for price in said["learned"]]
        out.append(f"{_hash(node)} {_hash({**said, 'learned': prices, 'status': None, 'event': None})}")
    return tuple(out)


def _paid_parts(node: Any) -> Iterator[Any]:
    """Yield what is packed of each estimator that has a report of its own."""
    kind = node.get("kind") if isinstance(node, dict) else None
    if kind == "pipeline":
        for _, step in node["steps"]:
            yield from _paid_parts(step)
    elif kind == "estimator" and "privacy_" in node["state"]:
        yield node


def _hash(tree: Any) -> str:
    total = hashlib.sha256()
    _feed(total, tree)
    return total.hexdigest()


# The report, which is certified again; how a run was watched and drawn; what follows from other numbers.
_NOT_HASHED = {*_NEVER, "made_by", "privacy_", "noise_alone", "random_state", "verbose"}


def _feed(total: Any, node: Any) -> None:
    if isinstance(node, np.ndarray):
        total.update(f"{node.dtype.str}{node.shape}".encode() + np.ascontiguousarray(node).tobytes())
    elif isinstance(node, Mapping):
        for key in sorted(map(str, node)):
            if key not in _NOT_HASHED:
                total.update(key.encode())
                _feed(total, node[key])
    elif isinstance(node, (list, tuple)):
        for entry in node:
            _feed(total, entry)
    else:
        total.update((repr(node) if node is None or type(node) in _PLAIN else type_name(node)).encode())


def report_of(model: Any) -> PrivacyReport | None:
    """Return the report of a fitted model, or of all steps of a pipeline; None where nothing was paid."""
    if _is_pipeline(model):
        return cast(PrivacyReport, PUBLIC.pipeline_privacy(model))
    return getattr(model, "privacy_", None)


def _agree(model: Any, *reports: PrivacyReport | None) -> bool:
    """Tell whether two reports of a model say the same, but for words of pipelines and rounding."""
    words = ("notes", "public", "facts", "unpaid") if _is_pipeline(model) else ()
    facts = [{} if report is None else report.to_dict() for report in reports]
    known = [
        {key: value for key, value in each.items() if key not in ("status", "epsilon", *words)}
        | {"unpaid": bool(each.get("unpaid"))}
        for each in facts
    ]
    one, other = (0.0 if report is None else report.epsilon for report in reports)
    return known[0] == known[1] and math.isclose(one, other, rel_tol=1e-9)


def _write_member(archive: zipfile.ZipFile, target: Path, value: Any) -> dict[str, str]:
    """Write what JSON cannot hold into a member of its own, and return the node that names it."""
    content = io.BytesIO()
    if isinstance(value, np.ndarray):
        kind = "npy"
        np.save(content, value, allow_pickle=False)
    elif sparse.issparse(value):
        kind = "npz"
        sparse.save_npz(content, value)
    else:
        kind = "skops"
        content.write(_skops().dumps(value))
        _refuse_foreign(content.getvalue(), target, UnsupportedError)
    name = f"{len(archive.namelist())}.{kind}"
    archive.writestr(name, content.getvalue())
    return {"kind": kind, "member": name}


def _read_tree(data: bytes, source: Path) -> Any:
    def member(node: dict[str, Any]) -> Any:
        if set(node) != {"kind", "member"}:
            return node
        content = archive.read(node["member"])
        if node["kind"] == "skops":
            return _read_skops(content, source)
        return {"npy": np.load, "npz": sparse.load_npz}[node["kind"]](io.BytesIO(content))

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return json.loads(archive.read(_TREE), object_hook=member)


def _read_skops(data: bytes, source: Path) -> Any:
    _refuse_foreign(data, source, ModelFileError)
    return _skops().loads(data, trusted=[])


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
    """Read the description first; its report, and the status in it, are certified again, not believed."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            claimed = sum(member.file_size for member in archive.infolist())
            member = archive.getinfo(_ABOUT)
            if claimed > _RATIO * len(data) + _MOST_ABOUT or member.file_size > _MOST_ABOUT:
                raise ModelFileError(f"{source.name!r} unpacks to {claimed} bytes: this is no model file.")
            facts = json.loads(archive.read(member))
            facts["format"], version = int(facts["format"]), str(facts["version"])
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, OSError, RuntimeError, EOFError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise _damage_error(source) from None
    if facts["format"] > FORMAT:
        raise ModelFileError(
            f"{source.name!r} was written by Sordino {version} in format {facts['format']}; this is Sordino "
            f"{PUBLIC.__version__}, which reads up to {FORMAT}. Upgrade with: pip install -U sordino."
        )
    stated = facts.get("report")
    return {**facts, "report": None if stated is None else PrivacyReport.from_dict(stated)}


def _refuse_foreign(data: bytes, source: Path, kind: type[Exception]) -> None:
    skops = _skops()
    try:
        foreign = skops.get_untrusted_types(data=data)
    except Exception:  # as in load: a damaged tree
        raise _damage_error(source) from None
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


def _damage_error(source: Path) -> ModelFileError:
    return ModelFileError(
        f"{source.name!r} is no model file of Sordino, or damaged. Write it again with model.save(path)."
    )


def _skops() -> Any:
    return import_extra("skops.io", "save")
