"""Registry rows of the images and of the gene expression studies."""

from __future__ import annotations

from typing import Any

from sordino.datasets.registry import DataFile, DatasetRow, Form
from sordino.datasets.rows_table import REPACKED

_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
_ZENODO = "https://zenodo.org/records"


def _idx(part: str, name: str, sha256: str, copy: str) -> DataFile:
    return DataFile(part, name, sha256, urls=tuple(f"{m}/{name}" for m in _MNIST), copies=(copy,))


MNIST = DatasetRow(
    name="mnist",
    loader="load_mnist",
    title="MNIST: handwritten digits",
    task="classification into 10 digits",
    train_shape=(60_000, 28, 28),
    test_shape=(10_000, 28, 28),
    target_names=tuple("0123456789"),
    licence="Commonly given as CC BY-SA 3.0.",
    citation=(
        "LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document "
        "recognition, Proceedings of the IEEE 86, 1998."
    ),
    source="http://yann.lecun.com/exdb/mnist/",
    description=(
        "Grey images of digits. The loader divides by 255, a bound of the format and not of the "
        "data, so entries lie in [0, 1]."
    ),
    forms=(
        Form(
            "idx",
            (
                _idx(
                    "train",
                    "train-images-idx3-ubyte.gz",
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "71524e2cd1ad2968737f7f2f2ff69cbfc32df8ccddff51593f7cb2d4e0eb5b64",
                ),
                _idx(
                    "train-labels",
                    "train-labels-idx1-ubyte.gz",
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    "fe03b8bd7915f70bf5aa08be480aa413fbd85afcaa58b35d230d335f284fd88e",
                ),
                _idx(
                    "test",
                    "t10k-images-idx3-ubyte.gz",
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "5634745efa576a17e7d4cf5cd9d09123c75e6538e5114267c2d156edaf519341",
                ),
                _idx(
                    "test-labels",
                    "t10k-labels-idx1-ubyte.gz",
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    "ae18e77e031ccde52407f794d123116439864147d33ac992975f85dd4dc42af6",
                ),
            ),
        ),
    ),
)

_CIFAR: dict[str, Any] = {
    "task": "classification into 10 kinds of things",
    "target_names": (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    ),
    "licence": "No explicit licence; cite the report.",
    "citation": "Krizhevsky, Learning multiple layers of features from tiny images, University of "
    "Toronto, 2009.",
    "source": "https://www.cs.toronto.edu/~kriz/cifar.html",
    "loader": "load_cifar10",
    "folder": "cifar10",
}
_CIFAR_ARCHIVE = Form(
    "cifar-binary",
    (
        DataFile(
            "archive",
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        ),
    ),
    note="The binary version: fixed-size records, no pickle.",
)

CIFAR10 = DatasetRow(
    name="cifar10",
    title="CIFAR-10: subsets of the training and test images",
    train_shape=(20_000, 32, 32, 3),
    test_shape=(5_000, 32, 32, 3),
    description=(
        "Batches 1 and 2 of the five training batches and the first 5,000 test images, unselected "
        "and in order. Numbers on it do not compare with published ones; full=True loads the "
        "whole set. The loader divides by 255, a bound of the format."
    ),
    forms=(
        Form(
            "images",
            (
                DataFile(
                    "train",
                    "cifar10_train20k.npz",
                    "ebcfa72fd0103e8b608c2beef6d163541f166c8214208656171c68c2ec16a8a7",
                ),
                DataFile(
                    "test",
                    "cifar10_test5k.npz",
                    "6d1ccf0ac085e2e202adb7ece6eae27a313816739317c002b20c84a23326d092",
                ),
            ),
            note=REPACKED + " It is the beginning of the full set.",
        ),
        _CIFAR_ARCHIVE,
    ),
    **_CIFAR,
)

CIFAR10_FULL = DatasetRow(
    name="cifar10_full",
    title="CIFAR-10: all images",
    train_shape=(50_000, 32, 32, 3),
    test_shape=(10_000, 32, 32, 3),
    description=(
        "All five training batches and the test batch. The loader divides by 255, a bound of the format."
    ),
    forms=(_CIFAR_ARCHIVE,),
    **_CIFAR,
)

PNEUMONIAMNIST = DatasetRow(
    name="pneumoniamnist",
    loader="load_pneumoniamnist",
    title="PneumoniaMNIST: chest X-rays, 28 x 28",
    task="binary classification, normal (0) or pneumonia (1)",
    train_shape=(4_708, 28, 28),
    test_shape=(624, 28, 28),
    target_names=("normal", "pneumonia"),
    licence="CC BY 4.0.",
    citation=(
        "Yang et al., MedMNIST v2, Scientific Data 10, 2023; Kermany et al., Identifying medical "
        "diagnoses and treatable diseases by image-based deep learning, Cell 172, 2018."
    ),
    source="https://medmnist.com",
    description=(
        "Children's chest X-rays. With the 524 validation images (validation=True) the training "
        "part has the 5,232 rows of the paper on DP-SGD-HT. Repacked copies hold the official "
        "split with the training rows in another order. The loader divides by 255, a bound of the "
        "format."
    ),
    forms=(
        Form(
            "medmnist",
            (
                DataFile(
                    "archive",
                    "pneumoniamnist.npz",
                    md5="28209eda62fecd6e6a2d98b1501bb15f",
                    urls=tuple(
                        f"{_ZENODO}/{record}/files/pneumoniamnist.npz?download=1"
                        for record in ("10519652", "6496656")
                    ),
                    copies=("d0bfa3330f26554c4117328b1117f52bfb3746404b0594c58f37a09b4314d396",),
                ),
            ),
        ),
    ),
)


def _study(
    key: str,
    shape: tuple[int, int],
    classes: tuple[str, str],
    sha256: str,
    citation: str,
    about: str,
) -> DatasetRow:
    return DatasetRow(
        name=f"microarray_{key}",
        folder="microarray",
        loader="load_microarray",
        title=f"Gene expression: {about}",
        task="binary classification with far more genes than people",
        train_shape=shape,
        test_shape=None,
        target_names=classes,
        licence="MIT (the R package datamicroarray); the data are the authors'.",
        citation=citation,
        source="https://github.com/ramhiser/datamicroarray",
        description=(
            "Expression of genes in tissue samples, values as published and not standardised. "
            "With this few people private learning is hard; the set is here to show where it "
            "stops working."
        ),
        forms=(
            Form(
                "microarray",
                (DataFile("train", f"{key}.npz", sha256),),
                note=REPACKED + " The originals are R data files of datamicroarray.",
            ),
        ),
    )


MICROARRAYS = (
    _study(
        "alon",
        (62, 2_000),
        ("n", "t"),
        "9e28c1603aaa1a8143911256bda477fec9eeeef316bc961da6d5072e7a63ac12",
        "Alon et al., PNAS 96, 1999.",
        "colon cancer, normal or tumour",
    ),
    _study(
        "golub",
        (72, 7_129),
        ("ALL", "AML"),
        "9d70a0cd94e8fd38e0dad86312684c796a39fec9e30646a7adf779438b7a1a52",
        "Golub et al., Science 286, 1999.",
        "two kinds of leukemia",
    ),
    _study(
        "singh",
        (102, 12_600),
        ("Normal", "Tumor"),
        "68883762ad8403beabf72bb1a509f3813d97e68dff352add6ee7c607e1402393",
        "Singh et al., Cancer Cell 1, 2002.",
        "prostate, normal or tumour",
    ),
    _study(
        "gordon",
        (181, 12_533),
        ("adenocarcinoma", "mesothelioma"),
        "acf7b6f5482edbc1110f2b2a4e542536d6106b1907a07869ae009321e8d006c8",
        "Gordon et al., Cancer Research 62, 2002.",
        "two kinds of lung cancer",
    ),
    _study(
        "shipp",
        (77, 7_129),
        ("DLBCL", "FL"),
        "0cee9343e3d69e7988941152e0294fb7671dd217f3de6f226c8e77eef61d6230",
        "Shipp et al., Nature Medicine 8, 2002.",
        "two kinds of lymphoma",
    ),
    _study(
        "west",
        (49, 7_129),
        ("negative", "positive"),
        "6e78ffd91ed6115f6ab89f82996612239f742bee278d8fe01ffa6f7a3f60eba1",
        "West et al., PNAS 98, 2001.",
        "breast cancer, estrogen receptor status",
    ),
    _study(
        "chowdary",
        (104, 22_283),
        ("breast", "colon"),
        "5fd5a5b3daf9fe124c085f757ac2213fe8e454da663fd70e3f63f54c4b8c1529",
        "Chowdary et al., Journal of Molecular Diagnostics 8, 2006.",
        "breast or colon cancer",
    ),
)

ROWS = (MNIST, CIFAR10, CIFAR10_FULL, PNEUMONIAMNIST, *MICROARRAYS)
