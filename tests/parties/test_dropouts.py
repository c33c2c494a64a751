"""Members that leave a secure aggregation, up to a declared number, do not stop it: no second look."""

import math
import time

import numpy as np
import pytest
from tests.parties import sabotage
from tests.parties.helpers import Consortium

import sordino
from sordino.errors import InvalidInputError
from sordino.execute.parties import Mode, NoiseShare
from sordino.execute.parties.engine import Lattice
from sordino.parties.mpc import shamir
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.transcript import compare, read_transcript

FIVE = ("north", "south", "west", "east", "centre")


def _five(tmp_path, **more):
    five = Consortium(
        tmp_path, names=FIVE, mode="secure-aggregation", patience=1.0, message=3.0, connect=6.0, **more
    )
    five.plan_path = five.replan(dropouts=1)
    return five


def _run(five, leaves):
    """Run all; who has met the others waits two seconds, not six, for one that does not come back."""
    return five.run(sabotage=[sabotage.hurry(2.0, leave) for leave in leaves], limit=120)


@pytest.mark.parametrize(
    ("stage", "count"),
    [
        pytest.param("asking", 1, marks=pytest.mark.long),
        pytest.param("kept", 2, marks=pytest.mark.long),
        pytest.param("opening", 2, marks=pytest.mark.long),
        ("release", 2),
        pytest.param("finished", 1, marks=pytest.mark.long),
    ],
)
def test_who_leaves_does_not_stop_the_others_wherever_it_is(tmp_path, stage, count):
    five = _five(tmp_path)
    leaves = [sabotage.at(stage, sabotage.kill, count) if i == 3 else None for i in range(5)]
    codes, said = _run(five, leaves)
    assert codes[3] < 0
    assert [codes[i] for i in (0, 1, 2, 4)] == [0, 0, 0, 0], said
    stories = [five.story(i) for i in range(5)]
    assert compare(stories) == 3  # three releases, of which the one who left knows a part at most
    for i in (0, 1, 2, 4):
        assert stories[i].status == "settled"
        assert [x["member"] for x in stories[i].lines if x["kind"] == "dropped"] == ["east"]
        assert five.history(i)[0].status.value == "settled"
        if stage == "release":  # its share was sent: the others open the same shares, not new ones
            assert [x["number"] for x in stories[i].lines if x["kind"] == "kept"] == [0, 1, 2]
    models = [sordino.load(five.state(i) / "model.sordino").coef_ for i in (0, 1, 2, 4)]
    assert all(np.array_equal(models[0], other) for other in models[1:])


def test_one_more_than_declared_ends_the_run_and_stays_spent(tmp_path):
    five = _five(tmp_path)
    leaves = [sabotage.at("release", sabotage.kill, 1) if i > 2 else None for i in range(5)]
    codes, _ = _run(five, leaves)
    assert all(codes)
    assert [five.story(i).status for i in range(3)] == ["failed"] * 3
    assert [five.history(i)[0].status.value for i in range(3)] == ["failed"] * 3


def test_what_is_left_stands_for_all_records(tmp_path):
    five = _five(tmp_path, records=4000, budget=50.0, epsilon=15.0)
    for i in range(5):
        five.write_config(i, max_epsilon=20.0, slack_delta=1e-4)
    leaves = [sabotage.at("asking", sabotage.kill) if i == 3 else None for i in range(5)]
    codes, said = _run(five, leaves)
    assert codes[0] == 0, said
    files = [np.load(five.folder / name / "data.npz") for name in FIVE if name != "east"]
    x, y = (np.concatenate([file[key] for file in files]) for key in "Xy")
    model = sordino.load(five.state(0) / "model.sordino")
    x = x * np.minimum(1.0, 1.0 / np.linalg.norm(x, axis=1))[:, None]
    w = np.zeros(4)
    for _ in range(3):
        w = w - 2.0 * (-(y / (1 + np.exp(y * (x @ w)))) @ x / len(y))
    assert np.allclose(model.coef_.ravel(), w, atol=0.02)


def test_the_noise_is_enough_for_those_who_may_collude_and_those_who_may_leave():
    share = NoiseShare(Mode.AGGREGATION, 10, 2, 3)
    assert share.copies == 10 / 5
    lattice = Lattice(0.5, 2.0**20, 2**40)
    assert share.fine_std(lattice) * math.sqrt(10 - 2 - 3) == pytest.approx(
        lattice.std
    )  # of those who are left
    assert NoiseShare(Mode.AGGREGATION, 10, 2).copies == 10 / 8
    for wrong in ((Mode.INSIDE, 10, 2, 1), (Mode.AGGREGATION, 10, 2, 4), (Mode.AGGREGATION, 3, 1, 1)):
        with pytest.raises(InvalidInputError, match="dropouts"):
            NoiseShare(*wrong)


def test_a_plan_says_how_many_may_leave(tmp_path):
    from sordino.parties.mpc.plan import in_words

    plan = JointPlan.load(_five(tmp_path).plan_path)
    assert plan.share.dropouts == 1
    assert any("those who leave it, 1 of them at most" in line for line in in_words(plan))
    assert read_transcript(tmp_path / "none").lines == ()


def test_a_share_is_sent_when_all_who_are_there_wrote_that_they_open(tmp_path):
    five = _five(tmp_path)
    places = [five.state(i) / "transcript.jsonl" for i in range(5)]

    def watch():
        opened = shamir.ShamirEngine.open

        def watching(self, *given):
            texts = [place.read_text() for place in places]
            number = texts[0].count('"kind":"release"')  # of this member, which is about to send its share
            if any(text.count('"kind":"opening"') <= number for text in texts):
                (tmp_path / "early").touch()
            return opened(self, *given)

        shamir.ShamirEngine.open = watching

    slow = sabotage.at("opening", lambda: time.sleep(1.0), 2)
    codes, said = five.run(sabotage=[watch, None, None, None, slow], limit=120)
    assert codes == [0] * 5, said
    assert not (tmp_path / "early").exists()
