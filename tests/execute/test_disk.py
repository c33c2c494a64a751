"""Rows on a disk: the same models as in memory, whatever fits at a time, and files that are not believed."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from tests.asking import asked
from tests.execute.in_parts import as_csr, cut, small_data
from tests.solver_case import local_executor
from tests.solver_table import CASES

import sordino
from sordino.errors import DataNotFoundError, InvalidInputError, UnsupportedError
from sordino.kernel import Full, Gaussian, GumbelTopK, LaplacePeeling, NoiseSource, Release, check_offer
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient

X, NUMBERS, LABELS = small_data()
SELECTIONS = (GumbelTopK, LaplacePeeling)
INF = float("inf")
OURS = [case for case in CASES if case.executor is local_executor]


def written(tmp_path, matrix, targets, edges=(), memory=1 << 30):
    blocks = zip(cut(matrix, list(edges)), cut(targets, list(edges)), strict=True)
    return sordino.on_disk(sordino.to_disk(tmp_path / "rows", blocks), memory=memory)


@pytest.mark.parametrize("case", OURS, ids=[case.id for case in OURS])
def test_a_run_from_disk_is_the_run_in_memory(case, tmp_path):
    matrix, targets = case.data(case.problem, 1)
    rows = written(tmp_path, matrix, targets, [7, 7, 30], memory=6 * 11 * 80)
    assert rows.block_rows < len(targets)  # several blocks
    executor = rows.executor(targets, case.problem.data_norm, getattr(case.problem, "intercept", 0.0), None)
    plan = case.plan().at(1.3)
    if any(executor.offer.unmet(release) for release in plan.releases.values()):
        with pytest.raises(UnsupportedError, match=r"one place|Parts"):
            check_offer(plan, executor.offer)
        return
    scale = 1.3 if getattr(case.problem, "secure_noise", False) else 0.0
    ours = case.run(1, scale, executor=executor).iterates
    here = case.run(1, scale).iterates
    if any(isinstance(r.mechanism, SELECTIONS) for r in plan.releases.values()):
        ours, here = ours[:1], here[:1]  # equal scores are broken by position
    # Exact noise is drawn on a lattice of 2^-28 of the noise: sums that round otherwise are points apart.
    apart = {"rtol": 1e-7, "atol": 1e-8} if scale else {"rtol": 1e-9, "atol": 1e-12}
    for a, b in zip(ours, here, strict=True):
        np.testing.assert_allclose(a, b, **apart)


@pytest.mark.parametrize("memory", [1, 5000, 1 << 30])
@pytest.mark.parametrize("make", [np.asarray, as_csr, lambda m: as_csr(m).astype(np.float32)])
def test_models_from_disk_are_those_in_memory_however_much_fits(make, memory, tmp_path):
    matrix = make(X)
    rows = written(tmp_path, matrix, NUMBERS, [100, 250], memory)
    assert rows.sparse == sparse.issparse(matrix)
    shares = np.linspace(0, 1, 300)
    for solver, weights in (("auto", {}), ("gd", {"sample_weight": shares})):
        model = sordino.LinearRegression(
            epsilon=INF, data_norm=1.0, target_bound=1.0, solver=solver, max_iter=3
        )
        expected = model.fit(matrix, NUMBERS, **weights).coef_.copy()
        found = model.fit(rows, rows.target, **weights).coef_
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    back = [block.toarray() if rows.sparse else block for block in rows.blocks()]
    assert np.array_equal(np.concatenate(back), matrix.toarray() if rows.sparse else matrix)


def test_classes_are_encoded_and_persons_refused(tmp_path):
    rows = written(tmp_path, X, NUMBERS)
    model = sordino.LogisticRegression(epsilon=INF, data_norm=1.0, max_iter=3)
    expected = model.fit(X, LABELS).coef_.copy()
    np.testing.assert_allclose(model.fit(rows, LABELS).coef_, expected, atol=1e-12)
    with pytest.raises(UnsupportedError, match="one place"):
        model.fit(rows, LABELS, groups=np.arange(300))
    with pytest.raises(InvalidInputError, match="one value for each"):
        model.fit(rows, LABELS[:-1])
    with pytest.raises(InvalidInputError, match="NaN"):
        sordino.LinearRegression().fit(rows, np.where(X[:, 0] > 0, np.nan, 1.0))


def test_a_record_that_is_not_finite_contributes_nothing(tmp_path):
    bad = X.copy()
    bad[7, 2], bad[200, 0] = np.nan, np.inf
    zeroed = X.copy()
    zeroed[[7, 200]] = 0.0
    one = written(tmp_path / "a", bad, NUMBERS, memory=5000)
    other = np.where(np.isin(np.arange(300), [7, 200]), 0.0, NUMBERS)
    model = sordino.LinearRegression(
        epsilon=INF, data_norm=1.0, target_bound=1.0, solver="gd", max_iter=3, fit_intercept=False
    )
    expected = model.fit(zeroed, other).coef_.copy()
    np.testing.assert_allclose(model.fit(one, NUMBERS).coef_, expected, atol=1e-12)


def test_files_of_others_are_converted_once(tmp_path):
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(8)]).assign(y=NUMBERS)
    frame.to_parquet(tmp_path / "t.parquet")
    rows = sordino.on_disk(sordino.to_disk(tmp_path / "p", tmp_path / "t.parquet", target="y"))
    assert np.array_equal(np.concatenate(list(rows.blocks())), X)
    assert np.array_equal(rows.target, NUMBERS)
    dump_svmlight_file(as_csr(X), NUMBERS, str(tmp_path / "t.svm"), zero_based=False)
    rows = sordino.on_disk(sordino.to_disk(tmp_path / "s", tmp_path / "t.svm", n_features=8))
    np.testing.assert_allclose(sparse.vstack(list(rows.blocks())).toarray(), as_csr(X).toarray(), atol=1e-12)
    np.testing.assert_allclose(rows.target, NUMBERS, atol=1e-12)


def test_a_long_text_file_is_converted_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("sordino.execute.disk_files._CHUNK", 1000)
    dump_svmlight_file(as_csr(X), NUMBERS, str(tmp_path / "t.svm"), zero_based=False)
    rows = sordino.on_disk(sordino.to_disk(tmp_path / "s", tmp_path / "t.svm", n_features=8))
    assert rows.shape == (300, 8)
    np.testing.assert_allclose(rows.target, NUMBERS, atol=1e-12)


KINDS = ["i8", "i4", "u1", "?", "f4", "f8"]
DENSE_ONLY = ["f2", ">f8", ">f4"]
EVERY = [*((np.asarray, k) for k in KINDS + DENSE_ONLY), *((sparse.csr_array, k) for k in KINDS)]


@pytest.mark.parametrize(("make", "kind"), EVERY)
def test_numbers_of_every_kind_come_back_as_they_were(make, kind, tmp_path):
    given = (np.arange(24).reshape(6, 4) % 5).astype(kind)
    targets = (np.arange(6) % 2).astype(kind)
    rows = written(tmp_path, make(given), targets)
    (back,) = rows.blocks()
    assert np.array_equal(back.toarray() if rows.sparse else back, given)
    assert np.array_equal(rows.target, targets)
    assert rows.dtype == (np.float32 if kind == "f4" else np.float64)


REFUSED = {
    "no blocks": list,
    "widths": lambda: [(X, None), (X[:, :3], None)],
    "kinds": lambda: [(X, None), (as_csr(X), None)],
    "kinds of targets": lambda: [(X, NUMBERS), (X, np.ones(300, dtype=np.int64))],
    "targets once": lambda: [(X, NUMBERS), (X, None)],
    "lengths": lambda: [(X, NUMBERS[:-1])],
    "texts": lambda: [(X.astype(str), None)],
    "labels": lambda: [(X, LABELS)],
    "flat": lambda: [(NUMBERS, None)],
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_written_leaves_nothing_behind(what, tmp_path):
    with pytest.raises(InvalidInputError):
        sordino.to_disk(tmp_path / "rows", REFUSED[what]())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_never_written_over_and_sources_must_be_there(tmp_path):
    written(tmp_path, X, NUMBERS)
    with pytest.raises(InvalidInputError, match="not there yet"):
        sordino.to_disk(tmp_path / "rows", [(X, NUMBERS)])
    with pytest.raises(DataNotFoundError):
        sordino.to_disk(tmp_path / "other", tmp_path / "absent.parquet")
    with pytest.raises(DataNotFoundError):
        sordino.on_disk(tmp_path)
    with pytest.raises(InvalidInputError, match="memory"):
        sordino.on_disk(tmp_path / "rows", memory=0)
    (tmp_path / "t.svm").write_text("1 1:2\n")
    with pytest.raises(InvalidInputError, match="n_features"):
        sordino.to_disk(tmp_path / "other", tmp_path / "t.svm")


LIES = [("new", 1), ("columns", 3), ("rows", 400), ("version", 2)]
LIES += [("values", "<f4"), ("values", "<i8"), ("indices", "<i4"), ("targets", ",f8")]
LIES += [("columns", {}), ("columns", 5.0), ("rows", True), ("entries", "5"), ("sums", [])]


@pytest.mark.parametrize("change", [{name: value} for name, value in LIES])
def test_a_page_that_lies_about_its_files_is_refused(change, tmp_path):
    written(tmp_path, X, NUMBERS)
    page = tmp_path / "rows" / "rows.json"
    page.write_text(json.dumps({**json.loads(page.read_text()), **change}))
    with pytest.raises(InvalidInputError):
        sordino.on_disk(tmp_path / "rows")


@pytest.mark.parametrize("name", ["values.bin", "indices.bin", "pointers.bin", "targets.bin"])
def test_files_that_are_written_to_while_they_are_fitted_are_refused(name, tmp_path):
    rows = written(tmp_path, as_csr(X), NUMBERS, memory=20000)
    executor = rows.executor(NUMBERS, 1.0, 0.0, None)
    release = Release(GlmGradient(LOSSES["squared"], 1.0), Gaussian(1.0), Full())
    noise = NoiseSource.seeded_not_private(0)
    asked(executor, release, np.zeros(8), 1.0, 0, noise)
    with (tmp_path / "rows" / name).open("r+b") as file:  # the same size, other rows
        file.write(b"\0" * 8)
    with pytest.raises(InvalidInputError, match=f"{name} as it was when it was opened"):
        asked(executor, release, np.zeros(8), 1.0, 1, noise)


def test_a_folder_that_is_put_in_place_of_another_is_not_mixed_with_it(tmp_path):
    rows = written(tmp_path, X, NUMBERS, memory=5000)
    (tmp_path / "rows").rename(tmp_path / "old")
    written(tmp_path, X[::-1], NUMBERS)
    assert np.array_equal(np.concatenate(list(rows.blocks())), X)


def test_a_folder_can_be_compared_with_what_was_written(tmp_path):
    written(tmp_path, as_csr(X), NUMBERS, [100])
    assert sordino.on_disk(tmp_path / "rows", verify=True).shape == (300, 8)
    file = tmp_path / "rows" / "values.bin"
    values = np.fromfile(file)
    values[7] += 1e-3
    values.tofile(file)
    assert sordino.on_disk(tmp_path / "rows").shape == (300, 8)
    with pytest.raises(InvalidInputError, match=r"values.bin as it was written"):
        sordino.on_disk(tmp_path / "rows", verify=True)
    page = tmp_path / "rows" / "rows.json"
    page.write_text(json.dumps({**json.loads(page.read_text()), "sums": {}}))
    with pytest.raises(InvalidInputError, match="without a sum"):
        sordino.on_disk(tmp_path / "rows", verify=True)


@pytest.mark.parametrize("name", ["pointers.bin", "indices.bin"])
def test_malformed_files_are_refused_and_never_read_out_of_bounds(name, tmp_path):
    rows = written(tmp_path, as_csr(X), NUMBERS, memory=20000)
    file = tmp_path / "rows" / name
    wrong = np.fromfile(file, dtype=np.int64 if name == "pointers.bin" else np.int32)
    wrong[wrong.size // 2] = 10**9
    wrong.tofile(file)
    rows = sordino.on_disk(tmp_path / "rows", memory=20000)
    model = sordino.LinearRegression(data_norm=1.0, target_bound=1.0, solver="gd", max_iter=2)
    with pytest.raises(InvalidInputError, match=r"pointers|indices"):
        model.fit(rows, NUMBERS)


def test_a_folder_of_parquet_files_is_converted_in_the_order_of_their_names(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "parts").mkdir()
    for number in range(3):
        table = pyarrow.table({"a": [float(number)] * 2, "y": [1.0, -1.0]})
        parquet.write_table(table, tmp_path / "parts" / f"{number}.parquet")
    rows = sordino.on_disk(sordino.to_disk(tmp_path / "rows", tmp_path / "parts", target="y"))
    assert rows.shape == (6, 1)
    assert rows.target.tolist() == [1.0, -1.0] * 3
    parquet.write_table(pyarrow.table({"b": [1.0], "y": [1.0]}), tmp_path / "parts" / "3.parquet")
    with pytest.raises(InvalidInputError, match=r"3\.parquet"):
        sordino.to_disk(tmp_path / "more", tmp_path / "parts", target="y")
