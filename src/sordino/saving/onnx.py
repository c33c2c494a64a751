"""Linear models and principal components as ONNX graphs, for runtimes without Python."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sordino.errors import UnsupportedError, import_extra
from sordino.runs import PrivacyReport
from sordino.tables.columns import Block, Number
from sordino.tables.encoder import PairBlock
from sordino.tables.shapes import dense_rows
from sordino.tables.values import NO, YES, number_of, require_pandas

_CLASSIFIERS = ("LogisticRegression", "SparseLogisticRegression", "LinearClassifier")
_MODELS = (*_CLASSIFIERS, "LinearRegression", "SparseLinearRegression", "PCA")


def to_onnx(model: Any, *, tables: bool = False) -> Any:
    """Return a fitted linear model or PCA as an ONNX ``ModelProto``, converted by skl2onnx.

    The graph takes ``rows``, a float32 matrix, clips them to ``data_norm`` as ``predict`` does, and returns
    what the same model of scikit-learn returns: labels and probabilities, numbers (in the range that targets
    have), or components. Sums are in float32, so margins agree to about six digits. Write it with
    ``onnx.save``. A model with a schema takes encoded rows, ``model.encoder_.transform(table)``; their names
    stand in the property ``columns``. With ``tables=True`` it takes the table itself, one input of shape
    (rows, 1) for each column: numbers as float32 (nan for a gap), flags and levels as texts, spelled as the
    schema does. Dates and texts of words have no such form.

    **Privacy.** It holds the released coefficients and declared bounds; it costs nothing. The report travels
    with it as a copy, in the property ``privacy`` of the graph.
    """
    check_is_fitted(model)
    name = type(model).__name__
    if name not in _MODELS or not type(model).__module__.startswith("sordino."):
        raise UnsupportedError(
            f"Expected one of {_MODELS}, fitted, got {name}. Others have no ONNX form here."
        )
    onnx, skl2onnx = import_extra("onnx", "onnx"), import_extra("skl2onnx", "onnx")
    twin, encoder = _twin(model), getattr(model, "encoder_", None)
    names = [] if encoder is None else [str(name) for name in encoder.get_feature_names_out()]
    width = len(names) or model.n_features_in_
    inputs = [("clipped", skl2onnx.common.data_types.FloatTensorType([None, width]))]
    options = {id(twin): {"zipmap": False}} if type(twin).__name__ == "LogisticRegression" else None
    graph = skl2onnx.convert_sklearn(
        twin, initial_types=inputs, options=options, target_opset={"": 18, "ai.onnx.ml": 1}
    )
    if hasattr(model, "target_range_"):
        _bound_numbers(onnx, graph.graph, model._loss().link.node, *model.target_range_)
    clip = _clipping(onnx, width, float(model.data_norm_), graph)
    merged = onnx.compose.merge_models(clip, graph, io_map=[("clipped_rows", "clipped")])
    if tables:
        versions = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 1)]
        table = _TableGraph(onnx, "table").encode(model).close("encoded_rows", None, graph, versions)
        merged = onnx.compose.merge_models(table, merged, io_map=[("encoded_rows", "rows")])
    copy = PrivacyReport.from_dict(model.privacy_.to_dict())
    facts = {"privacy": copy.to_json()} | ({"columns": json.dumps(names)} if names else {})
    onnx.helper.set_model_props(merged, facts)
    onnx.checker.check_model(merged)
    return merged


def _twin(model: Any) -> Any:
    """Return the model of scikit-learn that predicts the same from clipped rows."""
    from sklearn import decomposition, linear_model, svm

    if type(model).__name__ == "PCA":
        twin: Any = decomposition.PCA(whiten=model.whiten)
        names: tuple[str, ...] = ("components_", "mean_", "explained_variance_", "n_components_")
    elif not hasattr(model, "classes_"):
        twin, names = linear_model.LinearRegression(), ("coef_", "intercept_")
    else:
        odds = model._loss().link.odds
        twin = linear_model.LogisticRegression() if odds else svm.LinearSVC()
        names = ("coef_", "intercept_", "classes_")
    for name in names:
        setattr(twin, name, getattr(model, name))
    twin.n_features_in_ = np.shape(model.coef_ if hasattr(model, "coef_") else model.components_)[-1]
    return twin


def _bound_numbers(onnx: Any, body: Any, means: str, low: float, high: float) -> None:
    """Make numbers of margins, in the range that targets have; the output keeps its name."""
    name = body.output[0].name
    for node in body.node:
        node.output[:] = ["margins" if out == name else out for out in node.output]
    for end, value in (("lowest", low), ("highest", high)):
        body.initializer.append(onnx.numpy_helper.from_array(np.array(value, dtype=np.float32), end))
    body.node.append(onnx.helper.make_node(means, ["margins"], ["unbounded"]))
    body.node.append(onnx.helper.make_node("Clip", ["unbounded", "lowest", "highest"], [name]))


def _clipping(onnx: Any, features: int, bound: float, graph: Any) -> Any:
    """Return the graph ``rows * bound / max(bound, |rows|)``, in the versions of the other graph."""
    version = next(o.version for o in graph.opset_import if o.domain == "")
    axis: dict[str, Any] = {} if version >= 18 else {"axes": [1]}  # an input since 18, a setting before
    own = _Graph(onnx, "clip")
    rows = own.input("rows", onnx.TensorProto.FLOAT, features)
    norms = own.add("ReduceL2", rows, *([] if axis else [[1]]), keepdims=1, **axis)
    own.add("Mul", rows, own.add("Div", [[bound]], own.add("Max", norms, [[bound]])), to="clipped_rows")
    return own.close("clipped_rows", features, graph, list(graph.opset_import))


class _Graph:
    """A graph of this name that is made node by node."""

    def __init__(self, onnx: Any, name: str) -> None:
        self.onnx, self.name = onnx, name
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def add(self, kind: str, *inputs: Any, to: str = "", **settings: Any) -> str:
        """Add a node, whose inputs are names or constants, and return the name of its output."""
        names, to = [], to or f"{self.name}{len(self.nodes)}"
        for one in inputs:
            if not isinstance(one, str):
                array, name = np.asarray(one), f"{self.name}c{len(self.constants)}"
                array = array.astype(np.float32) if array.dtype.kind == "f" else array
                self.constants.append(self.onnx.numpy_helper.from_array(array, name))
            names.append(one if isinstance(one, str) else name)
        self.nodes.append(self.onnx.helper.make_node(kind, names, [to], **settings))
        return to

    def input(self, name: str, kind: Any, width: int = 1) -> str:
        """Add an input with so many columns and return its name."""
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, [None, width]))
        return name

    def close(self, output: str, width: int | None, like: Any, versions: list[Any]) -> Any:
        """Return a model with this output, which goes before another one."""
        make = self.onnx.helper
        rows = make.make_tensor_value_info(output, self.onnx.TensorProto.FLOAT, [None, width])
        body = make.make_graph(self.nodes, self.name, self.inputs, [rows], self.constants)
        return make.make_model(body, ir_version=like.ir_version, opset_imports=versions)


class _TableGraph(_Graph):
    """The nodes that encode a table: a number by hats between knots, a text by the rows of its level."""

    def encode(self, model: Any) -> _TableGraph:
        """Add the columns of a model's table, and join their encoded rows."""
        encoder = getattr(model, "encoder_", None)
        columns = {} if encoder is None else {column.name: column for column in encoder.schema_.features}
        other = [c.name for c in columns.values() if c.word in ("date", "text")]
        if encoder is None or other:
            what = f"a {columns[other[0]].word}, column {other[0]!r}" if other else "no schema"
            raise UnsupportedError(f"Expected numbers, flags and levels for tables=True, got {what}.")
        rows: list[str] = []
        brought: dict[str, str] = {}
        for block in encoder.blocks():
            if isinstance(block, PairBlock):
                a, b = brought[block.first.name], brought[block.second.name]
                both = self.add("Mul", self.add("Unsqueeze", a, [2]), self.add("Unsqueeze", b, [1]))
                rows.append(self.add("Mul", self.add("Flatten", both, axis=1), float(block.weight)))
                continue
            column = columns[block.name]
            read = self._number if isinstance(column, Number) else self._text
            row, brought[block.name] = read(column, block, encoder.schema_.markers)
            rows.append(row)
        self.add("Concat", *rows, to="encoded_rows", axis=1)
        return self

    def _number(self, column: Number, block: Block, markers: Any) -> tuple[str, str]:
        """Interpolate between the encoded rows of knots, which are those of effects: pairs may bend there."""
        value = self.input(column.name, self.onnx.TensorProto.FLOAT)
        gap = self.add("IsNaN", value)
        for marker in filter(np.isfinite, map(number_of, markers)):
            gap = self.add("Or", gap, self.add("Equal", value, marker))
        named, (low, high) = isinstance(column.missing, str), column.ends
        value = self.add("Where", gap, low if named else float(column.missing), value)
        value = self.add("Sub", self.add("Min", self.add("Max", value, low), high), low)
        points, positions = block.grid()
        at = np.array(points) - low
        if column.log:
            value, at = self.add("Log", self.add("Add", value, 1.0)), np.log1p(at)
        before, after = np.diff(at, prepend=np.nan), np.diff(at, append=np.nan)
        up = np.where(np.isnan(before), 0.0, 1.0 / before), np.where(np.isnan(before), 1.0, 1.0 - at / before)
        down = np.where(np.isnan(after), 0.0, -1.0 / after), np.where(np.isnan(after), 1.0, 1.0 + at / after)
        sides = [self.add("Add", self.add("Mul", value, slope[None]), end[None]) for slope, end in (up, down)]
        hats = self.add("Max", self.add("Min", *sides), 0.0)
        regular, brought = _encode(block, positions)
        rows, contrasts = self.add("MatMul", hats, regular), self.add("MatMul", hats, brought)
        if not named:
            return rows, contrasts
        missing, nothing = _encode(block, np.array([np.nan]))
        return self.add("Where", gap, missing, rows), self.add("Where", gap, nothing, contrasts)

    def _text(self, column: Any, block: Block, markers: Any) -> tuple[str, str]:
        """Look up the encoded row of a level, of another level, or of a gap."""
        words = [spell(word) for word in (*YES, *NO) for spell in (str.lower, str.title, str.upper)]
        keys = list(dict.fromkeys((*(words if column.word == "flag" else column.levels), *markers, "")))
        positions = block.read(require_pandas().Series([*keys, "\0"], dtype=object))
        code = self.add(
            "LabelEncoder", self.input(column.name, self.onnx.TensorProto.STRING), domain="ai.onnx.ml",
            classes_strings=keys, default_int64=len(keys),
        )  # fmt: skip
        code = self.add("Squeeze", code, [1])
        regular, brought = (self.add("Gather", table, code, axis=0) for table in _encode(block, positions))
        return regular, brought


def _encode(block: Block, positions: Any) -> tuple[Any, Any]:
    """Return the encoded rows of positions, and what they bring into pairs."""
    return (
        dense_rows(block.entries(positions), len(block.origins)),
        dense_rows(block.contrast(positions), len(block.contrasts)),
    )
