"""One finite row of 1e308 changes neither what is raised nor what is warned."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline

from sordino import LogisticRegression, PrivateColumnWeights, PrivateStandardScaler, RowClipper

rng = np.random.default_rng(0)
X, y = rng.normal(size=(300, 4)), np.arange(300) % 2
HUGE = X.copy()
HUGE[0] = [1e308, -1e308, 1e308, 1.7e308]


@pytest.mark.parametrize("scaler", [PrivateStandardScaler, PrivateColumnWeights])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_a_huge_row_neither_raises_nor_warns_in_a_pipeline(scaler, kind):
    seen = []
    for rows in (X, HUGE):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = make_pipeline(scaler(data_norm=0.01), LogisticRegression(epsilon=1.0, data_norm=1.0))
            scores = model.fit(kind(rows), y).decision_function(kind(X))
        seen.append((scores.shape, sorted(str(w.message) for w in caught)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_a_clipper_clips_huge_and_tiny_rows_without_a_word(kind, dtype):
    top, low = float(np.finfo(dtype).max), float(np.finfo(dtype).smallest_subnormal)
    rows = np.array([[top, top, -top], [low, low, 0.0], [1.0, 1.0, 1.0]]).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = RowClipper(data_norm=0.7).fit_transform(kind(rows))
    out = out.toarray() if sparse.issparse(out) else out
    assert out.dtype == dtype
    sizes = np.linalg.norm(out.astype(np.float64), axis=1)
    assert (sizes[[0, 2]] <= 0.7).all()
    np.testing.assert_allclose(sizes[[0, 2]], 0.7, rtol=1e-6)
    np.testing.assert_array_equal(out[1], rows[1])
