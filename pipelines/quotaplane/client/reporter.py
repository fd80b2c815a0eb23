"""Usage reports of one broker: numbered, with the limits that they were made under."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from quotaplane.client.receiver import ReceivedLimits
from quotaplane.groups.ids import ids_of_column
from quotaplane.model import FloatArray, IntArray
from quotaplane.wire.report_own import Names, as_strings, encode_report

LIMITS_EVERY: Final = 10
"""One of this many reports that name all groups has the limits in force: a job that starts without
its state takes them from there. Light reports all have them."""


class Reporter:
    """Makes a broker's reports.

    >>> reporter = Reporter("b1", started_at_ms=1)
    >>> reporter.report(np.array([[3.0]]), window_ms=5000, groups=["g"]).hex(" ")
    '0d 51 50 52 31 12 02 62 31 18 01 20 01 28 88 27 42 01 67 52 08 00 00 00 00 00 00 08 40'
    >>> reporter.sequence
    1
    """

    def __init__(self, broker: str, started_at_ms: int) -> None:
        self.broker = broker
        self.started_at_ms = started_at_ms
        """Start of this incarnation of the broker; the incarnation with the latest start counts."""
        self.sequence = 0
        """Sequence number of the last report."""

    def restart(self, started_at_ms: int) -> None:
        """The broker began anew: it numbers its reports from 1 again."""
        self.started_at_ms, self.sequence = started_at_ms, 0

    def report(
        self,
        usage: FloatArray,
        *,
        window_ms: int,
        groups: Names | None = None,
        group_ids: Sequence[int] | IntArray | None = None,
        throttled: FloatArray | None = None,
        received: ReceivedLimits | None = None,
        columns: IntArray | None = None,
        now_ms: float = 0.0,
        counters: FloatArray | None = None,
        named_every: int = 0,
    ) -> bytes:
        """The next report about n groups, by name or by id; see ``encode_report``.

        Args:
            usage: (n, d) per second; NaN: as reported before.
            window_ms: time over which it was measured.
            groups: names of the groups.
            group_ids: their ids, in place of names.
            throttled: (n, d) refused or delayed rates; None: this broker does not count them.
            received: the limits that the broker has, to be acknowledged.
            columns: indexes of the groups in ``received``; None: they are looked up.
            now_ms: time at which the acknowledged limits are in force.
            counters: (n, c) amounts used since the broker's start; see ``encode_report``.
            named_every: one of so many reports names each group of the broker; 0: each report.
        """
        self.sequence += 1
        applied = applied_seqs = limits = None
        if received is not None:
            row = received.row(self.broker)
            if columns is None:
                columns = received.columns(_ids(groups, group_ids))
            applied, applied_seqs = received.acknowledged(row, columns)
            if named_every or self.sequence % LIMITS_EVERY == 1:
                limits = received.of(row, columns, now_ms)
                # With the limit of one dimension, that of one that is left out is unlimited.
                said = np.isfinite(limits).any(axis=0) | (np.arange(limits.shape[1]) == 0)
                limits = np.where(said, limits, np.nan)
        return encode_report(
            broker=self.broker,
            started_at_ms=self.started_at_ms,
            sequence=self.sequence,
            window_ms=window_ms,
            usage=usage,
            throttled=throttled,
            groups=groups,
            group_ids=group_ids,
            applied=applied,
            applied_seqs=applied_seqs,
            limits=limits,
            counters=counters,
            named_every=named_every,
        )


def _ids(groups: Names | None, group_ids: Sequence[int] | IntArray | None) -> IntArray:
    if groups is None:
        return np.asarray([] if group_ids is None else group_ids, np.int64)
    return ids_of_column(as_strings(groups))
