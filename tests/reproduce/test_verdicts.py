"""The verdict on a published number: by the method, by our default, or not and why; orders of curves once."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sordino.literature.reproduce.tables import (
    BY_DEFAULT,
    BY_METHOD,
    BY_PRINTED,
    IDLE,
    MISSED,
    MODES,
    NOT_REPRODUCIBLE,
    NOT_RUN,
    NOTHING,
    REPRODUCED,
    UNJUDGED,
    UNTRIED,
    Cell,
    Row,
    Table,
    Verdict,
    cell_of,
    count_kinds,
    count_words,
    judge,
    markdown,
    reference,
    verdict,
)


def row(published: float | None = 0.3, method: str = "ours", plain: float | None = None) -> Row:
    return Row("set", method, 1.0, 1e-5, published, dict.fromkeys(MODES, "none"), plain)


def table(better="lower", likeness="same", rows=(), **more) -> Table:
    return Table("t", "A paper, table 1", "loss", better, "Its set.", likeness, rows, **more)


def judged(of: Table, one: Row, **cells) -> Verdict:
    full = {mode: cells.get(mode, "none") for mode in MODES}
    return verdict(of, one, [(one, full)])


def test_a_smaller_loss_is_counted_for_the_method_before_our_default():
    both = judged(table(), row(0.3), sound=Cell((0.2, 0.2)), default=Cell((0.1,)))
    assert both.kind == BY_METHOD
    ours = judged(table(), row(0.3), sound=Cell((0.9,)), default=Cell((0.2,)))
    assert ours == Verdict(BY_DEFAULT, "the method reaches 0.9 for 0.3 printed")


def test_a_row_of_ours_beside_the_printed_ones_is_shown_and_not_counted():
    rows = (row(0.3), row(None, "our constants"))
    made = [(one, dict.fromkeys(MODES, Cell((0.2, 0.2)))) for one in rows]
    of = table(rows=rows)
    assert verdict(of, rows[1], made).kind == UNJUDGED
    assert list(judge(of, made)) == ["set/ours/1"]
    assert "| our constants | 1 (1e-05) | not printed |" in markdown(of, made, "sordino reproduce t")


def test_a_higher_score_is_better_where_the_table_says_so():
    assert judged(table("higher"), row(80.0), sound=Cell((85.0, 84.0))).kind == BY_METHOD
    assert judged(table("higher"), row(80.0), sound=Cell((70.0,))).kind == MISSED


def test_one_run_beats_nothing():
    assert judged(table(), row(0.3), sound=Cell((0.1,))).kind == REPRODUCED
    assert judged(table(), row(0.3), sound=Cell((0.1, 0.1))).kind == BY_METHOD


def test_the_room_is_a_tenth_of_the_printed_spread_and_noise_earns_none():
    rows = (row(0.3), row(0.4))
    assert judged(table(rows=rows), rows[0], sound=Cell((0.309,))).kind == REPRODUCED
    assert judged(table(rows=rows), rows[0], sound=Cell((0.311,))).kind == MISSED
    noisy = Cell((0.30, 0.38))  # mean .34, standard error .04: within two errors, and a miss
    assert judged(table(rows=rows), rows[0], sound=noisy).kind == MISSED
    lucky = Cell((0.15, 0.35))  # mean .25, standard error .1: not surely better
    assert judged(table(rows=rows), rows[0], sound=lucky).kind == REPRODUCED


def test_the_room_is_at_most_a_twentieth_of_the_number():
    rows = (row(0.3), row(3.0))
    assert judged(table(rows=rows), rows[0], sound=Cell((0.314,))).kind == REPRODUCED
    assert judged(table(rows=rows), rows[0], sound=Cell((0.316,))).kind == MISSED


def test_a_slope_is_judged_from_both_sides_by_its_tolerance_alone():
    steep = table(tolerance=0.15, two_sided=True, rows=(row(-0.5), row(1.5)))
    assert judged(steep, row(-0.5), sound=Cell((-0.6,))).kind == REPRODUCED
    assert judged(steep, row(-0.5), sound=Cell((-0.7,))).kind == MISSED
    assert judged(steep, row(-0.5), sound=Cell((-0.3,))).kind == MISSED


def test_drawn_noise_is_compared_within_a_share_from_both_sides():
    drawn = table(share=0.07, two_sided=True)
    assert judged(drawn, row(0.5), sound=Cell((0.47,))).kind == REPRODUCED
    assert judged(drawn, row(0.5), sound=Cell((0.46,))).kind == MISSED


def test_a_miss_is_not_reproducible_where_the_printed_noise_misses_too():
    behind = judged(table(), row(0.3), paper=Cell((0.8,), {"add-remove": 0.5}), sound=Cell((0.9,)))
    assert behind.kind == NOT_REPRODUCIBLE
    assert behind.words.endswith("the printed noise itself reaches 0.8 here")
    paper = Cell((0.8,), {"add-remove": 3.0, "replace-one": 7.0})
    said = judged(table(), row(0.3), paper=paper, sound=Cell((0.9,)), plain=Cell((0.2,)))
    assert said.kind == NOT_REPRODUCIBLE
    assert "certifies 7, not 1" in said.words


def test_a_miss_within_two_standard_errors_demonstrates_nothing():
    clear, unclear = Cell((0.7, 0.9)), Cell((0.1, 0.9))  # .8 ± .1 and .5 ± .4 for .3
    assert judged(table(), row(0.3), paper=clear, sound=clear).kind == NOT_REPRODUCIBLE
    for cells in ({"paper": clear, "sound": unclear}, {"paper": unclear, "sound": clear}):
        said = judged(table(), row(0.3), **cells)
        assert said.kind == MISSED
        assert said.words.endswith("not told apart: within two standard errors")
    steep = table(tolerance=0.15, two_sided=True)
    assert judged(steep, row(1.0), paper=clear, sound=unclear).kind == MISSED
    assert judged(steep, row(0.3), paper=clear, sound=clear).kind == NOT_REPRODUCIBLE


def test_on_a_stand_in_a_model_that_predicts_nothing_reaches_no_ratio():
    weak = table(likeness="stand-in", trivial={"set": 0.6})  # printed: 5 times the plain loss, in other units
    one = row(4.0, plain=0.8)
    assert judged(weak, one, sound=Cell((0.4, 0.4)), plain=Cell((0.2,))).kind == BY_METHOD
    said = judged(weak, one, sound=Cell((0.595, 0.595)), default=Cell((0.3,)), plain=Cell((0.2,)))
    assert said.kind == BY_DEFAULT
    assert said.words.endswith("no better than a model that predicts nothing")


def test_what_the_printed_noise_alone_reaches_is_counted_apart_with_its_certificate():
    paper = Cell((0.1,), {"add-remove": 3.0, "replace-one": 7.0})
    said = judged(table(), row(0.3), paper=paper, sound=Cell((0.9,)))
    assert said == Verdict(
        BY_PRINTED, "the method reaches 0.9 for 0.3 printed; the printed noise certifies 7, not 1"
    )
    kept = Cell((0.1,), {"add-remove": 0.5})  # noise that keeps the claim: the miss is ours
    assert judged(table(), row(0.3), paper=kept, sound=Cell((0.9,))).kind == MISSED
    assert judged(table(), row(0.3), paper=paper, sound=Cell((0.9,)), default=Cell((0.2,))).kind == BY_DEFAULT


def test_a_miss_may_be_ours_on_a_stand_in_and_where_no_privacy_misses_too():
    paper = Cell((0.8,), {"add-remove": 3.0})
    plain = judged(table(), row(0.3), paper=paper, sound=Cell((0.9,)), plain=Cell((0.5,)))
    assert plain.kind == MISSED
    stand_in = table(likeness="stand-in")
    said = judged(stand_in, row(0.3, plain=0.2), paper=paper, sound=Cell((0.9,)), plain=Cell((0.2,)))
    assert said.kind == MISSED
    assert "itself reaches" not in said.words  # its settings are ours


def test_another_protocol_is_not_judged():
    other = table(likeness="another protocol")
    assert judged(other, row(0.3), default=Cell((0.1,))) == Verdict(UNJUDGED, "another protocol")
    assert judged(other, row(0.3)).kind == NOT_RUN


def test_a_miss_says_what_can_be_had_without_privacy():
    said = judged(table(), row(0.3), sound=Cell((0.9,)), plain=Cell((0.5,)))
    assert str(said) == "missed: the method reaches 0.9 for 0.3 printed; without privacy 0.5 is reached here"


def test_on_a_stand_in_the_ratio_to_the_plain_model_is_compared():
    stand_in, one = table(likeness="stand-in"), row(0.3, plain=0.2)  # published: 1.5 times the plain loss
    assert judged(stand_in, one, sound=Cell((3.0, 3.0)), plain=Cell((2.9,))).kind == BY_METHOD
    missed = judged(stand_in, one, sound=Cell((9.0,)), plain=Cell((3.0,)))
    assert missed == Verdict(MISSED, "the method reaches 3 times the model without privacy for 1.5 printed")
    assert judged(stand_in, row(0.3), sound=Cell((3.0,)), plain=Cell((2.9,))).kind == NOT_RUN


def test_on_other_rows_of_the_set_number_and_ratio_have_to_hold():
    like, one = table(likeness="like"), row(0.3, plain=0.2)
    assert judged(like, one, sound=Cell((0.2, 0.2)), plain=Cell((0.15,))).kind == BY_METHOD
    small_number = judged(like, one, sound=Cell((0.2,)), plain=Cell((0.1,)))
    assert small_number.kind == MISSED
    assert "0.2 for 0.3, and 2 times the model without privacy for 1.5 printed" in small_number.words
    assert judged(like, one, sound=Cell((0.4,)), plain=Cell((0.39,))).kind == MISSED


def test_a_ratio_to_a_private_model_is_not_called_one_to_no_privacy():
    stand_in, one = table(likeness="stand-in"), row(0.3, plain=0.2)
    said = judged(stand_in, one, sound=Cell((9.0,)), default=Cell((5.0,)), plain=Cell((6.0,)))
    assert said.words == "the method reaches 1.8 times our best model, a private one, for 1.5 printed"


def test_a_row_may_be_of_another_set_than_its_table():
    like, one = table(likeness="like"), row(0.3, plain=0.2)
    cells = {"sound": Cell((0.2,)), "plain": Cell((0.1,))}
    assert judged(like, one, **cells).kind == MISSED  # by the ratio
    assert judged(like, replace(one, likeness="same"), **cells).kind == REPRODUCED
    large = {"sound": Cell((3.0,)), "plain": Cell((2.9,))}
    assert judged(like, one, **large).kind == MISSED  # by the number
    assert judged(like, replace(one, likeness="stand-in"), **large).kind == REPRODUCED


def test_a_plain_model_that_loses_to_a_private_one_is_no_reference():
    cells = {"paper": "none", "sound": Cell((0.3,)), "default": Cell((0.2,)), "plain": Cell((0.25,))}
    assert reference(table(), cells) is cells["default"]
    assert reference(table("higher"), cells) is cells["sound"]
    assert reference(table(), {**cells, "plain": "none"}) is None


def test_a_printed_number_of_a_model_that_predicts_nothing_is_called_so():
    found = judged(table(trivial={"set": 0.693}), row(0.6927), sound=Cell((0.2,)), default=Cell((0.3,)))
    assert found == Verdict(NOTHING, "0.6927 for 0.693; ours is 0.2 by the method, 0.3 by default")


def curves(values, trivial=None, **cells) -> dict[str, Verdict]:
    methods = tuple(row(None, name) for name in "abcd"[: len(values)])
    made = [
        (one, {**dict.fromkeys(MODES, "none"), **cells, "sound": Cell((value,))})
        for one, value in zip(methods, values)
    ]
    known = {} if trivial is None else {"set": trivial}
    return judge(table(order=(("a",), ("b", "c")), trivial=known), made)


def test_an_order_of_curves_is_counted_once():
    found = curves((0.1, 0.2, 0.3))
    assert list(found) == ["set/1"]
    assert found["set/1"] == Verdict(
        REPRODUCED, "the order of the curves as far as they are apart, a 0.1, b 0.2, c 0.3; one run: a, b, c"
    )
    assert count_kinds(found)[REPRODUCED] == 1
    assert curves((0.3, 0.2, 0.1))["set/1"].kind == MISSED
    assert curves((0.2001, 0.2))["set/1"] == Verdict(MISSED, "no order to see: b 0.2, a 0.2")
    assert curves((0.1, 0.2, 0.3, 0.05))["set/1"].kind == REPRODUCED  # no figure draws d


def pair(first, second, **more) -> Verdict:
    rows = (row(None, "a"), row(None, "b"))
    made = [(r, {**dict.fromkeys(MODES, "none"), "sound": Cell(v)}) for r, v in zip(rows, (first, second))]
    return verdict(table(order=(("a",), ("b",)), **more), rows[0], made)


def test_a_single_run_varies_as_one_run_of_the_curve_beside_it():
    assert pair((0.1, 0.1), (0.2, 0.4)).kind == REPRODUCED  # .3 ± .1
    assert pair((0.1,), (0.2, 0.4)).words == "no order to see: a 0.1, b 0.3"  # ± .1 and ± .14
    assert pair((0.2, 0.4), (0.1,)).kind == MISSED
    assert pair((0.1,), (0.3,)).kind == REPRODUCED  # by 2 %: nothing is known of their spread


def test_a_reproduced_order_says_what_it_rests_on():
    assert pair((0.1, 0.1), (0.3, 0.3)).words.endswith("a 0.1, b 0.3")
    assert pair((0.1, 0.1), (0.3,)).words.endswith("; one run: b")
    assert pair((0.1, 0.1), (0.3, 0.3), trivial={"set": 0.3}).words.endswith(f"; {IDLE}")
    rows = [row(None, name) for name in "abc"]
    made = [
        (one, {**dict.fromkeys(MODES, "none"), "sound": Cell((value, value))})
        for one, value in zip(rows, (0.1, 0.101, 0.3))
    ]
    tied = verdict(table(order=(("a",), ("b", "c"))), rows[0], made)
    assert (tied.kind, tied.words.endswith("; ranked and not apart: a / b")) == (REPRODUCED, True)
    together = verdict(table(order=(("a", "b"), ("c",))), rows[0], made)
    assert together.words.endswith("c 0.3")  # the text does not rank a before b


def test_an_order_of_a_curve_that_has_no_row_is_not_run():
    rows = [row(None, name) for name in "ab"]
    made = [(r, {**dict.fromkeys(MODES, "none"), "sound": Cell((v,))}) for r, v in zip(rows, (0.1, 0.2))]
    found = verdict(table(order=(("a",), ("b", "c"))), rows[0], made)
    assert str(found).startswith("not run: no run of c is kept; the order of the curves")


def test_an_order_that_only_the_printed_noise_lifts_above_nothing_is_counted_for_it():
    printed = (Cell((0.5,), {"add-remove": 9.0}), Cell((0.9,), {"add-remove": 9.0}))
    rows = (row(None, "a"), row(None, "b"))
    made = [
        (one, {"paper": paper, "sound": Cell((1.1,)), "default": "", "plain": ""})
        for one, paper in zip(rows, printed)
    ]
    drawn = table(order=(("a",), ("b",)), trivial={"set": 1.0})
    assert verdict(drawn, rows[0], made).kind == BY_PRINTED
    swapped = [(one, {**cells, "paper": p}) for (one, cells), p in zip(made, reversed(printed))]
    assert verdict(drawn, rows[0], swapped).kind == MISSED


def test_an_order_among_models_that_predict_nothing_is_none():
    assert curves((0.995, 1.2), trivial=1.0)["set/1"].words.startswith("no curve is better than a model that")
    assert curves((0.7, 1.2, 1.3), trivial=1.0)["set/1"].kind == REPRODUCED
    assert curves((1.2, 0.7, 1.3), trivial=1.0)["set/1"].kind == MISSED


def test_an_order_that_is_not_seen_is_explained_by_the_printed_noise():
    one, other = row(None, "a"), row(None, "b")
    drawn = table(order=(("a",), ("b",)))
    printed = [Cell((0.1,), {"add-remove": 9.0}), Cell((0.3,), {"add-remove": 0.1})]
    cells = [
        {"paper": paper, "sound": Cell((v,)), "default": Cell((0.15,)), "plain": "none"}
        for paper, v in zip(printed, (0.4, 0.2))
    ]
    made = list(zip((one, other), cells))
    assert str(verdict(drawn, one, made)) == (
        "by the printed noise only: here the order is b 0.2, a 0.4; paper mode shows it: "
        "a 0.1 (certified: 9), b 0.3 (certified: 0.1)"
    )
    claimed = [{**c, "paper": Cell(p.values, {"add-remove": 0.5})} for c, p in zip(cells, printed)]
    assert verdict(drawn, one, list(zip((one, other), claimed))).kind == MISSED
    rival = [{**c, "paper": Cell(p.values, {"add-remove": e})} for c, p, e in zip(cells, printed, (0.5, 9.0))]
    assert (
        verdict(drawn, one, list(zip((one, other), rival))).kind == MISSED
    )  # b's noise is the one too small
    swapped = [{**c, "paper": p} for c, p in zip(cells, reversed(printed))]
    assert verdict(drawn, one, list(zip((one, other), swapped))).kind == NOT_REPRODUCIBLE


def test_an_order_one_of_whose_curves_is_not_run_is_at_most_not_run():
    rows = [row(None, name) for name in "abc"]
    drawn = table(order=(("a",), ("b", "c")))

    def kind(values, printed=("none", "none", "none")):
        cells = [
            {
                "paper": paper,
                "sound": Cell((v,)) if v else "none is kept",
                "default": Cell((0.9,)),
                "plain": "",
            }
            for v, paper in zip(values, printed)
        ]
        return verdict(drawn, rows[0], list(zip(rows, cells)))

    assert kind((0.1, 0.2, 0.3)).kind == REPRODUCED
    without = kind((0.1, 0.2, None))
    assert str(without).startswith("not run: no run of c is kept; the order of the curves as far as they are")
    assert kind((0.3, 0.1, None)).kind == MISSED  # what is missed without it is missed with it
    noise = [Cell((v,), {"add-remove": 9.0}) for v in (0.1, 0.2, 0.3)]
    assert kind((0.3, 0.1, 0.2), noise).kind == BY_PRINTED
    assert kind((0.3, 0.1, None), noise).kind == NOT_RUN


def test_a_count_says_how_often_the_method_itself_is_not_run():
    found = {"a": Verdict(BY_DEFAULT, UNTRIED), "b": Verdict(BY_DEFAULT, "the method reaches 1")}
    assert count_words(found) == (
        "Of 2 published numbers or orders of curves: by our default only 2 (the method itself run in 1)."
    )


def test_printed_noise_of_one_group_of_curves_says_nothing_of_their_order():
    rows = [row(None, name) for name in "abc"]
    drawn, paper = table(order=(("a",), ("b", "c"))), Cell((0.1,), {"add-remove": 9.0})
    cells = [
        {"paper": "not run" if one.method == "a" else paper, "sound": Cell((v,)), "default": "", "plain": ""}
        for one, v in zip(rows, (0.4, 0.2, 0.2))
    ]
    assert verdict(drawn, rows[0], list(zip(rows, cells))) == Verdict(
        MISSED, "here the order is b 0.2, c 0.2, a 0.4"
    )
    cells[0]["paper"] = paper
    level = verdict(drawn, rows[0], list(zip(rows, cells)))
    assert (level.kind, "paper mode tells no order" in level.words) == (MISSED, True)
    cells[0]["paper"] = Cell((0.2,), {"add-remove": 9.0})
    assert verdict(drawn, rows[0], list(zip(rows, cells))).kind == NOT_REPRODUCIBLE
    for one in cells:
        one["sound"] = Cell((0.4,))  # curves that are not apart here demonstrate nothing either
    assert verdict(drawn, rows[0], list(zip(rows, cells))).kind == MISSED


def test_a_number_whose_order_of_magnitude_is_printed_is_judged_by_that():
    magnitude = table(share=2.162)
    assert judged(magnitude, row(1e-3), sound=Cell((0.0031,))).kind == REPRODUCED
    assert judged(magnitude, row(1e-3), sound=Cell((0.0033,))).kind == MISSED
    assert judged(table(), row(1e-3), sound=Cell((0.0031,))).kind == MISSED


def test_a_cell_that_is_not_finite_is_never_the_best():
    assert judged(table(), row(0.3), sound=Cell((math.inf,)), default=Cell((0.2,))).kind == BY_DEFAULT
    assert judged(table(), row(0.3), sound=Cell((math.inf,))) == Verdict(NOT_RUN, "none")


def test_the_standard_error_is_that_of_the_mean():
    cell = cell_of([{"value": v, "add-remove": 2.0, "commit": "abc"} for v in (1.0, 2.0, 3.0, 4.0)])
    assert cell.mean == 2.5
    assert cell.error == pytest.approx(np.std([1, 2, 3, 4], ddof=1) / 2)
    assert cell.certified == {"add-remove": 2.0}


def test_noise_that_certifies_nothing_is_said_in_words():
    paper = Cell((0.1,), {"add-remove": math.inf})
    assert "certifies nothing, not 1" in judged(table(), row(0.3), paper=paper, sound=Cell((0.9,))).words
    assert "a 0.1 (certified: no bound)" in curves((0.2, 0.1), paper=paper)["set/1"].words
