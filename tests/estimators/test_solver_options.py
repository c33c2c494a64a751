"""Options of solvers are entries of one dictionary, and of nothing else."""

import pytest
from sklearn.base import clone

import sordino
from sordino.saving.files import pack_value, unpack_value

KINDS = (
    (sordino.LogisticRegression, {"step_size": 0.1, "batch_size": 5}),
    (sordino.SparseLinearRegression, {"sampling": "fixed"}),
    (sordino.HeavyTailedRegressor, {"split": True}),
    (sordino.PCA, {"momentum": 0.5}),
)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_an_option_is_set_by_its_own_name_and_leaves_the_others(kind, options):
    named = {f"solver_options__{name}": value for name, value in options.items()}
    model = kind(solver_options={"other": 1}).set_params(**named)
    assert model.solver_options == clone(model).solver_options == {"other": 1, **options}
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        kind(**options)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_options_in_a_file_of_version_0_1_become_entries_of_solver_options(kind, options):
    node = pack_value(kind(solver_options={"other": 1}))
    node["params"] |= {"clip_norm": None, **options}
    assert unpack_value(node, None).solver_options == {"other": 1, **options}
