"""Registry rows of the texts in LIBSVM format, the papers' own sets among them."""

from __future__ import annotations

from sordino.datasets.registry import DataFile, DatasetRow, Form
from sordino.datasets.rows_table import LIBSVM
from sordino.datasets.rows_text import NEWS_CITATION, RCV1_CITATION

_COCOA = "https://raw.githubusercontent.com/gingsmith/cocoa/ce2108f40b0ed1962c9f3b241586eff88bde49f7/data"

RCV1 = DatasetRow(
    name="rcv1",
    loader="load_rcv1",
    title="rcv1.binary: Reuters news wire",
    task="binary classification, CCAT or ECAT (+1) against GCAT or MCAT (-1)",
    train_shape=(20_242, 47_236),
    test_shape=(677_399, 47_236),
    target_names=("-1", "+1"),
    licence="Free for research; Reuters' terms apply.",
    citation=RCV1_CITATION,
    source=f"{LIBSVM}/binary.html#rcv1.binary",
    description=(
        "The set of the papers on DP-SGD-HT and DP-IGHT: log tf-idf weights of stemmed words, "
        "rows of unit norm. The weights use document frequencies of the collection and are not "
        "private. The test file is large (about 1.2 GB in memory)."
    ),
    forms=(
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "rcv1_train.binary.bz2",
                    md5="1aeda848408e621468c0fe6944d9382f",
                    urls=(f"{LIBSVM}/binary/rcv1_train.binary.bz2",),
                ),
                DataFile(
                    "test",
                    "rcv1_test.binary.bz2",
                    md5="d6e3ab397758fb5c036d9cced52aedae",
                    urls=(f"{LIBSVM}/binary/rcv1_test.binary.bz2",),
                ),
            ),
        ),
    ),
)

NEWS20 = DatasetRow(
    name="news20",
    loader="load_news20",
    title="news20: 20 Newsgroups in LIBSVM's multiclass encoding",
    task="classification into 20 groups, labels 1 to 20",
    train_shape=(15_935, 62_061),
    test_shape=None,
    target_names=tuple(str(label) for label in range(1, 21)),
    licence="Public research collection; no explicit licence.",
    citation=NEWS_CITATION + " Preprocessed by Rennie and Rifkin, MIT AI Memo 2001-026.",
    source=f"{LIBSVM}/multiclass.html#news20",
    description=(
        "Word counts of the training file. It is not news20.binary, which has 1,355,191 features, "
        "and not the by-date split of load_20news."
    ),
    forms=(
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "news20.bz2",
                    "8c79851f6f5fdc5540a0d04a5ab728353c42d26b84e73f93bda301c06c15ffe9",
                    urls=(f"{LIBSVM}/multiclass/news20.bz2",),
                ),
            ),
        ),
    ),
)

REUTERS_ACQ = DatasetRow(
    name="reuters_acq",
    loader="load_reuters_acq",
    title="Reuters acquisitions (example of SVM-light)",
    task="binary classification, about a corporate acquisition (+1) or not (-1)",
    train_shape=(2_000, 9_947),
    test_shape=(600, 9_947),
    target_names=("-1", "+1"),
    licence="Free for research.",
    citation=("Joachims, Making large-scale SVM learning practical, in Advances in Kernel Methods, 1999."),
    source="https://www.cs.cornell.edu/people/tj/svm_light/",
    description=(
        "Tf-idf weights of Reuters-21578 stories on the category acq, rows of unit norm, classes "
        "balanced; two test rows are empty. Identified with the SVM-light example by its sizes, "
        "not by a checksum."
    ),
    forms=(
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "train.bz2",
                    "d173f2a948cc949d8799f5a4848d1e8b14342450864040ff85b87ce9a21c59af",
                ),
                DataFile(
                    "test",
                    "test.bz2",
                    "6cbd09dec812e00607fc60a0ee388d28e8e924f6ce2885328ca0ccde36ccbc50",
                ),
            ),
            note="The public copy, compressed; the copy is served uncompressed.",
        ),
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "small_train.dat",
                    "e49c95459a812ad6f76bfe1abc8ef274b050911420c78cb96010e4c783e54af1",
                    urls=(f"{_COCOA}/small_train.dat",),
                ),
                DataFile(
                    "test",
                    "small_test.dat",
                    "ff8f671dfe951635aefdcc6c709a44345dd5a8634b0fdff036246a836c3a0730",
                    urls=(f"{_COCOA}/small_test.dat",),
                ),
            ),
        ),
    ),
)

E2006 = DatasetRow(
    name="e2006",
    loader="load_e2006",
    title="E2006-tfidf: risk from financial reports",
    task="regression, log volatility of stock returns",
    train_shape=(16_087, 150_360),
    test_shape=(3_308, 150_360),
    licence="Not stated by the source; cite the paper.",
    citation=(
        "Kogan, Levin, Routledge, Sagi and Smith, Predicting risk from financial reports with "
        "regression, NAACL 2009."
    ),
    source=f"{LIBSVM}/regression.html#E2006-tfidf",
    description=(
        "Tf-idf weights of the words of 10-K reports, the regression set of the papers on "
        "DP-SGD-HT and DP-IGHT. The former uses the test part alone (3,308 rows). No digest of the "
        'test file is published: it is downloaded only with download="unverified".'
    ),
    forms=(
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "E2006.train.bz2",
                    "944066984ed3b6c9c3b137a4968afead81dc80f6b77f16f1988b0ecb591c4683",
                    urls=(f"{LIBSVM}/regression/E2006.train.bz2",),
                ),
                DataFile("test", "E2006.test.bz2", urls=(f"{LIBSVM}/regression/E2006.test.bz2",)),
            ),
        ),
    ),
)

REAL_SIM = DatasetRow(
    name="real_sim",
    loader="load_real_sim",
    title="real-sim: real and simulated aviation news",
    task="binary classification with labels -1 and +1",
    train_shape=(72_309, 20_958),
    test_shape=None,
    target_names=("-1", "+1"),
    licence="Not stated by the source.",
    citation=(
        "McCallum, SRAA: simulated, real, aviation, auto UseNet data; encoding of the LIBSVM collection."
    ),
    source=f"{LIBSVM}/binary.html#real-sim",
    description=(
        "Word weights of UseNet postings, rows of unit norm; one of the sets of the paper on DP-SPCA."
    ),
    forms=(
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "real-sim.bz2",
                    "7cd52374f55ce62e803ef33ca1c44689427c23d481eff64026f8ba9f53b8cc27",
                    urls=(f"{LIBSVM}/binary/real-sim.bz2",),
                ),
            ),
        ),
    ),
)

ROWS = (RCV1, NEWS20, REUTERS_ACQ, E2006, REAL_SIM)
