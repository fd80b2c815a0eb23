"""Strict limits from a non-persistent topic: a batch that runs again decides the same."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from quotaplane.errors import TransportError
from quotaplane.settings import Settings
from quotaplane.streams.job import prepare
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import BrokerLink
from quotaplane.transport.pulsar import PulsarTopics
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.report_own import encode_report
from tests.contract.rigs import PulsarRig, limits_of
from tests.job import RunningJob, history_table, put_quotas, settings_in, write_conf
from tests.spark.loops import cut_off, running
from tests.spark.test_failpoints import Spec
from tests.waiting import meanwhile, wait_beside

pytestmark = pytest.mark.nightly

BROKERS = ("a", "b", "c")
QUOTAS = {"one": 90.0, "two": 120.0}


def conf(rig: PulsarRig) -> dict[str, Any]:
    """All but the folders."""
    topics = (f"non-persistent://{rig.namespace}/usage",)
    transport = rig.settings(starting="latest", per_batch=5000, report_topics=topics)
    return {
        "transport": transport.model_dump(mode="json"),
        "trigger": {"interval_s": 0.2},
        # On a busy machine a round takes seconds; reports older than a lease would give no limits.
        "reports": {"interval_s": 0.5},
        "limits": {"lease_s": 10.0, "refresh_rounds": 4, "transition": "strict"},
    }


def reporting(settings: Settings) -> AbstractContextManager[None]:
    """Brokers whose use is another one in each report, whether somebody listens or not."""

    def report(over: threading.Event) -> None:
        link = open_broker_link(settings.transport)
        began_ms, sequence, used = int(time.time() * 1000), 0, np.random.default_rng(7)
        while not over.wait(0.05):
            sequence += 1
            common = {"started_at_ms": began_ms, "sequence": sequence, "window_ms": 500}
            reports = [
                encode_report(
                    broker=broker,
                    groups=list(QUOTAS),
                    usage=used.uniform(0, 100, (len(QUOTAS), 4)),
                    **common,
                )
                for broker in BROKERS
            ]
            now_ms = int(time.time() * 1000)
            link.send_reports(list(zip(BROKERS, reports, [now_ms] * len(BROKERS), strict=True)))
        link.close()

    return meanwhile(report)


class PublishedLimits:
    """All messages on the limits topic, by round and recipient."""

    def __init__(self, settings: Settings) -> None:
        self._link: BrokerLink = open_broker_link(settings.transport, limits_from="earliest")
        self.values: dict[int, dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))

    def poll(self) -> None:
        for broker, value in limits_of(self._link):
            update = decode_limits(value)
            # A broker has a message of each shard.
            self.values[update.seq][f"{broker} {sorted(update.groups)}"].append(value)

    def newest(self) -> int:
        """The last round of which anything was published; -1: none."""
        self.poll()
        return max(self.values, default=-1)

    def differing(self) -> list[tuple[int, str]]:
        """Rounds of which a recipient has got two different messages."""
        return [
            (seq, to)
            for seq, of_round in self.values.items()
            for to, values in of_round.items()
            if len(set(values)) > 1
        ]


def test_the_limits_of_a_batch_cut_off_before_its_commit_are_the_same_again(
    pulsar_rig: PulsarRig, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_in(tmp_path, **conf(pulsar_rig))
    put_quotas(settings, **QUOTAS)
    transport = prepare(Spec(settings))

    def run(until: Callable[[], object] = lambda: False) -> None:
        with running(spark, Spec(settings), transport) as job:
            wait_beside(job, until)

    commits, spool = tmp_path / "checkpoint" / "commits", tmp_path / "checkpoint" / "spool"
    with reporting(settings):
        with monkeypatch.context() as patch:
            cut_off(patch, PulsarTopics, "publish")
            with pytest.raises(StreamingQueryException, match="CutOffError"):
                run()
            published = PublishedLimits(settings)
            cut = published.newest()
            assert not (commits / str(cut)).exists()
            # Without the reports it does not run: no other limits, no crash without a reason.
            moved = shutil.move(spool, tmp_path / "moved")
            with pytest.raises(TransportError, match="needs its reports of non-persistent topics"):
                run()
            shutil.move(moved, spool)
        run(until=lambda: published.newest() > cut)
    assert published.differing() == []
    assert {len(values) for values in published.values[cut].values()} == {2}
    assert len(published.values[cut]) >= len(BROKERS)
    rounds = history_table(settings, "rounds").to_pylist()
    assert sum(row["reports"] for row in rounds if row["seq"] == cut) >= len(BROKERS)
    assert len(list(spool.iterdir())) <= 2


def test_kills_change_no_published_limit(pulsar_rig: PulsarRig, tmp_path: Path) -> None:
    path = write_conf(tmp_path, **conf(pulsar_rig))
    moments, again = random.Random(6), 0
    with RunningJob(path) as job:
        settings = job.settings
        put_quotas(settings, **QUOTAS)
        published = PublishedLimits(settings)
        job.wait_until(lambda: "ready" in job.log.read_text())
    with reporting(settings):
        for _ in range(8):
            before = published.newest()
            with RunningJob(path) as job:
                job.wait_until(lambda: published.newest() > before + 2)  # noqa: B023
                time.sleep(moments.uniform(0.0, 0.05))
            newest = published.newest()
            again += not (tmp_path / "checkpoint" / "commits" / str(newest)).exists()
        before = published.newest()
        with RunningJob(path) as job:
            job.wait_until(lambda: published.newest() > before + 2)
    assert published.differing() == []
    print(f"{again} of 8 kills came between a batch's limits and its commit")
    assert again, "no batch was cut off between its limits and its commit"
