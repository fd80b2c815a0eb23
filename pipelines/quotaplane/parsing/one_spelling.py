"""Base class of what settings and cases say in numbers, true and false: with one spelling each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator

from quotaplane.parsing.decimals import parse_decimal

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
