"""A straightforward quota job for comparison: one key of the stateful operator per resource group.

It has the same reports, decoder, estimate and law, but state and law run group by group, and rows
travel one by one. It keeps no history and publishes nothing, which makes it faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from quotaplane.laws import Problem, get_law
from quotaplane.model import BASIC, RATE_COLUMNS
from quotaplane.quota.estimate.demand import observe
from quotaplane.quota.headroom import without_history
from quotaplane.settings import Reports
from quotaplane.wire.reports import decode
from workload import QUOTA

RATES = RATE_COLUMNS[:BASIC]
ENTRIES = ", ".join(["group_id long", "broker string", *(f"{name} double" for name in RATES)])
LIMITS = ENTRIES


def entries_of(reports: DataFrame, interval_s: float) -> DataFrame:
    """A row per entry of every report."""
    return reports.selectExpr("value", "published_at_ms", "position").mapInArrow(
        _decoder(Reports(interval_s=interval_s)), ENTRIES
    )


def _decoder(
    reports: Reports,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            published = batch["published_at_ms"].to_numpy()
            decoded = decode(
                batch["value"].to_pylist(),
                published,
                batch["position"].to_pylist(),
                now_ms=int(published.max(initial=0)),
                reports=reports,
            )
            broker = decoded.headers["broker"].take(decoded.entries["report"])
            columns = {"group_id": decoded.entries["group_id"], "broker": broker}
            columns |= {name: decoded.entries[name] for name in RATES}
            yield from pa.table(columns).combine_chunks().to_batches()

    return rows


class ByGroup(StatefulProcessor):
    """The state of one group: its brokers, their usage and limits, as arrays in one value."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState(
            "group", "brokers array<string>, usage array<double>, limits array<double>"
        )
        self._law = get_law("max_min")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        known = self._state.get()
        usage: dict[str, list[float]] = {}
        limits: dict[str, list[float]] = {}
        if known is not None:
            for at, broker in enumerate(known[0]):
                usage[broker] = known[1][4 * at : 4 * at + 4]
                limits[broker] = known[2][4 * at : 4 * at + 4]
        for frame in rows:
            for broker, values in zip(frame["broker"], frame[list(RATES)].to_numpy(), strict=True):
                usage[broker] = values.tolist()
        n = len(usage)
        used = np.array(list(usage.values())).T
        before = np.array([limits.get(broker, [np.inf] * 4) for broker in usage]).T
        starts, quota, ones = np.array([0, n]), np.array([QUOTA]), np.ones(n)
        new = np.empty((4, n))
        for d in range(4):
            shown = observe(used[d], before[d])
            problem = Problem(starts, quota, used[d], before[d], shown, ones, 0.0 * ones)
            new[d] = self._law(without_history(problem, ones == 0.0)).limits
        self._state.update((list(usage), used.T.ravel().tolist(), new.T.ravel().tolist()))
        yield pd.DataFrame(
            {"group_id": key[0], "broker": list(usage), **dict(zip(RATES, new, strict=True))}
        )

    def close(self) -> None:
        pass
