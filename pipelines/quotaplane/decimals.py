"""Numbers as people write them: decimal, in the one form that all programs read alike."""

from __future__ import annotations

import math
import re
from typing import Final

DECIMAL: Final = r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"
"""No leading zeros (octal to some), no underscores, no other digits than those of ASCII."""

NEGATIVE_ZERO: Final = "a zero has no sign: write 0"

_DECIMAL: Final = re.compile(DECIMAL)


def parse_decimal(text: str) -> float:
    """A number from a text, with or without spaces around it; NaN if it is none, or ``-0``.

    >>> [parse_decimal(text) for text in (" 1e3", "0100", "1_000", "-0.0")]
    [1000.0, nan, nan, nan]
    """
    text = text.strip()
    is_good = _DECIMAL.fullmatch(text) and not is_negative_zero(text)
    return float(text) if is_good else math.nan


def how_to_write(given: object) -> str:
    """What to follow a message that refuses this as a number: how it must be written.

    Empty unless some programs would read a number in it.

    >>> how_to_write("0100"), how_to_write("-0"), how_to_write("ten"), how_to_write("-1")
    (': write a plain decimal number, such as 100 or 0.5', ': a zero has no sign: write 0', '', '')
    """
    if not isinstance(given, str) or not re.search(r"\d", given):
        return ""
    if is_negative_zero(given.strip()):
        return f": {NEGATIVE_ZERO}"
    is_good = _DECIMAL.fullmatch(given.strip())
    return "" if is_good else ": write a plain decimal number, such as 100 or 0.5"


def is_negative_zero(text: str) -> bool:
    """Whether a text is a decimal number that is ``-0``, also as it is too small.

    >>> is_negative_zero("-0.0"), is_negative_zero("-1e-999"), is_negative_zero("-.inf")
    (True, True, False)
    """
    return text.startswith("-") and _DECIMAL.fullmatch(text) is not None and float(text) == 0
