"""``kill -9`` of the real job: same limits, and nothing missing or doubled.

The moments are random. ``test_failpoints`` ends the job at each step of a batch, one by one.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from quotaplane.model import RATE_COLUMNS
from quotaplane.settings import Settings, load_settings
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.transport import open_broker_link
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.reports import encode_report
from tests.contract.rigs import limits_of
from tests.job import RunningJob, history_table, put_quotas, write_conf
from tests.spark.loops import running
from tests.waiting import wait_beside

BROKERS = ("a", "b", "c", "d", "e", "f")
QUOTAS = {f"group-{number}": 100.0 * (number + 1) for number in range(12)}
STEADY = {
    # One append is one micro-batch, so both runs have the same rounds; and nobody falls silent
    # however long the restarts take.
    "reports": {"interval_s": 3600},
    "limits": {"lease_s": 72_000, "refresh_rounds": 10},
    "trigger": {"interval_s": 0},
}


KILLS: Final = 20
ROUNDS: Final = 24
"""Few enough that the embedded topic is not compacted: every append is one of them."""


@pytest.mark.nightly
def test_kills_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    conf = write_conf(tmp_path / "calm", _topics(tmp_path / "calm"), **STEADY)
    settings = load_settings(conf)
    put_quotas(settings, **QUOTAS)
    _send_reports(settings, ROUNDS)
    rough = tmp_path / "rough"
    shutil.copytree(tmp_path / "calm", rough)
    rough_conf = write_conf(rough, _topics(rough), **STEADY)

    with running(spark, QuotaSpec(settings)) as calm:
        wait_beside(calm, lambda: _commits(settings) >= ROUNDS, 300)

    moments = random.Random(20)
    for kill in range(KILLS):
        with RunningJob(rough_conf) as job:
            # Half are amid the batches, half at any moment from the start on.
            if kill % 2:
                time.sleep(moments.uniform(0.0, 8.0))
            else:
                begun = _offsets(job.settings)
                # On a fast machine the last of them find nothing left to do.
                job.wait_until(lambda seen=begun: _offsets(job.settings) > min(seen, ROUNDS - 1))
                time.sleep(moments.uniform(0.0, 1.5))
            job.kill()
    with RunningJob(rough_conf) as job:
        job.wait_until(lambda: _commits(job.settings) >= ROUNDS)

    after = job.settings
    assert _limits_in_force(after) == _limits_in_force(settings)
    for name in ("usage", "limits", "brokers", "rounds", "rejected_reports"):
        assert _rows(after, name) == _rows(settings, name), name
    found = history_table(after, "rounds")
    assert sorted(found["seq"].to_pylist()) == list(range(ROUNDS))
    assert len(set(found["epoch"].to_pylist())) == 1
    usage = history_table(after, "usage")
    assert usage.num_rows == ROUNDS * len(BROKERS) * len(QUOTAS)


def _topics(folder: Path) -> dict[str, Any]:
    return {"kind": "delta", "path": str(folder / "topics"), "max_files_per_trigger": 1}


def _send_reports(settings: Settings, rounds: int) -> None:
    link = open_broker_link(settings.transport)
    demand = np.random.default_rng(82)
    now_ms = int(time.time() * 1000)
    for number in range(rounds):
        usage = demand.lognormal(4.0, 1.0, (len(BROKERS), len(QUOTAS), len(RATE_COLUMNS)))
        common = {"started_at_ms": now_ms, "sequence": number, "window_ms": 1000}
        reports = [
            encode_report(broker=broker, groups=list(QUOTAS), usage=rates, **common)
            for broker, rates in zip(BROKERS, usage, strict=True)
        ]
        times = [now_ms + number] * len(BROKERS)
        link.send_reports(list(zip(BROKERS, reports, times, strict=True)))
    link.close()


def _offsets(settings: Settings) -> int:
    return _numbered(settings, "offsets")


def _commits(settings: Settings) -> int:
    return _numbered(settings, "commits")


def _numbered(settings: Settings, log: str) -> int:
    names = (path.name for path in Path(settings.checkpoint, log).glob("*"))
    return sum(name.isdigit() for name in names)


def _limits_in_force(settings: Settings) -> dict[tuple[str, str], list[float]]:
    """Limits that brokers which received every message would apply now."""
    newest: dict[tuple[str, str], tuple[tuple[int, int], list[float]]] = {}
    link = open_broker_link(settings.transport, limits_from="earliest")
    for message in limits_of(link):
        update = decode_limits(message.value)
        for group, limits in zip(update.groups, update.limits.tolist(), strict=True):
            stamp = (update.epoch, update.seq)
            if newest.get((message.key, group), ((0, -1), []))[0] <= stamp:
                newest[message.key, group] = (stamp, limits)
    assert len(newest) == len(BROKERS) * len(QUOTAS)
    return {pair: limits for pair, (_, limits) in newest.items()}


_LEFT_OUT: Final = {
    *("epoch", "round_at", "date", "positions", "last_seen_at"),
    *("duration_ms", "previous_duration_ms", "lag_ms", "renewal_age_ms"),
    *("limits_sent", "messages_sent"),  # each start publishes all limits once more
}


def _rows(settings: Settings, name: str) -> list[tuple[Any, ...]]:
    """A table's rows without wall-clock times and places, which differ from run to run."""
    table: pa.Table = history_table(settings, name)
    kept = table.select([column for column in table.column_names if column not in _LEFT_OUT])
    return sorted((tuple(row.values()) for row in kept.to_pylist()), key=repr)
