"""From a file to a model file and on: fit, predict, inspect, report, tune, pca."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pandas
import pytest
from tests.cli.helpers import FIT, SECRET, WIDE, named, table, typed, typed_json, write_csv

import sordino
from sordino.estimators.metrics import METRICS
from sordino.saving import about
from sordino.tables import Number, Person, Target


def test_a_model_is_fitted_booked_and_saved(model, folder):
    saved = sordino.load(model)
    X, y = table()
    assert np.mean(saved.predict(named(X)) == y) > 0.9
    assert list(saved.feature_names_in_) == list("abcd")
    with sordino.Ledger.open(folder / "budget.db") as ledger:
        entry, line, file = ledger.history("people")
        assert ledger.models("people") == {line.plan_digest: (1,)}
        assert ledger.files("people") == {file.plan_digest: (1,)}
    assert entry.status.value == "settled"
    run = about(model)["about"]["run"]
    assert run["settings"]["epsilon"] == 2.0
    assert run["settings"]["set"] == ["data_norm=3"]
    assert "ledger" not in run["settings"]
    assert (run["rows"], run["dataset"]) == (800, "people")


def test_json_has_the_same_numbers(folder):
    found = typed_json("fit", "people.csv", *FIT, "--output", "m.sordino")
    assert found["privacy"]["epsilon"] == sordino.load("m.sordino").privacy_.epsilon
    assert found["model"] == "LogisticRegression"


def test_a_fit_without_a_ledger_says_so(folder):
    assert "booked on no ledger" in typed("fit", "people.csv", *FIT, "--output", "m.sordino")


def test_standard_input_and_other_formats_are_read(folder):
    X, y = table()
    text = (folder / "people.csv").read_text()
    typed("fit", "-", *FIT, "--output", "a.sordino", stdin=text)
    np.savez("people.npz", X=X, y=y)
    npz = ("fit", "people.npz", "--model", "logistic", "--set", "data_norm=3", "--epsilon", 2)
    typed(*npz, "--output", "b.sordino")
    assert sordino.load("b.sordino").n_features_in_ == 4
    lines = [
        f"{int(label == 'yes')} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(row))
        for row, label in zip(X, y)
    ]
    (folder / "people.svm").write_text("\n".join(lines))
    typed("fit", "people.svm", *npz[2:], "--features", 4, "--classes", "0,1", "--output", "c.sordino")
    assert np.mean(sordino.load("c.sordino").predict(X) == (y == "yes")) > 0.9


def test_predictions_are_a_csv_in_the_order_of_the_rows(model, folder):
    X, _ = table(40, seed=6)
    write_csv(folder / "new.csv", X)
    fitted = sordino.load(model)
    lines = typed("predict", model, "new.csv", "--proba").splitlines()
    assert lines[0] == "prediction,probability of no,probability of yes"
    assert [line.split(",")[0] for line in lines[1:]] == list(fitted.predict(named(X)))
    assert float(lines[1].split(",")[2]) == pytest.approx(fitted.predict_proba(named(X))[0, 1])
    typed("predict", model, "new.csv", "--output", "out.csv")
    assert (folder / "out.csv").read_text().splitlines()[1:] == list(fitted.predict(named(X)))
    assert typed_json("predict", model, "new.csv")["predictions"]["prediction"] == list(
        fitted.predict(named(X))
    )


def test_columns_go_by_their_names_whatever_their_order(model, folder):
    X, _ = table(40, seed=6)
    (folder / "mixed.csv").write_text(
        "\n".join(["d,extra,b,a,c", *(f"{d},9,{b},{a},{c}" for a, b, c, d in X), ""])
    )
    assert typed("predict", model, "mixed.csv").split()[1:] == list(sordino.load(model).predict(named(X)))


def test_inspect_shows_the_guarantee_and_what_could_be_noise(model):
    text = typed("inspect", model)
    assert "any output is as likely" in text
    found = typed_json("inspect", model)
    small = [entry for entry in found["coefficients"] if abs(entry["value"]) <= entry["two sigma"]]
    assert text.count("could be noise") == len(small)
    assert [entry["name"] for entry in found["coefficients"]][:2] in (["a", "b"], ["b", "a"])
    assert all(entry["two sigma"] > 0 for entry in found["coefficients"])


def test_a_model_of_few_records_is_called_a_constant(folder):
    X, _ = table(158)
    write_csv(folder / "few.csv", X, X[:, 0])
    words = ("--model", "linear", "--target", "y", "--set", "data_norm=3", "--set", "target_bound=3")
    text = typed("fit", "few.csv", *words, "--epsilon", 0.3, "--output", "few.sordino")
    assert text.count("so the model is the mean of the targets, known to") == 1
    text = typed("inspect", "few.sordino")
    assert "the model is a constant" in text
    assert "could be noise" not in text


def test_targets_that_pile_up_at_a_bound_ask_for_wider_bounds():
    """The advice was "tighter bounds of the targets" where 88 % of them were clipped."""
    public = np.random.default_rng(2)
    X, y = public.uniform(-0.5, 0.5, (4000, 3)), public.uniform(8.0, 9.0, 4000)
    for bound, words in (
        (2.0, "other bounds of the targets: their released mean lies at the bound 2. Where"),
        (9e4, "tighter"),
    ):
        model = sordino.LinearRegression(0.3, 1e-6, data_norm=1.0, target_bound=bound)
        with pytest.warns(sordino.errors.FitWarning, match=words):
            model.fit(X, y)


def test_levels_that_are_texts_of_numbers_say_so():
    schema = sordino.Schema([Number("x", low=-1, high=1), Target("y", levels=["0", "1"])])
    x = np.linspace(-1, 1, 400)
    table = {"x": x, "y": (x > 0).astype(int)}
    with pytest.warns(sordino.errors.FitWarning, match="predict returns texts"):
        sordino.LogisticRegression(4.0, 1e-6, schema=schema).fit(table)


def test_the_report_shows_score_settings_command_and_booking(model, booked, folder):
    typed("evaluate", model, "people.csv", "--target", "y", "--epsilon", 1, *booked, "--output", "score.json")
    typed("report", model, "--scores", "score.json", *booked, "--output", "page.html")
    page = (folder / "page.html").read_text("utf-8")
    for words in (
        "reservation 1",
        "accuracy",
        "data_norm=3",
        "sordino fit people.csv",
        "people.csv, 800 records of it",
    ):
        assert words in page
    assert f"Saved by</dt><dd>Sordino {sordino.__version__}" in page
    assert "exists" in typed("report", model, "--output", "page.html", code=3)
    (folder / "no-score.json").write_text("{}")
    assert "evaluate" in typed("report", model, "--scores", "no-score.json", "--output", "p2.html", code=3)


def test_a_page_written_by_the_fit_itself_is_no_copy(folder, booked):
    typed("fit", "people.csv", *FIT, *booked, "--output", "m.sordino", "--report", "page.html")
    page = (folder / "page.html").read_text("utf-8")
    assert "unverified copy" not in page.lower()
    assert "reservation 1" in page
    again = ("fit", "people.csv", *FIT, *booked, "--output", "n.sordino", "--report", "page.html")
    assert "exists" in typed(*again, code=3)


def test_tune_chooses_for_one_price(folder, booked):
    words = ("tune", "people.csv", *FIT[:-2], "--epsilon", 3, *booked, "--grid", "alpha=[.001, 10.0]")
    words = (*words, "--set", "penalty=ridge")
    found = typed_json(*words, "--trials", 3, "--output", "t.sordino", "--report", "t.html")
    assert "chosen by the search" in (folder / "t.html").read_text("utf-8")
    assert found["run"]["chosen"]["alpha"] in (0.001, 10.0)
    assert 2.9 < found["privacy"]["epsilon"] <= 3
    with sordino.Ledger.open("budget.db") as ledger:
        assert ledger.spent("people").reservations == 1
        assert list(ledger.models("people").values()) == [(1,)]


def test_tune_names_its_metric_and_gives_losses_in_their_units_with_the_low_end_first(folder):
    """The interval of a loss was printed from high to low, and the usual score was a share without a name."""
    rows, _ = table(200)
    write_csv(folder / "sums.csv", rows, 100.0 * rows[:, 0])
    schema = [*(Number(name, -3, 3) for name in "abcd"), Target("y", low=-300, high=300)]
    sordino.Schema(schema).write("sums.toml")
    words = ("tune", "sums.csv", "--schema", "sums.toml", "--epsilon", 1, "--grid", "alpha=[0.1]")
    run = typed_json(*words, "--output", "t.sordino")["run"]
    low, high = run["score at 95 %"]
    assert run["metric"] == "mse"
    assert 0 <= low <= run["noisy score"] <= high <= 300**2
    assert high > 1
    assert "noisy score (mae): " in typed(*words, "--metric", "mae", "--output", "u.sordino")
    means = "|".join(name for name, row in METRICS.items() if row.loss is not None)
    assert f"[{means}]" in typed("tune", "--help")


def test_pca_saves_axes(folder):
    write_csv(folder / "rows.csv", table()[0])
    words = ("--components", 2, "--data-norm", 3, "--epsilon", 2, "--output", "p.sordino")
    typed("pca", "rows.csv", *words, "--report", "p.html")
    assert "Scree" in (folder / "p.html").read_text("utf-8")
    assert sordino.load("p.sordino").components_.shape == (2, 4)
    assert "component 1" in typed("inspect", "p.sordino")


def test_persons_are_protected_by_every_command(folder):
    X, y = table()
    np.savez("visits.npz", X=X, y=y, groups=np.arange(len(X)) // 4)
    words = ("--epsilon", 4, "--output", "v.sordino", "--force")
    found = typed_json("fit", "visits.npz", *words, "--model", "logistic", "--set", "data_norm=3")
    assert found["privacy"]["unit"] == "person"
    heavy = typed_json("fit", "visits.npz", *words, "--model", "heavy-classifier")
    assert heavy["privacy"]["unit"] == "person"
    grid = ("--model", "logistic", "--grid", "alpha=[1, 2]")
    tuned = typed_json("tune", "visits.npz", *words, *grid, "--set", "data_norm=3")
    assert tuned["privacy"]["unit"] == "person"
    axes = typed_json("pca", "visits.npz", *words, "--data-norm", 3)
    assert axes["privacy"]["unit"] == "person"
    schema = sordino.Schema([Number("a", -3, 3), Number("b", -3, 3), Person("c")])
    schema.write("persons.toml")
    named(X).assign(c=np.arange(len(X)) // 4)[["a", "b", "c"]].to_csv("owned.csv", index=False)
    axes = typed_json("pca", "owned.csv", "--schema", "persons.toml", *words)
    assert axes["privacy"]["unit"] == "person"
    assert "rows" not in axes["run"]


# ------------------------------------------------------------------------------------- one configuration file


def test_a_configuration_holds_the_whole_run_and_what_is_typed_wins(folder, booked):
    (folder / "run.toml").write_text(
        'ledger = "budget.db"\ndataset = "people"\ntarget = "y"\n'
        '[fit]\ndata = "people.csv"\nmodel = "logistic"\nepsilon = 1.0\nset = ["data_norm=3"]\n'
        'classes = "no,yes"\noutput = "m.sordino"\n[evaluate]\nepsilon = 1.0\n'
    )
    typed("fit", "--config", "run.toml", "--epsilon", 2)
    assert sordino.load("m.sordino").epsilon == 2.0
    found = typed_json("evaluate", "m.sordino", "people.csv", "--config", "run.toml")
    assert found["privacy"]["epsilon"] <= 1
    with sordino.Ledger.open("budget.db") as ledger:
        assert ledger.spent("people").reservations == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[fit]\nepsilom = 1\n", "'epsilom' is no option"),
        ("colour = 1\n", "'colour' is no option"),
        ("[fit\n", "no TOML"),
        ('[fit]\nepsilon = "much"\n', "epsilon"),
    ],
)
def test_a_wrong_configuration_is_refused(folder, text, words):
    (folder / "run.toml").write_text(text)
    assert words in typed("fit", "people.csv", "--config", "run.toml", "--output", "m.sordino", code=2)


# ------------------------------------------------------------------------------------------ how commands end


def test_a_budget_that_does_not_cover_it_ends_with_4_and_no_model(folder, booked):
    words = ("fit", "people.csv", *FIT[:-2], "--epsilon", 50, *booked, "--output", "m.sordino")
    assert "Nothing was reserved" in typed(*words, code=4)
    assert not (folder / "m.sordino").exists()


def test_trouble_with_a_ledger_ends_with_5(folder, booked):
    words = ("fit", "people.csv", *FIT, "--ledger", "budget.db", "--output", "m.sordino")
    assert "nobody" in typed(*words, "--dataset", "nobody", code=5)
    assert "--dataset" in typed(*words, code=2)


def test_a_ledger_that_is_not_there_is_not_made_by_a_fit(folder):
    words = ("fit", "people.csv", *FIT, "--ledger", "typo.db", "--dataset", "people", "--output", "m.sordino")
    assert "There is no ledger" in typed(*words, code=5)
    assert not (folder / "typo.db").exists()


def test_a_page_is_not_written_for_a_data_set_that_the_ledger_lacks(model, folder):
    words = ("report", model, "--ledger", "budget.db", "--dataset", "nobody", "--output", "page.html")
    assert "nobody" in typed(*words, code=5)
    assert not (folder / "page.html").exists()


@pytest.mark.parametrize(
    ("given", "option"),
    [("epsilon=100", "--epsilon"), ("ledger=none", "--ledger"), ("dataset_id=none", "--dataset")],
)
def test_set_cannot_change_the_budget_or_where_it_is_booked(folder, booked, given, option):
    words = ("fit", "people.csv", *FIT, *booked, "--set", given, "--output", "m.sordino")
    assert f"use {option} instead" in typed(*words, code=2)
    assert typed_json("ledger", "history", "budget.db", "people") == []


def test_an_epsilon_that_protects_little_is_said_so_by_every_command(folder):
    words = ("fit", "people.csv", *FIT[:-2], "--epsilon", 20, "--classes", "no,yes", "--output", "m.sordino")
    assert "protects little" in typed(*words)
    assert "protects little" in typed("inspect", "m.sordino")


def test_a_model_file_that_is_none_ends_with_6(folder):
    (folder / "bad.sordino").write_bytes(b"PK nothing")
    for words in (("inspect", "bad.sordino"), ("predict", "bad.sordino", "people.csv")):
        assert "damaged" in typed(*words, code=6)
    assert "Cannot read" in typed("inspect", "none.sordino", code=6)


BAD = {
    "not numbers": (f"a,b,c,d,y\n1,2,3,x{SECRET},yes\n", "column 'd'"),
    "a gap": ("a,b,c,d,y\n1,2,3,,yes\n1,2,3,4,no\n", "NaN"),
    "a label that is missing": ("a,b,c,d,y\n1,2,3,4,\n1,2,3,4,no\n", "gaps"),
    "no target": ("a,b\n1,2\n", "no column 'y'"),
    "empty": ("", "empty"),
    "one class": ("a,b,c,d,y\n1,2,3,4,yes\n", "2 classes"),
    "infinite": (f"a,b,c,d,y\n1,2,3,1e999,yes\n1,2,3,{SECRET},no\n", "NaN or inf"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_ends_with_3_and_costs_nothing(folder, booked, case):
    content, words = BAD[case]
    (folder / "bad.csv").write_text(content)
    assert words in typed("fit", "bad.csv", *FIT, *booked, "--output", "m.sordino", code=3)
    with sordino.Ledger.open(folder / "budget.db") as ledger:
        assert ledger.history("people") == []


def test_a_refused_budget_names_an_epsilon_that_fits(folder, booked):
    words = ("fit", "people.csv", *FIT[:-1])
    first = typed(*words, 7, "--delta", 1e-3, *booked, "--output", "0.sordino", code=4)
    assert "What would fit is about epsilon 6 at delta 0.001; for more, ask whoever owns the data" in first
    typed(*words, 2, *booked, "--output", "1.sordino")
    for delta in (1e-3, 1e-5):
        said = typed(*words, 20, "--delta", delta, *booked, "--output", "2.sordino", code=4)
        fits = float(re.search(r"What would fit is about epsilon ([\d.]+) at delta", said)[1])
        assert 1 < fits < 12
        assert "remaining" not in said
        above = typed(*words, 1.02 * fits, "--delta", delta, *booked, "--output", "2.sordino", code=4)
        assert f"epsilon {fits:g} at" in above
    typed(*words, fits, "--delta", delta, *booked, "--output", "3.sordino")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--epsilon", "-1"), "epsilon > 0 (inf for no privacy)"),
        (("--set", "data_nrm=3"), "no parameter 'data_nrm'"),
        (("--delta", "2"), "Expected delta"),
        (("--output", "nowhere/m.sordino"), "no folder"),
        (("--output", "people.csv"), "another place"),
        (("--output", "old.sordino"), "exists"),
        (("--classes", "no,maybe"), "declared classes"),
        (("--encoding", "klingon"), "encoding"),
    ],
)
def test_wrong_parameters_end_with_3_and_cost_nothing(folder, booked, words, said):
    (folder / "old.sordino").touch()
    common = ("fit", "people.csv", *FIT, *booked, "--output", "m.sordino")
    assert said in typed(*common, *words, code=3)
    with sordino.Ledger.open(folder / "budget.db") as ledger:
        assert ledger.history("people") == []


def test_a_relation_that_is_not_known_is_a_wrong_command_line(folder, booked):
    words = ("fit", "people.csv", *FIT, *booked, "--output", "m.sordino", "--relation", "swap")
    assert "'add-remove', 'replace-one'" in typed(*words, code=2)


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("fit", "people.csv", *FIT, "--epsilon", 9), 4, "ledger show budget.db people"),
        (
            ("fit", "people.csv", "--schema", "none.toml", "--epsilon", 1),
            3,
            "schema draft DATA --output none.toml",
        ),
        (("fit", "people.csv", "--epsilon", 1), 3, "schema draft DATA --target COLUMN --output SCHEMA"),
        (("fit", "people.csv", *FIT, "--set", "alpha=-1"), 3, "fit --help"),
        (
            ("fit", "people.csv", "--schema", "bad.toml", "--epsilon", 1),
            3,
            "schema check bad.toml people.csv",
        ),
        (("fit", "words.csv", *FIT), 3, "schema draft words.csv"),
    ],
)
def test_a_refusal_ends_with_the_command_to_type_next(folder, booked, words, code, line):
    (folder / "bad.toml").write_text('format = 1\n[columns.a]\nkind = "nothing"\n')
    (folder / "words.csv").write_text("a,y\nx,no\ny,yes\n")
    said = typed(*words, *booked, "--output", "m.sordino", code=code)
    assert said.rstrip().endswith(f"sordino {line}")


def test_a_model_that_is_not_there_is_refused_with_the_command_that_makes_one(folder):
    said = typed("predict", "none.sordino", "people.csv", code=6)
    assert said.rstrip().endswith("sordino fit DATA --schema SCHEMA --epsilon 1 --output MODEL")


def test_a_mistake_of_ours_shows_no_values(folder, monkeypatch):
    def broken(*args, **kwargs):
        raise KeyError(f"{SECRET}")

    monkeypatch.setattr(sordino.LogisticRegression, "fit", broken)
    assert "KeyError at test_fit.py" in typed("fit", "people.csv", *FIT, "--output", "m.sordino", code=70)


def test_a_model_that_is_paid_for_is_not_lost_with_its_folder(folder, monkeypatch, tmp_path_factory):
    honest, spare = sordino.LogisticRegression.fit, tmp_path_factory.mktemp("spare")
    (folder / "models").mkdir()

    def swept(self, *args, **kwargs):
        (folder / "models").rmdir()
        return honest(self, *args, **kwargs)

    monkeypatch.setattr(sordino.LogisticRegression, "fit", swept)
    monkeypatch.setattr("tempfile.tempdir", str(spare))
    assert "paid for" in typed("fit", "people.csv", *FIT, "--output", "models/m.sordino")
    (rescued,) = spare.rglob("m.sordino")
    assert sordino.load(rescued).epsilon == 2.0


def test_a_model_that_nothing_can_hold_is_not_said_to_be_saved(folder, monkeypatch):
    def full(self, path, **about):
        raise sordino.errors.ModelFileError(f"{path} cannot be written.")

    monkeypatch.setattr(sordino.LogisticRegression, "save", full)
    said = typed("fit", "people.csv", *FIT, "--output", "m.sordino", code=6)
    assert "was saved" not in said
    assert "it is lost" in said


def test_a_parameter_that_cannot_be_saved_is_refused_before_the_fit(folder, booked):
    words = ("fit", "people.csv", *FIT, *booked, "--output", "m.sordino")
    assert "datetime.date" in typed(*words, "--set", "solver_options={a = 2020-01-01}", code=1)
    assert typed_json("ledger", "show", "budget.db", "people")["reservations"] == 0


def test_warnings_are_notes_and_those_of_others_are_silent(folder, monkeypatch):
    import warnings

    honest = sordino.LogisticRegression.fit

    def loud(self, *args, **kwargs):
        warnings.warn(f"a value: {SECRET}", RuntimeWarning, stacklevel=1)
        return honest(self, *args, **kwargs)

    monkeypatch.setattr(sordino.LogisticRegression, "fit", loud)
    said = typed("fit", "people.csv", *FIT, "--delta", 0.5, "--output", "m.sordino")
    assert "Note: delta = 0.5 is at least 1/n" in said


def test_ctrl_c_leaves_the_ledger_true(folder, booked):
    words = ["fit", "people.csv", *FIT, *booked, "--output", "m.sordino"]
    words += ["--set", "solver=gd", "--set", "max_iter=2000000"]
    command = [sys.executable, "-m", "sordino", *map(str, words)]
    run = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, **WIDE})
    with sordino.Ledger.open(folder / "budget.db") as ledger:
        started = time.monotonic()
        while not ledger.history("people") and run.poll() is None and time.monotonic() - started < 60:
            time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=60)[1]
        (entry,) = ledger.history("people")
    assert run.returncode == 130, said
    assert "stays booked" in said
    assert (entry.status.value, entry.reason) == ("failed", "KeyboardInterrupt")
    assert not (folder / "m.sordino").exists()


def test_documents_are_json_without_values_that_json_does_not_know(folder):
    found = typed_json("fit", "people.csv", *FIT[:-1], "inf", "--output", "m.sordino")
    assert found["privacy"]["epsilon"] == "inf"
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("classes", ["True,False", "false,true", "0,1", "no,yes"])
def test_classes_of_a_stored_flag_may_be_any_of_its_words(folder, classes):
    X = np.random.default_rng(0).normal(size=(300, 2))
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": X[:, 0] > 0})
    frame.to_parquet("flags.parquet")
    frame.astype({"y": str}).to_parquet("texts.parquet")
    for name, words, labels in (("flags", classes, "false true"), ("texts", "True,False", "False True")):
        typed("fit", f"{name}.parquet", *FIT, "--classes", words, "--output", f"{name}.sordino")
        assert sordino.load(f"{name}.sordino").classes_.tolist() == labels.split()


def test_a_schema_with_weights_is_fitted_predicted_and_scored(tmp_path):
    rows = ["a,w,y", *(f"{i % 9 - 4},{i % 3},{(i % 9 - 4) if i % 3 else 20}" for i in range(3000))]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    bounded = '[columns.{}]\nkind = "{}"\nlow = {}\nhigh = {}\n'
    schema = (
        "format = 1\n" + bounded.format("a", "number", -4, 4) + '[columns.w]\nkind = "weight"\nhigh = 2\n'
    )
    (tmp_path / "s.toml").write_text(
        schema + '[columns.y]\nkind = "target"\nof = "number"\nlow = -4\nhigh = 20\n'
    )
    words = ["fit", str(tmp_path / "rows.csv"), "--schema", str(tmp_path / "s.toml"), "--epsilon", "4"]
    typed(*words, "--output", str(tmp_path / "m.sordino"))
    model = sordino.load(tmp_path / "m.sordino")
    # Records that count nothing have a target of 20 whatever the number is; that of others is the number.
    assert model.predict(pandas.DataFrame({"a": [-3.0, 3.0]})) == pytest.approx([-3.0, 3.0], abs=0.5)
