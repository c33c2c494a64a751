"""No message, representation or pickle holds a value of the data or the password of a ledger."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import sordino
from sordino.errors import InvalidInputError

SECRET = 7319.0625
X = np.random.default_rng(0).normal(size=(40, 3))
X[3, 1] = SECRET
Y = (X[:, 0] > 0).astype(int)
URL = "postgresql://ada:sw0rdf1sh@host/budgets"
TEXT = np.array(["p7319.0625"] * 40)
CASES = {
    "one dimension": (X[:, 1], Y),
    "a number": (SECRET, Y),
    "complex": (X + 1j, Y),
    "texts in X": (np.where(X == SECRET, "p7319.0625", X.astype(object)), Y),
    "texts in y": (X, TEXT),
    "complex y": (X, Y + SECRET * 1j),
    "two columns of y": (X, np.c_[Y, Y] * SECRET),
    "ragged": ([[SECRET], [1.0, 2.0]], Y[:2]),
    "mixed labels": (X, np.array(["a"] * 20 + [SECRET] * 20, dtype=object)),
    "objects": (X, [{"a": SECRET}] * 40),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", [sordino.LinearRegression(), sordino.LogisticRegression(classes=[0, 1])])
def test_what_is_refused_is_not_shown(model, case):
    with pytest.raises(InvalidInputError) as caught:
        model.fit(*CASES[case])
    assert "7319" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None  # a suppressed context still holds the foreign message


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
def test_a_score_that_is_refused_does_not_show_its_targets():
    model = sordino.LinearRegression(data_norm=1.0, target_bound=1.0).fit(X, Y)
    with pytest.raises(InvalidInputError) as caught:
        model.score(X, TEXT)
    assert "7319" not in str(caught.value)


@pytest.mark.parametrize("name", ["PCA", "LogisticRegression", "TruncatedMean", "PrivateStandardScaler"])
def test_the_password_of_a_ledger_is_in_no_text_and_no_pickle(name):
    made = getattr(sordino, name)
    for model in (made(ledger=URL), made().set_params(ledger=URL), clone(made(ledger=URL))):
        texts = [
            repr(model),
            str(model.get_params()),
            model._repr_html_(),
            pickle.dumps(model).decode("latin-1"),
        ]
        assert not any("sw0rdf1sh" in text for text in texts)
        assert model.ledger.reveal() == URL
