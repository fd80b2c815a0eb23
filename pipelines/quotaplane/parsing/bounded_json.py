"""Parses JSON that other programs send, with bounds on its values and its depth.

``json.loads`` makes an object of each value: of 16 MB of ``[],[],[]`` it makes 350 MB. Depth is
bounded because ``repr`` and ``json.dumps`` fail with ``RecursionError`` on what it can parse.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

MOST_LEVELS: Final = 32
"""Most objects and lists within each other. Pulsar's statistics of a topic have eight."""
EVEN_VALUES: Final = 100_000
BYTES_PER_VALUE: Final = 16
"""Most values: ``EVEN_VALUES``, and one per ``BYTES_PER_VALUE``. Pulsar's statistics have one per
25 bytes, and its lists of names one per 30."""

MALFORMED: Final = (
    *(ArithmeticError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)
"""Exceptions with which code that picks values from parsed JSON fails if it has another form than
expected, or a number in it is too large."""

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class JsonBoundsError(ValueError):
    """The JSON has too many values or levels, whether it is valid or not."""


def parse_bounded(
    data: bytes,
    *,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
) -> Any:
    """Parse JSON in UTF-8; the other arguments are those of ``json.loads``.

    >>> parse_bounded(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_bounded(b"[" * 40 + b"]" * 40)
    Traceback (most recent call last):
        ...
    quotaplane.parsing.bounded_json.JsonBoundsError: nested too deeply: more than 32 levels

    Raises:
        JsonBoundsError: too many values or levels.
        ValueError: it is no JSON, not UTF-8, or contains half of a surrogate pair, with which no
            text can be encoded again.
    """
    # Each value but the first has a comma or an opening bracket before it. Commas in strings count,
    # too: there are few of them, and the bound is generous.
    values = 1 + data.count(b",") + data.count(b"[") + data.count(b"{")
    if values > EVEN_VALUES + len(data) // BYTES_PER_VALUE:
        raise JsonBoundsError(f"about {values} values in {len(data)} bytes")
    text = data.decode("utf-8-sig")
    with _no_garbage_collection():
        try:
            parsed = json.loads(
                text, object_pairs_hook=object_pairs_hook, parse_constant=parse_constant
            )
        except RecursionError:
            raise _too_deep() from None
        _check_levels(parsed)
    if not is_unicode(text, parsed):
        raise ValueError("a text in it is not Unicode")
    return parsed


def is_unicode(text: str, parsed: object) -> bool:
    r"""Whether all texts in ``parsed``, which ``text`` was parsed to, can be encoded again.

    >>> is_unicode(r'"\ud800"', "\ud800"), is_unicode(r'"\ud83d\ude00"', "\U0001f600")
    (False, True)
    """
    if _SURROGATE.search(text):
        try:
            json.dumps(parsed, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return False
    return True


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Parsing makes no cycles, and looking for some takes twice as long as parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _check_levels(parsed: Any) -> None:
    level = [parsed] if type(parsed) in (dict, list) else []
    for _ in range(MOST_LEVELS):
        level = [
            value
            for each in level
            for value in (each.values() if type(each) is dict else each)
            if type(value) is dict or type(value) is list
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> JsonBoundsError:
    return JsonBoundsError(f"nested too deeply: more than {MOST_LEVELS} levels")
