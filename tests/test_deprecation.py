"""What goes says so first, and still works."""

import pytest
from sklearn.base import clone

import sordino


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (
            sordino.LogisticRegression,
            {"step_size": 0.1, "batch_size": 5},
            {"step_size": 0.1, "batch_size": 5},
        ),
        (sordino.SparseLinearRegression, {"sampling": "fixed"}, {"sampling": "fixed"}),
        (sordino.HeavyTailedRegressor, {"split": True, "threshold": None}, {"split": True}),
        (sordino.PCA, {"momentum": 0.5}, {"momentum": 0.5}),
    ],
)
def test_options_of_solvers_that_were_parameters_warn_and_work(kind, old, new):
    with pytest.warns(FutureWarning, match="goes in version 0.3. Use solver_options"):
        model = kind(**old)
    assert model.solver_options == new
    assert not set(old) & set(model.get_params(deep=False))
    assert clone(model).solver_options == new
    with pytest.warns(FutureWarning, match="solver_options"):
        assert kind(solver_options={"other": 1}).set_params(**old).solver_options == {"other": 1, **new}
    assert (
        kind().set_params(**{f"solver_options__{name}": v for name, v in new.items()}).solver_options == new
    )


def test_parameters_of_an_old_file_are_folded_without_a_word():
    moved = sordino.LogisticRegression._moved
    params = {"alpha": 0.1, "step_size": None, "clip_norm": 0.4, "solver_options": {"epochs": 3}}
    folded = moved.fold(params, warn=False)
    assert folded == {"alpha": 0.1, "solver_options": {"epochs": 3, "clip_norm": 0.4}}
