"""Rates that administrators set on a group's topics and namespaces, in words.

The enforcer enforces no higher ones there, even if limits are higher.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.texts import utc_text

_SHOWN: Final = 3

_SQL: Final = """
SELECT resource_group, place, kind, messages_per_s, bytes_per_s, seen_at, seen_by
FROM administrator_rates
WHERE :resource_group = '' OR resource_group = :resource_group
ORDER BY place
"""


class AdministratorRateTexts:
    """The rates of one group, or of all.

    Raises:
        HistoryError: the history can't be read.
    """

    def __init__(
        self, engine: DuckDBEngine, group: str | None, until: datetime | None = None
    ) -> None:
        self._texts: dict[tuple[str, str], list[str]] = defaultdict(list)
        for row in engine.ask(_SQL, {"resource_group": group or ""}).dicts():
            if until is not None and row["seen_at"] > until:
                continue
            for unit in ("messages", "bytes"):
                if row[f"{unit}_per_s"] is not None:
                    key = row["resource_group"], f"{row['kind']}_{unit}"
                    self._texts[key].append(_in_words(row, unit))

    def of(self, group: str, dimension: str) -> list[str]:
        """The first few of a group's rates in a dimension, and how many more there are."""
        texts = self._texts.get((group, dimension), [])
        more = len(texts) - _SHOWN
        return texts[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])


def _in_words(row: Mapping[str, Any], unit: str) -> str:
    what = "topic" if "://" in row["place"] else "each topic of namespace"
    return (
        f"an administrator's rate of {row[f'{unit}_per_s']:g} {unit}/s on {what} {row['place']} "
        f"(seen by {row['seen_by']} at {utc_text(row['seen_at'])})"
    )
