"""Files of records are read value by value, as declared; what cannot be read is refused without a value."""

import io
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from sordino.errors import DataFileError, InvalidInputError
from sordino.tables.files import AS_IS, NUMBER, TEXT, DataFile, read_matrix, read_names, read_table

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

KINDS = {"age": NUMBER, "town": TEXT}
SECRET = "5 Rue Morgue"


@pytest.fixture
def file(tmp_path):
    def write(content, name="people.csv", **how):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return DataFile(str(path), **how)

    return write


def rows(frame):
    return [
        tuple(None if value != value else value for value in row) for row in frame.itertuples(index=False)
    ]


# ------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize(
    ("content", "how"),
    [
        ("age,town\n34,Bonn\n,\n", {}),
        ("age,town\r\n34,Bonn\r\n,\r\n", {}),
        ("\ufeffage,town\n34,Bonn\n,\n", {}),
        ("age;town\n34;Bonn\n;\n", {}),
        ("age|town\n34|Bonn\n|\n", {}),
        ('"age","town"\n"34","Bonn"\n"",""\n', {}),
        ("age , town\n 34 , Bonn \n , \n", {}),
        ("town,age\nBonn,34\n,NA\n", {}),
        ("id,age,town\n7,34,Bonn\n8,?,\n", {}),
        ("age:town\n34:Bonn\n:\n", {"delimiter": ":"}),
        ("age,town\n34,Bonn\n,\n".encode("utf-16"), {"encoding": "utf-16"}),
    ],
)
def test_the_same_table_in_many_dresses(file, content, how):
    assert rows(read_table(file(content, **how), KINDS).to_pandas()) == [(34.0, "Bonn"), (None, None)]


def test_quotes_hold_delimiters_line_ends_and_quotes(file):
    found = read_table(file('age,town\n1,"a,b"\n2,"two\nlines"\n3,"5"" pipe"\n'), KINDS).to_pandas()
    assert list(found["town"]) == ["a,b", "two\nlines", '5" pipe']


def test_letters_of_latin_1_are_read_when_it_is_declared(file):
    content = "age;größe\n1,5;Köln\n".encode("latin-1")
    found = read_table(
        file(content, encoding="latin-1", decimal=","), {"age": NUMBER, "größe": TEXT}
    ).to_pandas()
    assert rows(found) == [(1.5, "Köln")]


def test_categories_that_look_like_numbers_keep_their_zeros_whatever_others_hold(file):
    with_gap = read_table(file("age,town\n1,007\n2,1\n3,\n"), KINDS).to_pandas()
    without = read_table(file("age,town\n1,007\n2,1\n3,1.0\n"), KINDS).to_pandas()
    assert list(with_gap["town"])[:2] == list(without["town"])[:2] == ["007", "1"]


def test_a_file_without_a_header_takes_its_names_from_the_caller(file):
    source = file("34\tBonn\n", "p.tsv", header=False)
    assert rows(read_table(source, KINDS, names=["age", "town"]).to_pandas()) == [(34.0, "Bonn")]
    with pytest.raises(DataFileError, match="names"):
        read_table(source, KINDS).to_pandas()


def test_standard_input_can_be_read_twice(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"age,town\n34,Bonn\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    source = DataFile("-")
    assert read_names(source) == ["age", "town"]
    assert rows(read_table(source, KINDS).to_pandas()) == [(34.0, "Bonn")]


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.feather"])
def test_columnar_files_are_read_by_column(tmp_path, name):
    table = pa.table({"age": [34, None], "town": [7, None], "seen": pa.array([1, None], pa.timestamp("s"))})
    path = str(tmp_path / name)
    if name.endswith("parquet"):
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, path)
    assert read_names(DataFile(path)) == ["age", "town", "seen"]
    found = read_table(DataFile(path), {**KINDS, "seen": AS_IS}).to_pandas()
    assert rows(found[["age", "town"]]) == [(34.0, "7"), (None, None)], "a gap does not make 7 a 7.0"
    assert found["seen"].dtype.kind == "M"


def test_a_packed_file_is_unpacked(file):
    import gzip

    assert rows(read_table(file(gzip.compress(b"age,town\n34,Bonn\n"), "p.csv.gz"), KINDS).to_pandas()) == [
        (34.0, "Bonn")
    ]


def test_matrices_come_from_csv_npz_and_libsvm(file, tmp_path):
    found = read_matrix(file("a,b,y\n1,2,yes\n3,4,no\n"), target="y", labels=True)
    assert np.array_equal(found.X, [[1, 2], [3, 4]])
    assert list(found.y) == ["yes", "no"]
    assert found.names == ("a", "b")
    np.savez(tmp_path / "m.npz", X=np.eye(2), y=[0, 1])
    found = read_matrix(DataFile(str(tmp_path / "m.npz")))
    assert np.array_equal(found.X, np.eye(2))
    assert list(found.y) == [0, 1]
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_matrix(np.eye(3)))
    assert read_matrix(DataFile(str(tmp_path / "s.npz"))).X.shape == (3, 3)
    found = read_matrix(file("1 1:2.5 3:1\n-1 2:1\n", "m.svm"), features=4)
    assert np.array_equal(found.X.toarray(), [[2.5, 0, 1, 0], [0, 1, 0, 0]])


# -------------------------------------------------------------------------- bad input: the stated list

BAD = {
    "empty": ("", "it is empty"),
    "only a line end": ("\n1,2\n", "first line is empty"),
    "only a header": ("age,town\n", "no records"),
    "a row that is cut off": (
        f"age,town\n1,{SECRET}\n2",
        "row 3 has 1 fields, the header 2",
    ),
    "a long row": (f"age,town\n1,{SECRET},2\n", "row 2 has 3 fields, the header 2"),
    "a quote that is never closed": (f'age,town\n1,"{SECRET}\n2,x\n', "odd number of quotes"),
    "no such column": ("age,city\n1,Bonn\n", "no column 'town'"),
    "a column twice": ("age,town,town\n1,Bonn,Rome\n", "columns 2 and 3 have the same name"),
    "a column without a name": ("age,,town\n1,2,Bonn\n", "column 2 has no name"),
    "not numbers": (f"age,town\n1,Bonn\n{SECRET},Rome\n", "row 3 .*column 'age'"),
    "a decimal comma": ("age;town\n1,5;Bonn\n", "decimal=','"),
    "Latin-1": ("age,town\n1,Köln\n".encode("latin-1"), "row 2.*encoding='latin-1'"),
    "Latin-1 in the names": ("age,größe\n1,2\n".encode("latin-1"), "names of its columns.*latin-1"),
    "too many columns": ("x,".join(map(str, range(100_001))) + "x\n", "100001 columns"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_csv_file_is_refused_in_words_without_values(file, case):
    content, words = BAD[case]
    with pytest.raises(DataFileError, match=rf"people\.csv: .*{words}") as caught:
        read_table(file(content), KINDS).to_pandas()
    error = caught.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.npz"])
def test_every_truncation_of_a_binary_file_is_refused(tmp_path, name):
    path = tmp_path / name
    table = pa.table({"age": np.arange(500.0), "town": [SECRET] * 500})
    if name.endswith("parquet"):
        parquet.write_table(table, path)
    elif name.endswith("arrow"):
        feather.write_feather(table, str(path), compression="uncompressed")
    else:
        np.savez(path, X=np.arange(500.0)[:, None])
    read = read_matrix if name.endswith("npz") else lambda file: read_table(file, KINDS).to_pandas()
    whole = path.read_bytes()
    for cut in range(0, len(whole), len(whole) // 19):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataFileError, match="cut off"):
            read(DataFile(str(path)))


def test_types_of_columnar_files_are_checked_against_the_declaration(tmp_path):
    path = str(tmp_path / "t.parquet")
    parquet.write_table(pa.table({"age": [SECRET], "town": pa.array([[1]], pa.list_(pa.int64()))}), path)
    with pytest.raises(DataFileError, match="'age' holds string, and numbers"):
        read_table(DataFile(path), {"age": NUMBER}).to_pandas()
    with pytest.raises(DataFileError, match="'town' holds list"):
        read_table(DataFile(path), {"town": TEXT}).to_pandas()
    with pytest.raises(DataFileError, match="no column 'nothing'"):
        read_table(DataFile(path), {"nothing": TEXT}).to_pandas()


def test_libsvm_and_npz_files_that_lie_are_refused(file, tmp_path):
    for content in (b"1 0:2\n", b"1 x:2\n", f"{SECRET} 1:2\n".encode(), b"1 2:1 1:1\n", b""):
        with pytest.raises(DataFileError) as caught:
            read_matrix(file(content, "m.svm", features=4))
        assert SECRET not in str(caught.value)
        assert caught.value.__context__ is None, "the reader's own words quote the data"
    np.savez(tmp_path / "o.npz", X=np.array([object()]))
    with pytest.raises(DataFileError, match="Python objects"):
        read_matrix(DataFile(str(tmp_path / "o.npz")))
    np.savez(tmp_path / "n.npz", Z=np.eye(2))
    with pytest.raises(DataFileError, match="no array X"):
        read_matrix(DataFile(str(tmp_path / "n.npz")))


def _empty(path):
    path.touch()
    return path


def test_paths_that_lead_nowhere_are_refused(tmp_path):
    with pytest.raises(DataFileError, match="no such file"):
        read_table(DataFile(str(tmp_path / "no.csv")), KINDS).to_pandas()
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataFileError, match=r"folder|cannot be read"):
        read_table(DataFile(str(tmp_path / "folder.csv")), KINDS).to_pandas()
    with pytest.raises(DataFileError, match="does not say what it is"):
        read_table(DataFile(str(_empty(tmp_path / "people.xlsx"))), KINDS).to_pandas()
    with pytest.raises(DataFileError, match=r"^\.: it is a folder without Parquet files. Pass a file"):
        read_table(DataFile("."), KINDS).to_pandas()
    with pytest.raises(DataFileError, match=r"^nothing: there is no such file"):
        read_table(DataFile(str(tmp_path / "nothing")), KINDS).to_pandas()


@pytest.mark.parametrize(
    "how", [{"format": "xls"}, {"delimiter": ",,"}, {"encoding": "no-such"}, {"decimal": "x"}]
)
def test_settings_that_mean_nothing_are_refused(how):
    with pytest.raises(InvalidInputError):
        DataFile("people.csv", **how)


# ------------------------------------------------------------- one record never changes how others are read

cells = st.text(
    st.characters(codec="utf-8", exclude_characters='"\r\n,', exclude_categories=("Cs",)), max_size=8
)


@settings(max_examples=60)
@given(st.lists(cells, min_size=1, max_size=5), cells)
def test_a_record_is_read_the_same_beside_any_other(towns, other):
    def read(texts):
        lines = [f'{i},"{text}"' for i, text in enumerate(texts)]
        source = DataFile("-", _read=["\n".join(["age,town", *lines, ""]).encode()])
        return list(read_table(source, KINDS).to_pandas()["town"].fillna("missing"))

    assert read([*towns, other])[:-1] == read(towns)


MARKS = st.sampled_from([b"\x00", b"\xff", b'"', b",", b"\n", b"\r", b";", b"\t", b"|", b"9", b""])
TABLE = b"age,town,y\n" + b'34,"Bo""nn",yes\n50,"a,\nb",no\n' * 3


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, len(TABLE) - 1), MARKS), min_size=1, max_size=4), st.booleans())
def test_damage_is_read_or_refused_in_our_own_words(damage, wide):
    content = bytearray(TABLE)
    for place, mark in damage:
        content[place : place + 1] = mark
    source = DataFile("-", encoding="utf-16" if wide else "utf-8", _read=[bytes(content)])
    refused = None
    try:
        read_table(source, {**KINDS, "y": TEXT}).to_pandas()
    except DataFileError as error:
        refused = error
    assert getattr(refused, "__context__", None) is None
    assert "Bo" not in str(refused)


def _parted(folder, tables):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder.mkdir()
    for number, columns in enumerate(tables):
        parquet.write_table(pyarrow.table(columns), folder / f"part-{number}.parquet")
    return DataFile(str(folder))


@pytest.mark.parametrize("name", ["rows", "rows.parquet"])
def test_a_folder_of_parquet_files_is_one_table_in_the_order_of_their_names(tmp_path, name):
    file = _parted(tmp_path / name, [{"a": [1.0, 2.0], "b": ["x", "y"]}, {"a": [3.0], "b": ["z"]}])
    (tmp_path / name / "_SUCCESS").touch()
    frame = read_table(file, {"a": NUMBER, "b": TEXT}).to_pandas()
    assert frame["a"].tolist() == [1.0, 2.0, 3.0]
    assert frame["b"].tolist() == ["x", "y", "z"]
    assert read_names(file) == ["a", "b"]


def test_parquet_files_with_other_columns_are_refused_without_their_values(tmp_path):
    file = _parted(tmp_path / "rows", [{"a": [1.0], "b": [2.0]}, {"a": [3.0]}])
    with pytest.raises(DataFileError) as refusal:
        read_table(file, {"a": NUMBER, "b": NUMBER}).to_pandas()
    assert "3" not in str(refusal.value)
