"""Networks are saved as arrays: no pickle, and a module of the user's own needs the user's own function."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import sordino  # noqa: E402
from sordino.errors import ModelFileError  # noqa: E402
from sordino.kernel import public_generator  # noqa: E402
from sordino.nn import NeuralClassifier, NeuralRegressor  # noqa: E402

X = public_generator(3).normal(size=(200, 4))
Y = np.where(X[:, 0] > 0, "yes", "no")


def wide(features, outputs):
    return torch.nn.Sequential(torch.nn.Linear(features, 7), torch.nn.ReLU(), torch.nn.Linear(7, outputs))


def test_a_network_comes_back_with_its_answers(tmp_path):
    model = NeuralClassifier(2.0, max_iter=3, hidden=5).fit(X, Y)
    again = sordino.load(model.save(tmp_path / "net.sordino"))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    numbers = NeuralRegressor(2.0, max_iter=3, target_bound=3.0).fit(X, X[:, 0])
    again = sordino.load(numbers.save(tmp_path / "net.sordino"))
    assert np.array_equal(again.predict(X), numbers.predict(X))


def test_a_module_of_ones_own_is_made_by_ones_own_function(tmp_path):
    model = NeuralClassifier(2.0, max_iter=3, module=wide).fit(X, Y)
    file = model.save(tmp_path / "net.sordino")
    with pytest.raises(ModelFileError, match=r"'wide'.*module="):
        sordino.load(file)
    again = sordino.load(file, module=wide)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ModelFileError, match="do not fit"):
        sordino.load(file, module=lambda features, outputs: torch.nn.Linear(features, outputs))
