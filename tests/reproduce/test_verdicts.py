"""The verdict on a published number: better, reproduced, or not and why."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sordino.literature.reproduce.tables import MODES, Cell, Row, Table, cell_of, verdict


def row(published: float | None = 0.3, method: str = "ours", plain: float | None = None) -> Row:
    return Row("set", method, 1.0, 1e-5, published, dict.fromkeys(MODES, "none"), plain)


def table(better="lower", likeness="same", **more) -> Table:
    return Table("t", "A paper, table 1", "loss", better, "Its set.", likeness, (), **more)


def judged(of: Table, one: Row, **cells) -> str:
    full = {mode: cells.get(mode, "none") for mode in MODES}
    return verdict(of, one, [(one, full)])


def test_a_clearly_smaller_loss_is_better_and_says_by_what():
    assert (
        judged(table(), row(0.3), sound=Cell((0.2,)), default=Cell((0.25,))) == "better, by the same method"
    )
    assert judged(table(), row(0.3), sound=Cell((0.9,)), default=Cell((0.2,))) == "better, by our default"


def test_a_higher_score_is_better_where_the_table_says_so():
    assert judged(table("higher"), row(80.0), sound=Cell((85.0,))).startswith("better")
    assert judged(table("higher"), row(80.0), sound=Cell((70.0,))).startswith("not reproduced")


def test_within_two_standard_errors_a_number_is_reproduced():
    near = Cell((0.30, 0.34))  # mean .32, standard error .02
    assert judged(table(), row(0.3), sound=near).startswith("reproduced")
    assert judged(table(), row(0.3), sound=Cell((0.32, 0.3200001))).startswith("not reproduced")


def test_a_miss_is_explained_by_what_the_printed_noise_certifies():
    paper = Cell((0.1,), {"add-remove": 3.0, "replace-one": 7.0})
    said = judged(table(), row(0.3), paper=paper, sound=Cell((0.9,)), plain=Cell((0.2,)))
    assert "certifies 7, not 1" in said


def test_a_miss_is_explained_by_what_can_be_had_without_privacy():
    said = judged(table(), row(0.3), sound=Cell((0.9,)), plain=Cell((0.5,)))
    assert said.startswith("not reproduced: 0.9 is reached, 0.3 is printed")
    assert "without privacy 0.5" in said


def test_on_a_stand_in_the_distance_from_the_plain_model_is_compared():
    stand_in, one = table(likeness="stand-in"), row(0.3, plain=0.2)  # published: 1.5 times the plain loss
    assert judged(stand_in, one, sound=Cell((3.0,)), plain=Cell((2.9,))).startswith("better")
    assert judged(stand_in, one, sound=Cell((9.0,)), plain=Cell((3.0,))).startswith("not reproduced")
    assert judged(stand_in, row(0.3), sound=Cell((3.0,)), plain=Cell((2.9,))).startswith("not comparable")


def test_on_a_stand_in_the_error_is_in_the_units_that_are_compared():
    stand_in, one = table("higher", likeness="stand-in"), row(94.0, plain=99.0)
    plain = Cell((78.0,))
    assert judged(stand_in, one, sound=Cell((66.0, 67.5)), plain=plain).startswith("not reproduced: 0.8558 ")
    assert judged(stand_in, one, sound=Cell((72.0, 75.0)), plain=plain).startswith("reproduced")


def test_for_a_figure_the_order_of_the_curves_is_compared():
    one, other = row(None, "a"), row(None, "b")
    drawn = table(order=(("a",), ("b",)))
    cells = [{**dict.fromkeys(MODES, "none"), "sound": Cell((v,))} for v in (0.1, 0.2)]
    assert verdict(drawn, one, list(zip((one, other), cells))) == "order of the curves reproduced"
    assert "not reproduced" in verdict(drawn, one, list(zip((one, other), reversed(cells))))
    equal = [{**cells[0], "sound": Cell((v,))} for v in (0.2001, 0.2)]
    assert verdict(drawn, one, list(zip((one, other), equal))) == "no order to see: b 0.2, a 0.2"


def test_an_order_that_is_not_seen_is_explained_by_the_printed_noise_and_by_our_default():
    one, other = row(None, "a"), row(None, "b")
    drawn = table(order=(("a",), ("b",)))
    printed = [Cell((0.1,), {"add-remove": 9.0}), Cell((0.3,), {"add-remove": 0.1})]
    cells = [
        {"paper": paper, "sound": Cell((v,)), "default": Cell((0.15,)), "plain": "none"}
        for paper, v in zip(printed, (0.4, 0.2))
    ]
    assert verdict(drawn, one, list(zip((one, other), cells))) == (
        "order of the curves not reproduced: here b 0.2, a 0.4; the printed noise, which certifies up to 9, "
        "shows it: a 0.1, b 0.3; our default reaches 0.15"
    )
    cells = [{**c, "paper": p, "default": Cell((0.3,))} for c, p in zip(cells, reversed(printed))]
    said = verdict(drawn, one, list(zip((one, other), cells)))
    assert said.endswith("does not show it either: b 0.1, a 0.3")


def test_a_miss_names_the_method_that_beats_the_best_printed_one():
    one, other = row(0.24, "agd"), row(0.23, "srm")
    cells = [{**dict.fromkeys(MODES, "none"), "sound": Cell((v,))} for v in (0.25, 0.22)]
    said = verdict(table(), one, list(zip((one, other), cells)))
    assert said.endswith("our best at this epsilon is 0.22 (srm), the best printed 0.23 (srm)")
    assert "our best" not in verdict(table(rivals=False), one, list(zip((one, other), cells)))
    cells[1]["sound"] = Cell((0.24,))
    assert "our best" not in verdict(table(), one, list(zip((one, other), cells)))


def test_every_miss_has_a_reason():
    miss = judged(table(), row(0.3), sound=Cell((0.9,)), plain=Cell((0.2,)))
    assert miss.endswith("the same method with sound noise reaches 0.9 here")
    known = judged(table(), row(0.3, plain=0.1), sound=Cell((0.9,)), plain=Cell((0.2,)))
    assert known.endswith("without privacy 0.2 is reached here, 0.1 is printed")
    stand_in, one = table(likeness="stand-in"), row(0.3, plain=0.2)
    paper = Cell((4.0,), {"add-remove": 0.5})
    said = judged(stand_in, one, paper=paper, sound=Cell((9.0,)), default=Cell((6.0,)), plain=Cell((2.0,)))
    assert said == (
        "not reproduced: 3 times the model without privacy is reached, 1.5 is printed; the printed noise "
        "itself reaches 2 times that here"
    )


def test_a_cell_that_is_not_finite_is_never_the_best():
    assert judged(table(), row(0.3), sound=Cell((math.inf,)), default=Cell((0.2,))).endswith("our default")
    assert "nothing here runs" in judged(table(), row(0.3), sound=Cell((math.inf,)))


def test_the_standard_error_is_that_of_the_mean():
    cell = cell_of([{"value": v, "add-remove": 2.0} for v in (1.0, 2.0, 3.0, 4.0)])
    assert cell.mean == 2.5
    assert cell.error == pytest.approx(np.std([1, 2, 3, 4], ddof=1) / 2)
    assert cell.certified == {"add-remove": 2.0}


def test_noise_that_certifies_nothing_is_said_in_words():
    paper = Cell((0.1,), {"add-remove": math.inf})
    assert "certifies nothing, not 1" in judged(table(), row(0.3), paper=paper, sound=Cell((0.9,)))
    drawn, methods = table(order=(("a",), ("b",))), (row(None, "a"), row(None, "b"))
    cells = [{**dict.fromkeys(MODES, "none"), "paper": paper, "sound": Cell((v,))} for v in (0.2, 0.1)]
    assert "certifies nothing for some of them" in verdict(drawn, methods[0], list(zip(methods, cells)))
