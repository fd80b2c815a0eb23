"""The enforcer reports what it observes of a real broker."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import numpy as np
import pulsar
import pytest
import yaml

from quotaplane.model import BASIC, RATE_COLUMNS
from quotaplane.settings import Reports
from quotaplane.settings.transports import STOCK_REPORTS
from quotaplane.wire.reports import Decoded, decode
from tests.servers.enforcer_process import EnforcerProcess
from tests.servers.pulsar_clients import publishing, quiet_client
from tests.servers.test_enforce_pulsar import HELD, Scene, scene
from tests.servers.test_quota_pulsar import REPORTS_EVERY_S

pytestmark = pytest.mark.nightly

__all__ = ["scene"]

WATCHED_S = 12.0
LEAST_REPORTS = 4
PATIENCE_S = 240.0
OWN_EVERY_S = 60.0
"""How often, by the settings, brokers report themselves."""


def read_for(consumer: pulsar.Consumer, seconds: float) -> list[pulsar.Message]:
    """The messages that arrive in so many seconds."""
    until_s, messages = time.monotonic() + seconds, []
    while (left_s := until_s - time.monotonic()) > 0:
        try:
            messages.append(consumer.receive(timeout_millis=max(int(left_s * 1000), 1)))
        except pulsar.Timeout:
            break
    return messages


def decoded(messages: list[pulsar.Message], interval_s: float = OWN_EVERY_S) -> Decoded:
    return decode(
        [message.data() for message in messages],
        np.array([message.publish_timestamp() for message in messages]),
        [str(number) for number in range(len(messages))],
        now_ms=int(time.time() * 1000),
        reports=Reports(interval_s=interval_s),
    )


def rates_of(reports: Decoded, group: str) -> np.ndarray:
    """(reports, 4) what they say of a group; NaN: unchanged."""
    mine = reports.entries["group"].to_numpy() == group
    return np.stack([reports.entries[name].to_numpy()[mine] for name in RATE_COLUMNS[:BASIC]], 1)


def test_reports_each_second_agree_with_the_counters_and_the_brokers_own(scene: Scene) -> None:
    server, rest = scene.server, scene.rest
    observed = rest.create_topic(f"persistent://public/default/observed-{uuid.uuid4().hex[:8]}")
    conf = yaml.safe_load(scene.conf.read_text(encoding="utf-8"))
    conf["transport"]["report_topics"] = [STOCK_REPORTS, observed]
    conf["enforce"]["report_topic"] = observed
    # A broker whose metrics take 5 s / 20 or longer, as on a busy machine, would not be reported.
    conf["reports"] = {"interval_s": OWN_EVERY_S}
    Path(scene.conf).write_text(yaml.safe_dump(conf), encoding="utf-8")
    topic = scene.topic("busy")
    client = quiet_client(server.service_url)
    consumer, own_consumer = (client.subscribe(name, "test") for name in (observed, STOCK_REPORTS))
    client.subscribe(topic, "sink", message_listener=lambda sink, m: sink.acknowledge(m))
    scene.limits.send(publish=100)
    with EnforcerProcess(scene.conf) as enforcer, publishing(server.service_url, topic):
        enforcer.wait_until(lambda: scene.rate(topic) == 100)
        time.sleep(3.0)
        read_for(consumer, 0.5)
        read_for(own_consumer, 0.5)
        begun_s, before = time.monotonic(), scene.rest.counter(topic)
        messages = read_for(consumer, WATCHED_S)
        # A broker that needs more than 50 ms for its metrics is read less often.
        while len(messages) < LEAST_REPORTS and time.monotonic() < begun_s + PATIENCE_S:
            messages += read_for(consumer, 1.0)
        watched_s = time.monotonic() - begun_s
        counted = (scene.rest.counter(topic) - before) / watched_s
        own_messages = read_for(own_consumer, 0.5)
        status = enforcer.stop()
    client.close()
    reports = decoded(messages)
    assert not reports.rejected.num_rows
    assert {*reports.headers["observed"].to_pylist()} == {True}
    assert {*reports.headers["broker"].to_pylist()} == {server.service_url}
    window_s = reports.headers["window_s"].to_numpy()
    rates = rates_of(reports, scene.group)
    # At most one a second. The window of the first one may have begun before the topic had its
    # rate.
    assert LEAST_REPORTS <= len(rates) <= watched_s + 2
    steady = np.arange(len(rates)) > 0
    mean = np.average(rates[steady], axis=0, weights=window_s[steady])
    assert mean[0] == pytest.approx(counted, rel=HELD)
    # The broker's own reports have the same in all dimensions.
    own = decoded(own_messages, REPORTS_EVERY_S)
    assert {*own.headers["broker"].to_pylist()} == {server.service_url}
    # The median, as the first window may have begun before the topic had its rate.
    assert np.nanmedian(rates_of(own, scene.group), axis=0) == pytest.approx(mean, rel=0.1)
    assert status["usage_reports"] > 0
    assert "usage reports" not in enforcer.errors()
