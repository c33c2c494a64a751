"""Linear models and principal components as ONNX graphs, for runtimes without Python."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sordino.errors import UnsupportedError, require_extra
from sordino.runs import PrivacyReport

_CLASSIFIERS = ("LogisticRegression", "SparseLogisticRegression", "LinearClassifier")
_MODELS = (*_CLASSIFIERS, "LinearRegression", "SparseLinearRegression", "PCA")


def to_onnx(model: Any) -> Any:
    """Return a fitted linear model or PCA as an ONNX ``ModelProto``, converted by skl2onnx.

    The graph takes ``rows``, a float32 matrix, clips them to ``data_norm`` as ``predict`` does, and returns
    what the same model of scikit-learn returns: labels and probabilities, numbers (in the range that targets
    have), or components. Sums are in float32, so margins agree to about six digits. Write it with
    ``onnx.save``. A model with a schema takes encoded rows, ``model.encoder_.transform(table)``; their names
    stand in the property ``columns``.

    **Privacy.** It holds the released coefficients and declared bounds; it costs nothing. The report travels
    with it as a copy, in the property ``privacy`` of the graph.
    """
    check_is_fitted(model)
    name = type(model).__name__
    if name not in _MODELS or not type(model).__module__.startswith("sordino."):
        raise UnsupportedError(
            f"Expected one of {_MODELS}, fitted, got {name}. Others have no ONNX form here."
        )
    try:
        import onnx
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError:
        raise require_extra("skl2onnx", "onnx") from None
    twin, encoder = _twin(model), getattr(model, "encoder_", None)
    names = [] if encoder is None else [str(name) for name in encoder.get_feature_names_out()]
    width = len(names) or model.n_features_in_
    inputs = [("clipped", FloatTensorType([None, width]))]
    options = {id(twin): {"zipmap": False}} if type(twin).__name__ == "LogisticRegression" else None
    graph = convert_sklearn(twin, initial_types=inputs, options=options, target_opset=18)
    if hasattr(model, "target_range_"):
        _bound_numbers(onnx, graph.graph, model._loss().link.node, *model.target_range_)
    clip = _clipping(onnx, width, float(model.data_norm_), graph)
    merged = onnx.compose.merge_models(clip, graph, io_map=[("clipped_rows", "clipped")])
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
    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    constants = [
        onnx.numpy_helper.from_array(np.array([[bound]], dtype=np.float32), "data_norm"),
        onnx.numpy_helper.from_array(np.array([1], dtype=np.int64), "columns"),
    ]
    version = next(o.version for o in graph.opset_import if o.domain == "")
    axis: dict[str, Any] = {} if version >= 18 else {"axes": [1]}  # an input since 18, a setting before
    nodes = [
        make.make_node("ReduceL2", ["rows"] if axis else ["rows", "columns"], ["norms"], keepdims=1, **axis),
        make.make_node("Max", ["norms", "data_norm"], ["lengths"]),
        make.make_node("Div", ["data_norm", "lengths"], ["factors"]),
        make.make_node("Mul", ["rows", "factors"], ["clipped_rows"]),
    ]
    rows = make.make_tensor_value_info("rows", kind, [None, features])
    clipped = make.make_tensor_value_info("clipped_rows", kind, [None, features])
    body = make.make_graph(nodes, "clip", [rows], [clipped], constants)
    return make.make_model(body, ir_version=graph.ir_version, opset_imports=list(graph.opset_import))
