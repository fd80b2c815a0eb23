"""Notes what an outage did: printed, asserted, and recorded for docs/measured/machines.md."""

from __future__ import annotations

from typing import Final

import pyspark

from tests.nightly.machines import MachinesRecord, Row
from tests.servers.reporting_brokers import Outage

WANTED_S: Final = 30.0
"""Longest time without limits at a broker, after an outage of 20 s or when something is killed."""
WANTED_WITH_STANDBY_S: Final = 15.0


class Outages:
    """The outages of one test.

    Args:
        test: its file and name.
        record: takes the rows; None: nothing is recorded.
    """

    def __init__(self, test: str, record: MachinesRecord | None) -> None:
        self._test, self._record = test, record
        self._rows: list[Row] = []

    def note(
        self, part: str, harm: str, outage: Outage, *, versions: str, wanted_s: float = WANTED_S
    ) -> None:
        """Note an outage; one that is longer than wanted is no failure, but shown.

        Args:
            part: the real part, in words.
            harm: done to it.
            outage: as brokers saw it.
            versions: of the part, such as "Hadoop 3.4.1"; Spark's is added.
            wanted_s: the longest gap that is wanted.

        Raises:
            AssertionError: a lease has lapsed, or a report is not in the history, or twice.
        """
        counts = outage.tally
        row = Row(
            test=self._test,
            part=part,
            harm=harm,
            lease_s=outage.lease_s,
            gap_s=round(outage.gap_s, 1),
            wanted_s=wanted_s,
            sent=counts.sent,
            counted=counts.counted,
            lost=counts.lost,
            doubled=counts.doubled,
            exact=counts.exact,
            versions=f"Spark {pyspark.__version__}, {versions}",
        )
        self._rows.append(row)
        print(f"{part}, {harm}: longest gap {outage.gap_s:.1f} s (wanted {wanted_s:.0f}); {counts}")
        if self._record is not None:
            self._record.replace(self._test, self._rows)
        assert counts.exact, counts
        assert outage.gap_s < outage.lease_s
