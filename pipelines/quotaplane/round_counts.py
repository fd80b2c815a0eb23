"""Declares the counts of a round of the quota job, and how the counts of shards are merged.

The table ``rounds``, the status line and metrics are made from ``RoundCounts``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final


class Merge(Enum):
    """How the counts of several shards become one."""

    SUM = "sum"
    """Each shard counts its own."""
    MAX = "max"
    """Every shard counts the same, or the greatest count is the answer."""
    MIN = "min"
    """The least that is not 0."""
    BY_KEY = "by_key"
    """A mapping from keys to counts, which are added up."""
    GREATEST = "greatest"
    """A mapping from names to values, of which the ``MOST_NAMED`` greatest are kept."""


class Over(Enum):
    """How the counts of several rounds become one number of the job."""

    SUM = "sum"
    """Events: they add up."""
    NEWEST = "newest"
    """A state that every round has: the newest round counts."""
    OF_EACH_SHARD = "of each shard"
    """A state of the shard after the round: it counts until the shard's next round, also in rounds
    that the shard does not take part in."""


MOST_NAMED: Final = 20
"""At most this many groups are named, those with the greatest values."""


def _state(text: str, merge: Merge = Merge.SUM) -> Any:
    return _count(text, merge, Over.OF_EACH_SHARD, stored=False)


def _count(
    text: str,
    merge: Merge = Merge.SUM,
    over: Over = Over.SUM,
    *,
    stored: bool = True,
) -> Any:
    about = {"help": text, "merge": merge, "over": over, "stored": stored}
    if merge in (Merge.BY_KEY, Merge.GREATEST):
        return field(default_factory=dict, metadata=about)
    return field(default=0, metadata=about)


@dataclass(frozen=True)
class RoundCounts:
    """The counts of a round, of one shard or of all shards (``merged``).

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
    uncounted: int = _count(
        "reports that were too old or too many to decide with; usage has them, or will"
    )
    quota_changes: int = _count("changes of resource_groups taken in")
    groups_recomputed: int = _count("resource groups whose limits were computed")
    limits_sent: int = _count("limits that went out, changed or only renewed")
    messages_sent: int = _count("messages they went out in")
    brokers_live: int = _count("brokers that counted", Merge.MAX, Over.OF_EACH_SHARD)
    soft_exceeded: int = _count("soft groups over their quota")
    limits_changed: int = _count("limits that changed", stored=False)
    brokers_stale: int = _state("brokers that fell silent", Merge.MAX)
    newest_report_ms: int = _count(
        "when the newest report was published, in ms since 1970; 0: no report",
        Merge.MAX,
        Over.NEWEST,
        stored=False,
    )
    oldest_report_ms: int = _count(
        "when the oldest report was published, in ms since 1970; 0: no report",
        Merge.MIN,
        Over.NEWEST,
        stored=False,
    )
    old_reports_s: Mapping[str, float] = _count(
        "age of a broker's newest report, in seconds, where it was published so long before the "
        f"round before this one that it should have been read there; the {MOST_NAMED} greatest",
        Merge.GREATEST,
        Over.NEWEST,
        stored=False,
    )
    rejected_by_reason: Mapping[str, int] = _count(
        "reports, entries, and rows of resource_groups that could not be used, by reason",
        Merge.BY_KEY,
        stored=False,
    )
    groups: Mapping[str, int] = _state("resource groups, by mode", Merge.BY_KEY)
    groups_over_quota: Mapping[str, int] = _state(
        "groups over a quota of theirs (by more than 5 %), by mode", Merge.BY_KEY
    )
    worst_quota_used: float = _state("the greatest share of a quota that a group uses", Merge.MAX)
    shares: Mapping[str, float] = _state(
        "the share of its quota that a group uses (of several, the greatest share), of the "
        f"{MOST_NAMED} groups that use most",
        Merge.GREATEST,
    )
    groups_starving: int = _state(
        "groups with a broker that wants more and has less than half its share, while more than a "
        "tenth of the quota is free"
    )
    limits_in_force: int = _state("enforced limits, one for each broker and group")
    groups_overcommitted: int = _state(
        "groups whose enforced limits add up to more than a quota and `limits.over` of it"
    )
    worst_overcommit: float = _state(
        "the greatest sum of a group's enforced limits, as a share of its quota; limits that "
        "expired brokers may still apply do not count",
        Merge.MAX,
    )
    overcommits: Mapping[str, float] = _state(
        "the sum of a group's enforced limits as a share of its quota, where it exceeds 1 and "
        f"`limits.over`, of the {MOST_NAMED} greatest",
        Merge.GREATEST,
    )
    oldest_renewal_ms: int = _state(
        "when the limit that waits longest for its renewal was published, in ms since 1970; 0: "
        "there is no limit",
        Merge.MIN,
    )
    observed_pairs: int = _state(
        "pairs of a broker and a group whose usage the enforcer's observations decide"
    )
    sources_differing: int = _count(
        "own reports of brokers on a group that differed from what the enforcer observed",
        stored=False,
    )
    brokers_departed: int = _count(
        "brokers whose leases ended because they left the cluster's list of brokers",
        Merge.MAX,
        stored=False,
    )
    learning_shards: int = _state("shards that only hand back limits of an earlier epoch")
    shard: int = -1
    """The shard that was counted; -1: all."""

    def stored(self) -> dict[str, int]:
        """The counts that the table ``rounds`` has."""
        return {name: getattr(self, name) for name in COLUMNS}

    def something_happened(self) -> bool:
        """Whether any event was counted; states are not considered, as every round has them."""
        return any(getattr(self, name) for name in _NAMES[Over.SUM])

    def events(self) -> dict[str, int]:
        """The counts that add up over rounds, without those by key."""
        counts = {name: getattr(self, name) for name in _NAMES[Over.SUM]}
        return {name: count for name, count in counts.items() if isinstance(count, int)}

    def state(self) -> dict[str, float | Mapping[str, float]]:
        """The state of all shards after the round."""
        return {name: getattr(self, name) for name in _NAMES[Over.OF_EACH_SHARD]}

    def to_bytes(self) -> bytes:
        """As JSON."""
        counts = {name: getattr(self, name) for name in _RULES}
        return json.dumps({**counts, "shard": self.shard}).encode()

    @classmethod
    def from_bytes(cls, encoded: bytes) -> RoundCounts:
        """The counts that ``to_bytes`` encoded."""
        return cls(**json.loads(encoded))


_COUNTS: Final = tuple(each for each in fields(RoundCounts) if each.metadata)
_RULES: Final[dict[str, Merge]] = {each.name: each.metadata["merge"] for each in _COUNTS}
_NAMES: Final = {
    over: tuple(each.name for each in _COUNTS if each.metadata["over"] is over) for over in Over
}

COLUMNS: Final[Mapping[str, str]] = {
    each.name: each.metadata["help"] for each in _COUNTS if each.metadata["stored"]
}
"""The columns that the table ``rounds`` has of counts, in its order, with their meaning."""


def merged(
    of_round: Iterable[RoundCounts], latest: Iterable[RoundCounts] | None = None
) -> RoundCounts:
    """The counts of a round over all shards.

    ``of_round``: counts of the shards that took part; ``latest``: the latest counts of each shard,
    used for those ``OF_EACH_SHARD``; None: the same.
    """
    shards = [RoundCounts(), *of_round]
    states = shards if latest is None else [RoundCounts(), *latest]
    chosen = dict.fromkeys(_NAMES[Over.OF_EACH_SHARD], states)
    return RoundCounts(
        **{
            name: _merged(rule, [getattr(one, name) for one in chosen.get(name, shards)])
            for name, rule in _RULES.items()
        }
    )


def _merged(rule: Merge, values: list[Any]) -> Any:
    if rule is Merge.BY_KEY:
        return dict(sum(map(Counter, values), Counter()))
    if rule is Merge.GREATEST:
        named = [item for value in values for item in value.items()]
        return dict(sorted(named, key=lambda item: (-item[1], item[0]))[:MOST_NAMED])
    if rule is Merge.MIN:
        return min(filter(None, values), default=0)
    return max(values) if rule is Merge.MAX else sum(values)
