"""A search costs what it certifies: every trial stays inside its own budget, and only the best leaves."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from tests.runs.helpers import ADD, REPLACE, ask_of, memory, plan_of

import sordino
from sordino.accounting import certify, gaussian_epsilon
from sordino.errors import (
    CalibrationError,
    InvalidInputError,
    PlanError,
    SordinoError,
    UndeclaredBoundWarning,
    UnsupportedError,
)
from sordino.estimators import search as estimator_module
from sordino.kernel import Full, Gaussian, Relation, Release
from sordino.runs import BestOf, ChooseThenFit, Enclosure, Promise
from sordino.runs import search as search_module
from sordino.runs.promise import enclosing
from sordino.runs.search import CHOICE, SHAPES, Trial
from sordino.testing import seeded_noise_not_private


def made(epsilon=2.0, relation=ADD, distribution="geometric", mean=5.0):
    return BestOf.made(ask_of(epsilon, 1e-5), relation, distribution, mean)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("distribution", ["geometric", "poisson", "truncated-negative-binomial"])
def test_the_whole_search_is_certified_just_below_the_ask(relation, distribution):
    search = made(relation=relation, distribution=distribution)
    assert 0.99 * 2 < search.certificate.epsilon <= 2
    assert certify(search.event, 1e-5, relation).epsilon == search.certificate.epsilon
    trial = search.event.event
    assert trial.noise_multiplier == pytest.approx(search.scale * relation.contributions)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_a_score_has_the_noise_of_its_trial_and_not_half_of_it(relation):
    """The sum of scores moves by 1/2, or by 1 when a record is replaced."""
    with seeded_noise_not_private(4):
        search = made(relation=relation)
    trial = Trial(1.0, 1e-5, search.scale, relation, search.noise)
    n = 50
    scores = np.repeat([0.0, 1.0], n // 2)
    draws = np.array([trial.score(scores[:, None])[0] for _ in range(1500)])
    std = search.scale * 0.5 * relation.contributions / n
    for factor, accepted in ((1.0, True), (2 / 3, False), (1.5, False)):
        p = stats.kstest(draws, stats.norm(0.5, std * factor).cdf).pvalue
        assert bool(p > 1e-4) is accepted


def test_scores_are_clipped_and_counted_from_a_half():
    with seeded_noise_not_private(4):
        quiet = Trial(1.0, 1e-5, 1e-9, ADD, made().noise)
        found = quiet.score(np.array([[5.0, -5.0, 0.75], [np.nan, np.inf, 0.25]]))
    assert found == pytest.approx([0.5, 0.5, 0.5], abs=1e-6)


def test_a_trial_has_the_epsilon_of_its_gaussian():
    search, seen = made(), []
    search.run(lambda trial, _: (seen.append(trial) or np.zeros(1), None), None, "test")
    most = gaussian_epsilon(1 / search.scale, 1e-5)
    assert seen
    assert all(most * (1 - 1e-6) < trial.epsilon <= most for trial in seen)


def test_the_best_score_wins():
    scores = iter([0.3, 0.9, 0.5] + [0.1] * 1000)
    with seeded_noise_not_private(9):
        search = made(mean=60.0)
    found = search.run(lambda trial, _: (np.array([0.0, s := next(scores)]), f"model {s}"), None, "test")
    assert found == (0.9, 0, 1, "model 0.9")


def test_no_trial_means_nothing_is_released():
    for seed in range(20):
        with seeded_noise_not_private(seed):
            search = made(distribution="poisson", mean=1.0)
        if search.noise.trials(1.0, math.inf) == 0:
            break
    with seeded_noise_not_private(seed):
        search = made(distribution="poisson", mean=1.0)
    with pytest.raises(SordinoError, match="trials is 0"):
        search.run(lambda trial, _: (np.zeros(1), None), None, "test")


@pytest.mark.parametrize(("epsilon", "distribution"), [(math.inf, "geometric"), (1.0, "normal")])
def test_what_cannot_be_certified_is_refused(epsilon, distribution):
    with pytest.raises(InvalidInputError):
        made(epsilon, distribution=distribution)


def test_an_enclosure_counts_what_is_fitted_inside_and_refuses_more():
    around = Enclosure(1.0, ADD)
    with around.entered():
        Promise.given(ask_of(9.0), plan_of(1).at(1.25)).reserved("first")  # distance .8
        assert around.spent == pytest.approx(0.8)
        with pytest.raises(PlanError, match="planned are 1"):
            Promise.given(ask_of(9.0), plan_of(1).at(1 / 0.61)).reserved("second")
        Promise.given(ask_of(9.0), plan_of(1).at(1 / 0.59)).reserved("third")  # .8^2 + .59^2 < 1
    assert enclosing() is None


def test_an_enclosure_refuses_what_it_cannot_add_up(tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "l.db")
    ledger.create("a", sordino.BudgetPolicy(epsilon=9.0, delta=1e-3))
    with Enclosure(9.0, ADD).entered():
        with pytest.raises(UnsupportedError, match="published noise"):
            enclosing().admit(plan_of().at(50.0), None, printed=True)
        with pytest.raises(UnsupportedError, match="booked by itself"):
            Promise.made(ask_of(ledger=ledger, dataset_id="a"), plan_of()).reserved("x")
        with pytest.raises(UnsupportedError, match="replace-one"):
            Promise.made(ask_of(), plan_of(relation=REPLACE)).reserved("x")
        with pytest.raises(UnsupportedError, match="patient"):
            Promise.made(ask_of(), plan_of(unit="patient")).reserved("x")
        with pytest.raises(UnsupportedError, match="another one"), Enclosure(1.0, ADD).entered():
            pass
    assert ledger.history("a") == []


def test_a_trial_must_report_what_it_released_itself():
    trial = Trial(1.0, 1e-5, 2.0, ADD, made().noise)

    class Model:
        pass

    with pytest.raises(UnsupportedError, match="in this thread"):
        trial.fitted(Model)

    def elsewhere():
        """Return a model whose report says more than was released inside."""
        model = Model()
        Promise.given(ask_of(9.0), plan_of(1).at(4.0)).reserved("small")
        model.privacy_ = Promise.given(ask_of(9.0), plan_of(1).at(2.5)).report()
        return model

    with pytest.raises(UnsupportedError, match="in this thread"):
        trial.fitted(elsewhere)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_each_trial_trains_on_the_training_part_within_its_epsilon(relation, monkeypatch):
    """No record is both trained on and scored, and the relation of the search reaches every trial."""
    public = np.random.default_rng(0)
    X = public.normal(size=(500, 3)) / 3
    X[:, 2] = np.arange(500) / 5000  # a name for each record
    trained, scored, models = set(), set(), []

    class Spy(sordino.LogisticRegression):
        def fit(self, X, y):
            trained.update(np.round(X[:, 2] * 5000).astype(int))
            models.append(super().fit(X, y))
            return self

        def predict(self, X):
            scored.update(np.round(X[:, 2] * 5000).astype(int))
            return super().predict(X)

    how = {"relation": relation, "mean_trials": 4, "distribution": "geometric"}
    search = sordino.PrivateSearchCV(Spy(data_norm=1.5), {"fit_intercept": [True, False]}, 2.0, 1e-6, **how)
    search.fit(X, X[:, 0] > 0)
    assert scored
    assert not trained & scored
    assert len(trained) == 400
    scale = search.privacy_.event.event.noise_multiplier / Relation.parse(relation).contributions
    for model in models:
        if model is not search.best_estimator_:
            assert model.privacy_.relation.value == relation
            assert model.privacy_.epsilon <= gaussian_epsilon(1 / scale, 1e-6)
    assert estimator_module.BestOf is BestOf


@pytest.mark.parametrize("relation", [r.value for r in Relation])
def test_a_choice_and_the_fit_of_the_chosen_are_one_gaussian_release(relation):
    """Trials train on one part and score on the other; the last fit has all records and what is left."""
    public, fits, scored = np.random.default_rng(0), [], []
    X = public.normal(size=(500, 3)) / 3

    class Spy(sordino.LogisticRegression):
        def fit(self, X, y):
            fits.append((len(X), super().fit(X, y)))
            return self

        def predict(self, X):
            scored.append(len(X))
            return super().predict(X)

    grid = {"max_iter": [3, 5, 8]}
    search = sordino.PrivateSearchCV(Spy(data_norm=1.5), grid, 2.0, 1e-6, relation=relation)
    search.fit(X, X[:, 0] > 0)
    assert [rows for rows, _ in fits] == [400, 400, 400, 500]
    assert scored == [100, 100, 100]
    assert fits[-1][1] is search.best_estimator_
    spent = [1 / leaf.noise_multiplier**2 for leaf in (search.privacy_.event.events[0].event,) * 3]
    spent.append(1 / search.privacy_.event.events[1].noise_multiplier ** 2)
    whole = 1 / math.sqrt(sum(spent)) / Relation.parse(relation).contributions
    assert spent[-1] == pytest.approx((1.0 - CHOICE) * sum(spent))
    assert 1.98 < gaussian_epsilon(1 / whole, 1e-6) <= 2.0
    assert all(model.privacy_.epsilon < 1.0 for _, model in fits[:-1])
    *last, score = search.privacy_.releases  # what was really released, in units of its own noise
    assert sum(r.times / r.noise_multiplier**2 for r in last) <= (1.0 - CHOICE) / whole**2
    assert sum(r.times / r.noise_multiplier**2 for r in last) > 0.99 * (1.0 - CHOICE) / whole**2
    assert 3.0 / score.noise_multiplier**2 == pytest.approx(CHOICE / whole**2)
    assert search.privacy_.epsilon <= 2.0
    assert any("chosen from 3 candidates" in note for note in search.privacy_.notes)


def test_a_single_candidate_is_not_chosen_and_has_everything():
    one = ChooseThenFit.of(ask_of(2.0, 1e-5), ADD, 1)
    assert one.trial.scale == one.scale
    assert one.trial.epsilon == pytest.approx(2.0, rel=1e-3)
    found = one.run(lambda budget, number: (np.array([0.5]), number), lambda budget, best: 1 / 0, "one")
    assert found == (0.5, 0, 0, 0)


def test_the_interval_of_the_best_score_holds_its_mean_as_often_as_it_says():
    """Five candidates of equal worth: the best noisy score is the one that chance has favoured."""
    rng, hits, judges = np.random.default_rng(0), 0, 200
    with seeded_noise_not_private(3):
        search = ChooseThenFit.of(ask_of(2.0, 1e-5), ADD, 5)
        budget = search.trial
        for _ in range(200):
            best = max(budget.score((rng.random((judges, 1)) < 0.9).astype(float))[0] for _ in range(5))
            low, high = search.score_interval(best, judges)
            hits += low <= 0.9 <= high
    assert hits >= stats.binom.ppf(1e-4, 200, 0.93)


def test_an_outlook_is_free_and_says_what_a_fit_of_the_search_has():
    search = sordino.PrivateSearchCV(
        sordino.LogisticRegression(data_norm=1.0), {"max_iter": [10, 30]}, 1.0, 1e-5
    )
    few, many = search.outlook(500), search.outlook(50_000)
    assert "2 trials" in few
    assert "400 records" in few
    assert "fitted anew on all records with epsilon 0.8" in few
    assert few.split("differ by ")[1] != many.split("differ by ")[1]


def test_the_split_does_not_follow_the_order_of_the_records():
    """Sorted classes: with a split by position the validation part would hold one class only."""
    public = np.random.default_rng(0)
    X = public.normal(size=(800, 3)) / 3
    X = X[np.argsort(X[:, 0])]
    model = sordino.LogisticRegression(data_norm=1.5)
    with seeded_noise_not_private(2):
        search = sordino.PrivateSearchCV(model, {"max_iter": [20]}, 20.0, 1e-6, random_state=1)
        search.fit(X, X[:, 0] > 0)
    assert search.best_score_ > 0.75


def test_a_mean_of_one_release_is_what_the_enclosure_measures():
    release = Release(plan_of().releases["total"].query, Gaussian(2.0), Full(), 4)
    assert release.event(ADD, 60).count == 4
    with Enclosure(1.0, ADD).entered() as around:
        run = Promise.given(ask_of(9.0), plan_of(4).at(2.0)).reserved("four of distance 1/2")
        assert around.spent == pytest.approx(1.0)
        run.curate(memory()).release("total")


@pytest.mark.parametrize(("classes", "said"), [(None, "those seen in y"), ([False, True], "declared")])
def test_a_search_says_of_the_labels_what_its_user_declared(classes, said):
    """Trials are told the labels of all records, which is not a declaration of the user."""
    X = np.random.default_rng(0).normal(size=(300, 3)) / 3
    model = sordino.LogisticRegression(data_norm=1.5, classes=classes)
    search = sordino.PrivateSearchCV(model, {"max_iter": [3]}, 2.0, 1e-6).fit(X, X[:, 0] > 0)
    (line,) = [fact for fact in search.privacy_.public if fact.startswith("class labels")]
    assert said in line


def test_the_laws_of_the_number_of_trials_are_those_of_the_proof():
    assert {"geometric": 1.0, "poisson": math.inf, "truncated-negative-binomial": 0.5} == SHAPES


def test_a_trial_may_spend_its_own_distance_and_no_more():
    trial = Trial(1.0, 1e-5, 2.0, ADD, made().noise)

    def fitting(multiplier):
        class Model:
            privacy_ = None

        def fit():
            promise = Promise.given(ask_of(9.0), plan_of(1).at(multiplier))
            promise.reserved("fit")
            model = Model()
            model.privacy_ = promise.report()
            return model

        return fit

    assert trial.fitted(fitting(2.01)).privacy_ is not None
    with pytest.raises(PlanError, match=r"planned are 0\.5"):
        trial.fitted(fitting(1.5))
    trial.rehearse(fitting(2.01))
    with pytest.raises(PlanError, match=r"planned are 0\.5"):
        trial.rehearse(fitting(1.5))
    with pytest.raises(UnsupportedError, match="in this thread"):
        trial.rehearse(lambda: None)  # a fit that promises nothing is not Sordino's own


def test_a_rehearsal_says_what_was_not_declared_and_nothing_else():
    trial = Trial(1.0, 1e-5, 2.0, ADD, made().noise)

    def fit():
        warnings.warn("other", UserWarning, stacklevel=1)
        for _ in range(2):
            warnings.warn("undeclared", UndeclaredBoundWarning, stacklevel=1)
        Promise.given(ask_of(9.0), plan_of(1).at(3.0)).reserved("fit")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "undeclared", module="nowhere")
        trial.rehearse(fit)
    assert [str(w.message) for w in said] == ["undeclared", "undeclared"]


def test_a_calibration_of_a_search_that_is_wrong_is_not_believed(monkeypatch):
    monkeypatch.setattr(search_module, "solve_scale", lambda *arguments: 0.5)
    with pytest.raises(CalibrationError, match="The search certifies"):
        made()


@pytest.mark.parametrize("change", [{"unpaid": ("x",)}, {"unproven": ("x",)}, {"copied": True}])
def test_a_search_promises_nothing_for_a_trial_that_does_not(change):
    search = made()
    honest = Promise.given(ask_of(9.0), plan_of(1).at(9.0)).report()
    assert search.report(honest, ()).is_private
    with pytest.raises(UnsupportedError, match="what its trials do"):
        search.report(replace(honest, **change), ())


def test_a_seeded_trial_makes_no_private_search():
    with seeded_noise_not_private(1):
        seeded = Promise.given(ask_of(9.0), plan_of(1).at(9.0)).report()
    with pytest.raises(UnsupportedError, match="what its trials do"):
        made().report(seeded, ())


def test_a_search_is_booked_before_its_first_trial_and_settled_after_its_last(tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "l.db")
    ledger.create("a", sordino.BudgetPolicy(epsilon=9.0, delta=1e-3))

    def trial(budget, number):
        assert [e.status.value for e in ledger.history("a")] == ["reserved"]
        return np.zeros(1), None

    booked = BestOf.made(ask_of(2.0, 1e-5, ledger, "a"), ADD, "geometric", 3.0)
    booked.run(trial, None, "a search")
    (entry,) = ledger.history("a")
    assert (entry.status.value, entry.description) == ("settled", "a search")
    for ask in (ask_of(2.0, 1e-5, ledger=ledger), ask_of(2.0, 1e-5, dataset_id="a")):
        BestOf.made(ask, ADD, "geometric", 3.0).run(lambda *_: (np.zeros(1), None), None, "not booked")
    assert len(ledger.history("a")) == 1


def test_what_trials_warn_about_is_not_heard():
    def trial(budget, number):
        warnings.warn("their number would tell", UserWarning, stacklevel=1)
        return np.zeros(1), None

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made().run(trial, None, "test")


def test_the_noise_of_a_search_is_not_shown():
    search = made()
    assert "noise=" not in repr(search).replace("noise_multiplier=", "")
    assert "noise=" not in repr(search.trial)
    promise = Promise.made(ask_of(), plan_of())
    assert "NoiseSource" not in repr(promise)
    assert "process=" not in repr(promise)


def test_every_candidate_is_drawn():
    search, seen = BestOf.made(ask_of(2.0, 1e-5), ADD, "geometric", 200.0, 3), set()
    for _ in range(3):
        search.run(lambda _, number: (np.zeros(1), seen.add(number)), None, "test")
    assert seen == {0, 1, 2}
