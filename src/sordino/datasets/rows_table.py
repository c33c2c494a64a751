"""Registry rows of the tables: census, network, fund raising and small LIBSVM sets."""

from __future__ import annotations

from sordino.datasets.registry import DataFile, DatasetRow, Form

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_TICK = "https://raw.githubusercontent.com/X-DataInitiative/tick-datasets/master/binary/ijcnn1"
_KDD = "http://kdd.ics.uci.edu/databases/kddcup99"
REPACKED = "Repacked; no public original in this format."

A9A = DatasetRow(
    name="a9a",
    loader="load_a9a",
    title="a9a: census income, binary features",
    task="binary classification, income above 50,000 dollars (+1) or not (-1)",
    train_shape=(32_561, 123),
    test_shape=(16_281, 123),
    target_names=("-1", "+1"),
    licence="CC BY 4.0 (UCI Adult, from which it is derived).",
    citation=(
        "Platt, Fast training of SVMs using sequential minimal optimization, 1998; Becker and "
        "Kohavi, Adult, UCI Machine Learning Repository, 1996."
    ),
    source=f"{LIBSVM}/binary.html#a9a",
    description=(
        "The Adult census extract with its continuous columns cut at quantiles and all columns "
        "one-hot encoded by Platt, so entries are 0 or 1 and a row has at most 14 ones. The cut "
        "points were quantiles of the data and are not private."
    ),
    forms=(
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "a9a.bz2",
                    "1dcb2b4aedea0b5a9e964192dd211675d16cf05ab6477ddd0702d87c1d1af8da",
                ),
                DataFile(
                    "test",
                    "a9a.t.bz2",
                    "e55725b53c3c47f7053bd3ef12e41555539eac4c0fe989e69345cc4dd0ea6e8d",
                ),
            ),
            note="The original files, compressed; the originals are served uncompressed.",
        ),
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "a9a",
                    "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
                    urls=(f"{LIBSVM}/binary/a9a",),
                ),
                DataFile(
                    "test",
                    "a9a.t",
                    "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
                    urls=(f"{LIBSVM}/binary/a9a.t",),
                ),
            ),
        ),
    ),
)

IJCNN1 = DatasetRow(
    name="ijcnn1",
    loader="load_ijcnn1",
    title="ijcnn1: engine misfires",
    task="binary classification, imbalanced (nine tenths are -1)",
    train_shape=(49_990, 22),
    test_shape=(91_701, 22),
    target_names=("-1", "+1"),
    licence="Not stated by the source.",
    citation=(
        "Prokhorov, IJCNN 2001 neural network competition; Chang and Lin, IJCNN 2001 challenge: "
        "generalization ability and text decoding, IJCNN 2001."
    ),
    source=f"{LIBSVM}/binary.html#ijcnn1",
    description=(
        "A time series of an engine in the winner's encoding: ten one-hot columns for the place "
        "in the cycle and twelve continuous ones. The training part includes the validation rows. "
        "A constant prediction is right nine times in ten, so accuracy alone says little. "
        "LIBSVM's own files of the same names are read as well."
    ),
    forms=(
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "ijcnn1.bz2",
                    "b38a4198ce142d43e96fb86d17b87211feec1f909ac344fa057455c69de29de3",
                    urls=(f"{_TICK}/ijcnn1.trn.bz2",),
                ),
                DataFile(
                    "test",
                    "ijcnn1.t.bz2",
                    "acd1db430684fdd3f0c768ecc49aa8e749d0004fc117611220c2aa576a7b6a24",
                    urls=(f"{_TICK}/ijcnn1.tst.bz2",),
                ),
            ),
        ),
    ),
)

MUSHROOMS = DatasetRow(
    name="mushrooms",
    loader="load_mushrooms",
    title="mushrooms: edible or poisonous",
    task="binary classification with labels 1 and 2",
    train_shape=(8_124, 112),
    test_shape=None,
    target_names=("1", "2"),
    licence="CC BY 4.0 (UCI Mushroom, from which it is derived).",
    citation="Mushroom, UCI Machine Learning Repository, 1981 (donor J. Schlimmer).",
    source=f"{LIBSVM}/binary.html#mushrooms",
    description=(
        "Twenty-one traits of gilled mushrooms, one-hot encoded: every row has 21 ones. The "
        "classes are separable, so a non-private model makes no errors."
    ),
    forms=(
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "mushrooms.bz2",
                    "a039b9f09528a5dcfb76e0e3d32eb29b10aa6852485d90fc79cc8dffd3f192e2",
                ),
            ),
            note="The original file, compressed; the original is served uncompressed.",
        ),
        Form(
            "libsvm",
            (
                DataFile(
                    "train",
                    "mushrooms",
                    "f39a4eb628dc61a7d43760815b061c9e497aa728ce1ad8bde57a09ef6043b538",
                    urls=(f"{LIBSVM}/binary/mushrooms",),
                ),
            ),
        ),
    ),
)

ADULT = DatasetRow(
    name="adult",
    loader="load_adult",
    title="Adult: census income, raw",
    task="binary classification, income above 50,000 dollars (1) or not (0)",
    train_shape=(32_561, 14),
    test_shape=(16_281, 14),
    target_names=("<=50K", ">50K"),
    licence="CC BY 4.0.",
    citation="Becker and Kohavi, Adult, UCI Machine Learning Repository, 1996.",
    source="https://archive.ics.uci.edu/dataset/2/adult",
    description=(
        "Six numbers and eight categories about people in the 1994 census of the United States, "
        "with missing values. The loader encodes them by a declared vocabulary and declared "
        "bounds into 104 columns, the number in chapter 6 of Wang's dissertation."
    ),
    forms=(
        Form(
            "adult",
            (
                DataFile(
                    "train",
                    "adult.data.xz",
                    "e2c5481d3fc7ca414e6f2989f04234c7ab8a1d7edef0982ec2c4b437622f1ea7",
                ),
                DataFile(
                    "test",
                    "adult.test.xz",
                    "87eb612c37d05baad04dc9ab0807ef1e4031826b6bc1fc5f64ac08257f624f30",
                ),
            ),
            note="The original rows, compressed, without the comment line and the empty last line.",
        ),
        Form(
            "adult",
            (
                DataFile(
                    "train",
                    "adult.data",
                    "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
                    urls=(f"{_UCI}/adult/adult.data",),
                ),
                DataFile(
                    "test",
                    "adult.test",
                    "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
                    urls=(f"{_UCI}/adult/adult.test",),
                ),
            ),
        ),
    ),
)

KDDCUP99 = DatasetRow(
    name="kddcup99",
    loader="load_kddcup99",
    title="KDD Cup 1999: network connections",
    task="classification: denial of service, any attack, or the kind of attack",
    train_shape=(494_021, 41),
    test_shape=(311_029, 41),
    licence="CC BY 4.0.",
    citation="Stolfo, Fan, Lee, Prodromidis and Chan, KDD Cup 1999 Data, UCI KDD Archive, 1999.",
    source="https://archive.ics.uci.edu/dataset/130/kdd+cup+1999+data",
    description=(
        "The ten per cent training sample and the corrected test set, whose attacks are partly "
        "new. Most rows occur many times, so one record of the raw data does not stand for one "
        "person. The loader encodes 38 numbers and three categories into 122 columns, as in "
        "chapter 6 of Wang's dissertation."
    ),
    forms=(
        Form(
            "kddcup99",
            (
                DataFile(
                    "train",
                    "kddcup.data_10_percent.gz",
                    "8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
                    urls=(
                        f"{_KDD}/kddcup.data_10_percent.gz",
                        "https://ndownloader.figshare.com/files/5976042",
                    ),
                    copies=("7bfaa8cef1350f72842018c32893e2fa4539d57efbb22f998eb74ecefc3da3b4",),
                ),
                DataFile(
                    "test",
                    "corrected.gz",
                    "abd8165508378859b07e38537271f0ebf8a4d7319f643188cd7361e939a05c43",
                    urls=(f"{_KDD}/corrected.gz", f"{_UCI}/kddcup99-mld/corrected.gz"),
                    copies=("74f0daef49b242badc09f2adbd457dea6a45b4f77177efbd11216d333651044b",),
                ),
            ),
        ),
    ),
)

DONOR_PVA = DatasetRow(
    name="donor_pva",
    loader="load_donor_pva",
    title="DONOR: gifts to a veterans' organisation",
    task="binary classification (gave or not) or regression (the amount)",
    train_shape=(19_372, 48),
    test_shape=None,
    target_names=("No", "Yes"),
    licence="GPL 2 or later (the R package regclass).",
    citation=(
        "Petrie, regclass: tools for an introductory class in regression and modeling, CRAN, "
        "2020; adapted there from KDD Cup 1998 by way of SAS Enterprise Miner."
    ),
    source="https://cran.r-project.org/package=regclass",
    description=(
        "A sample related to KDD Cup 1998 in which a quarter of the people gave; it is not the "
        "cup's own training set, and numbers on it are not KDD Cup 98 numbers. Has missing "
        "values. The loader leaves the identifier out and encodes the other columns by declared "
        "levels and bounds."
    ),
    forms=(
        Form(
            "donor",
            (
                DataFile(
                    "train",
                    "donor.csv.xz",
                    "bd2a4fee9af8b907243bcba841237973196eb4734f51d0e7598f0368f5e95e18",
                ),
            ),
            note=REPACKED + " The original is the table DONOR of the R package regclass.",
        ),
    ),
)

ROWS = (A9A, IJCNN1, MUSHROOMS, ADULT, KDDCUP99, DONOR_PVA)
