"""Jobs in this process, on the Spark session that tests share."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession

from quotabalance.job.job import BalanceSpec
from quotabalance.wire.balance_plans import PlanMessage, decode_plan
from quotabalance.wire.load_reports import encode_load_report
from quotaplane.settings import Settings
from quotaplane.streams.job import JobSpec, StreamJob, prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import Topics, Transport
from tests.job import history_table, put_quotas, report_of
from tests.unit.balance.load_report_cases import load_of, local_broker_data


class CutOffError(RuntimeError):
    """A job ends here, as if it were killed."""


def cut_off(patch: pytest.MonkeyPatch, owner: Any, name: str, *, instead: bool = False) -> None:
    """From now on a function ends the job: after it has run, or instead of running."""
    function = getattr(owner, name)

    def cut(*args: Any, **options: Any) -> None:
        if not instead:
            function(*args, **options)
        raise CutOffError("killed")

    patch.setattr(owner, name, cut)


@contextmanager
def running(
    spark: SparkSession, spec: JobSpec, transport: Transport | None = None
) -> Iterator[StreamJob]:
    """A job of this kind, which is stopped at the end."""
    job = StreamJob(spark, spec, transport or prepare(spec))
    try:
        yield job
    finally:
        job.stop()


class QuotaLoop:
    """The history of a quota job, and brokers that report a group ``g`` to it."""

    def __init__(self, spark: SparkSession, settings: Settings, quota: float) -> None:
        self.spark, self.settings = spark, settings
        put_quotas(settings, g=quota)
        self.transport = prepare(QuotaSpec(settings))
        self.link = open_broker_link(settings.transport, limits_from="earliest")
        self._sent = 0

    def report(self, *brokers: str, used: float = 80.0) -> None:
        """A report of each broker; all arrive at once."""
        self._sent += 1
        now_ms = int(time.time() * 1000)
        self.link.send_reports(
            [(name, report_of(name, used, sequence=self._sent), now_ms) for name in brokers]
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's rows."""
        found: list[dict[str, Any]] = history_table(self.settings, table).to_pylist()
        return found


class BalanceLoop:
    """Brokers that report to a balance job; b1 has ten bundles, b2 and the stock broker b3 none."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        prepare(BalanceSpec(settings)).close()
        topics = Topics(settings.balance.loads_topic, settings.balance.plans_topic)
        self.link = open_broker_link(settings.transport, limits_from="earliest", topics=topics)
        self._sequence = 0
        self.plans: list[bytes] = []

    def report(self, *junk: bytes) -> None:
        self._sequence += 1
        now_ms = time.time_ns() // 1_000_000
        numbers = {"sequence": self._sequence, "at_ms": now_ms}
        busy = load_of("b1:8080", (1e6,) * 10, cpu=50.0, **numbers)
        stock = json.dumps(local_broker_data("b3:8080", bundles=0, lastUpdate=now_ms)).encode()
        values = [
            ("b1:8080", encode_load_report(busy)),
            ("b2:8080", encode_load_report(load_of("b2:8080", (), **numbers))),
            ("b3:8080", stock),
            *(("junk", value) for value in junk),
        ]
        self.link.send_reports([(name, value, now_ms) for name, value in values])

    def decided(self) -> list[PlanMessage]:
        """All plans so far."""
        self.plans += [polled.value for polled in self.link.poll_limits().messages]
        return [decode_plan(value) for value in self.plans]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's rows."""
        found: list[dict[str, Any]] = history_table(self.settings, table).to_pylist()
        return found
