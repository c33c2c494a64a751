"""Claim 13, the ledger's part: errors, reprs and pickles of a ledger hold the password of its URL."""

import pickle

import pytest

from sordino.errors import LedgerError
from sordino.ledger import Ledger
from sordino.ledger.ledger import _reopen
from sordino.ledger.postgres import PostgresStore


@pytest.mark.parametrize("password", ["s3cret", "s3?cret", "s3/cret"])
def test_no_text_of_a_ledger_holds_the_password(password, monkeypatch):
    pytest.importorskip("psycopg")
    url = f"postgresql://ada:{password}@127.0.0.1:1/db"
    monkeypatch.setattr(PostgresStore, "_prepare", lambda store, create: None)
    ledger = Ledger.open(url)
    kind, arguments = ledger.__reduce__()
    assert kind is _reopen
    words = [repr(ledger), pickle.dumps(arguments).decode("latin-1"), repr(arguments)]
    with pytest.raises(LedgerError) as caught:
        ledger.datasets()
    words += [str(caught.value), repr(caught.value.__cause__)]
    assert not any("s3" in text for text in words)
