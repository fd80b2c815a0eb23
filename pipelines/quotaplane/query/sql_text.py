"""The text of a query: which names and parameters it has, and how DuckDB writes it.

Queries are written in the SQL that Spark and DuckDB have in common. Three things differ, and
``to_duckdb`` translates them: parameters (``:name``), quoted names, and the place of ``IGNORE
NULLS``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

_TOKENS: Final = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?\*/ )
  | (?P<string> '(?:[^']|'')*' )
  | (?P<quoted> "(?:[^"]|"")*" | `(?:[^`]|``)*` )
  | (?P<cast> :: )
  | (?P<parameter> :[A-Za-z_]\w* )
  | (?P<name> [A-Za-z_]\w* )
  | (?P<number> \d[\w.]* )
  | (?P<space> \s+ )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def word(self) -> str:
        """The token in upper case if it is a name, else ""."""
        return self.text.upper() if self.kind == "name" else ""


def identifiers_in(sql: str) -> set[str]:
    """The names in a query that may be tables, in lower case; also of columns, and keywords.

    A name behind AS is one that the query gives, so it is none of them.

    >>> sorted(identifiers_in("SELECT Max(n) AS limits FROM usage -- of limits"))
    ['as', 'from', 'max', 'n', 'select', 'usage']
    """
    tokens = [token for token in _tokens(sql) if token.kind not in ("space", "comment")]
    return {
        (token.text[1:-1] if token.kind == "quoted" else token.text).lower()
        for before, token in zip([_Token("other", ""), *tokens], tokens, strict=False)
        if token.kind in ("name", "quoted") and before.word != "AS"
    }


def parameters_in(sql: str) -> set[str]:
    """The names of a query's parameters.

    >>> parameters_in("SELECT CAST(:n AS INT), ':no', x::double -- :neither")
    {'n'}
    """
    return {token.text[1:] for token in _tokens(sql) if token.kind == "parameter"}


def to_duckdb(sql: str) -> str:
    """Write a query as DuckDB does.

    >>> to_duckdb("SELECT last_value(a + (b)) IGNORE NULLS OVER (ORDER BY `c`) WHERE d > :e")
    'SELECT last_value(a + (b) IGNORE NULLS) OVER (ORDER BY "c") WHERE d > $e'
    """
    tokens = _tokens(sql)
    written: list[str] = []
    closed = -1  # place in ``written`` of the latest ")", if only space and comments follow it
    skip = False  # NULLS, and the space before it
    for place, token in enumerate(tokens):
        if token.word in ("IGNORE", "RESPECT") and closed >= 0 and _next_word(tokens, place):
            written[closed] = f" {token.word} NULLS)"
            # The space before the words goes with them.
            del written[closed + 1 :]
            skip = True
            continue
        if skip:
            skip = token.word != "NULLS"
            continue
        if token.text == ")":
            closed = len(written)
        elif token.kind not in ("space", "comment"):
            closed = -1
        written.append(_as_duckdb(token))
    return "".join(written)


def with_literals(sql: str, values: Mapping[str, datetime | float]) -> str:
    """Replace parameters by literals: Spark binds not all of them, and times by a session's zone.

    >>> with_literals("WHERE a > :since", {"since": datetime(2026, 3, 1, tzinfo=timezone.utc)})
    "WHERE a > TIMESTAMP '2026-03-01T00:00:00+00:00'"
    >>> with_literals("WHERE a > :over * b", {"over": 0.1})
    "WHERE a > CAST('0.1' AS DOUBLE) * b"
    """

    def written(token: _Token) -> str:
        name = token.text[1:]
        if token.kind != "parameter" or name not in values:
            return token.text
        value = values[name]
        if isinstance(value, datetime):
            return f"TIMESTAMP '{value.astimezone(timezone.utc).isoformat()}'"
        return f"CAST('{float(value)!r}' AS DOUBLE)"

    return "".join(map(written, _tokens(sql)))


def _tokens(sql: str) -> list[_Token]:
    return [_Token(str(m.lastgroup), m.group()) for m in _TOKENS.finditer(sql)]


def _next_word(tokens: Sequence[_Token], place: int) -> bool:
    """Whether the next word after a place is NULLS."""
    rest = (t for t in tokens[place + 1 :] if t.kind not in ("space", "comment"))
    return next(rest, _Token("other", "")).word == "NULLS"


def _as_duckdb(token: _Token) -> str:
    if token.kind == "parameter":
        return f"${token.text[1:]}"
    if token.text.startswith("`") and token.kind == "quoted":
        return '"' + token.text[1:-1].replace("``", "`").replace('"', '""') + '"'
    return token.text
