"""The groups as they stand now beside their quotas, and the leases that this is summed up of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.groups.hierarchy import binding_quota, parents_of, subtree_totals
from quotaplane.groups.policy_options import FLOOR_COLUMNS
from quotaplane.groups.scope import templates
from quotaplane.groups.standing import QuotaTree, used_part, wants_more, worst_shares
from quotaplane.model import (
    DEMAND_COLUMNS,
    DIMENSIONS,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    USED_COLUMNS,
    BoolArray,
    FloatArray,
    IntArray,
)
from quotaplane.query.cluster_status import RECENT
from quotaplane.query.duckdb_engine import DuckDBEngine

Columns = Mapping[str, npt.NDArray[Any]]

_PLACES: Final = (
    "SELECT resource_group, row_number() OVER (ORDER BY resource_group) - 1 AS place "
    "FROM resource_groups"
)
_BROKER_PLACES: Final = (
    "SELECT broker, row_number() OVER (ORDER BY broker) - 1 AS broker_place, "
    "min(broker_status) = 'stale' AS stale FROM leases GROUP BY broker"
)
_GROUPS: Final = f"""
SELECT places.resource_group, coalesce(mode, 'hard') AS mode, coalesce(weight, 1) AS weight,
  coalesce(updated_at > :a_day_ago, false) AS lately, {", ".join(RATE_COLUMNS)},
  brokers IS NOT NULL OR coalesce(priority, 0) <> 0
    OR coalesce(greatest({", ".join(FLOOR_COLUMNS)}), 0) > 0 AS has_terms
FROM resource_groups
JOIN ({_PLACES}) AS places ON places.resource_group = resource_groups.resource_group
ORDER BY place
"""

_OF_LEASES: Final = (*USED_COLUMNS, *DEMAND_COLUMNS, *LIMIT_COLUMNS)
_BROKERS: Final = f"SELECT broker, stale FROM ({_BROKER_PLACES}) AS numbered ORDER BY broker_place"
_LEASES: Final = f"""
SELECT place, broker_place, broker_status = 'stale' AS stale, has_limit AND enforced AS limited,
  seen_at > :a_day_ago AS lately, {", ".join(_OF_LEASES)}
FROM leases
JOIN ({_PLACES}) AS places ON places.resource_group = leases.resource_group
JOIN ({_BROKER_PLACES}) AS numbered ON numbered.broker = leases.broker
"""

_THROTTLED: Final = f"""
SELECT place, {", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in THROTTLED_COLUMNS)}
FROM (
  SELECT
    broker, resource_group,
    {", ".join(f"max_by({name}, round_at) AS {name}" for name in THROTTLED_COLUMNS)}
  FROM usage
  WHERE round_at > :recent AND coalesce(counted, true)
    AND coalesce({", ".join(THROTTLED_COLUMNS)}) IS NOT NULL
  GROUP BY broker, resource_group
) AS latest
JOIN ({_PLACES}) AS places ON places.resource_group = latest.resource_group
GROUP BY place
"""


@dataclass(frozen=True)
class GroupStatus:
    """Each group beside its quotas: n rows, one per group and dimension with a quota.

    Arrays have shape (n,); rates are per second. Those that use most of a quota come first. Usage,
    limits and demand are sums over brokers and, in a tree, over the groups below.
    """

    group: npt.NDArray[Any]
    """Names."""
    dimension: npt.NDArray[Any]
    """Names of dimensions."""
    quota_per_s: FloatArray
    used_per_s: FloatArray
    used_part: FloatArray
    """Usage divided by the quota; inf: something is used of a quota of 0."""
    limits_per_s: FloatArray
    """Sum of the limits; brokers without one count as 0."""
    demand_per_s: FloatArray
    """(rows,) sum over the brokers whose demand is known."""
    saturated: IntArray
    """Brokers that want more than their limit; of some it is not known how much."""
    throttled_per_s: FloatArray
    """Refused or delayed, as far as brokers report it."""
    brokers: IntArray
    """Brokers that report the group itself."""
    stale: IntArray
    """Those of them that are silent."""
    worst_share: FloatArray
    """The least limit of a broker that wants more, as a part of its share: see
    ``groups.standing``; NaN: no broker wants more, or the group is not judged."""
    mode: npt.NDArray[Any]
    """hard, soft or shadow."""

    def __len__(self) -> int:
        return len(self.group)

    def rows(self, most: int) -> list[dict[str, Any]]:
        """The first rows as dicts; None in place of NaN."""
        columns = {name: getattr(self, name)[:most].tolist() for name in GROUP_COLUMNS}
        return row_dicts(columns)


GROUP_COLUMNS: Final = tuple(field.name for field in fields(GroupStatus))


class StandingLeases:
    """The n leases of the newest snapshot, of g groups and b brokers.

    Groups and brokers are in the order of their names. Rates are per second.
    """

    def __init__(
        self, groups: Columns, brokers: Columns, leases: Columns, throttled: Columns
    ) -> None:
        self.groups, self.leases, self.throttled = groups, leases, throttled
        self.names, self.modes = groups["resource_group"], groups["mode"]
        """(g,) names and modes of groups."""
        self.brokers = brokers["broker"]
        """(b,) names of brokers."""
        self.broker_stale: BoolArray = brokers["stale"].astype(bool)
        """(b,) silent ones."""
        self.parent: IntArray = parents_of(pa.array(self.names, pa.string()))
        """(g,) the place of the group above; -1: none."""
        self.group: IntArray = leases["place"].astype(np.int64)
        """(n,)"""
        self.broker: IntArray = leases["broker_place"].astype(np.int64)
        """(n,)"""
        self.limited: BoolArray = leases["limited"].astype(bool)
        """(n,) there is a limit, and the broker must obey it."""

    @cached_property
    def counts(self) -> FloatArray:
        """(g,) brokers that report the group itself."""
        return self.by_group(np.ones(len(self.group)))

    @cached_property
    def stale(self) -> FloatArray:
        """(g,) those of them that are silent."""
        return self.by_group(self.leases["stale"])

    @cached_property
    def unreported(self) -> BoolArray:
        """(g,) no broker reports the group or one below it, and it was not changed for a day.

        Templates are not among them: reports name the scopes that they are for.
        """
        lately = self.by_group(self.leases["lately"]) + self.groups["lately"]
        silent: BoolArray = subtree_totals(self.parent, lately) == 0.0
        return silent & ~templates(pa.array(self.names, pa.string()))

    def by_group(self, values: npt.NDArray[Any]) -> FloatArray:
        """(g,) sums of the leases' values."""
        sums = np.bincount(self.group, weights=values, minlength=len(self.names))
        return sums.astype(np.float64, copy=False)  # without leases they are integers

    def quota(self, dimension: int) -> FloatArray:
        """(g,) NaN: unlimited."""
        return self.groups[RATE_COLUMNS[dimension]]

    def rates(self, dimension: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(n,) usage, demand (NaN: not known) and limit (NaN: none) in a dimension."""
        used, demand, limit = (
            self.leases[columns[dimension]]
            for columns in (USED_COLUMNS, DEMAND_COLUMNS, LIMIT_COLUMNS)
        )
        return used, demand, limit

    def wants_more(self, dimension: int) -> BoolArray:
        """(n,) the broker wants more than its limit, and must obey it."""
        return self.limited & wants_more(*self.limits_and_demand(dimension))

    def limits_and_demand(self, dimension: int) -> tuple[FloatArray, FloatArray]:
        """(n,) limits (inf: none), and demand (inf: not known; 0: nothing is reported)."""
        used, demand, limit = self.rates(dimension)
        known = np.where(np.isnan(used), 0.0, np.where(np.isnan(demand), np.inf, demand))
        return np.where(np.isnan(limit), np.inf, limit), known

    def tree(self, dimension: int) -> QuotaTree:
        """The groups, for what fair shares are in a dimension."""
        quota = np.nan_to_num(self.quota(dimension), nan=np.inf)
        quota = binding_quota(self.parent, quota, self.modes == "hard")
        weight, has_terms = self.groups["weight"], self.groups["has_terms"].astype(bool)
        return QuotaTree(self.parent, quota, self.counts.astype(np.int64), weight, has_terms)

    def refused(self, name: str) -> FloatArray:
        """(g,) refused per second."""
        rates = np.zeros(len(self.names))
        rates[self.throttled["place"].astype(np.int64)] = self.throttled[name]
        return rates


def standing_leases(engine: DuckDBEngine, now: datetime) -> StandingLeases:
    """Read the leases, groups and refusals.

    Raises:
        HistoryError: the history can't be read.
    """
    queries = (_GROUPS, _BROKERS, _LEASES, _THROTTLED)
    times = {"recent": now - RECENT, "a_day_ago": now - timedelta(days=1)}
    return StandingLeases(*engine.columns(queries, times))


def row_dicts(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Columns as a dict for each row; None in place of NaN.

    >>> row_dicts({"group": ["a"], "worst_share": [float("nan")]})
    [{'group': 'a', 'worst_share': None}]
    """
    return [
        {name: None if v != v else v for name, v in zip(columns, row, strict=True)}
        for row in zip(*columns.values(), strict=True)
    ]


def group_status(leases: StandingLeases) -> GroupStatus:
    """How groups stand beside their quotas."""
    joined = status_columns(leases)
    order = np.argsort(-joined["used_part"], kind="stable")
    return GroupStatus(**{name: joined[name][order] for name in GROUP_COLUMNS})


def status_columns(leases: StandingLeases) -> Columns:
    """The columns of ``GroupStatus`` (n,) by dimension and then by name; ``place``: of the group.

    ``dimension_place`` is the place of the dimension.
    """
    parts = [_of_dimension(dimension, leases) for dimension in range(len(DIMENSIONS))]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _of_dimension(dimension: int, sums: StandingLeases) -> Columns:
    """The rows of one dimension."""
    quota = sums.quota(dimension)
    at = np.flatnonzero(~np.isnan(quota))
    used, demand, limit = sums.rates(dimension)

    def total(values: FloatArray) -> FloatArray:
        below: FloatArray = subtree_totals(sums.parent, values)[at]
        return below

    def over_brokers(values: npt.NDArray[Any]) -> FloatArray:
        return total(sums.by_group(np.nan_to_num(values)))

    saturated = wants_more(*sums.limits_and_demand(dimension))
    quota_or_none = np.nan_to_num(quota, nan=np.inf)
    part = used_part(sums.parent, sums.group, np.nan_to_num(used), quota_or_none)[at]
    return {
        "place": at,
        "dimension_place": np.full(len(at), dimension),
        "group": sums.names[at],
        "dimension": np.full(len(at), DIMENSIONS[dimension], object),
        "quota_per_s": quota[at],
        "used_per_s": over_brokers(used),
        "used_part": part,
        "limits_per_s": over_brokers(limit),
        "demand_per_s": over_brokers(demand),
        "saturated": over_brokers(saturated).astype(np.int64),
        "throttled_per_s": total(sums.refused(THROTTLED_COLUMNS[dimension])),
        "brokers": sums.counts[at].astype(np.int64),
        "stale": sums.stale[at].astype(np.int64),
        "worst_share": _worst_share(sums, dimension)[at],
        "mode": sums.modes[at],
    }


def _worst_share(sums: StandingLeases, dimension: int) -> FloatArray:
    """(g,) see ``GroupStatus``."""
    limit, demand = sums.limits_and_demand(dimension)
    held = sums.limited & ~sums.leases["stale"].astype(bool)
    return worst_shares(sums.tree(dimension), sums.group, limit, demand, held)
