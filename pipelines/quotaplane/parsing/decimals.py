"""Numbers, true and false as people write them: in the one form that all programs read alike."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator

DECIMAL: Final = r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"
"""No leading zeros (octal to some), no underscores, no other digits than those of ASCII."""

DOUBTFUL_ZERO: Final = "would be read as zero: write 0"

_DECIMAL: Final = re.compile(DECIMAL)


def parse_decimal(text: str) -> float:
    """A number from a text, with or without spaces around it; NaN if it is none, or unclear.

    >>> [parse_decimal(text) for text in (" 1e3", "0100", "1_000", "-0.0", "1e-999")]
    [1000.0, nan, nan, nan, nan]
    """
    text = text.strip()
    is_good = _DECIMAL.fullmatch(text) and not is_doubtful_zero(text)
    return float(text) if is_good else math.nan


def how_to_write(given: object) -> str:
    """The end of a message that refuses this as a number: how it must be written.

    Empty unless some programs would read a number in it.

    >>> [how_to_write(text) for text in ("0100", "-0", "ten")]
    [': write a plain decimal number, such as 100 or 0.5', ': would be read as zero: write 0', '']
    """
    if not isinstance(given, str) or not re.search(r"\d", given):
        return ""
    if is_doubtful_zero(given.strip()):
        return f": {DOUBTFUL_ZERO}"
    is_good = _DECIMAL.fullmatch(given.strip())
    return "" if is_good else ": write a plain decimal number, such as 100 or 0.5"


def is_doubtful_zero(text: str) -> bool:
    """Whether a text is a decimal number that is ``-0``, or becomes 0 as it is too small.

    >>> [is_doubtful_zero(text) for text in ("-0.0", "1e-999", "0e9", "-.inf")]
    [True, True, False, False]
    """
    if _DECIMAL.fullmatch(text) is None or float(text) != 0:
        return False
    return text.startswith("-") or re.search("[1-9]", re.split("[eE]", text)[0]) is not None


_TRUTH: Final = ("true", "True", "TRUE", "false", "False", "FALSE")
"""As in YAML, and in Spark's own options."""


class OneSpelling(BaseModel):
    """Unknown keys, NaN and infinity are errors; values are immutable.

    An environment variable is a text, so numbers, true and false may be texts, in the spelling that
    they have without quotes. pydantic would also take ``1_0`` for a number, ``off`` for false, and
    true for the number 1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {
            name: clear(value, cls.model_fields[name].annotation)
            if name in cls.model_fields
            else value
            for name, value in given.items()
        }


def clear(value: Any, declared: Any) -> Any:
    """A value as it is, or in quotes, with which it is no number and no truth value.

    >>> [clear(value, int | None) for value in ("10", "1_0", True, None)]
    ['10', "'1_0'", "'True'", None]
    >>> [clear(value, bool) for value in ("True", "off", 1, False)]
    ['True', "'off'", "'1'", False]
    >>> clear({"b1": "0x2"}, dict[str, float])
    {'b1': "'0x2'"}
    """
    if isinstance(value, dict) and get_origin(declared) in (dict, Mapping):
        return {name: clear(each, get_args(declared)[1]) for name, each in value.items()}
    kinds = set(_types(declared))
    if str in kinds or not kinds & {bool, int, float}:
        return value
    if bool in kinds:
        is_clear = value is None or isinstance(value, bool) or value in _TRUTH
    elif isinstance(value, str):
        is_clear = not math.isnan(parse_decimal(value))
    else:
        is_clear = not isinstance(value, bool)
    return value if is_clear else repr(str(value))


def _types(declared: Any) -> Iterator[Any]:
    yield declared
    for part in get_args(declared):
        yield from _types(part)
