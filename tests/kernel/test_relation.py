"""The two neighbouring relations."""

import pytest

from sordino.errors import InvalidInputError
from sordino.kernel import Relation


def test_relations_are_read_from_their_names():
    assert Relation.parse("add-remove") is Relation.ADD_REMOVE
    assert Relation.parse("replace-one") is Relation.REPLACE_ONE
    assert Relation.parse(Relation.REPLACE_ONE) is Relation.REPLACE_ONE


@pytest.mark.parametrize("name", ["add_remove", "", None, 3, "ADD_REMOVE"])
def test_another_name_is_refused_with_the_known_ones(name):
    with pytest.raises(InvalidInputError, match="'add-remove', 'replace-one'") as error:
        Relation.parse(name)
    assert repr(name) in str(error.value)


def test_replacing_moves_two_contributions_and_removing_one():
    assert Relation.ADD_REMOVE.contributions == 1
    assert Relation.REPLACE_ONE.contributions == 2


def test_a_relation_prints_as_its_name():
    assert f"{Relation.REPLACE_ONE}" == "replace-one"
    assert [r.value for r in Relation] == ["add-remove", "replace-one"]
