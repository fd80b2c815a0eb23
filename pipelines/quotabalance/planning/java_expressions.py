"""Regular expressions of Pulsar, which Java reads."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from quotaplane.parsing.strict_json import check_expressions

_ESCAPED: Final = re.compile(r"\\(?:Q(.*?)(?:\\E|\Z)|.)", re.DOTALL)
_CHARACTER: Final = r"\\(?:[^A-Za-z0-9]|[dDwWsS])"
_SET: Final = rf"\[(?:\^|(?!\^))(?:[^][\\&]|&(?!&)|{_CHARACTER})+\]"
_REPEATED: Final = r"(?:[?*+]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??"
_GROUP: Final = r"\((?:\?(?:[:=!]|<[=!]))?"
_ALIKE: Final = re.compile(
    rf"(?:\(\?i\))?(?:{_GROUP}(?!\?)|(?:[^[(\\{{?*+]|{_CHARACTER}|{_SET})(?:{_REPEATED})?)*",
    re.DOTALL,
)
"""The constructs that Java and Python read alike. Others are unions of sets, octal numbers, bounds
of words, back references, possessive repetitions."""


@lru_cache(maxsize=4096)
def java_expression(text: str) -> re.Pattern[str]:
    r"""A regular expression of Java, to be matched with whole names.

    Raises:
        ValueError: it is none, or has a part that may mean something else to Java.

    >>> bool(java_expression(r"\Qb1.eu\E|b[2-9]\.eu").fullmatch("b1.eu"))
    True
    >>> java_expression("b[12[3]]")
    Traceback (most recent call last):
    ValueError: 'b[12[3]]' is not a clear regular expression for Java: write '[12[3]]' otherwise
    """
    plain = _ESCAPED.sub(_unquoted, text)
    check_expressions([plain])
    alike = _ALIKE.match(plain)
    if alike is None or alike.end() < len(plain):
        rest = plain[alike.end() if alike else 0 :]
        raise ValueError(
            f"{text!r} is not a clear regular expression for Java: write {rest!r} otherwise"
        )
    return re.compile(plain, re.ASCII)


def _unquoted(escaped: re.Match[str]) -> str:
    quoted: str | None = escaped[1]
    return str(escaped[0]) if quoted is None else re.escape(quoted)
