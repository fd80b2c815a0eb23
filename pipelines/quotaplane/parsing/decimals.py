"""Numbers as people write them: decimal, in the one form that all programs read alike."""

from __future__ import annotations

import math
import re
from typing import Final

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
