"""Published numbers beside ours: verdicts, pages, results that go on where they were interrupted."""

from __future__ import annotations

import json
import math
import pickle
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sordino.cli import main
from sordino.errors import InvalidInputError, NotPrivateWarning
from sordino.reproduce import TABLES, linear, runner, table_named
from sordino.reproduce.linear import Method, Task, rows_of
from sordino.reproduce.pages import markdown
from sordino.reproduce.sparse_tables import SPARSE_TABLES
from sordino.reproduce.store import Store
from sordino.reproduce.tables import MODES, Cell, Row, Runs, Table, cell_of, verdict


def row(published: float | None = 0.3, method: str = "ours", plain: float | None = None) -> Row:
    return Row("set", method, 1.0, 1e-5, published, dict.fromkeys(MODES, "none"), plain)


def table(better="lower", likeness="same", **more) -> Table:
    return Table("t", "A paper, table 1", "loss", better, "Its set.", likeness, (), **more)


def judged(of: Table, one: Row, **cells) -> str:
    full = {mode: cells.get(mode, "none") for mode in MODES}
    return verdict(of, one, [(one, full)])


def test_a_clearly_smaller_loss_is_better_and_says_by_what():
    assert (
        judged(table(), row(0.3), sound=Cell((0.2,)), default=Cell((0.25,))) == "better, by the same method"
    )
    assert judged(table(), row(0.3), sound=Cell((0.9,)), default=Cell((0.2,))) == "better, by our default"


def test_a_higher_score_is_better_where_the_table_says_so():
    assert judged(table("higher"), row(80.0), sound=Cell((85.0,))).startswith("better")
    assert judged(table("higher"), row(80.0), sound=Cell((70.0,))).startswith("not reproduced")


def test_within_two_standard_errors_a_number_is_reproduced():
    near = Cell((0.30, 0.34))  # mean .32, standard error .02
    assert judged(table(), row(0.3), sound=near).startswith("reproduced")
    assert judged(table(), row(0.3), sound=Cell((0.32, 0.3200001))).startswith("not reproduced")


def test_a_miss_is_explained_by_what_the_printed_noise_certifies():
    paper = Cell((0.1,), {"add-remove": 3.0, "replace-one": 7.0})
    said = judged(table(), row(0.3), paper=paper, sound=Cell((0.9,)), plain=Cell((0.2,)))
    assert "certifies 7, not 1" in said


def test_a_miss_is_explained_by_what_can_be_had_without_privacy():
    said = judged(table(), row(0.3), sound=Cell((0.9,)), plain=Cell((0.5,)))
    assert said.startswith("not reproduced: 0.9 is reached, 0.3 is printed")
    assert "without privacy 0.5" in said


def test_on_a_stand_in_the_distance_from_the_plain_model_is_compared():
    stand_in, one = table(likeness="stand-in"), row(0.3, plain=0.2)  # published: 1.5 times the plain loss
    assert judged(stand_in, one, sound=Cell((3.0,)), plain=Cell((2.9,))).startswith("better")
    assert judged(stand_in, one, sound=Cell((9.0,)), plain=Cell((3.0,))).startswith("not reproduced")
    assert judged(stand_in, row(0.3), sound=Cell((3.0,)), plain=Cell((2.9,))).startswith("not comparable")


def test_for_a_figure_the_order_of_the_curves_is_compared():
    one, other = row(None, "a"), row(None, "b")
    drawn = table(order=(("a",), ("b",)))
    cells = [{**dict.fromkeys(MODES, "none"), "sound": Cell((v,))} for v in (0.1, 0.2)]
    assert verdict(drawn, one, list(zip((one, other), cells))) == "order of the curves reproduced"
    assert "not reproduced" in verdict(drawn, one, list(zip((one, other), reversed(cells))))
    equal = [{**cells[0], "sound": Cell((v,))} for v in (0.2001, 0.2)]
    assert verdict(drawn, one, list(zip((one, other), equal))) == "no order to see: b 0.2, a 0.2"


def test_an_order_that_is_not_seen_is_explained_by_the_printed_noise_and_by_our_default():
    one, other = row(None, "a"), row(None, "b")
    drawn = table(order=(("a",), ("b",)))
    printed = [Cell((0.1,), {"add-remove": 9.0}), Cell((0.3,), {"add-remove": 0.1})]
    cells = [
        {"paper": paper, "sound": Cell((v,)), "default": Cell((0.15,)), "plain": "none"}
        for paper, v in zip(printed, (0.4, 0.2))
    ]
    assert verdict(drawn, one, list(zip((one, other), cells))) == (
        "order of the curves not reproduced: here b 0.2, a 0.4; the printed noise, which certifies up to 9, "
        "shows it: a 0.1, b 0.3; our default reaches 0.15"
    )
    cells = [{**c, "paper": p, "default": Cell((0.3,))} for c, p in zip(cells, reversed(printed))]
    said = verdict(drawn, one, list(zip((one, other), cells)))
    assert said.endswith("does not show it either: b 0.1, a 0.3")


def test_a_miss_names_the_method_that_beats_the_best_printed_one():
    one, other = row(0.24, "agd"), row(0.23, "srm")
    cells = [{**dict.fromkeys(MODES, "none"), "sound": Cell((v,))} for v in (0.25, 0.22)]
    said = verdict(table(), one, list(zip((one, other), cells)))
    assert said.endswith("our best at this epsilon is 0.22 (srm), the best printed 0.23 (srm)")
    assert "our best" not in verdict(table(rivals=False), one, list(zip((one, other), cells)))
    cells[1]["sound"] = Cell((0.24,))
    assert "our best" not in verdict(table(), one, list(zip((one, other), cells)))


def test_every_miss_has_a_reason():
    miss = judged(table(), row(0.3), sound=Cell((0.9,)), plain=Cell((0.2,)))
    assert miss.endswith("the same method with sound noise reaches 0.9 here")
    known = judged(table(), row(0.3, plain=0.1), sound=Cell((0.9,)), plain=Cell((0.2,)))
    assert known.endswith("without privacy 0.2 is reached here, 0.1 is printed")
    stand_in, one = table(likeness="stand-in"), row(0.3, plain=0.2)
    paper = Cell((4.0,), {"add-remove": 0.5})
    said = judged(stand_in, one, paper=paper, sound=Cell((9.0,)), default=Cell((6.0,)), plain=Cell((2.0,)))
    assert said == (
        "not reproduced: 3 times the model without privacy is reached, 1.5 is printed; the printed noise "
        "itself reaches 2 times that here"
    )


def test_a_cell_that_is_not_finite_is_never_the_best():
    assert judged(table(), row(0.3), sound=Cell((math.inf,)), default=Cell((0.2,))).endswith("our default")
    assert "nothing here runs" in judged(table(), row(0.3), sound=Cell((math.inf,)))


def test_the_standard_error_is_that_of_the_mean():
    cell = cell_of([{"value": v, "add-remove": 2.0} for v in (1.0, 2.0, 3.0, 4.0)])
    assert cell.mean == 2.5
    assert cell.error == pytest.approx(np.std([1, 2, 3, 4], ddof=1) / 2)
    assert cell.certified == {"add-remove": 2.0}


def test_every_row_of_every_table_has_a_run_or_a_reason_in_every_mode():
    for name in TABLES:
        made = table_named(name, quick=True)
        assert made.name == name
        assert made.rows
        for one in made.rows:
            assert set(one.cells) == set(MODES)
            assert all(cell for cell in one.cells.values())
            assert isinstance(one.cells["sound"], Runs)
            assert one.published is not None or made.order


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
    rows = rows_of("toy", toy, methods, numbers, 1e-3, quick=quick)
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
    with pytest.raises(InvalidInputError, match="runs of toy are missing"):
        runner.verdicts("toy", tmp_path, quick=True)
    page = runner.reproduce("toy", tmp_path, quick=True)
    after = json.loads((tmp_path / "toy.json").read_text())["runs"]
    assert {key: after[key] for key in known} == known
    assert all(len(values) == 1 for values in after.values())
    assert "DP-IGHT" in page.read_text()
    assert (tmp_path / "toy.png").stat().st_size > 1000
    assert set(runner.verdicts("toy", tmp_path, quick=True)) == {"toy/DP-IGHT/2", "toy/two/2"}


def test_paper_mode_certifies_both_relations(monkeypatch: pytest.MonkeyPatch):
    cells = toy_table(True).rows[0].cells
    outcome = cells["paper"].once(0)
    assert outcome["add-remove"] < outcome["replace-one"]
    assert math.isfinite(outcome["value"])


def test_results_of_other_settings_are_not_mixed(tmp_path: Path):
    path = tmp_path / "t.json"
    Store(path, {"quick": True}).add("key", {"value": 1.0})
    assert Store(path, {"quick": True}).outcomes("key") == ({"value": 1.0},)
    with pytest.raises(InvalidInputError, match="quick True, now False"):
        Store(path, {"quick": False})
    path.write_text("{")
    with pytest.raises(InvalidInputError, match="Move it away"):
        Store(path, {"quick": True})


def test_a_store_knows_the_day_and_the_cpu_time_of_its_runs(tmp_path: Path):
    store = Store(tmp_path / "t.json", {"quick": True})
    store.add("key", {"value": 1.0}, 2.5)
    store.add("key", {"value": 2.0}, 1.5)
    again = Store(tmp_path / "t.json", {"quick": True})
    assert again.cpu_seconds == 4.0
    assert again.date == time.strftime("%Y-%m-%d", time.gmtime())


@pytest.mark.long
def test_processes_share_the_runs_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    few = SPARSE_TABLES["wang-gu-figure-1"](True).runs()  # two keys of a real table
    keys = [key for key in few if "1,000" in key and "default" in key and "linear" in key][:2]
    monkeypatch.setattr(runner, "_missing", lambda store, runs, n: [0] if runs.key in keys else [])
    monkeypatch.setattr(runner, "_written", lambda *given: tmp_path)
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


def test_tables_share_one_pool_and_a_run_that_fails_stops_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "ProcessPoolExecutor", Here)
    monkeypatch.setitem(runner.TABLES, "toy", toy_table)
    monkeypatch.setitem(runner.TABLES, "failing", failing_table)
    said: list[tuple[str, int]] = []
    failed = runner.measure_all(
        ["failing", "toy"], tmp_path, quick=True, jobs=2, progress=lambda n, k, d, of: said.append((n, of))
    )
    assert failed == ["failing"]
    assert "This run fails" in capsys.readouterr().err
    kept = {name: json.loads((tmp_path / f"{name}.json").read_text())["runs"] for name in ("toy", "failing")}
    assert set(kept["toy"]) == set(toy_table(True).runs())
    assert set(kept["failing"]) == set(failing_table(True).runs()) - {"broken"}
    assert said.count(("toy", len(kept["toy"]))) == len(kept["toy"])


def test_one_table_in_a_pool_stops_at_a_run_that_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "ProcessPoolExecutor", Here)
    monkeypatch.setitem(runner.TABLES, "failing", failing_table)
    with pytest.raises(InvalidInputError, match="This run fails"):
        runner.measure("failing", tmp_path, quick=True, jobs=2)


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
    assert "**450** / not accounted" in markdown(table(), [(row(0.3), cells)], "c")


def test_the_command_lists_tables_and_asks_for_one(tmp_path: Path):
    run = CliRunner().invoke
    listed = run(main, ["reproduce", "--list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in TABLES)
    assert run(main, ["reproduce"]).exit_code == 2
    assert run(main, ["reproduce", "liang-4", "--all"]).exit_code == 2
    unknown = run(main, ["reproduce", "no-such-table", "--to", str(tmp_path)])
    assert unknown.exit_code == 1
    assert "no-such-table" in unknown.output


def test_a_table_without_its_data_is_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SORDINO_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setenv("SORDINO_OFFLINE", "1")
    from sordino.reproduce import sparse_data

    sparse_data.rcv1.cache_clear()
    monkeypatch.setattr(sparse_data, "load", _absent)
    told = CliRunner().invoke(main, ["reproduce", "liang-4", "--quick", "--jobs", "1", "--to", str(tmp_path)])
    assert told.exit_code == 1
    assert "Left out" in told.output
    sparse_data.rcv1.cache_clear()


def _absent(*names, **options):
    from sordino.errors import DataNotFoundError

    raise DataNotFoundError("rcv1_sample was not found.")


def test_a_row_keeps_its_claim():
    one = replace(row(0.5), epsilon=4.0)
    assert one.epsilon == 4.0
    assert list(one.runs()) == []


def test_printed_noise_is_certified_without_a_run_as_a_fit_reports_it():
    x, y = toy().x, toy().y
    for relation in ("add-remove", "replace-one"):
        options = {"solver": "ight", "noise": "paper", "max_iter": 5, "relation": relation, **toy().facts}
        asked = toy().estimator(2.0, 1e-3, **options)
        stopped = linear.certified(asked, x, y)
        assert not hasattr(asked, "coef_")
        with pytest.warns(NotPrivateWarning) as said:
            reported = toy().estimator(2.0, 1e-3, **options).fit(x, y).privacy_.epsilon
        assert stopped == reported == said[0].message.certified
    with pytest.raises(AssertionError, match="no printed noise"):
        linear.certified(toy().estimator(2.0, 1e-3, solver="ight", max_iter=5, **toy().facts), x, y)


def test_a_seed_that_was_lost_is_run_again_and_no_other(tmp_path: Path):
    kept = Store(tmp_path / "t.json", {})
    runs = Runs("cell", lambda seed: {"value": 0.0})
    assert runner._missing(kept, runs, 3) == [0, 1, 2]
    kept.add("cell", {"value": 1.0, "seed": 2})
    assert runner._missing(kept, runs, 3) == [0, 1]
    assert cell_of(kept.outcomes("cell")) == Cell((1.0,))
    old = Store(tmp_path / "old.json", {})
    old.add("cell", {"value": 1.0})  # results kept before seeds were
    assert runner._missing(old, runs, 3) == [1, 2]


def test_a_page_says_how_many_runs_are_behind_a_number():
    one, cells = row(0.3), dict.fromkeys(MODES, "none")
    assert "One run a number." in markdown(table(), [(one, {**cells, "sound": Cell((0.2,))})], "c")
    page = markdown(table(), [(one, {**cells, "sound": Cell((0.2, 0.3)), "plain": Cell((0.1,))})], "c")
    assert "Means of 1 to 2 runs, ± their standard error." in page


@pytest.mark.parametrize("best", [math.inf, linear.HARDLY_ANY, "ight"])
def test_without_privacy_the_best_of_three_models_is_meant(best, monkeypatch: pytest.MonkeyPatch):
    def fitted(task, epsilon, delta, seed, **options):
        return (0.1 if best == options.get("solver", epsilon) else 0.9), None

    monkeypatch.setattr(linear, "_fitted", fitted)
    assert linear._plain(toy(), 1e-3, 0) == {"value": 0.1}
