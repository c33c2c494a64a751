"""Events as JSON: round trips, and nothing but the table gets in."""

import json
import math

import attrs
import pytest
from dp_accounting import dp_event as dp
from hypothesis import given
from hypothesis import strategies as st
from tests.accounting.helpers import gaussian

from sordino.accounting import canonical, decode, encode
from sordino.accounting import trees as codec
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.events import PureDpEvent, TiltDpEvent

NUMBERS = st.floats(0, allow_nan=False)
COUNTS = st.integers(0, 10**12)
LEAVES = st.one_of(
    st.just(dp.NoOpDpEvent()),
    st.just(dp.NonPrivateDpEvent()),
    st.builds(dp.GaussianDpEvent, NUMBERS),
    st.builds(dp.LaplaceDpEvent, NUMBERS),
    st.builds(PureDpEvent, NUMBERS),
    st.builds(dp.ZCDpEvent, NUMBERS, NUMBERS),
    st.builds(TiltDpEvent, NUMBERS, NUMBERS),
    st.builds(
        lambda std, shifts: dp.MixtureOfGaussiansDpEvent(
            std, tuple(shifts), tuple(1 / len(shifts) for _ in shifts)
        ),
        NUMBERS,
        st.lists(NUMBERS, min_size=1, max_size=4),
    ),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(dp.SelfComposedDpEvent, inner, COUNTS),
        st.builds(dp.ComposedDpEvent, st.lists(inner, max_size=4)),
        st.builds(dp.PoissonSampledDpEvent, st.floats(0, 1), inner),
        st.builds(
            lambda size, more, event: dp.SampledWithoutReplacementDpEvent(size + more, size, event),
            st.integers(0, 10**9),
            st.integers(0, 10**9),
            inner,
        ),
        st.builds(dp.RepeatAndSelectDpEvent, inner, NUMBERS, NUMBERS),
    ),
    max_leaves=12,
)


@given(TREES)
def test_every_tree_survives_the_round_trip_through_text(tree):
    text = json.dumps(encode(tree), allow_nan=False)
    assert decode(json.loads(text)) == tree


@given(TREES)
def test_one_tree_has_one_text(tree):
    assert canonical(tree) == canonical(decode(encode(tree)))


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["type", "event", "events", "count", "epsilon", "x"]), inner, max_size=4
        ),
    ),
    max_leaves=10,
)


@given(JSON)
def test_noise_is_refused_with_a_typed_error_or_is_an_event(data):
    try:
        event = decode(data)
    except InvalidInputError:
        return
    assert decode(encode(event)) == event


@given(TREES, JSON, st.sampled_from(["type", "event", "count", "noise_multiplier", "sampling_probability"]))
def test_a_tampered_field_is_refused_or_reads_as_an_event(tree, value, field):
    try:
        event = decode({**encode(tree), field: value})
    except InvalidInputError:
        return
    assert decode(encode(event)) == event


GAUSSIAN = {"type": "gaussian", "noise_multiplier": 1.0}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "gaussian",
        {},
        {"type": None},
        {"type": "os.system"},
        {"type": "GaussianDpEvent", "noise_multiplier": 1.0},
        {"type": "gaussian"},
        {**GAUSSIAN, "extra": 1},
        {**GAUSSIAN, "noise_multiplier": -1.0},
        {**GAUSSIAN, "noise_multiplier": math.nan},
        {**GAUSSIAN, "noise_multiplier": -math.inf},
        {**GAUSSIAN, "noise_multiplier": True},
        {**GAUSSIAN, "noise_multiplier": "1.0"},
        {**GAUSSIAN, "noise_multiplier": "infinity"},
        {**GAUSSIAN, "noise_multiplier": 10**400},
        {"type": "repeated", "event": GAUSSIAN, "count": -1},
        {"type": "repeated", "event": GAUSSIAN, "count": 1.0},
        {"type": "repeated", "event": GAUSSIAN, "count": True},
        {"type": "repeated", "event": GAUSSIAN, "count": 10**12 + 1},
        {"type": "repeated", "event": "gaussian", "count": 1},
        {"type": "composed", "events": GAUSSIAN},
        {"type": "composed", "events": 5},
        {"type": "composed", "events": [GAUSSIAN, None]},
        {"type": "poisson", "sampling_probability": 1.01, "event": GAUSSIAN},
        {"type": "poisson", "sampling_probability": "inf", "event": GAUSSIAN},
        {"type": "fixed-size", "source_dataset_size": 3, "sample_size": 4, "event": GAUSSIAN},
        {"type": "gaussian-mixture", "standard_deviation": 1, "sensitivities": [1], "sampling_probs": [0.5]},
        {
            "type": "gaussian-mixture",
            "standard_deviation": 1,
            "sensitivities": [1],
            "sampling_probs": [0.5, 0.5],
        },
        {"type": "gaussian-mixture", "standard_deviation": 1, "sensitivities": "1", "sampling_probs": [1]},
        {
            "type": "gaussian-mixture",
            "standard_deviation": 1,
            "sensitivities": [1, 1],
            "sampling_probs": [0.5, 0.5 + 1.2e-9],
        },
        {"type": "gaussian-mixture", "standard_deviation": 1, "sensitivities": [True], "sampling_probs": [1]},
    ],
)
def test_malformed_data_is_refused(data):
    with pytest.raises(InvalidInputError, match="Expected"):
        decode(data)


WRAPPERS = {
    "repeated": lambda data: {"type": "repeated", "event": data, "count": 1},
    "composed": lambda data: {"type": "composed", "events": [data]},
}


def nested(depth, wrap):
    data = GAUSSIAN
    for _ in range(depth):
        data = wrap(data)
    return data


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_trees_that_are_too_deep_are_refused_without_recursion_errors(wrap):
    assert decode(nested(codec.MAX_DEPTH, wrap))
    with pytest.raises(InvalidInputError, match="depth"):
        decode(nested(codec.MAX_DEPTH + 1, wrap))
    with pytest.raises(InvalidInputError, match="depth"):
        decode(nested(900, wrap))


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_what_is_too_deep_to_read_is_not_written(wrap):
    event = decode(nested(codec.MAX_DEPTH, wrap))
    assert decode(encode(event)) == event
    with pytest.raises(UnsupportedError, match="depth"):
        encode(dp.SelfComposedDpEvent(event, 1))
    with pytest.raises(UnsupportedError, match="depth"):
        encode(dp.ComposedDpEvent([event]))


@pytest.mark.parametrize(
    ("make", "largest"),
    [
        (lambda n: {"type": "composed", "events": [GAUSSIAN] * n}, codec.MAX_NODES - 1),
        (
            lambda n: {
                "type": "gaussian-mixture",
                "standard_deviation": 1.0,
                "sensitivities": [1.0] * (n // 2),
                "sampling_probs": [2 / n] * (n // 2),
            },
            codec.MAX_NODES - 2,
        ),
    ],
)
def test_trees_that_are_too_wide_are_refused(make, largest):
    assert decode(make(largest))
    with pytest.raises(InvalidInputError, match="nodes"):
        decode(make(largest + 2))


def test_events_without_a_stored_form_are_named():
    with pytest.raises(UnsupportedError, match="RandomizedResponseDpEvent"):
        encode(dp.RandomizedResponseDpEvent(0.5, 2))

    class Disguised(dp.GaussianDpEvent):
        """Not the event it claims to be."""

    with pytest.raises(UnsupportedError, match="Disguised"):
        encode(Disguised(1.0))


@pytest.mark.parametrize("value", [math.nan, -1.0])
def test_numbers_that_could_not_be_read_back_are_not_written(value):
    with pytest.raises(InvalidInputError, match="a number >= 0"):
        encode(dp.GaussianDpEvent(value))


def test_fractions_of_repetitions_are_not_rounded_off():
    with pytest.raises(TypeError):
        encode(dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 2.5))


def test_the_table_names_every_field_of_every_type():
    for cls, fields in codec._TYPES.values():
        assert [field.name for field in attrs.fields(cls)] == list(fields)


def test_text_is_stable():
    assert canonical(gaussian(2.0, 3)) == (
        '{"count":3,"event":{"noise_multiplier":2.0,"type":"gaussian"},"type":"repeated"}'
    )
    assert canonical(dp.GaussianDpEvent(math.inf)) == '{"noise_multiplier":"inf","type":"gaussian"}'
