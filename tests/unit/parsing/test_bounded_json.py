"""JSON of other programs: what is refused before it costs memory, and what is not."""

from __future__ import annotations

import gc
import json

import pytest

from quotaplane.errors import InputError
from quotaplane.parsing.bounded_json import (
    BYTES_PER_VALUE,
    EVEN_VALUES,
    MOST_LEVELS,
    JsonBoundsError,
    parse_bounded,
)
from quotaplane.parsing.strict_json import parse_json


def nested(levels: int) -> bytes:
    return (
        b'{"a":[' * (levels // 2)
        + b"[" * (levels % 2)
        + b"]" * (levels % 2)
        + b"]}" * (levels // 2)
    )


def test_what_json_is_stays_what_it_was() -> None:
    value = {"a": [1, 2.5, None, True, "é😀"], "b": {}, "c": [[]]}
    for ascii_only in (True, False):
        assert parse_bounded(json.dumps(value, ensure_ascii=ascii_only).encode()) == value
    assert parse_bounded(b"\xef\xbb\xbf5") == 5
    assert parse_bounded(b'"text"') == "text"


@pytest.mark.parametrize("levels", [1, 2, MOST_LEVELS - 1, MOST_LEVELS])
def test_levels_up_to_the_bound(levels: int) -> None:
    parse_bounded(nested(levels))


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 900, 90_000])
def test_more_levels_are_refused(levels: int) -> None:
    with pytest.raises(JsonBoundsError, match="nested too deeply: more than 32 levels"):
        parse_bounded(nested(levels))


def test_values_are_counted_before_they_are_made() -> None:
    fits = b"[" + b"1," * (EVEN_VALUES - 10) + b"1]"
    assert len(parse_bounded(fits)) == EVEN_VALUES - 9
    for piece in (b"[],", b"{},", b"1,", b'{"":1},'):
        with pytest.raises(JsonBoundsError, match=r"about \d+ values in"):
            parse_bounded(b"[" + piece * (2 * EVEN_VALUES) + b"1]")
    wide = b"[" + (b'"' + b"x" * BYTES_PER_VALUE + b'",') * (2 * EVEN_VALUES) + b"1]"
    assert len(parse_bounded(wide)) == 2 * EVEN_VALUES + 1


@pytest.mark.parametrize(
    "value", [rb'["\ud800"]', rb'{"\uDFFF": 1}', rb'["\ud83d", "\ude00"]', b'["\xed\xa0\x80"]']
)
def test_half_a_surrogate_pair_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"not Unicode|can't decode"):
        parse_bounded(value)


@pytest.mark.parametrize("value", [b"", b"[", b"\xff", b"[1,]", b"[" + b"9" * 5000 + b"]"])
def test_what_is_no_json_is_no_matter_of_bounds(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"line 1|utf-8|digits") as raised:
        parse_bounded(value)
    assert not isinstance(raised.value, JsonBoundsError)


def test_the_garbage_collector_goes_on() -> None:
    assert gc.isenabled()
    with pytest.raises(json.JSONDecodeError):
        parse_bounded(b"?")
    assert gc.isenabled()


def test_texts_of_users_are_unicode() -> None:
    with pytest.raises(InputError, match="body: a text in it is not Unicode"):
        parse_json(r'{"mode": "\ud800"}', "body")
    assert parse_json(r'{"mode": "\ud83d\ude00"}', "body") == {"mode": "😀"}
