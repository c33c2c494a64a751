"""Registry rows of the texts that were counted or joined by us."""

from __future__ import annotations

from sordino.datasets.registry import DataFile, DatasetRow, Form
from sordino.datasets.rows_table import REPACKED

RCV1_CITATION = (
    "Lewis, Yang, Rose and Li, RCV1: a new benchmark collection for text categorization research, "
    "Journal of Machine Learning Research 5, 2004."
)
NEWS_CITATION = "Lang, NewsWeeder: learning to filter netnews, ICML 1995."

RCV1_SAMPLE = DatasetRow(
    name="rcv1_sample",
    loader="load_rcv1_sample",
    title="RCV1-v2 sample, binary task",
    task="binary classification, CCAT or ECAT (+1) against GCAT or MCAT (-1)",
    train_shape=(12_337, 47_236),
    test_shape=(11_413, 47_236),
    target_names=("-1", "+1"),
    licence="The vectors are distributed for research.",
    citation=RCV1_CITATION,
    source="https://mulan.sourceforge.net/datasets-mlc.html (rcv1v2, subsets 1 to 5)",
    description=(
        "The five Mulan samples of RCV1-v2 joined, duplicates dropped, with the task of LIBSVM's "
        "rcv1.binary. Rows have unit norm. The rows are not those of rcv1.binary, so published "
        "numbers compare in kind only. Key `topics` holds the four root topics."
    ),
    forms=(
        Form(
            "csr",
            (
                DataFile(
                    "train",
                    "X_train.npz",
                    "0e8de191263e5268fbdb16d7d650d9c8d46b850298b2a5452c8490e04d58f716",
                ),
                DataFile(
                    "test",
                    "X_test.npz",
                    "37499cef53823655e46269bbf606775bb09b205e476451744eb1f659ef5e1e21",
                ),
                DataFile(
                    "labels",
                    "labels.npz",
                    "da3dc7ac51ae55f773df388609cede80d7b8fad6a94a1c06ce4dff5340e2b4df",
                ),
            ),
            note=REPACKED + " For the papers' own rows use load_rcv1.",
        ),
    ),
)

IMDB = DatasetRow(
    name="imdb",
    loader="load_imdb",
    title="IMDB: film reviews, bag of words",
    task="binary classification (sentiment) or regression (stars)",
    train_shape=(25_000, 74_849),
    test_shape=(25_000, 74_849),
    target_names=("negative", "positive"),
    licence="No explicit licence; cite the paper.",
    citation=(
        "Maas, Daly, Pham, Huang, Ng and Potts, Learning word vectors for sentiment analysis, ACL 2011."
    ),
    source="https://ai.stanford.edu/~amaas/data/sentiment/",
    description=(
        "Word counts of 50,000 reviews in scikit-learn's default tokens. The vocabulary was "
        "fitted on the training rows and is not private. Rows are sorted by class: shuffle before "
        "splitting. Key `rating` holds the stars (1 to 4 and 7 to 10)."
    ),
    forms=(
        Form(
            "counts",
            (
                DataFile(
                    "train",
                    "train_counts.npz",
                    "339e685ea01eb8b17a3cad8a1235f3abc0280c9a8e1338405f67e11d5a21849f",
                ),
                DataFile(
                    "test",
                    "test_counts.npz",
                    "9e1012d66c3dc204077b5fe083d51fbc8054ca6d174c0e539dad22c624c6b2cb",
                ),
                DataFile(
                    "labels",
                    "labels.npz",
                    "e35a5c4ec92741fa8b1ff3df8700c54da8035c24b96f9b13b7694a506945f18b",
                ),
                DataFile(
                    "vocabulary",
                    "vocabulary.txt.xz",
                    "a0d2171349722cb26d6c1345f2b6bdfbebceaf4ab525607b97df030758293eb4",
                ),
            ),
            note=REPACKED + " It is made from the archive of the authors.",
        ),
        Form(
            "counts",
            (
                DataFile(
                    "archive",
                    "aclImdb_v1.tar.gz",
                    "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                    urls=("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",),
                ),
            ),
            note="The authors' archive of texts; counted once, then kept in the cache.",
            converter="imdb",
        ),
    ),
)

NEWSGROUPS = DatasetRow(
    name="20news",
    loader="load_20news",
    title="20 Newsgroups, split by date, bag of words",
    task="classification into 20 groups",
    train_shape=(11_314, 130_107),
    test_shape=(7_532, 130_107),
    licence="Public research collection; no explicit licence.",
    citation=NEWS_CITATION,
    source="http://qwone.com/~jason/20Newsgroups/",
    description=(
        "Word counts of postings in scikit-learn's default tokens, headers, footers and quotes "
        "kept. The vocabulary was fitted on the training rows and is not private. Rows are sorted "
        "by class: shuffle before splitting."
    ),
    target_names=(
        "alt.atheism",
        "comp.graphics",
        "comp.os.ms-windows.misc",
        "comp.sys.ibm.pc.hardware",
        "comp.sys.mac.hardware",
        "comp.windows.x",
        "misc.forsale",
        "rec.autos",
        "rec.motorcycles",
        "rec.sport.baseball",
        "rec.sport.hockey",
        "sci.crypt",
        "sci.electronics",
        "sci.med",
        "sci.space",
        "soc.religion.christian",
        "talk.politics.guns",
        "talk.politics.mideast",
        "talk.politics.misc",
        "talk.religion.misc",
    ),
    forms=(
        Form(
            "counts",
            (
                DataFile(
                    "train",
                    "train_counts.npz",
                    "903ec0d0787a699cbe73800e84582b95a50c0fa6e276d9784ff30704adfbd541",
                ),
                DataFile(
                    "test",
                    "test_counts.npz",
                    "2eab4cc986d4dfb136fbe236ac871a7b0817aa22d7488fd5967bc2b0629cf5b9",
                ),
                DataFile(
                    "labels",
                    "labels.npz",
                    "92ead9c12363bda1d8ea3b3a44cc0f0240d0c3f835811183c01dcdf9fc6e21a5",
                ),
                DataFile(
                    "vocabulary",
                    "vocabulary.txt.xz",
                    "a997dbb09c7b672a3e1b054860e719e28dd45ae390df27d0adf11673ca37afdb",
                ),
            ),
            note=REPACKED + " It is made from the archive of texts.",
        ),
        Form(
            "counts",
            (
                DataFile(
                    "archive",
                    "20news-bydate.tar.gz",
                    "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
                    urls=(
                        "https://ndownloader.figshare.com/files/5975967",
                        "http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz",
                    ),
                ),
            ),
            note="The archive of texts; counted once, then kept in the cache.",
            converter="newsgroups",
        ),
    ),
)

ROWS = (RCV1_SAMPLE, IMDB, NEWSGROUPS)
