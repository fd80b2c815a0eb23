"""The counts of a round of the quota job: each is declared once, and how shards are added up.

The table ``rounds``, the status line, and metrics are made of ``RoundCounts``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final, NamedTuple


class Merge(Enum):
    """How the counts of several shards become one."""

    SUM = "sum"
    """Each shard counts what is its own."""
    MAX = "max"
    """Every shard counts the same, or the greatest is meant."""
    BY_KEY = "by_key"
    """A mapping from keys to counts, which are added up."""


class CountColumn(NamedTuple):
    """A count as a column of the table ``rounds``."""

    name: str
    help: str
    since_later: bool
    """Rows of earlier versions do not have it; null stands for 0."""


def _count(
    text: str, merge: Merge = Merge.SUM, *, stored: bool = True, since_later: bool = False
) -> Any:
    about = {"help": text, "merge": merge, "stored": stored, "since_later": since_later}
    if merge is Merge.BY_KEY:
        return field(default_factory=dict, metadata=about)
    return field(default=0, metadata=about)


@dataclass(frozen=True)
class RoundCounts:
    """What happened in a round: of one shard, or of all of them (``merged``).

    >>> first, second = RoundCounts(reports=3, entries=10), RoundCounts(reports=3, entries=5)
    >>> total = merged([first, second])
    >>> total.reports, total.entries
    (3, 15)
    """

    reports: int = _count("reports used", Merge.MAX)
    entries: int = _count("entries in them")
    duplicates: int = _count("reports that had been seen before", Merge.MAX)
    outdated: int = _count("reports older than one already used", Merge.MAX)
    rejected: int = _count("reports not used, or only in part (see rejected_reports)")
    quota_changes: int = _count("changes of resource_groups taken in")
    groups_recomputed: int = _count("resource groups whose limits were computed")
    limits_sent: int = _count("limits that went out, changed or only renewed")
    messages_sent: int = _count("messages they went out in")
    brokers_live: int = _count("brokers that counted", Merge.MAX)
    soft_exceeded: int = _count("soft groups that used more than their quota", since_later=True)
    limits_changed: int = _count("limits that changed", stored=False)
    brokers_stale: int = _count("brokers that fell silent", Merge.MAX, stored=False)
    newest_report_ms: int = _count(
        "when the newest report was published, in ms since 1970; 0: no report",
        Merge.MAX,
        stored=False,
    )
    rejected_by_reason: Mapping[str, int] = _count(
        "reports, entries, and rows of resource_groups that could not be used, by reason",
        Merge.BY_KEY,
        stored=False,
    )

    def stored(self) -> dict[str, int]:
        """The counts that the table ``rounds`` has."""
        return {name: getattr(self, name) for name, _, _ in COLUMNS}

    def something_happened(self) -> bool:
        """Whether any count is not 0, apart from those of brokers, which every round has."""
        return any(getattr(self, name) for name in _RULES.keys() - _ALWAYS)

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps({name: getattr(self, name) for name in _RULES}).encode()

    @classmethod
    def from_bytes(cls, encoded: bytes) -> RoundCounts:
        """The counts that ``to_bytes`` encoded."""
        return cls(**json.loads(encoded))


_ALWAYS: Final = {"brokers_live", "brokers_stale"}
_RULES: Final[dict[str, Merge]] = {
    each.name: each.metadata["merge"] for each in fields(RoundCounts)
}

COLUMNS: Final = tuple(
    CountColumn(each.name, each.metadata["help"], each.metadata["since_later"])
    for each in fields(RoundCounts)
    if each.metadata["stored"]
)
"""The columns that the table ``rounds`` has of counts, in its order."""


def merged(of_shards: Iterable[RoundCounts]) -> RoundCounts:
    """The counts of a round over all shards."""
    shards = [RoundCounts(), *of_shards]
    totals: dict[str, Any] = {}
    for name, rule in _RULES.items():
        values = [getattr(each, name) for each in shards]
        if rule is Merge.BY_KEY:
            totals[name] = dict(sum(map(Counter, values), Counter()))
        else:
            totals[name] = max(values) if rule is Merge.MAX else sum(values)
    return RoundCounts(**totals)
