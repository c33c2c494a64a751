"""Tensors on the processor are the arrays that they are; others are refused with what to do."""

import numpy as np
import pytest
import torch
from tests.execute.in_parts import as_csr, small_data

import sordino
from sordino.errors import UnsupportedError
from sordino.execute import strip_tensor

X, NUMBERS, _ = small_data()
INF = float("inf")


def csr_tensor(matrix):
    return torch.sparse_csr_tensor(matrix.indptr, matrix.indices, matrix.data, matrix.shape)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("kind", ["dense", "csr", "coo", "with a gradient", "single precision"])
def test_a_model_of_tensors_is_the_model_of_their_arrays(kind):
    sparse_rows = as_csr(X)
    rows, tensor = {
        "dense": lambda: (X, torch.from_numpy(X)),
        "csr": lambda: (sparse_rows, csr_tensor(sparse_rows)),
        "coo": lambda: (sparse_rows, csr_tensor(sparse_rows).to_sparse_coo()),
        "with a gradient": lambda: (X, torch.from_numpy(X.copy()).requires_grad_()),
        "single precision": lambda: (X.astype(np.float32), torch.from_numpy(X.astype(np.float32))),
    }[kind]()
    model = sordino.LinearRegression(epsilon=INF, data_norm=1.0, target_bound=1.0, max_iter=3)
    expected = model.fit(rows, NUMBERS).coef_.copy()
    assert np.array_equal(model.fit(tensor, torch.from_numpy(NUMBERS)).coef_, expected)
    assert np.array_equal(model.predict(tensor), model.predict(rows))
    components = sordino.PCA(2, epsilon=INF, data_norm=1.0)
    expected = components.fit(rows).components_.copy()
    assert np.array_equal(components.fit(tensor).components_, expected)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_nothing_is_copied():
    assert np.shares_memory(strip_tensor(torch.from_numpy(X)), X)
    tensor = csr_tensor(as_csr(X))
    assert np.shares_memory(strip_tensor(tensor).data, tensor.values().numpy())
    assert strip_tensor(X) is X


def test_a_tensor_elsewhere_is_refused():
    with pytest.raises(UnsupportedError, match=r"X.cpu\(\)"):
        sordino.LinearRegression(data_norm=1.0, target_bound=1.0).fit(
            torch.empty(3, 2, device="meta"), NUMBERS[:3]
        )


def test_a_tensor_in_a_precision_that_numpy_lacks_is_widened():
    narrow = torch.from_numpy(X).bfloat16()
    model = sordino.LinearRegression(epsilon=INF, data_norm=1.0, target_bound=1.0, max_iter=3)
    expected = model.fit(narrow.float().numpy(), NUMBERS).coef_.copy()
    assert np.array_equal(model.fit(narrow, NUMBERS).coef_, expected)
    assert np.array_equal(model.predict(narrow), model.predict(narrow.float().numpy()))


def test_targets_with_a_gradient_or_stored_sparsely_are_their_numbers():
    model = sordino.LinearRegression(epsilon=INF, data_norm=1.0, target_bound=1.0, max_iter=3)
    expected = model.fit(X, NUMBERS).coef_.copy()
    targets = torch.from_numpy(NUMBERS.copy())
    for same in (targets.clone().requires_grad_(), targets.to_sparse()):
        assert np.array_equal(model.fit(torch.from_numpy(X), same).coef_, expected)
        assert model.score(torch.from_numpy(X), same) == model.score(X, NUMBERS)


@pytest.mark.filterwarnings("ignore:.*quant.*")
def test_a_tensor_of_codes_is_refused():
    codes = torch.quantize_per_tensor(torch.from_numpy(X).float(), 0.01, 0, torch.qint8)
    with pytest.raises(UnsupportedError, match="dequantize"):
        sordino.PCA(2, epsilon=INF, data_norm=1.0).fit(codes)
