"""The password of a ledger's URL is nowhere to be seen."""

import copy
import json
import pickle
import subprocess
import sys
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import LedgerError
from sordino.ledger import Ledger
from sordino.ledger.address import Address, hide, public_part
from sordino.ledger.postgres import PostgresStore

URL = "postgresql://ada:s3cret@host:5432/budgets?sslmode=require"
PUBLIC = "postgresql://ada@host:5432/budgets?sslmode=require"


@pytest.mark.parametrize(
    "shown", [str, repr, format, json.dumps, "%s".__mod__, pickle.dumps, lambda a: f"{a}", lambda a: a + ""]
)
def test_no_way_of_writing_an_address_shows_its_password(shown):
    assert b"s3cret" not in str(shown(Address(URL))).encode()


def test_the_whole_url_can_be_revealed_in_this_process():
    assert Address(URL) == PUBLIC
    assert Address(URL).reveal() == URL
    assert copy.deepcopy(Address(URL)).reveal() == URL
    assert pickle.loads(pickle.dumps(Address(URL))).reveal() == URL


def test_another_process_does_not_learn_the_password():
    code = f"import pickle; print(pickle.loads({pickle.dumps(Address(URL))!r}).reveal())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == PUBLIC


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("postgresql://ada:s3/cret@host/db", "postgresql://host/db"),
        ("postgresql://ada:s3@cret@host/db", "postgresql://host/db"),
        ("postgresql://ada:s3?cret@host/db", "postgresql://ada@host/db"),
        ("postgresql://ada:s3/c?ret@host/db", "postgresql://host/db"),
        ("postgresql://:s3cret@host/db", "postgresql://host/db"),
        ("postgresql://host/db?password=s3cret", "postgresql://host/db"),
        ("postgresql://host/db?a=1&pass%77ord=s;3&b=2", "postgresql://host/db?a=1&b=2"),
        ("postgresql://host/db?sslpassword=s3cret", "postgresql://host/db"),
        ("mysql://ada:s3cret@host/db", "mysql://ada@host/db"),
        ("postgresql:///db?host=/tmp", "postgresql:///db?host=/tmp"),
    ],
)
def test_every_spelling_of_a_password_is_left_out(url, public):
    assert public_part(url) == public
    assert Address(public) == public


@given(st.text(min_size=4).filter(lambda s: "@" not in s), st.text())
def test_no_password_survives_whatever_its_characters(password, rest):
    marked = f"\u2603{password}\u2603"
    assert "\u2603" not in public_part(f"postgresql://ada:{marked}@host/{rest.replace(chr(0x2603), '')}")


def test_what_is_no_url_comes_back_untouched(tmp_path):
    for value in (None, "ledger.sqlite", tmp_path, 3):
        assert hide(value) is value
    address = hide(URL)
    assert isinstance(address, Address)
    assert hide(address) is address


def test_a_failed_connection_names_no_password():
    pytest.importorskip("psycopg")
    url = "postgresql://ada:s3cret@[::1]x/db"  # libpq would quote the whole of it
    with pytest.raises(LedgerError) as caught:
        Ledger.open(url)
    words = "".join(traceback.format_exception(caught.value))
    assert "s3cret" not in words
    assert "s3cret" not in repr(caught.value)


@pytest.mark.parametrize("password", ["s3cret", "s3?cret", "s3/cret"])
def test_no_text_of_a_ledger_holds_the_password(password, monkeypatch):
    pytest.importorskip("psycopg")
    url = f"postgresql://ada:{password}@127.0.0.1:1/db"
    monkeypatch.setattr(PostgresStore, "_prepare", lambda store, create, migrate: None)
    ledger = Ledger.open(url)
    kind, arguments = ledger.__reduce__()
    assert kind.func == Ledger.open
    words = [repr(ledger), pickle.dumps((kind, arguments)).decode("latin-1"), repr((kind, arguments))]
    with pytest.raises(LedgerError) as caught:
        ledger.datasets()
    words += [str(caught.value), repr(caught.value.__cause__)]
    assert not any("s3" in text for text in words)
