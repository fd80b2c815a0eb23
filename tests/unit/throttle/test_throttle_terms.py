"""Throttle terms: defaults by law, one text for equal terms, and nothing out of range."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from quotaplane.model import DIMENSIONS
from quotaplane.throttle.terms import (
    TermsByDimension,
    ThrottleTerms,
    measured_over,
    parsed,
    terms_of,
)
from quotaplane.throttle.types import ThrottleLaw, ThrottleMode

LAWS = list(ThrottleLaw)
ONE = st.fixed_dictionaries(
    {},
    optional={
        "law": st.sampled_from([law.value for law in LAWS]),
        "mode": st.sampled_from(["hard", "soft"]),
        "samples": st.integers(1, 20),
        "window_s": st.sampled_from([0.001, 0.1, 1, 2.3, 60.0]),
    },
)
ALL = st.dictionaries(st.sampled_from(["*", *DIMENSIONS]), ONE) | st.fixed_dictionaries(
    dict.fromkeys(DIMENSIONS, ONE), optional={"*": ONE}
)


def text_of(terms: dict[str, Any]) -> str:
    return TermsByDimension.model_validate(terms).text()


@pytest.mark.parametrize(
    ("law", "samples", "window_ms"),
    [
        ("token_bucket", 1, 1000),
        ("windowed_rate", 11, 1000),
        ("amended_rate", 11, 1000),
        ("sliding_window", 10, 100),
    ],
)
def test_each_law_has_its_own_defaults(law: str, samples: int, window_ms: int) -> None:
    for terms in (
        ThrottleTerms(law=ThrottleLaw(law)),
        ThrottleTerms.model_validate({"law": law}),
        ThrottleTerms.model_validate_json(json.dumps({"law": law})),
    ):
        assert (terms.samples, terms.window_ms, terms.mode) == (samples, window_ms, "soft")


def test_nothing_said_is_a_soft_bucket_of_a_second() -> None:
    assert terms_of(None, "publish_bytes") == ThrottleTerms() == terms_of("{}", "publish_bytes")
    assert ThrottleTerms().law is ThrottleLaw.TOKEN_BUCKET


def test_own_terms_replace_those_of_all() -> None:
    text = text_of({"*": {"law": "sliding_window", "mode": "hard"}, "publish_bytes": {}})
    assert terms_of(text, "publish_bytes") == ThrottleTerms()
    assert terms_of(text, "publish_messages").mode is ThrottleMode.HARD


@given(ALL, ALL)
def test_equal_terms_are_equal_texts_and_a_text_says_all(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    texts = [text_of(terms) for terms in (one, other)]
    # One dimension more, which neither names, sees what is said of all others, if there are any.
    for terms in (one, other):
        if terms.keys() >= set(DIMENSIONS):
            terms.pop("*", None)
    said = [[terms_of(json.dumps(t), d) for d in (*DIMENSIONS, "other")] for t in (one, other)]
    for text, terms in zip(texts, said, strict=True):
        assert [terms_of(text, d) for d in (*DIMENSIONS, "other")] == terms
        assert text_of(json.loads(text)) == text
    assert (texts[0] == texts[1]) == (said[0] == said[1])


@pytest.mark.parametrize(
    ("one", "problem"),
    [
        ({"law": "leaky"}, "law"),
        ({"law": ["token_bucket"]}, "law"),
        ({"mode": "shadow"}, "mode"),
        ({"mode": None}, "mode"),
        ({"samples": 0}, "samples"),
        ({"samples": 1001}, "samples"),
        ({"samples": 1.5}, "samples"),
        ({"samples": True}, "samples"),
        ({"window_s": 0}, "window_s"),
        ({"window_s": 86_401}, "window_s"),
        ({"window_s": 0.0015}, "whole milliseconds, not 0.0015 s"),
        ({"window_s": float("nan")}, "window_s"),
        ({"window_s": "1"}, "window_s"),
        ({"window_s": 86_400, "samples": 12}, "samples x window_s must be at most 950400 s"),
        ({"window": 1}, "window"),
        ([], "instance of ThrottleTerms"),
    ],
)
def test_what_is_out_of_range_is_refused_and_counts_as_absent(one: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TermsByDimension.model_validate({"publish_bytes": one})
    text = json.dumps({"publish_bytes": one, "*": {"mode": "hard"}})
    assert parsed(text) is None
    assert terms_of(text, "publish_messages") == ThrottleTerms()


@pytest.mark.parametrize("text", ["", "[]", "null", '{"bytes": {}}', '{"*": {}, "": {}}'])
def test_what_is_no_text_of_terms_counts_as_absent(text: str) -> None:
    assert parsed(text) is None
    assert terms_of(text, "publish_bytes") == ThrottleTerms()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("timeframe_s", [60, 3600, 86_400])
def test_a_timeframe_is_all_windows_together(law: ThrottleLaw, timeframe_s: int) -> None:
    before = ThrottleTerms(law=law, mode=ThrottleMode.HARD, window_s=7, samples=3)
    after = before.over(timeframe_s)
    assert (after.law, after.mode) == (law, ThrottleMode.HARD)
    assert after.samples * after.window_ms == timeframe_s * 1000


@pytest.mark.parametrize("law", LAWS)
def test_a_second_sets_no_windows(law: ThrottleLaw) -> None:
    terms = {"law": law.value, "samples": 100, "window_s": 2}
    text = text_of({"*": terms, "publish_bytes": {**terms, "window_s": 60}})
    assert measured_over(text, dict.fromkeys(DIMENSIONS, 1)) == text
    after = measured_over(text, {**dict.fromkeys(DIMENSIONS, 1), "total_bytes": 60})
    assert json.loads(after).keys() == {"*", "publish_bytes", "total_bytes"}


def test_milliseconds_add_up_exactly() -> None:
    # As floats, these are a little more than 11 days.
    assert 625 * 1520.64 > 950_400
    assert ThrottleTerms(samples=625, window_s=1520.64).window_ms == 1_520_640
    with pytest.raises(ValidationError, match="must be at most 950400 s"):
        ThrottleTerms(samples=625, window_s=1520.641)


def test_what_no_dimension_is_left_for_is_not_said() -> None:
    named: dict[str, Any] = {dimension: {} for dimension in DIMENSIONS}
    assert text_of({"*": {"mode": "hard"}, **named}) == "{}"
    hard = {"mode": "hard"}
    assert json.loads(text_of({"*": hard, **named, "total_bytes": hard})) == {"total_bytes": hard}


def test_a_timeframe_leaves_the_other_dimensions_alone() -> None:
    text = measured_over('{"publish_messages": {"mode": "hard"}}', {"publish_bytes": 3600})
    assert json.loads(text) == {
        "publish_bytes": {"window_s": 3600.0},
        "publish_messages": {"mode": "hard"},
    }
    assert measured_over("no json", {"publish_bytes": 1}) == "{}"
