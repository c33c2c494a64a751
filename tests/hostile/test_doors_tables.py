"""The doors of tables, statistics and searches: persons, prices and statuses that got lost on the way in."""

import uuid

import numpy as np
import pandas
import pytest

import sordino
from sordino import errors
from sordino.tables import Number, Person, Target

IDS = {
    "UUIDs": lambda i: uuid.UUID(int=i),
    "bytes": lambda i: i.to_bytes(8, "big"),
    "tuples": lambda i: (i // 7, i % 7),
    "integers from 2^53 on": lambda i: 2**53 + i,
    "integers beyond 64 bits": lambda i: 2**70 + i,
}


@pytest.mark.parametrize("what", IDS)
def test_door_01_persons_of_a_table_are_told_apart_exactly(what):
    """400 UUIDs were one person, 2^53 and 2^53 + 1 too; one of them moved the sum by 2 clips, not 1."""
    ids = [IDS[what](i % 50) for i in range(200)]
    schema = sordino.Schema([Number("x", 0, 1), Person("id"), Target("y", levels=["no", "yes"])])
    table = {"x": [0.5] * 200, "id": ids, "y": ["no", "yes"] * 100}
    for form in (table, pandas.DataFrame({**table, "id": pandas.Series(ids, dtype=object)})):
        owners = schema.split(form)[2]
        assert len(set(owners.tolist())) == 50
        assert (owners == np.arange(200) % 50).all() or what != "UUIDs"
    model = sordino.LogisticRegression(schema=schema).fit(table)
    assert "number of persons: 50" in model.privacy_.public


def test_door_01_one_function_numbers_the_owners_of_tables_and_of_groups():
    """A table sent ids through texts, `groups` did not: what one refused the other merged."""
    schema = sordino.Schema([Number("x", 0, 1), Person("id"), Target("y", "number", low=0, high=1)])
    for ids in ([2.0**53, 2.0**53 + 2], ["a", None], ["NA", "b"], [1, "1"]):
        with pytest.raises(errors.SchemaError, match="'id'"):
            schema.split({"x": [0, 1], "y": [0, 1], "id": ids})
