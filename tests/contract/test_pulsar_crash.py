"""``kill -9`` of a job that follows Pulsar: nothing is lost, doubled or changed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pulsar
import pytest

from tests.contract.rigs import PulsarRig
from tests.servers.pulsar_clients import quiet_client
from tests.spark.fixtures import JVM_OPTIONS
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
PER_BATCH = 70
"""Most messages of a micro-batch; 50 are sent together, so micro-batches end amid these."""


KILLS: Final = 5
MESSAGES: Final = 2100


@pytest.mark.nightly
def test_kills_change_nothing(pulsar_rig: PulsarRig, tmp_path: Path) -> None:
    topic = pulsar_rig.report_topics[0]
    options = {
        "service_url": pulsar_rig.server.service_url,
        "topic": topic,
        "starting": "earliest",
        "max_messages_per_trigger": str(PER_BATCH),
    }
    (tmp_path / "options.json").write_text(json.dumps(options))
    client = quiet_client(pulsar_rig.server.service_url)
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=50,
        batching_max_publish_delay_ms=1000,
        block_if_queue_full=True,
    )
    sent: list[object] = []
    for number in range(MESSAGES):
        key = str(number % 9)
        producer.send_async(
            str(number).encode(), lambda result, _: sent.append(result), partition_key=key
        )
    producer.flush()
    assert sent == [pulsar.Result.Ok] * MESSAGES
    client.close()

    moments = random.Random(6)
    cut_off = 0
    while cut_off < KILLS:
        job = start(tmp_path)
        try:
            begun = offsets(tmp_path)
            wait_for(job, tmp_path, lambda: offsets(tmp_path) >= begun + 3)  # noqa: B023
            # Amid a batch, so that it is run again.
            wait_for(job, tmp_path, lambda: offsets(tmp_path) > offsets(tmp_path, "commits"))
            time.sleep(moments.uniform(0.0, 0.02))
        finally:
            kill(job)
        # Once in a while the batch ends before the signal comes.
        cut_off += offsets(tmp_path) > offsets(tmp_path, "commits")
        assert len(copied(tmp_path)) < MESSAGES, "it was done before it was killed"
    job = start(tmp_path)
    try:
        wait_for(job, tmp_path, lambda: len(copied(tmp_path)) >= MESSAGES)
    finally:
        kill(job)

    rows = copied(tmp_path)
    assert sorted(int(value) for _, value in rows) == list(range(MESSAGES))
    assert not list(tmp_path.glob("differs-*"))
    assert list(tmp_path.glob("again-*")), "no batch was cut off and run again"
    sizes = [len(json.loads(path.read_text())) for path in tmp_path.glob("batch-*.json")]
    assert max(sizes) <= PER_BATCH


def start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [
                ROOT / "spark-submit.sh",
                Path(__file__).with_name("pulsar_copier.py"),
                *("--driver-java-options", JVM_OPTIONS),
                *("--master", "local[1]"),
                str(folder),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def kill(job: subprocess.Popen[bytes]) -> None:
    """The job, its JVM and its workers: as if the machine lost power."""
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def wait_for(job: subprocess.Popen[bytes], folder: Path, done: Callable[[], bool]) -> None:
    log = folder / "log"
    wait_until(done, process=job, said=lambda: log.read_text()[-4000:], every_s=0.005)


def offsets(folder: Path, log: str = "offsets") -> int:
    return sum(path.name.isdigit() for path in (folder / "checkpoint" / log).glob("*"))


def copied(folder: Path) -> list[tuple[str, str]]:
    return [
        tuple(row)
        for path in sorted(folder.glob("batch-*.json"))
        for row in json.loads(path.read_text())
    ]
