"""A line of the history says which model was released: it costs nothing, stays, and is in every receipt."""

import multiprocessing
from dataclasses import replace

import numpy as np
import pytest
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from tests.ledger.helpers import gaussian, reserve

import sordino
from sordino.errors import LedgerCorruptError, LedgerWarning
from sordino.kernel import public_generator
from sordino.kernel.events import compose_events
from sordino.ledger import BudgetPolicy, Ledger
from sordino.ledger.account import Account
from sordino.ledger.ledger import replay, verify_records
from sordino.ledger.store import Dataset
from sordino.report import report_html
from sordino.saving.files import released_digests


def test_a_settled_reservation_gets_the_digest_of_its_model_once_and_for_nothing(ledger):
    reserve(ledger).settle()
    before = ledger.spent("survey")
    for digest in ("ab", "ab", "cd"):  # saved twice, then edited and saved
        ledger.attest("survey", gaussian(), [digest])
    assert ledger.models("survey") == {"ab": (1,)}
    assert len(ledger.history("survey")) == 2
    assert ledger.spent("survey").reservations == 1
    after = ledger.spent("survey")
    assert (after.fraction, after.epsilon) == (before.fraction, before.epsilon)
    assert ledger.verify().reservations == 1


@pytest.mark.parametrize("mode", ["basic", "full"])
def test_a_budget_that_is_used_up_still_takes_the_digest(tmp_path, mode):
    with Ledger.open(tmp_path / "full.db") as ledger:
        ledger.create("survey", BudgetPolicy(0.3, 1e-6 if mode == "basic" else 1e-5))
        reserve(ledger, certificate=(0.3, 1e-6)).settle()
        while mode == "full":
            try:
                reserve(ledger).settle()
            except sordino.errors.BudgetExceededError:
                break
        ledger.attest("survey", gaussian(), ["ab"])
        assert "ab" in ledger.models("survey")
        ledger.verify()


def test_what_is_pending_failed_or_of_another_process_is_not_attested(ledger, address):
    reserve(ledger).fail("Error")
    pending = reserve(ledger)
    ledger.attest("survey", gaussian(), ["ab"])
    assert ledger.models("survey") == {}
    pending.settle()
    child = multiprocessing.get_context("spawn").Process(target=_attest, args=(str(address), "forged"))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert ledger.models("survey") == {}
    ledger.attest("survey", gaussian(), ["ab"])
    assert ledger.models("survey") == {"ab": (2,)}


def _attest(address, digest):
    """Try all ways to write a digest for a reservation that another process made."""
    with Ledger.open(address, create=False) as ledger:
        ledger.attest("survey", gaussian(), [digest])
        event = sordino.ledger.ledger.dp.NoOpDpEvent()
        said = {"description": "model of reservation 2", "plan_digest": digest, "certificate": (0.0, 0.0)}
        ledger.reserve("survey", event, relation="add-remove", unit="record", **said).settle()


def test_parts_of_a_pipeline_get_one_line_together(ledger):
    for multiplier in (20.0, 30.0):
        reserve(ledger, gaussian(multiplier)).settle()
    ledger.attest("survey", compose_events([gaussian(20.0), gaussian(30.0)]), ["ab"])
    assert ledger.models("survey") == {"ab": (1, 2)}


def test_an_export_carries_what_was_attested(ledger, tmp_path):
    reserve(ledger).settle()
    ledger.attest("survey", gaussian(), ["ab"])
    with Ledger.open(tmp_path / "copy.db") as copy:
        copy.import_json(ledger.to_json())
        assert copy.models("survey") == ledger.models("survey") == {"ab": (1,)}
        copy.verify()


@pytest.mark.parametrize("forgery", ["another digest", "gone"])
def test_a_receipt_shows_a_digest_that_was_exchanged_or_dropped(ledger, forgery):
    reserve(ledger).settle()
    ledger.attest("survey", gaussian(), ["ab"])
    (receipt,) = ledger.verify().receipts
    with ledger._store.transaction(write=False) as store:
        owners = {"survey": store.owners_of("survey")}

    def records(entries):
        account = ledger.account("survey")
        again = replay(Account(account.policy, account.filter), entries)
        return [(Dataset("survey", again, "2026-01-01"), entries)]

    booked, line = ledger.history("survey")
    verify_records(records([booked, line]), [receipt], owners)
    forged = [booked, replace(line, plan_digest="cd")] if forgery == "another digest" else [booked]
    verify_records(records(forged), (), owners)
    with pytest.raises(LedgerCorruptError, match="edited, deleted, moved or cut off"):
        verify_records(records(forged), [receipt], owners)


def test_the_end_of_a_fit_attests_its_model_and_a_changed_or_loaded_one_never_is(ledger, tmp_path):
    model = sordino.PCA(1, epsilon=0.5, delta=1e-6, data_norm=2.0, ledger=ledger, dataset_id="survey")
    with pytest.warns(sordino.errors.FitWarning):
        model.fit(np.eye(50, 3))
    (digest,) = released_digests(model)
    assert ledger.models("survey") == {digest: (1,)}
    model.components_ = -model.components_  # before it was ever saved
    model.save(tmp_path / "edited.sordino")
    assert ledger.files("survey") == {}
    model.components_ = -model.components_
    model.save(tmp_path / "axes.sordino")
    again = sordino.load(tmp_path / "axes.sordino")
    assert ledger.files("survey") == {again.privacy_.file: (1,)}
    again.components_ = -again.components_
    again.set_params(ledger=ledger, dataset_id="survey")
    again.save(tmp_path / "copy.sordino")
    assert ledger.models("survey") == {digest: (1,)}
    assert len(ledger.files("survey")) == 1


@pytest.mark.parametrize("edit", ["none", "least squares", "zeros"])
def test_numbers_that_change_between_the_fit_and_the_save_are_not_confirmed(tmp_path, edit):
    ledger = Ledger.open(tmp_path / "budget.db")
    ledger.create("survey", BudgetPolicy(5.0, 1e-5))
    X = public_generator(3).uniform(-1, 1, size=(400, 2))
    y = X @ [0.5, -0.3]
    terms = {"data_norm": 1.5, "target_bound": 1.0, "ledger": ledger, "dataset_id": "survey"}
    steps = [("flip", FunctionTransformer(np.negative)), ("model", sordino.LinearRegression(1.0, **terms))]
    pipe = Pipeline(steps).fit(X, y)
    model = sordino.LinearRegression(1.0, **terms).fit(X, y)
    for one in (model, pipe):
        inner = one if one is model else one.steps[-1][1]
        if edit != "none":
            inner.coef_ = np.zeros(2) if edit == "zeros" else np.linalg.lstsq(X, y)[0]
        told = [report_html(one, ledger=ledger, dataset_id="survey").standing]  # in Python as from a file
        if one is model:
            one.save(tmp_path / "m.sordino")
            told.append(
                report_html(sordino.load(tmp_path / "m.sordino"), ledger=ledger, dataset_id="survey").standing
            )
        for standing in told:
            assert standing.denied == (edit != "none")
            assert ("this model is NOT the one that the ledger knows" in standing.line) == (edit != "none")
            assert "releases" in standing.line


@pytest.mark.parametrize("edit", ["none", "public", "notes", "unit of the noise"])
def test_a_report_that_changes_between_the_fit_and_the_save_is_not_confirmed(tmp_path, edit):
    ledger = Ledger.open(tmp_path / "budget.db")
    ledger.create("survey", BudgetPolicy(5.0, 1e-5))
    X = public_generator(3).uniform(-1, 1, size=(400, 2))
    terms = {"data_norm": 1.5, "target_bound": 1.0, "ledger": ledger, "dataset_id": "survey"}
    model = sordino.LinearRegression(1.0, **terms).fit(X, X @ [0.5, -0.3])
    edits = {
        "none": {},
        "public": {"public": ("nothing",)},
        "notes": {"notes": ("Approved by the supervisory authority.",)},
        "unit of the noise": {"noise_source": "a lottery"},
    }
    model.privacy_ = replace(model.privacy_, **edits[edit])  # before it was ever saved
    told = [report_html(model, ledger=ledger, dataset_id="survey").standing]
    model.save(tmp_path / "m.sordino")
    again = sordino.load(tmp_path / "m.sordino")
    told.append(report_html(again, ledger=ledger, dataset_id="survey").standing)
    for standing in told:
        assert standing.denied == (edit != "none")
        assert ("this report is NOT the one that the ledger knows" in standing.line) == (edit != "none")
        assert "releases and model" in standing.line or "releases, model and file" in standing.line


def test_a_line_of_an_older_version_has_no_digest_of_the_report_and_still_knows_the_model(
    tmp_path, monkeypatch
):
    ledger = Ledger.open(tmp_path / "budget.db")
    ledger.create("survey", BudgetPolicy(5.0, 1e-5))
    attest = Ledger.attest
    monkeypatch.setattr(
        Ledger, "attest", lambda book, d, e, s, *f: attest(book, d, e, [o[:64] for o in s], *f)
    )
    terms = {"epsilon": 0.5, "data_norm": 2.0, "ledger": ledger, "dataset_id": "survey"}
    model = sordino.PrivateStandardScaler(**terms).fit(np.eye(50, 3))
    page = report_html(model, ledger=ledger, dataset_id="survey")
    assert page.standing.booked.endswith("releases and model")
    assert not page.standing.denied


def test_both_private_steps_of_a_pipeline_are_told_one_by_one_and_its_file_with_both(ledger, tmp_path):
    X = public_generator(3).uniform(-1, 1, size=(400, 2))
    booked = {"ledger": ledger, "dataset_id": "survey", "epsilon": 0.3, "data_norm": 1.5}
    steps = [("scale", sordino.PrivateStandardScaler(**booked)), ("model", sordino.PCA(1, **booked))]
    pipe = Pipeline(steps).fit(X)
    assert list(ledger.models("survey").values()) == [(1,), (3,)]
    sordino.save(pipe, tmp_path / "pipe.sordino")
    assert list(ledger.files("survey").values()) == [(1, 3)]
    again = sordino.load(tmp_path / "pipe.sordino")
    page = report_html(again, ledger=ledger, dataset_id="survey")
    assert page.standing.booked.endswith("reservations 1, 3: releases, model and file")
    again.steps[0][1].scale_ = again.steps[0][1].scale_ * 2
    assert report_html(again, ledger=ledger, dataset_id="survey").standing.denied


def test_a_ledger_out_of_reach_is_a_warning_and_the_model_is_saved(tmp_path):
    ledger = Ledger.open(tmp_path / "budget.db")
    ledger.create("survey", BudgetPolicy(1.0, 1e-5))
    model = sordino.PCA(1, epsilon=0.5, delta=1e-6, data_norm=2.0, ledger=ledger, dataset_id="survey")
    with pytest.warns(sordino.errors.FitWarning):
        model.fit(np.eye(50, 3))
    ledger.close()
    with pytest.warns(LedgerWarning, match="which model"):
        model.save(tmp_path / "axes.sordino")
    assert sordino.load(tmp_path / "axes.sordino").n_features_in_ == 3


def test_the_model_of_a_search_is_attested_under_the_ledger_of_the_search(ledger, tmp_path):
    rows = np.tile(np.eye(3), (200, 1))
    bounds = {"data_norm": 1.0, "classes": [0, 1]}
    search = sordino.PrivateSearchCV(
        sordino.LogisticRegression(**bounds),
        {"alpha": [0.0, 0.1]},
        0.5,
        1e-6,
        ledger=ledger,
        dataset_id="survey",
    )
    best = search.fit(rows, rows[:, 0] > 0.5).best_estimator_
    sordino.save(best, tmp_path / "best.sordino")
    assert ledger.models("survey") == dict.fromkeys(
        released_digests(sordino.load(tmp_path / "best.sordino")), (1,)
    )
    assert report_html(search, ledger=ledger, dataset_id="survey").standing.booked.endswith("and model")
