"""Whatever is nested, searched or resumed, the report counts what was really released."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import StandardScaler
from tests.runs.helpers import ask_of, memory, plan_of

import sordino
from sordino.accounting import certify
from sordino.errors import SordinoError
from sordino.kernel import Curator, Relation
from sordino.problems.robust import RobustSum
from sordino.runs import RoundBook
from sordino.runs.promise import enclosing

DELTA = 1e-5
EPSILONS = st.sampled_from([0.1, 0.3, 1.0, 4.0])
X = np.random.default_rng(3).normal(size=(300, 3)) / 3
Y = (X[:, 0] > 0).astype(int)


@contextmanager
def spied():
    """Collect the events of everything that a curator answers outside of a private search."""
    seen, count = [], Curator._count

    def counted(self, name):
        release, position = count(self, name)
        if enclosing() is None and not (name == "scores" and isinstance(release.query, RobustSum)):
            seen.append(release.mechanism.event(self.plan.relation))
        return release, position

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Curator, "_count", counted)
        yield seen


def scaler(epsilon):
    return sordino.PrivateStandardScaler(epsilon=epsilon, delta=DELTA, data_norm=1.5)


def weights(epsilon):
    return sordino.PrivateColumnWeights(epsilon=epsilon, delta=DELTA, data_norm=1.5)


def axes(epsilon):
    return sordino.PCA(2, epsilon=epsilon, delta=DELTA, data_norm=1.5, solver="gauss", center=False)


def model(epsilon):
    return sordino.LogisticRegression(epsilon=epsilon, delta=DELTA, data_norm=1.5, classes=[0, 1])


def search(epsilon):
    return sordino.PrivateSearchCV(model(9.0), {"max_iter": [2, 4]}, epsilon, DELTA, mean_trials=3)


LEAVES = st.one_of(
    st.builds(scaler, EPSILONS),
    st.builds(weights, EPSILONS),
    st.builds(axes, EPSILONS),
    st.just("passthrough"),
    st.builds(sordino.RowClipper, data_norm=st.just(1.5)),
)


def grown(children):
    """Return trees one level deeper: pipelines, unions, columns."""
    several = st.lists(children, min_size=1, max_size=3)
    return st.one_of(
        several.map(lambda parts: Pipeline([(f"p{i}", part) for i, part in enumerate(parts)])),
        several.map(lambda parts: FeatureUnion([(f"u{i}", part) for i, part in enumerate(parts)])),
        several.map(
            lambda parts: ColumnTransformer([(f"c{i}", part, slice(0, 2)) for i, part in enumerate(parts)])
        ),
    )


TREES = st.recursive(LEAVES, grown, max_leaves=5)
FINALS = st.one_of(st.builds(model, EPSILONS), st.builds(search, st.sampled_from([1.0, 3.0])))


@settings(max_examples=25)
@given(tree=TREES, final=FINALS)
def test_a_tree_of_steps_reports_exactly_what_it_released(tree, final):
    with spied() as seen:
        pipe = Pipeline([("tree", tree), ("final", final)]).fit(X, Y)
    events = [*seen, final.privacy_.event] if isinstance(final, sordino.PrivateSearchCV) else seen
    true = certify(dp.ComposedDpEvent(events), DELTA, Relation.ADD_REMOVE).epsilon
    report = sordino.pipeline_privacy(pipe, DELTA)
    assert report.status == "private"
    assert report.epsilon == pytest.approx(true, rel=1e-6)


@settings(max_examples=8)
@given(tree=TREES)
def test_one_step_that_reads_the_rows_unpaid_spoils_the_whole_wherever_it_hides(tree):
    inside = Pipeline([("deep", FeatureUnion([("ok", "passthrough"), ("bad", StandardScaler())]))])
    pipe = Pipeline([("tree", tree), ("inside", inside), ("final", model(1.0))]).fit(X, Y)
    report = sordino.pipeline_privacy(pipe)
    assert not report.is_private
    assert "inside__deep__bad" in report.unpaid[0]


@dataclass(frozen=True)
class Recipe:
    """Four rounds of two releases each."""

    digest: str = "recipe"
    rounds: int = 4


ACTIONS = st.lists(
    st.sampled_from(["round", "crash before", "crash between", "another run", "cut", "less noise", "close"]),
    max_size=12,
)


@settings(max_examples=60)
@given(actions=ACTIONS)
def test_rounds_never_release_more_than_was_paid_whatever_happens_between(actions, tmp_path_factory):
    """Crashes, torn lines and edited files may lose rounds; they never buy one."""
    folder, answered = Path(tmp_path_factory.mktemp("book")), 0
    for action in actions:
        book = RoundBook(folder, ask_of(), Recipe(), plan_of(times=8))
        if action == "less noise" and (folder / "run.json").exists():
            text = json.loads((folder / "run.json").read_text())
            text["multipliers"]["total"] /= 3
            (folder / "run.json").write_text(json.dumps(text))
        if action == "cut" and (folder / "rounds").exists():
            with open(folder / "rounds", "ab") as file:
                file.write(b"3")
        try:
            if action == "close":
                book.close("one")
                continue
            with book.turn("two" if action == "another run" else "one") as turn:
                if action == "crash before":
                    raise KeyboardInterrupt
                curator = turn.curate(memory(), 2)
                curator.release("total")
                answered += 1
                if action == "crash between":
                    raise KeyboardInterrupt
                curator.release("total")
                answered += 1
                assert turn.report.epsilon <= 1.5
        except (SordinoError, KeyboardInterrupt):
            pass
        assert answered <= 8


def test_an_edited_noise_of_a_round_book_is_refused(tmp_path):
    book = RoundBook(tmp_path, ask_of(), Recipe(), plan_of(times=8))
    with book.turn("one"):
        pass
    text = json.loads((tmp_path / "run.json").read_text())
    text["multipliers"]["total"] /= 3
    (tmp_path / "run.json").write_text(json.dumps(text))
    with pytest.raises(SordinoError, match="another plan"), book.turn("one"):
        pass


def test_a_copied_folder_buys_no_rounds(tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=3.0, delta=1e-3))
    ask = ask_of(ledger=ledger, dataset_id="ward")
    book = RoundBook(tmp_path / "one", ask, Recipe(), plan_of(times=8))
    with book.turn("run") as turn:
        turn.curate(memory(), 2).release("total")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with book.turn("run") as turn:
        turn.curate(memory(), 2).release("total")
    late = RoundBook(tmp_path / "copy", ask, Recipe(), plan_of(times=8))
    with pytest.raises(SordinoError, match="this copy of the run knows"), late.turn("run"):
        pass
    with book.turn("run") as turn:
        assert turn.attempt == 2
