"""What all loaders share: splits, types, shuffles, lazy parts, and clear refusals."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from sklearn.utils import Bunch

from sordino import datasets
from sordino.datasets import REGISTRY
from sordino.datasets.bunch import Deferred, LazyBunch
from sordino.errors import DataNotFoundError, InvalidInputError

TRAIN = b"".join(b"%+d 1:%d\n" % (1 if i % 3 else -1, i + 1) for i in range(40))
TEST = b"-1 2:5\n+1 2:7\n"


@pytest.fixture
def home(monkeypatch, tmp_path):
    row = dataclasses.replace(REGISTRY["a9a"], train_shape=(40, 3), test_shape=(2, 3))
    monkeypatch.setitem(REGISTRY._rows, "a9a", row)
    (tmp_path / "a9a").mkdir()
    (tmp_path / "a9a" / "a9a").write_bytes(TRAIN)
    (tmp_path / "a9a" / "a9a.t").write_bytes(TEST)
    return tmp_path


def _load(home, **options):
    return datasets.load_a9a(data_home=home, download=False, **options)


def test_a_bunch_carries_its_papers(home):
    bunch = _load(home)
    row = REGISTRY["a9a"]
    assert isinstance(bunch, Bunch)
    assert bunch.shape == bunch.data.shape == (40, 3)
    assert row.describe() == bunch.DESCR
    assert (bunch.licence, bunch.citation, bunch.source) == (row.licence, row.citation, row.source)
    assert bunch.target_names == ["-1", "+1"]
    assert bunch.name == "a9a"


def test_splits_are_the_parts_and_their_concatenation(home):
    train, test, both = (_load(home, split=s, return_X_y=True) for s in ("train", "test", "all"))
    assert (train[0].shape, test[0].shape, both[0].shape) == ((40, 3), (2, 3), (42, 3))
    assert np.array_equal(both[0].toarray(), np.vstack([train[0].toarray(), test[0].toarray()]))
    assert both[1].tolist() == [*train[1], *test[1]]
    assert both[0].format == "csr"


def test_only_the_training_bunch_holds_the_test_part(home):
    assert "test_data" in _load(home)
    for split in ("test", "all"):
        assert "test_data" not in _load(home, split=split)


def test_the_test_part_is_read_when_it_is_asked_for(home):
    bunch = _load(home)
    (home / "a9a" / "a9a.t").unlink()
    assert bunch.target.size == 40
    with pytest.raises(DataNotFoundError):
        _ = bunch.test_data


def test_the_test_part_is_read_once(home):
    bunch = _load(home)
    assert bunch.test_target.tolist() == [-1, 1]
    (home / "a9a" / "a9a.t").unlink()
    assert bunch.test_data.shape == (2, 3)
    assert bunch.test_data is bunch["test_data"]


def test_a_shuffle_is_a_seeded_permutation_of_rows_with_their_targets(home):
    plain = _load(home)
    moved, again = (_load(home, shuffle=True, random_state=3) for _ in range(2))
    other = _load(home, shuffle=True, random_state=4)
    order = moved.data.toarray()[:, 0].astype(int) - 1
    assert sorted(order) == list(range(40))
    assert order.tolist() != list(range(40))
    assert np.array_equal(moved.target, plain.target[order])
    assert np.array_equal(moved.data.toarray(), again.data.toarray())
    assert not np.array_equal(moved.data.toarray(), other.data.toarray())


@pytest.mark.parametrize("dtype", [np.float32, "float64"])
def test_the_type_of_the_features_is_chosen(home, dtype):
    bunch = _load(home, dtype=dtype)
    assert bunch.data.dtype == bunch.test_data.dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "validation"}, "one of train, test, all .*'validation'"),
        ({"dtype": "int8"}, "one of float64, float32.*'int8'"),
        ({"dtype": "nonsense"}, "'nonsense'"),
        ({"download": 3}, "True, False or .unverified., got 3"),
    ],
)
def test_a_wrong_option_names_the_value_and_the_choices(home, options, message):
    with pytest.raises(InvalidInputError, match=message):
        datasets.load_a9a(data_home=home, **options)


def test_a_set_without_a_test_part_refuses_to_split():
    with pytest.raises(InvalidInputError, match="one of train, all for the data set 'mushrooms'"):
        datasets.load_mushrooms(split="test")


def test_an_unknown_keyword_is_a_type_error(home):
    with pytest.raises(TypeError, match="splitt"):
        _load(home, splitt="train")


@pytest.mark.parametrize(
    ("loader", "options"),
    [
        ("load_imdb", {"target": "stars"}),
        ("load_imdb", {"transform": "tfidf"}),
        ("load_20news", {"transform": "tfidf"}),
        ("load_adult", {"missing": "mean"}),
        ("load_kddcup99", {"target": "label"}),
        ("load_donor_pva", {"target": "ID"}),
        ("load_microarray", {"name": "khan"}),
        ("load_digits", {"target": "odd"}),
    ],
)
def test_a_choice_outside_the_list_is_refused_before_any_file_is_read(loader, options):
    (value,) = options.values()
    with pytest.raises(InvalidInputError, match=f"one of .*{value}"):
        getattr(datasets, loader)(**options)


def test_row_centred_expression_has_unit_rows_of_mean_zero(monkeypatch, tmp_path):
    row = dataclasses.replace(REGISTRY["microarray_alon"], train_shape=(2, 3))
    monkeypatch.setitem(REGISTRY._rows, "microarray_alon", row)
    (tmp_path / "microarray").mkdir()
    X = np.array([[1, 2, 6], [4, 4, 7]], dtype=np.int32)
    np.savez(tmp_path / "microarray" / "alon.npz", X=X, y=np.array([0, 1]))
    data = datasets.load_microarray("alon", centre_rows=True, data_home=tmp_path).data
    np.testing.assert_allclose(data.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(data, axis=1), 1)


# ------------------------------------------------------------------------------- the lazy Bunch


def _lazy(calls):
    def make():
        calls.append(1)
        return [1, 2]

    return LazyBunch(here=3, later=Deferred(make))


@pytest.mark.parametrize(
    "ask",
    [
        lambda b: b.later,
        lambda b: b["later"],
        lambda b: b.get("later"),
        lambda b: dict(b)["later"],
        lambda b: {**b}["later"],
        lambda b: dict(b.items())["later"],
        lambda b: list(b.values())[1],
        lambda b: pickle.loads(pickle.dumps(b)).later,
        lambda b: copy.deepcopy(b)["later"],
    ],
)
def test_every_way_to_ask_gives_the_value_made_once(ask):
    calls = []
    bunch = _lazy(calls)
    assert calls == []
    assert ask(bunch) == [1, 2]
    assert bunch.later == [1, 2]
    assert calls == [1]


def test_a_lazy_bunch_prints_without_making_its_values():
    calls = []
    assert "made at first use" in repr(_lazy(calls))
    assert calls == []
    assert _lazy(calls).get("absent", 7) == 7
