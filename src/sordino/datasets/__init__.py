"""Data sets: loaders of public ones, and the synthetic designs of the papers.

Loaders look into the folder ``SORDINO_DATA``, then into the user's cache, then at the public source.
They return a scikit-learn Bunch with a description, shape, licence and citation. Makers draw all
their randomness from a public seed.
"""

from sordino.datasets.catalogue import REGISTRY
from sordino.datasets.heavy import make_heavy_tailed, make_heavy_tailed_regression
from sordino.datasets.heavy_laws import HeavyTail, Lognormal, Pareto, Stable, StudentT
from sordino.datasets.loaders_image import load_cifar10, load_mnist, load_pneumoniamnist
from sordino.datasets.loaders_table import (
    load_a9a,
    load_adult,
    load_donor_pva,
    load_ijcnn1,
    load_kddcup99,
    load_microarray,
    load_mushrooms,
)
from sordino.datasets.loaders_text import (
    load_20news,
    load_e2006,
    load_imdb,
    load_news20,
    load_rcv1,
    load_rcv1_sample,
    load_real_sim,
    load_reuters_acq,
)
from sordino.datasets.lookup import cache_dir
from sordino.datasets.registry import DataFile, DatasetRow, Form
from sordino.datasets.rows import log1p_unit, unit_rows
from sordino.datasets.sparse_design import make_sparse_classification, open_sparse_classification
from sordino.datasets.synthetic import make_dpslkt, make_paper002, make_spiked_covariance
from sordino.datasets.tables import Category, Number, Schema, encode_table, read_table
from sordino.datasets.toys import load_breast_cancer, load_digits

__all__ = [
    "REGISTRY",
    "Category",
    "DataFile",
    "DatasetRow",
    "Form",
    "HeavyTail",
    "Lognormal",
    "Number",
    "Pareto",
    "Schema",
    "Stable",
    "StudentT",
    "cache_dir",
    "encode_table",
    "load_20news",
    "load_a9a",
    "load_adult",
    "load_breast_cancer",
    "load_cifar10",
    "load_digits",
    "load_donor_pva",
    "load_e2006",
    "load_ijcnn1",
    "load_imdb",
    "load_kddcup99",
    "load_microarray",
    "load_mnist",
    "load_mushrooms",
    "load_news20",
    "load_pneumoniamnist",
    "load_rcv1",
    "load_rcv1_sample",
    "load_real_sim",
    "load_reuters_acq",
    "log1p_unit",
    "make_dpslkt",
    "make_heavy_tailed",
    "make_heavy_tailed_regression",
    "make_paper002",
    "make_sparse_classification",
    "make_spiked_covariance",
    "open_sparse_classification",
    "read_table",
    "unit_rows",
]
