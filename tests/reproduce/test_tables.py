"""Published numbers beside ours: verdicts, pages, results that go on where they were interrupted."""

from __future__ import annotations

import json
import math
import pickle
import re
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from tests.reproduce.test_verdicts import row, table

from sordino.cli import main
from sordino.errors import InvalidInputError, NotPrivateWarning
from sordino.kernel import Relation
from sordino.literature.reproduce import TABLES, linear, runner, table_named
from sordino.literature.reproduce.linear import Method, Task, rows_of
from sordino.literature.reproduce.tables import (
    MODES,
    Cell,
    Runs,
    Store,
    Table,
    cell_of,
    markdown,
    rounded_settings,
)
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.solvers import Options
from sordino.solvers.sparse import ScsgHt


def test_every_row_of_every_table_has_a_run_or_a_reason_in_every_mode():
    for name in TABLES:
        made = table_named(name, quick=True)
        assert made.name == name
        assert made.rows
        for one in made.rows:
            assert set(one.cells) == set(MODES)
            assert all(cell for cell in one.cells.values())
            elsewhere = any(f"see {other}" in str(one.cells["sound"]) for other in TABLES)
            assert elsewhere or any(isinstance(one.cells[mode], Runs) for mode in ("sound", "default"))
            assert made.prints(one) or one.method.endswith(
                ("our constants", "nothing set", "averaged", "constant step", "B/b = 32")
            )


def test_the_page_marks_what_exceeds_the_claim_and_leaves_no_cell_empty():
    one = row(0.3)
    cells = {
        "paper": Cell((0.5,), {"add-remove": 0.5, "replace-one": 450.0}),
        "sound": Cell((0.2, 0.21)),
        "default": Cell((0.19,)),
        "plain": "no model",
    }
    page = markdown(table(), [(one, cells)], "sordino reproduce t")
    line = next(text for text in page.splitlines() if text.startswith("| set"))
    assert "0.5 / **450**" in line
    assert all(field.strip() for field in line.strip("|").split("|"))
    assert "sordino reproduce t" in page


def toy() -> Task:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = (x[:, 0] > 0).astype(int)
    facts = {"n_nonzero_coefs": 2, "data_norm": 1.0}
    return Task("toy", x, y, x, y, linear.mean_log_loss, facts)


def toy_table(quick: bool) -> Table:
    ight = Method("DP-IGHT", "ight", {"max_iter": 5}, (1.0, 4.0))
    methods = (ight, Method("two", "two-stage", {}, (), "none"))
    numbers = {"DP-IGHT": {2.0: 0.6}, "two": {2.0: 0.6}}
    rows = rows_of("toy", toy, methods, numbers, 1e-3, data="toy", quick=quick)
    return Table("toy", "A toy", "loss", "lower", "Toy.", "same", rows, repeats=2)


def test_a_table_runs_and_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(runner.TABLES, "toy", toy_table)
    asked: list[str] = []

    def stop_at_third(key: str, done: int, of: int) -> None:
        asked.append(key)
        if len(asked) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.reproduce("toy", tmp_path, quick=True, progress=stop_at_third)
    known = json.loads((tmp_path / "toy.json").read_text())["runs"]
    assert len(known) == 2
    missing = runner.verdicts("toy", tmp_path, quick=True)["toy/two/2"]
    assert str(missing) == "not run: no run with these settings is kept"
    page = runner.reproduce("toy", tmp_path, quick=True)
    after = json.loads((tmp_path / "toy.json").read_text())["runs"]
    assert {key: after[key] for key in known} == known
    assert all(len(kept["outcomes"]) == 1 for kept in after.values())
    assert all(kept["settings"] and kept["outcomes"][0]["commit"] for kept in after.values())
    assert "DP-IGHT" in page.read_text()
    assert set(runner.verdicts("toy", tmp_path, quick=True)) == {"toy/DP-IGHT/2", "toy/two/2"}


def test_paper_mode_certifies_both_relations(monkeypatch: pytest.MonkeyPatch):
    cells = toy_table(True).rows[0].cells
    outcome = cells["paper"].once(0)
    assert outcome["add-remove"] < outcome["replace-one"]
    assert math.isfinite(outcome["value"])


def runs(settings: dict | None = None) -> Runs:
    return Runs("key", lambda seed: {"value": 0.0}, settings or {})


def test_results_of_other_settings_are_not_mixed(tmp_path: Path):
    path = tmp_path / "t.json"
    Store(path, {"quick": True}).add(runs(), {"value": 1.0}, "abc")
    assert Store(path, {"quick": True}).outcomes(runs()) == ({"value": 1.0, "commit": "abc"},)
    with pytest.raises(InvalidInputError, match="quick True, now False"):
        Store(path, {"quick": False})


def test_a_changed_grid_uses_no_old_runs(tmp_path: Path):
    path, before, after = tmp_path / "t.json", runs({"steps": (1.0, 4.0)}), runs({"steps": (1.0, 16.0)})
    Store(path, {}).add(before, {"value": 1.0, "seed": 0})
    store = Store(path, {})
    assert len(store.outcomes(before)) == 1
    assert store.outcomes(after) == ()
    store.add(after, {"value": 2.0, "seed": 0})
    assert Store(path, {}).outcomes(before) == ()  # they made way


def test_the_last_digits_of_a_root_in_the_settings_do_not_part_a_run_from_its_table(tmp_path: Path):
    path, kept, here = tmp_path / "t.json", 10.206207261596576, 10.206207261596579
    Store(path, {}).add(runs({"clip": 0}), {"value": 1.0, "seed": 0})
    path.write_text(path.read_text().replace('"clip": 0', f'"clip": {kept}'))
    assert len(Store(path, {}).outcomes(runs({"clip": here}))) == 1
    assert Store(path, {}).outcomes(runs({"clip": 10.2063})) == ()


@pytest.mark.parametrize("name", sorted(runner.TABLES))
def test_settings_are_declared_and_hold_nothing_that_another_machine_computes_otherwise(name: str):
    if name.endswith("networks") or name == "liang-figure-3":
        pytest.importorskip("torch")
    for key, run in runner.table_named(name).runs().items():
        text = json.dumps(rounded_settings(run.settings))
        digits = re.findall(r"\d+\.\d+(?:e[-+]?\d+)?", text)  # those in words, a solver's, are not rounded
        assert all(float(f"{float(number):.6g}") == float(number) for number in digits), (key, text)


def test_what_printed_noise_certifies_is_an_outcome_and_no_setting():
    for key, run in runner.table_named("parties-noise").runs().items():
        certified = {name: value for name, value in run.once(0).items() if name != "value"}
        if key.endswith("paper") and "Local Obj P" not in key:
            assert certified["replace-one"] > certified["add-remove"] > 0.5
        for value in certified.values():
            assert f"{value:.4g}"[:-1] not in json.dumps(run.settings), key


@pytest.mark.parametrize("kept", ['["a"]', '{"key": [1]}', '{"key": 1}', '{"key": {"outcomes": []}}', None])
def test_a_file_that_holds_no_results_is_named(tmp_path: Path, kept: str | None):
    path = tmp_path / "t.json"
    about = '"settings": {"format": 2}, "about": {"date": "", "cpu_seconds": 0}'
    path.write_text("{" if kept is None else f'{{{about}, "runs": {kept}}}')
    with pytest.raises(InvalidInputError, match="Move it away"):
        Store(path, {})


def test_a_store_knows_the_day_and_the_cpu_time_of_its_runs(tmp_path: Path):
    store = Store(tmp_path / "t.json", {"quick": True})
    store.add(runs(), {"value": 1.0}, "abc", 2.5)
    store.add(runs(), {"value": 2.0}, "abc", 1.5)
    again = Store(tmp_path / "t.json", {"quick": True})
    assert again.cpu_seconds == 4.0
    assert again.date == time.strftime("%Y-%m-%d", time.gmtime())


@pytest.mark.long
def test_processes_share_the_runs_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    few = TABLES["wang-gu-figure-1"](True).runs()  # two keys of a real table
    keys = [key for key in few if "1,000" in key and "default" in key and "linear" in key][:2]
    monkeypatch.setattr(Table, "runs", lambda self: {key: few[key] for key in keys})
    runner.reproduce("wang-gu-figure-1", tmp_path, quick=True, jobs=2)
    known = json.loads((tmp_path / "wang-gu-figure-1.json").read_text())["runs"]
    assert sorted(known) == sorted(keys)


class Here:
    """A pool that makes its runs in this process."""

    def __init__(self, jobs: int, context: object) -> None:
        self.shutdown = lambda **options: None

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, work, *given) -> Future:
        future: Future = Future()
        try:
            future.set_result(work(*given))
        except InvalidInputError as error:
            future.set_exception(error)
        return future


def failing_table(quick: bool) -> Table:
    def fail(seed: int) -> dict[str, float]:
        raise InvalidInputError("This run fails.")

    made = toy_table(quick)
    broken = replace(made.rows[0], cells={**made.rows[0].cells, "sound": Runs("broken", fail)})
    return replace(made, name="failing", rows=[broken, *made.rows[1:]])


def test_processes_make_what_one_makes_and_nothing_starts_after_the_time(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "ProcessPoolExecutor", Here)
    monkeypatch.setitem(runner.TABLES, "toy", toy_table)
    said: list[int] = []
    runner.reproduce("toy", tmp_path, quick=True, jobs=2, progress=lambda key, done, of: said.append(of))
    known = json.loads((tmp_path / "toy.json").read_text())["runs"]
    assert set(known) == set(toy_table(True).runs())
    assert said == [len(known)] * len(known)
    page = runner.reproduce("toy", tmp_path / "none", quick=True, minutes=0.0)
    assert not (tmp_path / "none" / "toy.json").exists()
    assert "no run with these settings is kept" in page.read_text()


def test_one_table_in_a_pool_stops_at_a_run_that_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "ProcessPoolExecutor", Here)
    monkeypatch.setitem(runner.TABLES, "failing", failing_table)
    with pytest.raises(InvalidInputError, match="This run fails"):
        runner.reproduce("failing", tmp_path, quick=True, jobs=2)


def test_every_table_can_be_made_in_another_process():
    for make in TABLES.values():
        assert pickle.loads(pickle.dumps(make))(True).rows


def test_a_relation_that_is_not_accounted_for_is_said_and_not_left_empty():
    cells = {
        "paper": Cell((0.5,), {"add-remove": 450.0}),
        "sound": Cell((0.2,)),
        "default": "none",
        "plain": "none",
    }
    assert "**450** / no less" in markdown(table(), [(row(0.3), cells)], "c")


def test_the_command_lists_tables_and_asks_for_one(tmp_path: Path):
    run = CliRunner().invoke
    listed = run(main, ["reproduce", "--list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in TABLES)
    assert run(main, ["reproduce"]).exit_code == 2
    assert run(main, ["reproduce", "liang-4", "--all"]).exit_code == 2
    unknown = run(main, ["reproduce", "no-such-table", "--to", str(tmp_path)])
    assert unknown.exit_code == 3
    assert "no-such-table" in unknown.output


def test_a_table_without_its_data_is_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SORDINO_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("SORDINO_OFFLINE", "1")
    linear.rcv1.cache_clear()
    monkeypatch.setattr(linear, "load", _absent)
    told = CliRunner().invoke(main, ["reproduce", "liang-4", "--quick", "--jobs", "1", "--to", str(tmp_path)])
    assert told.exit_code == 1
    assert "Left out" in told.output
    linear.rcv1.cache_clear()


def _absent(*names, **options):
    from sordino.errors import DataNotFoundError

    raise DataNotFoundError("rcv1_sample was not found.")


def test_a_row_keeps_its_claim():
    one = replace(row(0.5), epsilon=4.0)
    assert one.epsilon == 4.0
    assert not any(isinstance(cell, Runs) for cell in one.cells.values())


def test_printed_noise_is_certified_without_a_run_as_a_fit_reports_it():
    x, y = toy().x, toy().y
    for relation in ("add-remove", "replace-one"):
        options = {"solver": "ight", "noise": "paper", "max_iter": 5, "relation": relation, **toy().facts}
        asked = toy().estimator(2.0, 1e-3, **options)
        stopped = linear.certified_epsilon(asked, x, y)
        assert not hasattr(asked, "coef_")
        with pytest.warns(NotPrivateWarning) as said:
            reported = toy().estimator(2.0, 1e-3, **options).fit(x, y).privacy_.epsilon
        assert stopped == reported == said[0].message.certified
    with pytest.raises(AssertionError, match="no printed noise"):
        linear.certified_epsilon(toy().estimator(2.0, 1e-3, solver="ight", max_iter=5, **toy().facts), x, y)


def test_a_seed_that_was_lost_is_run_again_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []
    lost = Runs("t/sound", lambda seed: asked.append(seed) or {"value": 2.0}, {"steps": (1.0,)})
    one = replace(row(0.3), cells=dict.fromkeys(MODES, lost))
    monkeypatch.setitem(runner.TABLES, "t", lambda quick: table(rows=(one,), repeats=3))
    kept = Store(tmp_path / "t.json", {"quick": False})
    kept.add(lost, {"value": 1.0, "seed": 2})
    assert cell_of(kept.outcomes(lost)) == Cell((1.0,))
    runner.reproduce("t", tmp_path)
    assert asked == [0, 1]
    assert cell_of(Store(kept.path, {"quick": False}).outcomes(lost)) == Cell((1.0, 2.0, 2.0))


def test_a_page_says_how_many_runs_are_behind_a_number():
    one, cells = row(0.3), dict.fromkeys(MODES, "none")
    assert "One run a number." in markdown(table(), [(one, {**cells, "sound": Cell((0.2,))})], "c")
    page = markdown(table(), [(one, {**cells, "sound": Cell((0.2, 0.3)), "plain": Cell((0.1,))})], "c")
    assert "Means of up to 2 runs, ± their standard error; a number of one run says so." in page
    assert "0.1 (one run)" in page
    other = {**cells, "sound": Cell((0.25,)), "default": Cell((0.35,))}  # a row of single runs alone
    page = markdown(table(), [(one, {**cells, "sound": Cell((0.2, 0.3))}), (row(0.4), other)], "c")
    assert "| 0.25 (one run) | 0.35 (one run) |" in page


@pytest.mark.parametrize("best", [math.inf, linear.HARDLY_ANY, "ight"])
def test_without_privacy_the_best_of_three_models_is_meant(best, monkeypatch: pytest.MonkeyPatch):
    def fitted(task, epsilon, delta, seed, **options):
        return (0.1 if best == options.get("solver", epsilon) else 0.9), None

    monkeypatch.setattr(linear, "_fit_one", fitted)
    assert linear._plain(toy(), 1e-3, 0, 300) == {"value": 0.1}


def test_a_page_shows_the_printed_number_without_privacy_and_no_rounding_errors():
    cells = {**dict.fromkeys(MODES, "none"), "sound": Cell((0.2,)), "plain": Cell((-2e-16, 2e-16))}
    assert "| 0 (printed 0.25) |" in markdown(table(), [(row(0.3, plain=0.25), cells)], "c")


def test_the_norm_of_the_gradient_is_that_of_the_whole_objective():
    public = np.random.default_rng(0)
    x, y = public.normal(size=(50, 3)), public.integers(0, 2, 50)
    task = Task("toy", x, y, x, y, linear.gradient_norm, {"alpha": 0.1})
    w, b = np.array([0.5, -1.0, 2.0]), 0.25

    def value(at):
        signs, penalty = np.where(y == 1, 1.0, -1.0), 0.1 * np.sum(at**2 / (1 + at**2))
        return np.mean(np.logaddexp(0, -signs * (x @ at[:3] + at[3]))) + penalty

    at, steps = np.append(w, b), 1e-6 * np.eye(4)
    slope = [(value(at + step) - value(at - step)) / 2e-6 for step in steps]
    model = SimpleNamespace(classes_=np.array([0, 1]), coef_=w[None], intercept_=np.array([b]))
    assert linear.gradient_norm(model, task) == pytest.approx(np.linalg.norm(slope), rel=1e-6)


def test_the_convolutions_of_cnn6_have_seen_no_private_image():
    torch = pytest.importorskip("torch")
    networks = pytest.importorskip("sordino.literature.reproduce.networks")
    x = torch.from_numpy(np.random.default_rng(0).random((24, 3, 32, 32), dtype=np.float32))
    data = networks.Images(x, torch.arange(24) % 10, x[:4], torch.arange(4), networks.convolutions)
    found = networks.pretrain(data, epochs=1)
    assert found.x.shape == (12, 2048)
    assert found.y.tolist() == data.y[12:].tolist()
    other = networks.pretrain(replace(data, x=torch.cat([x[:12], 1 - x[12:]]), y=data.y.flip(0)), epochs=1)
    assert torch.equal(other.test_x, found.test_x)
    assert not torch.equal(other.x, found.x)
    moved = networks.pretrain(replace(data, x=torch.cat([1 - x[:12], x[12:]])), epochs=1)
    assert not torch.equal(moved.test_x, found.test_x)


def test_the_batches_of_table_4_are_kept_and_are_those_of_the_solver():
    sizes = {row.method: row.cells["sound"].settings.get("share") for row in table_named("liang-4").rows}
    kept, wide = sizes["DP-SCSG-HT"], sizes["DP-SCSG-HT, B/b = 32"]
    assert (kept["batch_size"] / kept["snapshot_batch"], wide["batch_size"] / wide["snapshot_batch"]) == (
        10,
        32,
    )
    problem = Problem(LOSSES["logistic"], 12_337, 100, Relation.REPLACE_ONE, 1.0, 1e-5)
    solver = ScsgHt.configure(problem, Options(n_nonzero_coefs=10))
    rates = (solver.snapshots.rate, solver.minibatches.rate)
    assert rates == tuple(12_337 // kept[kind] / 12_337 for kind in ("snapshot_batch", "batch_size"))
    task = replace(toy(), x=np.zeros((320, 4)))
    asked = Method("m", "scsg-ht", share={"snapshot_batch": 5, "batch_size": 160}).options(task)
    assert asked == {"solver_options": {"snapshot_batch": 64, "batch_size": 2}}
