"""A joint plan is an estimator's name and parameters, and a member receives that estimator, fitted."""

import numpy as np
import pytest
from tests.parties.helpers import Consortium

import sordino
from sordino.errors import InvalidInputError
from sordino.parties.mpc.plan import ESTIMATORS, joint_task

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "relation": "add-remove"}
PARAMS = {"classes": ["ill", "well"], "data_norm": 1.0, "solver": "gd", "max_iter": 3}
TASK = {"estimator": "LogisticRegression", "features": 4, "params": PARAMS}


def test_a_member_receives_a_model_that_predicts_saves_and_reports(tmp_path):
    three = Consortium(tmp_path, task=TASK)
    for name in ("north", "south", "west"):
        path = tmp_path / name / "data.npz"
        with np.load(path) as data:
            x, y = data["X"], np.where(data["y"] > 0, "well", "ill")
        np.savez(path, X=x, y=y)
    codes, said = three.run()
    assert codes == [0, 0, 0], said
    models = [sordino.load(three.state(i) / "model.sordino") for i in range(3)]
    for model in models:
        assert type(model) is sordino.LogisticRegression
        assert model.get_params()["classes"] == PARAMS["classes"]
        assert set(model.predict(x)) <= {"ill", "well"}
        assert model.predict_proba(x).shape == (60, 2)
        assert 0.98 < model.privacy_.epsilon <= 1.0
        assert "number of records of south: 60" in model.privacy_.public
        assert model.n_iter_ == 3
    assert np.array_equal(models[0].coef_, models[2].coef_)
    again = sordino.load(models[1].save(tmp_path / "copy.sordino"))
    assert np.array_equal(again.predict(x), models[1].predict(x))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_task_plans_what_the_estimator_of_its_name_plans(name):
    own = {"PCA": {"n_components": 2, "solver": "power"}}.get(name, {"solver": "auto"})
    if name != "PCA":
        own |= (
            {"target_bound": 3.0} if "Regression" in name and "Logistic" not in name else {"classes": [0, 1]}
        )
    params = {"data_norm": 2.0, "random_state": 0, **own}
    _, task = joint_task({"estimator": name, "features": 5, "params": params}, 300, BUDGET)
    public = np.random.default_rng(1)
    rows, targets = public.standard_normal((300, 5)), public.integers(0, 2, 300)
    model = ESTIMATORS[name](**params, **BUDGET).fit(rows, targets)
    assert [r.name for r in model.privacy_.releases] == list(task.plan().releases)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"estimator": "NeuralClassifier"}, "estimator"),
        ({"estimator": ["LogisticRegression"]}, "estimator"),
        ({"features": 0}, "features"),
        ({"method": "objective"}, "method"),
        ({"params": {**PARAMS, "ledger": "elsewhere.sqlite"}}, "ledger"),
        ({"params": {**PARAMS, "epsilon": 9.0}}, "epsilon"),
        ({"params": {**PARAMS, "noise": "paper"}}, "noise"),
        ({"params": {**PARAMS, "n_components": 2}}, "TypeError"),
        ({"params": {**PARAMS, "max_iter": 10**9}}, "max_iter"),
        ({"params": {"data_norm": 1.0}}, "classes"),
        ({"params": {"classes": [0, 1]}}, "data_norm"),
        ({"estimator": "LinearRegression", "params": {"data_norm": 1.0}}, "target_bound"),
        ({"params": {**PARAMS, "solver": "no-such"}}, "solver"),
        ({"method": "output"}, "alpha > 0"),
        ({"kind": "gradient"}, "kind"),  # the words of version 0.1
    ],
)
def test_words_that_no_plan_may_use_are_refused(change, words):
    with pytest.raises(InvalidInputError, match=words):
        joint_task({**TASK, **change}, 180, BUDGET)
