"""``load(name)``: splits, types, targets, transforms, shuffles, and clear refusals."""

import inspect
import lzma
import pickle
import re

import numpy as np
import pytest
from sklearn.utils import Bunch

from sordino import datasets
from sordino.errors import DataNotFoundError, InvalidInputError

TRAIN = b"".join(b"%+d 1:%d\n" % (1 if i % 3 else -1, i + 1) for i in range(40))
TEST = b"-1 2:5\n+1 2:7\n"


@pytest.fixture
def home(replace_row, tmp_path):
    replace_row("a9a", (40, 3), (2, 3))
    (tmp_path / "a9a").mkdir()
    (tmp_path / "a9a" / "a9a").write_bytes(TRAIN)
    (tmp_path / "a9a" / "a9a.t").write_bytes(TEST)
    return tmp_path


def _load(home, **options):
    return datasets.load("a9a", data_home=home, download=False, **options)


def test_a_bunch_carries_its_papers(home):
    bunch = _load(home)
    row = datasets.REGISTRY["a9a"]
    assert isinstance(bunch, Bunch)
    assert bunch.shape == bunch.data.shape == (40, 3)
    assert (bunch.licence, bunch.citation, bunch.source) == (row.licence, row.citation, row.source)
    assert bunch.target_names == ["-1", "+1"]
    assert bunch.name == "a9a"
    assert row.title in bunch.DESCR


def test_splits_are_the_parts_and_their_concatenation(home):
    train, test, both = (_load(home, split=s, return_X_y=True) for s in ("train", "test", "all"))
    assert (train[0].shape, test[0].shape, both[0].shape) == ((40, 3), (2, 3), (42, 3))
    assert np.array_equal(both[0].toarray(), np.vstack([train[0].toarray(), test[0].toarray()]))
    assert both[1].tolist() == [*train[1], *test[1]]
    assert both[0].format == "csr"


def test_without_a_split_the_test_part_comes_along(home):
    bunch = _load(home)
    assert (bunch.shape, bunch.test_data.shape) == ((40, 3), (2, 3))
    assert bunch.test_target.tolist() == [-1, 1]
    for split in ("train", "test", "all"):
        assert "test_data" not in _load(home, split=split)


def test_a_split_does_not_read_the_other_part(home):
    (home / "a9a" / "a9a.t").unlink()
    assert _load(home, split="train").target.size == 40
    assert len(_load(home, return_X_y=True)[1]) == 40
    with pytest.raises(DataNotFoundError, match=r"Put a9a\.t\.bz2 or a9a\.t into"):
        _load(home)


def test_a_bunch_can_be_pickled(home):
    assert pickle.loads(pickle.dumps(_load(home))).test_target.tolist() == [-1, 1]


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
    ("name", "options", "message"),
    [
        ("nope", {}, "no data set 'nope'.*a9a, ijcnn1"),
        ("a9a", {"split": "validation"}, "one of train, test, all for .*'validation'"),
        ("a9a", {"split": "train+train"}, "'train\\+train'"),
        ("mushrooms", {"split": "test"}, "one of train, all for the data set 'mushrooms'"),
        ("a9a", {"dtype": "int8"}, "one of float64, float32.*'int8'"),
        ("a9a", {"dtype": "nonsense"}, "'nonsense'"),
        ("a9a", {"download": 3}, "True, False or .unverified., got 3"),
        ("imdb", {"target": "stars"}, "one of sentiment, rating, got 'stars'"),
        ("20news", {"transform": "tfidf"}, "one of unit, log1p-unit, centred-unit, got 'tfidf'"),
        ("adult", {"missing": "mean"}, "one of drop, zero, got 'mean'"),
        ("adult", {"encoding": "ordinal"}, "one of onehot, raw"),
        ("kddcup99", {"target": "label"}, "one of dos, attack, kind"),
        ("digits", {"target": "odd"}, "one of digit, high"),
    ],
)
def test_a_wrong_option_names_the_value_and_the_choices(name, options, message):
    with pytest.raises(InvalidInputError, match=message):
        datasets.load(name, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a9a", {"target": "income"}),
        ("a9a", {"encoding": "raw"}),
        ("imdb", {"missing": "drop"}),
        ("a9a", {"flatten": True}),
        ("adult", {"encoding": "raw", "transform": "unit"}),
        ("adult", {"encoding": "raw", "dtype": "float32"}),
        ("mnist", {"flatten": False, "transform": "unit"}),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(name, options):
    with pytest.raises(InvalidInputError, match=f"has no meaning for the data set '{name}'"):
        datasets.load(name, **options)


def test_an_unknown_keyword_is_a_type_error(home):
    with pytest.raises(TypeError, match="splitt"):
        _load(home, splitt="train")


def test_every_keyword_is_documented():
    text = inspect.getdoc(datasets.load).partition("Notes\n")[0]
    documented = {
        name for line in re.findall(r"^([\w, ]+) : ", text, re.MULTILINE) for name in line.split(", ")
    }
    assert documented == set(inspect.signature(datasets.load).parameters)


def test_raw_tables_can_be_shuffled(replace_row, tmp_path):
    """A DataFrame is neither an array nor a sparse matrix, so it has paths of its own."""
    replace_row("donor_pva", (3, 48))
    names = [column.name for column in datasets.REGISTRY["donor_pva"].schema.columns]
    lines = [",".join(["ID", "Donate", "Donation.Amount", *names])]
    lines += [",".join([str(i), gift, amount, str(i), *["?"] * 46]) for i, gift, amount in
              [(7, "Yes", "5"), (8, "No", ""), (9, "Yes", "2.5")]]  # fmt: skip
    (tmp_path / "donor_pva").mkdir()
    packed = lzma.compress("\n".join(lines).encode())
    (tmp_path / "donor_pva" / "donor.csv.xz").write_bytes(packed)
    options = {"data_home": tmp_path, "encoding": "raw"}
    bunch = datasets.load("donor_pva", target="amount", **options)
    assert bunch.target.tolist() == [5.0, 0.0, 2.5]
    assert bunch.target_names == []
    moved = datasets.load("donor_pva", shuffle=True, random_state=1, **options)
    assert sorted(moved.data["MONTHS_SINCE_ORIGIN"]) == [7, 8, 9]
    assert (moved.target == (moved.data["MONTHS_SINCE_ORIGIN"] != 8)).all()


def test_row_centred_expression_has_unit_rows_of_mean_zero(replace_row, tmp_path):
    replace_row("microarray_alon", (2, 3))
    (tmp_path / "microarray").mkdir()
    X = np.array([[1, 2, 6], [4, 4, 7]], dtype=np.int32)
    np.savez(tmp_path / "microarray" / "alon.npz", X=X, y=np.array([0, 1]))
    data = datasets.load("microarray_alon", transform="centred-unit", data_home=tmp_path).data
    np.testing.assert_allclose(data.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(data, axis=1), 1)


# ------------------------------------------------------------- the sets that come with scikit-learn


def test_digits_are_divided_by_their_range():
    bunch = datasets.load("digits")
    assert bunch.shape == (1797, 64)
    assert (bunch.data.min(), bunch.data.max()) == (0, 1)
    assert bunch.target_names == [str(digit) for digit in range(10)]


def test_high_digits_are_those_from_five_on():
    digit, high = datasets.load("digits").target, datasets.load("digits", target="high")
    assert ((digit >= 5) == (high.target == 1)).all()
    assert high.target_names == ["0-4", "5-9"]


def test_breast_cancer_lies_between_zero_and_one_and_is_hardly_clipped():
    bunch = datasets.load("breast_cancer")
    assert bunch.shape == (569, 30)
    assert len(bunch.feature_names) == 30
    assert bunch.data.min() >= 0
    assert 0.5 < bunch.data.max() <= 1
    assert (bunch.data == 1).mean() < 1e-3


@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_rows_of_a_bundled_set_can_have_unit_norm(name):
    data, target = datasets.load(name, transform="unit", return_X_y=True)
    np.testing.assert_allclose(np.linalg.norm(data, axis=1), 1)
    assert len(target) == len(data)
