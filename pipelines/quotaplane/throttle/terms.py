"""On what terms requests are held to a quota: the law, over what time, refused or delayed.

The column ``throttle`` of ``resource_groups`` holds them as JSON, by dimension. Its ``mode`` is
what becomes of a single request above the limit; the column ``mode`` of a group, with which a
quota is rolled out, is another thing: whether brokers are limited at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    model_validator,
)

from quotaplane.model import DIMENSIONS
from quotaplane.throttle.types import ThrottleLaw, ThrottleMode

ALL_DIMENSIONS: Final = "*"
"""In place of a dimension: every one that has no terms of its own."""

MAX_SAMPLES: Final = 1000
"""Whoever holds to a quota keeps a number per sample for each who shares it."""

MIN_WINDOW_S: Final = 0.001
MAX_WINDOW_S: Final = 86_400.0

MAX_TIME_S: Final = 11 * MAX_WINDOW_S
"""Of all windows together: the longest ones, as many of them as Kafka has."""

WINDOWS: Final[Mapping[str, tuple[int, float]]] = {
    ThrottleLaw.TOKEN_BUCKET: (1, 1.0),
    ThrottleLaw.WINDOWED_RATE: (11, 1.0),
    ThrottleLaw.AMENDED_RATE: (11, 1.0),
    ThrottleLaw.SLIDING_WINDOW: (10, 0.1),
}
"""What a law has that is told nothing else: samples and ``window_s``.

A bucket holds what comes in within a second. Kafka's ``quota.window.num`` and
``quota.window.size.seconds`` are 11 and 1, "10 whole windows + 1 current window". ZooKeeper's
document splits a second into ten slots.
"""

_NOTHING_SAID: Final = "{}"

_SPLIT: Final = 10
"""Into how many windows a minute, an hour or a day is split: 11 would not be milliseconds."""

_STRICT: Final = ConfigDict(
    extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True
)


def _whole_milliseconds(window_s: float) -> float:
    if round(window_s, 3) != window_s:
        raise ValueError(f"must be whole milliseconds, not {window_s:g} s")
    return window_s


class ThrottleTerms(BaseModel):
    """The terms of one dimension; what is not given is as ``WINDOWS`` has it for the law.

    >>> ThrottleTerms.model_validate({"law": "sliding_window"}).window_ms
    100
    """

    model_config = _STRICT

    # A JSON object that is parsed already has texts here, which strict would refuse.
    law: ThrottleLaw = Field(default=ThrottleLaw.TOKEN_BUCKET, strict=False)
    mode: ThrottleMode = Field(default=ThrottleMode.SOFT, strict=False)
    window_s: Annotated[
        float, Field(ge=MIN_WINDOW_S, le=MAX_WINDOW_S), AfterValidator(_whole_milliseconds)
    ] = 1.0
    samples: int = Field(default=1, ge=1, le=MAX_SAMPLES)

    @model_validator(mode="before")
    @classmethod
    def _as_the_law_has_it(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        law = given.get("law")
        samples, window_s = WINDOWS.get(law if isinstance(law, str) else "", (1, 1.0))
        return {"samples": samples, "window_s": window_s, **given}

    @model_validator(mode="after")
    def _not_too_long(self) -> ThrottleTerms:
        if self.samples * self.window_ms > MAX_TIME_S * 1000:
            raise ValueError(f"samples x window_s must be at most {MAX_TIME_S:g} s")
        return self

    @property
    def window_ms(self) -> int:
        """The window in milliseconds, as ``Quotas`` has it."""
        return round(self.window_s * 1000)

    def over(self, timeframe_s: int) -> ThrottleTerms:
        """The same law and mode, measured over a timeframe: a minute, an hour, a day.

        >>> minute = ThrottleTerms(law=ThrottleLaw.WINDOWED_RATE).over(60)
        >>> minute.samples, minute.window_s
        (10, 6.0)
        """
        samples = 1 if WINDOWS[self.law][0] == 1 else _SPLIT
        return ThrottleTerms(
            law=self.law, mode=self.mode, window_s=timeframe_s / samples, samples=samples
        )

    def given(self) -> dict[str, Any]:
        """What is not the default, as JSON has it.

        >>> ThrottleTerms(mode=ThrottleMode.HARD, window_s=60).given()
        {'mode': 'hard', 'window_s': 60.0}
        """
        samples, window_s = WINDOWS[self.law]
        defaults = {"law": "token_bucket", "mode": "soft", "window_s": window_s, "samples": samples}
        dumped = self.model_dump(mode="json")
        return {key: value for key, value in dumped.items() if value != defaults[key]}


def _checked_dimension(name: str) -> str:
    if name not in DIMENSIONS and name != ALL_DIMENSIONS:
        raise ValueError(f"must be {ALL_DIMENSIONS} or one of {', '.join(DIMENSIONS)}")
    return name


class TermsByDimension(
    RootModel[dict[Annotated[str, AfterValidator(_checked_dimension)], ThrottleTerms]]
):
    """The column ``throttle``: terms by dimension; those of ``"*"`` are for all that have none.

    >>> terms = {"*": {"law": "sliding_window"}, "publish_bytes": {"mode": "hard", "window_s": 60}}
    >>> TermsByDimension.model_validate(terms).text()
    '{"*": {"law": "sliding_window"}, "publish_bytes": {"mode": "hard", "window_s": 60.0}}'
    """

    model_config = ConfigDict(frozen=True, strict=True, hide_input_in_errors=True)

    def text(self) -> str:
        """As JSON in one form only, without what says nothing.

        Equal terms, of each dimension and of those that are not named, are equal texts.

        >>> TermsByDimension.model_validate({"*": {"samples": 1}, "publish_bytes": {}}).text()
        '{}'
        """
        root = dict(self.root)
        if root.keys() >= set(DIMENSIONS):
            root.pop(ALL_DIMENSIONS, None)  # there is nothing left that it is for
        everywhere = root.get(ALL_DIMENSIONS, ThrottleTerms())
        default = {ALL_DIMENSIONS: ThrottleTerms()}
        said = {
            name: terms.given()
            for name, terms in root.items()
            if terms != default.get(name, everywhere)
        }
        return json.dumps(said, sort_keys=True)


def parsed(text: str) -> Mapping[str, ThrottleTerms] | None:
    """The terms in a column's text, by dimension and ``"*"``; None if it is no such text."""
    try:
        return TermsByDimension.model_validate_json(text).root
    except ValidationError:
        return None


# Many groups have the same text.
@lru_cache(maxsize=1024)
def read_throttle(text: str | None) -> Mapping[str, ThrottleTerms]:
    """As ``parsed``, but none at all for null, and for what is no such text.

    >>> read_throttle("no json"), read_throttle(None)
    ({}, {})
    """
    # `groups put` refuses such a text; what others write becomes a dead letter (``groups.flaws``).
    return (parsed(text) if text is not None else None) or {}


def told_text(text: str | None) -> str:
    """The column's text as brokers are told it: in its one form, "" where all is default.

    >>> told_text('{"*": {"mode": "hard", "samples": 1}}'), told_text("{}"), told_text("no json")
    ('{"*": {"mode": "hard"}}', '', '')
    """
    text = TermsByDimension(dict(read_throttle(text))).text()
    return "" if text == _NOTHING_SAID else text


def terms_of(text: str | None, dimension: str) -> ThrottleTerms:
    """The terms of a dimension, given the column's text: its own, those of all, or the defaults.

    >>> terms_of('{"*": {"mode": "hard"}, "publish_bytes": {"samples": 5}}', "publish_bytes").mode
    <ThrottleMode.SOFT: 'soft'>
    >>> terms_of('{"*": {"mode": "hard"}}', "publish_bytes").mode
    <ThrottleMode.HARD: 'hard'>
    """
    terms = read_throttle(text)
    return terms.get(dimension) or terms.get(ALL_DIMENSIONS) or ThrottleTerms()


def measured_over(text: str | None, timeframes: Mapping[str, int]) -> str:
    """The column's text with the windows of some dimensions set by timeframes, in seconds.

    A second is what rates are per anyway: it sets none.

    >>> measured_over('{"*": {"mode": "hard"}}', {"publish_bytes": 60})
    '{"*": {"mode": "hard"}, "publish_bytes": {"mode": "hard", "window_s": 60.0}}'
    """
    own = {
        name: terms_of(text, name).over(seconds)
        for name, seconds in timeframes.items()
        if seconds != 1
    }
    return TermsByDimension({**read_throttle(text), **own}).text()


def windows_kept(text: str | None, dimension: str) -> ThrottleTerms | None:
    """A dimension's own terms, if they have windows that neither the law nor a second implies.

    A timeframe of long ago may have set them, and a quota per second leaves them.

    >>> windows_kept('{"publish_bytes": {"window_s": 60}}', "publish_bytes").window_ms
    60000
    >>> windows_kept('{"*": {"window_s": 60}}', "publish_bytes") is None
    True
    """
    own = read_throttle(text).get(dimension)
    if own is None or (own.samples, own.window_s) == WINDOWS[own.law]:
        return None
    return None if own.samples * own.window_ms == 1000 else own
