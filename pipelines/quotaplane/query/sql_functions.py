"""Functions in Python that queries may call, with either engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from quotaplane.laws.explain import reason_text

_ENDED: Final = {
    "silent": "ended: no report names the group any more",
    "departed": "ended: the broker left the cluster's list of brokers",
    "group_deleted": "ended: the group was deleted",
}


def limit_reason(
    ended_because: str | None,
    code: int | None,
    numbers: Sequence[float] | None,
    limit: float | None,
    demand: float | None,
    quota: float | None,
) -> str:
    """Why a row of ``limits`` is what it is, in words; for the numbers see ``reason_text``.

    >>> limit_reason(None, 0, None, None, None, None)
    'unlimited: the group has no quota here'
    >>> limit_reason("silent", None, None, None, None, None)
    'ended: no report names the group any more'
    """
    if ended_because is not None:
        return _ENDED.get(ended_because, f"ended: {ended_because}")
    return reason_text(code, numbers, limit, demand, quota)


class SqlFunction(NamedTuple):
    """A function that returns text; it is called for null, too."""

    call: Callable[..., str]
    parameters: tuple[pa.DataType, ...]


_RATE: Final = pa.float64()
_OF_REASON: Final[tuple[Any, ...]] = (pa.int32(), pa.list_(_RATE), _RATE, _RATE, _RATE)

FUNCTIONS: Final[Mapping[str, SqlFunction]] = {
    "reason_text": SqlFunction(reason_text, _OF_REASON),
    "limit_reason": SqlFunction(limit_reason, (pa.string(), *_OF_REASON)),
}
"""By the name in SQL."""
