"""Load reports as tables: what the decoder hands to the balancer, its state, and the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.model import IntArray

RESOURCE_COLUMNS: Final = ("cpu", "memory", "direct_memory", "bandwidth_in", "bandwidth_out")
"""``RESOURCES`` as columns are called; each has a ``_usage`` and a ``_limit``."""

USAGE_COLUMNS: Final = tuple(f"{name}_usage" for name in RESOURCE_COLUMNS)
LIMIT_COLUMNS: Final = tuple(f"{name}_limit" for name in RESOURCE_COLUMNS)

RATE_COLUMNS: Final = (
    *("bytes_in_per_s", "bytes_out_per_s"),
    *("messages_in_per_s", "messages_out_per_s"),
)
"""Columns of the measured ``RATES``, in their order."""

COUNT_COLUMNS: Final = ("topics", "sessions")


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


REPORTS: Final = pa.schema(
    [
        _required("broker", pa.string()),
        _required("started_at_ms", pa.int64()),
        _required("sequence", pa.int64()),
        _required("measured_at_ms", pa.int64()),
        _required("published_at_ms", pa.int64()),
        _required("position", pa.string()),
        _required("draining", pa.bool_()),
        *(_required(name, pa.float64()) for name in (*USAGE_COLUMNS, *LIMIT_COLUMNS)),
    ]
)
"""One row per usable load report."""

BUNDLES: Final = pa.schema(
    [
        _required("report", pa.int32()),
        _required("bundle", pa.string()),
        *(_required(name, pa.float32()) for name in RATE_COLUMNS),
        *(_required(name, pa.int32()) for name in COUNT_COLUMNS),
    ]
)
"""One row per bundle in a report: ``report`` is the report's row; a count of -1 is not known.

Rates are rounded to float32 when they arrive, because the record of a large cluster consists of
little else; the balancer decides on the rounded ones, so that a replay is exact.
"""


class ReportedLoads(NamedTuple):
    """Load reports: ``REPORTS`` and their ``BUNDLES``."""

    reports: pa.Table
    bundles: pa.Table

    @classmethod
    def none(cls) -> ReportedLoads:
        """No reports."""
        return cls(REPORTS.empty_table(), BUNDLES.empty_table())

    @classmethod
    def join(cls, parts: Sequence[ReportedLoads]) -> ReportedLoads:
        """Several parts in one, in their order.

        >>> joined = ReportedLoads.join([ReportedLoads.none(), ReportedLoads.none()])
        >>> joined.reports.num_rows
        0
        """
        bundles, offset = [], 0
        for part in parts:
            bundles.append(_renumbered(part.bundles, part.bundles["report"].to_numpy() + offset))
            offset += part.reports.num_rows
        if not parts:
            return cls.none()
        reports = pa.concat_tables([part.reports for part in parts]).combine_chunks()
        return cls(reports, pa.concat_tables(bundles).combine_chunks())

    def take(self, rows: Sequence[int] | IntArray) -> ReportedLoads:
        """The reports in these rows, each at most once, in this order, with their bundles."""
        order = np.asarray(rows, np.int64)
        place = np.full(self.reports.num_rows, -1, np.int64)
        place[order] = np.arange(len(order))
        new = place[self.bundles["report"].to_numpy()]
        chosen = np.flatnonzero(new >= 0)
        chosen = chosen[np.argsort(new[chosen], kind="stable")]
        bundles = self.bundles.take(pa.array(chosen))
        return ReportedLoads(
            self.reports.take(pa.array(order)).combine_chunks(),
            _renumbered(bundles, new[chosen]).combine_chunks(),
        )


def _renumbered(bundles: pa.Table, report: IntArray) -> pa.Table:
    column = pa.array(report.astype(np.int32))
    return bundles.set_column(0, BUNDLES.field("report"), column)
