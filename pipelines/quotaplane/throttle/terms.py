"""Throttle terms: the law, its windows, and whether excess requests are refused or delayed.

The column ``throttle`` of ``resource_groups`` has them as JSON, by dimension. Their ``mode``
applies to a single request above the limit. The column ``mode`` of a group is different: it is for
rolling out a quota, and says whether brokers are limited at all.
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
"""Key for all dimensions that have no terms of their own."""

MAX_SAMPLES: Final = 1000
"""An enforcer keeps one number per sample for each entity."""

MIN_WINDOW_S: Final = 0.001
MAX_WINDOW_S: Final = 86_400.0

MAX_TIME_S: Final = 11 * MAX_WINDOW_S
"""Limit for all windows together: the longest ones, in Kafka's number."""

WINDOWS: Final[Mapping[str, tuple[int, float]]] = {
    ThrottleLaw.TOKEN_BUCKET: (1, 1.0),
    ThrottleLaw.WINDOWED_RATE: (11, 1.0),
    ThrottleLaw.AMENDED_RATE: (11, 1.0),
    ThrottleLaw.SLIDING_WINDOW: (10, 0.1),
}
"""Each law's default samples and ``window_s``.

A bucket holds one second's tokens. Kafka's defaults for ``quota.window.num`` and
``quota.window.size.seconds`` are 11 and 1, "10 whole windows + 1 current window". ZooKeeper's
document splits a second into ten slots.
"""

_DEFAULTS_TEXT: Final = "{}"

_SPLIT: Final = 10
"""Number of windows for a minute, an hour or a day; with 11 they would not be whole
milliseconds."""

_STRICT: Final = ConfigDict(
    extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True
)


def _whole_milliseconds(window_s: float) -> float:
    if round(window_s, 3) != window_s:
        raise ValueError(f"must be whole milliseconds, not {window_s:g} s")
    return window_s


class ThrottleTerms(BaseModel):
    """The terms of one dimension; fields default to the law's ``WINDOWS``.

    >>> ThrottleTerms.model_validate({"law": "sliding_window"}).window_ms
    100
    """

    model_config = _STRICT

    # Strict validation accepts only enum members, but parsed JSON has strings.
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
        """The window in milliseconds, as in ``Quotas``."""
        return round(self.window_s * 1000)

    def over(self, timeframe_s: int) -> ThrottleTerms:
        """The same law and mode, measured over a timeframe: a minute, an hour or a day.

        >>> minute = ThrottleTerms(law=ThrottleLaw.WINDOWED_RATE).over(60)
        >>> minute.samples, minute.window_s
        (10, 6.0)
        """
        samples = 1 if WINDOWS[self.law][0] == 1 else _SPLIT
        return ThrottleTerms(
            law=self.law, mode=self.mode, window_s=timeframe_s / samples, samples=samples
        )

    def given(self) -> dict[str, Any]:
        """The values that differ from the defaults, for JSON.

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
    """The column ``throttle``: terms by dimension; ``"*"`` applies to dimensions without own terms.

    >>> terms = {"*": {"law": "sliding_window"}, "publish_bytes": {"mode": "hard", "window_s": 60}}
    >>> TermsByDimension.model_validate(terms).text()
    '{"*": {"law": "sliding_window"}, "publish_bytes": {"mode": "hard", "window_s": 60.0}}'
    """

    model_config = ConfigDict(frozen=True, strict=True, hide_input_in_errors=True)

    def text(self) -> str:
        """Canonical JSON, without redundant values: equal terms give equal texts.

        >>> TermsByDimension.model_validate({"*": {"samples": 1}, "publish_bytes": {}}).text()
        '{}'
        """
        root = dict(self.root)
        if root.keys() >= set(DIMENSIONS):
            root.pop(ALL_DIMENSIONS, None)  # no dimension is left for it
        everywhere = root.get(ALL_DIMENSIONS, ThrottleTerms())
        default = {ALL_DIMENSIONS: ThrottleTerms()}
        values = {
            name: terms.given()
            for name, terms in root.items()
            if terms != default.get(name, everywhere)
        }
        return json.dumps(values, sort_keys=True)


def parsed(text: str) -> Mapping[str, ThrottleTerms] | None:
    """The terms in a column's text, by dimension and ``"*"``; None if the text is invalid."""
    try:
        return TermsByDimension.model_validate_json(text).root
    except ValidationError:
        return None


# Many groups have the same text.
@lru_cache(maxsize=1024)
def read_throttle(text: str | None) -> Mapping[str, ThrottleTerms]:
    """As ``parsed``, but null and invalid texts give no terms.

    >>> read_throttle("no json"), read_throttle(None)
    ({}, {})
    """
    # `groups put` refuses invalid texts; those of other writers become dead letters
    # (``groups.flaws``).
    return (parsed(text) if text is not None else None) or {}


def canonical_text(text: str | None) -> str:
    """The canonical form of a column's text, which messages to brokers have; "" for the defaults.

    >>> canonical_text('{"*": {"mode": "hard", "samples": 1}}')
    '{"*": {"mode": "hard"}}'
    >>> canonical_text("{}"), canonical_text("no json")
    ('', '')
    """
    text = TermsByDimension(dict(read_throttle(text))).text()
    return "" if text == _DEFAULTS_TEXT else text


def terms_of(text: str | None, dimension: str) -> ThrottleTerms:
    """The terms of a dimension, from the column's text: its own, those of ``"*"``, or the defaults.

    >>> terms_of('{"*": {"mode": "hard"}, "publish_bytes": {"samples": 5}}', "publish_bytes").mode
    <ThrottleMode.SOFT: 'soft'>
    >>> terms_of('{"*": {"mode": "hard"}}', "publish_bytes").mode
    <ThrottleMode.HARD: 'hard'>
    """
    terms = read_throttle(text)
    return terms.get(dimension) or terms.get(ALL_DIMENSIONS) or ThrottleTerms()


def measured_over(text: str | None, timeframes: Mapping[str, int]) -> str:
    """The column's text with some dimensions' windows set by timeframes, in seconds.

    A timeframe of one second changes nothing, because rates are per second.

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
    """A dimension's own terms, if their windows are not the law's defaults and not one second.

    An earlier quota may have set them by its timeframe; a quota per second does not reset them.

    >>> windows_kept('{"publish_bytes": {"window_s": 60}}', "publish_bytes").window_ms
    60000
    >>> windows_kept('{"*": {"window_s": 60}}', "publish_bytes") is None
    True
    """
    own = read_throttle(text).get(dimension)
    if own is None or (own.samples, own.window_s) == WINDOWS[own.law]:
        return None
    return None if own.samples * own.window_ms == 1000 else own
