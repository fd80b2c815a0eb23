"""The enforcer reports what it observes of a real broker."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import numpy as np
import pulsar
import pytest
import yaml

from quotaplane.settings import Reports
from quotaplane.wire.reports import Decoded, decode
from tests.servers.enforcer_process import EnforcerProcess
from tests.servers.test_enforce_pulsar import HELD, Scene, client_of, publishing, scene

__all__ = ["scene"]

WATCHED_S = 12.0


def read_for(consumer: pulsar.Consumer, seconds: float) -> list[pulsar.Message]:
    """The messages that arrive in so many seconds."""
    until_s, messages = time.monotonic() + seconds, []
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            messages.append(consumer.receive(timeout_millis=max(int(left_s * 1000), 1)))
        except pulsar.Timeout:
            break
    return messages


def decoded(messages: list[pulsar.Message]) -> Decoded:
    return decode(
        [message.data() for message in messages],
        np.array([message.publish_timestamp() for message in messages]),
        [str(number) for number in range(len(messages))],
        now_ms=int(time.time() * 1000),
        reports=Reports(interval_s=60),
    )


def test_reports_of_a_busy_topic_each_second(scene: Scene) -> None:
    server, rest = scene.server, scene.rest
    observed = rest.create_topic(f"persistent://public/default/observed-{uuid.uuid4().hex[:8]}")
    conf = yaml.safe_load(scene.conf.read_text(encoding="utf-8"))
    stock = "non-persistent://pulsar/system/resource-usage"
    conf["transport"]["report_topics"] = [stock, observed]
    conf["enforce"]["report_topic"] = observed
    Path(scene.conf).write_text(yaml.safe_dump(conf), encoding="utf-8")
    topic = scene.topic("busy")
    client = client_of(server)
    consumer = client.subscribe(observed, "test")
    scene.limits.tell(publish=100)
    with EnforcerProcess(scene.conf) as enforcer, publishing(server, topic):
        enforcer.wait_until(lambda: scene.rate(topic) == 100)
        time.sleep(3.0)
        read_for(consumer, 0.5)
        begun_s, before = time.monotonic(), scene.count(topic)
        reports = decoded(read_for(consumer, WATCHED_S))
        counted = (scene.count(topic) - before) / (time.monotonic() - begun_s)
        status = enforcer.stop()
    client.close()
    assert not reports.rejected.num_rows
    assert {*reports.headers["observed"].to_pylist()} == {True}
    assert {*reports.headers["broker"].to_pylist()} == {server.service_url}
    window_s = reports.headers["window_s"].to_numpy()
    mine = reports.entries["group"].to_numpy() == scene.group
    rates = reports.entries["publish_messages_per_s"].to_numpy()[mine]
    assert len(rates) == len(window_s)
    # One a second; a broker that needs more than 50 ms for its metrics is read less often. The
    # window of the first one may have begun before the topic had its rate.
    steady = np.arange(len(rates)) > 0
    assert WATCHED_S / 4 <= steady.sum() <= WATCHED_S + 1
    mean = float(np.average(rates[steady], weights=window_s[steady]))
    assert mean == pytest.approx(counted, rel=HELD)
    assert status["usage_reports"] > 0
    assert enforcer.errors().count("usage reports") == 0
