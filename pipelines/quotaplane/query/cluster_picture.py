"""A picture of the job, its groups and brokers, which answers from memory: pages, heat maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import bools
from quotaplane.groups.hierarchy import and_below
from quotaplane.groups.standing import NEAR_QUOTA, OVER_QUOTA, UNFAIR
from quotaplane.model import DIMENSIONS, BoolArray, FloatArray, IntArray
from quotaplane.query.cluster_status import RoundStatus, job_status
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.group_status import (
    GROUP_COLUMNS,
    StandingLeases,
    row_dicts,
    standing_leases,
    status_columns,
)

_SORTED_BY: Final[Mapping[str, str | None]] = {
    "used_part": "used_part",
    "worst_share": "worst_share",
    "throttled": "throttled_per_s",
    "group": None,
}
SORTS: Final = (*_SORTED_BY, *(f"-{name}" for name in _SORTED_BY))
"""Orders of rows; with a hyphen: descending. Unknown values come last in both."""
MOST_USED_FIRST: Final = "-used_part"


@dataclass(frozen=True)
class HeatMap:
    """Groups and brokers in one dimension; matrices have shape (groups, brokers), rates per second.

    NaN: the broker does not report the group, or the value is not known. In a tree, a group's
    values are sums that include the groups below it.
    """

    dimension: str
    total: int
    """Number of groups; ``groups`` is a page of them."""
    groups: list[str]
    brokers: list[str]
    brokers_total: int
    used_per_s: FloatArray
    limit_per_s: FloatArray
    demand_per_s: FloatArray
    part: FloatArray
    """Usage divided by the limit; inf: usage above a limit of 0."""


class ClusterPicture:
    """The standing of g groups in r rows: a group and a dimension with a quota each."""

    def __init__(self, leases: StandingLeases, job: RoundStatus | None, as_of: datetime) -> None:
        self.as_of = as_of
        """When the history was read."""
        self._leases, self._job = leases, job
        self._rows = status_columns(leases)
        self._orders: dict[str, IntArray] = {}
        self.names = pa.array(leases.names, pa.string())
        """(g,) names of groups, in their order."""

    def job(self, now: datetime) -> RoundStatus | None:
        """The job's last round; its age is as of now."""
        if self._job is None:
            return None
        return replace(self._job, age_s=(now - self._job.round_at).total_seconds())

    def containing(self, text: str) -> BoolArray:
        """(g,) whether a group has this text in its name, in upper or lower case."""
        found = pc.match_substring(self.names, text, ignore_case=True)
        return bools(found)

    def page(
        self, chosen: BoolArray, dimension: str | None, sort: str, begin: int, most: int
    ) -> tuple[int, list[dict[str, Any]]]:
        """The number of rows of the ``chosen`` (g,) groups, and ``most`` of them from ``begin`` on.

        ``dimension``: rows of this one only; ``sort``: one of ``SORTS``. A row has the columns of
        ``GroupStatus``, ``unreported`` and ``parent``, the group above (None: there is none); None
        for NaN.
        """
        found = self._found(chosen, dimension, sort)
        at = found[begin : begin + most]
        columns = {name: self._rows[name][at].tolist() for name in GROUP_COLUMNS}
        place = self._rows["place"][at]
        columns["unreported"] = self._leases.unreported[place].tolist()
        above = self._leases.parent[place]
        columns["parent"] = [
            None if place < 0 else str(self._leases.names[place]) for place in above.tolist()
        ]
        return len(found), row_dicts(columns)

    def counts(self, chosen: BoolArray) -> dict[str, int]:
        """Numbers of the ``chosen`` (g,) groups by standing, and of their brokers."""
        rows, part = self._rows, self._rows["used_part"]

        def count(which: BoolArray) -> int:
            of_groups = np.zeros(len(chosen), np.bool_)
            of_groups[rows["place"][which]] = True
            return int((of_groups & chosen).sum())

        reporting = np.zeros(len(self._leases.brokers), np.bool_)
        reporting[self._leases.broker[chosen[self._leases.group]]] = True
        stale = self._leases.broker_stale
        return {
            "groups": int(chosen.sum()),
            "over_quota": count(part > OVER_QUOTA),
            "near_quota": count((part >= NEAR_QUOTA) & (part <= OVER_QUOTA)),
            "unfair": count(rows["worst_share"] < UNFAIR),
            "throttled": count(rows["throttled_per_s"] > 0.0),
            "stale_brokers": int((reporting & stale).sum()),
            "brokers_live": int((reporting & ~stale).sum()),
        }

    @cached_property
    def main_dimension(self) -> str:
        """The dimension in which most groups have a quota."""
        rows = np.bincount(self._rows["dimension_place"], minlength=len(DIMENSIONS))
        return DIMENSIONS[int(np.argmax(rows))]

    def heat_map(
        self, chosen: BoolArray, dimension: str, sort: str, begin: int, most: int, most_brokers: int
    ) -> HeatMap:
        """Usage, limits and demand of a page of groups on brokers.

        The brokers are those with the most limits reached in the ``chosen`` (g,) groups.
        """
        leases, place = self._leases, DIMENSIONS.index(dimension)
        found = self._found(chosen, dimension, sort)
        groups = self._rows["place"][found]
        page = groups[begin : begin + most]
        among = self._and_below(groups)[leases.group]
        count = len(leases.brokers)
        reached = np.bincount(leases.broker, among & leases.wants_more(place), count)
        brokers = np.flatnonzero(np.bincount(leases.broker, among, count))
        shown = brokers[np.argsort(-reached[brokers], kind="stable")][:most_brokers]
        used, limit, demand = self._matrices(page, shown, place)
        part = np.full(used.shape, np.nan)
        known = ~np.isnan(used) & ~np.isnan(limit)
        part[known & (limit == 0.0)] = np.where(used[known & (limit == 0.0)] > 0.0, np.inf, 0.0)
        np.divide(used, limit, out=part, where=known & (limit > 0.0))
        return HeatMap(
            dimension=dimension,
            total=len(found),
            groups=leases.names[page].tolist(),
            brokers=leases.brokers[shown].tolist(),
            brokers_total=len(brokers),
            used_per_s=used,
            limit_per_s=limit,
            demand_per_s=demand,
            part=part,
        )

    def _found(self, chosen: BoolArray, dimension: str | None, sort: str) -> IntArray:
        """The rows of the chosen (g,) groups in this order."""
        keep = chosen[self._rows["place"]]
        if dimension is not None:
            keep = keep & (self._rows["dimension_place"] == DIMENSIONS.index(dimension))
        order = self._order(sort)
        found: IntArray = order[keep[order]]
        return found

    def _order(self, sort: str) -> IntArray:
        """(r,) the rows by one of ``SORTS``, then by name and dimension."""
        if sort not in self._orders:
            column = _SORTED_BY[sort.removeprefix("-")]
            sign = -1 if sort.startswith("-") else 1
            place, dimension = self._rows["place"], self._rows["dimension_place"]
            if column is None:
                keys: tuple[FloatArray | IntArray, ...] = (dimension, sign * place)
            else:
                keys = (dimension, place, sign * self._rows[column])  # NaN is last
            self._orders[sort] = np.lexsort(keys)
        return self._orders[sort]

    def _and_below(self, groups: IntArray) -> BoolArray:
        """(g,) these groups and those below them."""
        chosen = np.zeros(len(self.names), np.bool_)
        chosen[groups] = True
        return and_below(self._leases.parent, chosen)

    def _matrices(
        self, page: IntArray, shown: IntArray, dimension: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(groups, brokers) usage, limits and demand of the groups and those below."""
        leases = self._leases
        rows, columns = len(page), len(shown)
        row_of = np.full(len(leases.names) + 1, -1, np.int64)  # the last is of -1: above a root
        row_of[page] = np.arange(rows)
        column_of = np.full(len(leases.brokers), -1, np.int64)
        column_of[shown] = np.arange(columns)
        among = self._and_below(page)[leases.group] & (column_of[leases.broker] >= 0)
        at = np.flatnonzero(among)
        values = [rates[at] for rates in leases.rates(dimension)]
        sums = np.zeros((3, rows * columns))
        known = np.zeros((3, rows * columns), np.bool_)
        unknown_demand = np.zeros(rows * columns, np.bool_)
        column, above = column_of[leases.broker[at]], leases.group[at]
        while len(at) and (above >= 0).any():  # once for each level
            here = row_of[above] >= 0
            cell = row_of[above[here]] * columns + column[here]
            for kind, rates in enumerate(values):
                given = ~np.isnan(rates[here])
                sums[kind] += np.bincount(cell[given], rates[here][given], rows * columns)
                known[kind, cell[given]] = True
            saturated = np.isnan(values[1][here]) & ~np.isnan(values[0][here])
            unknown_demand[cell[saturated]] = True
            above = np.where(above >= 0, leases.parent[above], -1)
        sums[~known] = np.nan
        sums[1][unknown_demand] = np.nan
        used, demand, limit = sums.reshape(3, rows, columns)
        return used, limit, demand


def cluster_picture(engine: DuckDBEngine, now: datetime) -> ClusterPicture:
    """Read the picture from the history.

    Raises:
        HistoryError: the history can't be read.
    """
    return ClusterPicture(standing_leases(engine, now), job_status(engine, now), now)
