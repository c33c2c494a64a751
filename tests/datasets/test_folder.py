"""The real data sets are what their sources say: shapes, counts, labels, norms, baselines."""

import gzip
import hashlib

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sordino.datasets import REGISTRY

MICROARRAYS = tuple(name for name in REGISTRY if name.startswith("microarray_"))

# name -> (train shape, stored entries, counts by label), then the same of the test part.
FACTS = {
    "a9a": (
        ((32_561, 123), 451_592, {-1: 24_720, 1: 7_841}),
        ((16_281, 123), 225_731, {-1: 12_435, 1: 3_846}),
    ),
    "ijcnn1": (
        ((49_990, 22), 649_870, {-1: 45_137, 1: 4_853}),
        ((91_701, 22), 1_192_113, {-1: 82_989, 1: 8_712}),
    ),
    "mushrooms": (((8_124, 112), 170_604, {1: 3_916, 2: 4_208}), None),
    "rcv1_sample": (
        ((12_337, 47_236), 926_053, {-1: 6_231, 1: 6_106}),
        ((11_413, 47_236), 857_810, {-1: 5_689, 1: 5_724}),
    ),
    "imdb": (
        ((25_000, 74_849), 3_445_861, {0: 12_500, 1: 12_500}),
        ((25_000, 74_849), None, {0: 12_500, 1: 12_500}),
    ),
    "reuters_acq": (
        ((2_000, 9_947), 94_790, {-1: 1_000, 1: 1_000}),
        ((600, 9_947), 23_730, {-1: 300, 1: 300}),
    ),
    "donor_pva": (((19_372, 122), None, {0: 14_529, 1: 4_843}), None),
    "pneumoniamnist": (
        ((4_708, 784), None, {0: 1_214, 1: 3_494}),
        ((624, 784), None, {0: 234, 1: 390}),
    ),
}


def _counts(target):
    values, counts = np.unique(target, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist()))


def _norms(matrix):
    return np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1))).ravel()


@pytest.mark.parametrize("name", FACTS)
def test_shapes_entries_and_labels_are_those_of_the_source(real, name):
    bunch = real(name)
    train, test = FACTS[name]
    found = [(bunch.data, bunch.target, train)]
    if test is not None:
        found.append((bunch.test_data, bunch.test_target, test))
    for data, target, (shape, entries, labels) in found:
        assert data.shape == shape
        assert len(target) == shape[0]
        assert entries is None or data.nnz == entries
        assert labels is None or _counts(target) == labels
    assert ("test_data" in bunch) is (test is not None)


def test_20news_has_the_shape_of_scikit_learns_vectorised_set(real):
    bunch = real("20news")
    assert (bunch.shape, bunch.data.nnz) == ((11_314, 130_107), 1_787_565)
    assert bunch.test_data.shape == (7_532, 130_107)
    assert sorted(_counts(bunch.target)) == list(range(20))
    assert len(bunch.feature_names) == 130_107
    assert len(bunch.target_names) == 20


def test_news20_has_twenty_balanced_classes(real):
    bunch = real("news20")
    assert (bunch.shape, bunch.data.nnz) == ((15_935, 62_061), 1_272_569)
    counts = _counts(bunch.target)
    assert sorted(counts) == list(range(1, 21))
    assert max(counts.values()) - min(counts.values()) <= 20


def test_stored_target_names_are_those_of_the_registry(data_folder):
    with np.load(data_folder / "20news" / "labels.npz") as labels:
        assert tuple(labels["target_names"]) == REGISTRY["20news"].classes
    for name in MICROARRAYS:
        with np.load(data_folder / "microarray" / f"{name.removeprefix('microarray_')}.npz") as arrays:
            assert tuple(arrays["classes"]) == REGISTRY[name].classes


@pytest.mark.parametrize(
    ("key", "shape", "labels"),
    [
        ("alon", (62, 2_000), {0: 22, 1: 40}),
        ("golub", (72, 7_129), {0: 47, 1: 25}),
        ("singh", (102, 12_600), {0: 50, 1: 52}),
        ("gordon", (181, 12_533), {0: 150, 1: 31}),
        ("shipp", (77, 7_129), {0: 58, 1: 19}),
        ("west", (49, 7_129), {0: 25, 1: 24}),
        ("chowdary", (104, 22_283), {0: 62, 1: 42}),
    ],
)
def test_gene_expression_studies_are_complete(real, key, shape, labels):
    bunch = real(f"microarray_{key}")
    assert (bunch.shape, _counts(bunch.target)) == (shape, labels)
    assert np.isfinite(bunch.data).all()
    assert bunch.data.dtype == np.float64


def test_adult_drops_incomplete_records_and_has_104_columns(real):
    bunch = real("adult")
    assert bunch.shape == (30_162, 104)
    assert len(bunch.test_target) == 15_060
    assert len(bunch.feature_names) == 104


def test_adult_with_incomplete_records_has_the_labels_of_a9a(real):
    bunch = real("adult", missing="zero", encoding="raw")
    assert _counts(bunch.target) == {0: 24_720, 1: 7_841}
    assert _counts(bunch.test_target) == {0: 12_435, 1: 3_846}
    assert bunch.data["age"].min() == 17
    assert set(bunch.data["sex"]) == {"Female", "Male"}


def test_every_complete_adult_record_falls_into_declared_levels(real):
    bunch = real("adult")
    levels = [j for j, name in enumerate(bunch.feature_names) if "=" in name]
    for data in (bunch.data, bunch.test_data):
        assert (np.asarray(data[:, levels].sum(axis=1)) == 8).all()


def test_kddcup99_has_the_published_counts_and_122_columns(real):
    """One test for all of it: reading the set takes seconds."""
    bunch = real("kddcup99", target="kind")
    assert (bunch.shape, bunch.test_data.shape) == ((494_021, 122), (311_029, 122))
    train = {bunch.target_names[k]: n for k, n in _counts(bunch.target).items()}
    assert (train["normal"], train["smurf"], train["neptune"]) == (97_278, 280_790, 107_201)
    assert len(train) == 23
    test = {bunch.target_names[k]: n for k, n in _counts(bunch.test_target).items()}
    assert (test["normal"], len(test)) == (60_593, 38)
    assert bunch.data.data.min() > 0
    assert bunch.data.data.max() <= 1
    # Each record has a protocol, a service and a flag; two test records an undeclared service.
    levels = [j for j, name in enumerate(bunch.feature_names) if "=" in name]
    assert (np.asarray(bunch.data[:, levels].sum(axis=1)) == 3).all()
    assert (np.asarray(bunch.test_data[:, levels].sum(axis=1)) == 2).sum() == 2


@pytest.mark.parametrize("name", ["adult", "donor_pva"])
def test_encoded_tables_lie_between_zero_and_one(real, name):
    entries = real(name).data.data
    assert entries.min() > 0
    assert entries.max() <= 1


def test_donors_gave_a_positive_amount_and_others_nothing(real):
    gave = real("donor_pva").target
    amount = real("donor_pva", target="amount").target
    assert ((amount > 0) == (gave == 1)).all()
    assert amount.max() == 200


def test_imdb_stars_agree_with_the_sentiment(real):
    bunch = real("imdb")
    assert ((bunch.rating >= 7) == (bunch.target == 1)).all()
    assert sorted(set(bunch.rating.tolist())) == [1, 2, 3, 4, 7, 8, 9, 10]
    stars = real("imdb", target="rating", dtype="float32", transform="log1p-unit")
    assert (stars.target == bunch.rating).all()
    assert stars.data.dtype == np.float32
    np.testing.assert_allclose(_norms(stars.data), 1, atol=1e-5)
    assert (stars.data.indices == bunch.data.indices).all()


@pytest.mark.parametrize(("name", "tolerance", "empty"), [("rcv1_sample", 1e-5, 0), ("reuters_acq", 1e-9, 2)])
def test_tfidf_rows_have_unit_norm_or_are_empty(real, name, tolerance, empty):
    bunch = real(name)
    np.testing.assert_allclose(_norms(bunch.data), 1, atol=tolerance)
    norms = _norms(bunch.test_data)
    np.testing.assert_allclose(norms[norms > 0], 1, atol=tolerance)
    assert (norms == 0).sum() == empty


def test_binary_tables_hold_ones_only(real):
    for name, at_most in [("a9a", 14), ("mushrooms", 21)]:
        data = real(name).data
        assert (data.data == 1).all()
        assert np.diff(data.indptr).max() == at_most


def test_rcv1_topics_define_the_labels(real):
    bunch = real("rcv1_sample")
    positive = bunch.topics[:, :2].any(axis=1)
    assert (positive == (bunch.target == 1)).all()
    assert bunch.topic_names == ["CCAT", "ECAT", "GCAT", "MCAT"]


def test_mnist_is_the_original_one(real, data_folder):
    digests = {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }
    for name, digest in digests.items():
        raw = gzip.decompress((data_folder / "mnist" / f"{name}.gz").read_bytes())
        assert hashlib.md5(raw, usedforsecurity=False).hexdigest() == digest
    bunch = real("mnist", dtype="uint8", flatten=False)
    assert (bunch.shape, bunch.test_data.shape) == ((60_000, 28, 28), (10_000, 28, 28))
    assert bunch.target[:5].tolist() == [5, 0, 4, 1, 9]


def test_mnist_floats_lie_between_zero_and_one(real):
    data = real("mnist", split="test").data
    assert (data.shape, data.dtype) == ((10_000, 784), np.float32)
    assert (data.min(), data.max()) == (0, 1)


def test_cifar10_subset_has_the_class_counts_of_the_first_two_batches(real):
    bunch = real("cifar10", dtype="uint8")
    counts = [1989, 1981, 2042, 2011, 2009, 1925, 2038, 2027, 2012, 1966]
    assert np.bincount(bunch.target).tolist() == counts
    assert (bunch.shape, bunch.test_data.shape) == ((20_000, 3_072), (5_000, 3_072))


def test_pneumoniamnist_with_validation_has_the_papers_5232_rows(real):
    bunch = real("pneumoniamnist", split="train+validation")
    assert bunch.shape == (5_232, 784)
    assert "validation_data" not in bunch
    apart = real("pneumoniamnist")
    assert _counts(apart.validation_target) == {0: 135, 1: 389}
    assert apart.validation_data.shape == (524, 784)


@pytest.mark.parametrize(("name", "score"), [("a9a", 0.8495), ("rcv1_sample", 0.9626)])
def test_plain_logistic_regression_reaches_the_published_level(real, name, score):
    bunch = real(name)
    model = LogisticRegression(C=1.0, max_iter=1000).fit(bunch.data, bunch.target)
    assert model.score(bunch.test_data, bunch.test_target) == pytest.approx(score, abs=2e-4)


@pytest.mark.parametrize("row", [row for row in REGISTRY.values() if row.files], ids=lambda row: row.name)
def test_files_in_the_folder_have_a_registered_digest(data_folder, row):
    found = [file for file in row.files if (data_folder / row.folder / file.name).is_file()]
    if not found:
        pytest.skip(f"{row.name} is not in the folder")
    for file in found:
        raw = (data_folder / row.folder / file.name).read_bytes()
        assert hashlib.sha256(raw).hexdigest() in {file.sha256, *file.copies}
