"""Usage of topics, from a broker's metrics or its statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.topic_usage import (
    Counters,
    Sample,
    Snapshots,
    Source,
    StatsExposure,
    counters_in,
    stats_exposure,
)
from tests.unit.pulsar_admin.cluster_cases import Answer, RestServer

TOPIC = "persistent://acme/orders/t"
METRICS = """\
# TYPE pulsar_in_messages_total counter
pulsar_in_messages_total{cluster="c",namespace="acme/orders",topic="persistent://acme/orders/t"} 12
pulsar_in_bytes_total{cluster="c",namespace="acme/orders",topic="persistent://acme/orders/t"} 1.2E9
pulsar_out_messages_total{cluster="c",topic="persistent://acme/orders/t",subscription="a"} 5
pulsar_out_messages_total{cluster="c",topic="persistent://acme/orders/t",subscription="b"} 6
pulsar_out_messages_total{cluster="c",topic="persistent://acme/orders/t",subscription="b",\
consumer_name="x",consumer_id="0"} 6
pulsar_out_bytes_total{cluster="c",topic="persistent://acme/orders/t",subscription="a"} 500
pulsar_in_messages_total{cluster="c",topic="persistent://acme/orders/p",partition="2"} 3
pulsar_in_messages_total{cluster="c",topic="persistent://acme/orders/q",partition="-1"} 4
pulsar_in_messages_total{cluster="c",topic="persistent://acme/orders/a\\"b} c\\\\d"} 9
pulsar_in_messages_total{cluster="c",namespace="acme/orders"} 99
pulsar_rate_in{cluster="c",namespace="acme/orders",topic="persistent://acme/orders/t"} 7.5
"""


@pytest.fixture
def server() -> RestServer:
    return RestServer()


async def look(server: RestServer, source: Source, now_s: float) -> Sample | None:
    async with server.rest() as rest:
        return await source.read(rest, server.url, now_s)


def test_counters_of_topics_and_nothing_else() -> None:
    assert counters_in(METRICS.encode()) == {
        TOPIC: [12, 1.2e9, 11, 500],
        "persistent://acme/orders/p-partition-2": [3, 0, 0, 0],
        "persistent://acme/orders/q": [4, 0, 0, 0],
        'persistent://acme/orders/a"b} c\\d': [9, 0, 0, 0],
    }
    assert counters_in(b"") == {}


def metrics(**messages: float) -> Answer:
    lines = [f'pulsar_in_messages_total{{topic="{t}"}} {n}' for t, n in messages.items()]
    return Answer(200, "\n".join(lines) + "\n")


async def test_counters_make_rates_between_two_looks(server: RestServer) -> None:
    source = Counters()
    server.answers["GET /metrics/"] = metrics(a=1000, b=50, c=70)
    assert await look(server, source, 10.0) is None
    # c was unloaded; b lost a subscription, or was loaded anew. d and e were loaded since, nobody
    # knows when: 40 may have come within a moment.
    server.answers["GET /metrics/"] = metrics(a=301_000, b=20, d=40, e=0)
    # A long window, beside which the times of the two requests are nothing.
    sample = await look(server, source, 2010.0)
    assert sample is not None
    used = dict(zip(sample.topics, sample.usage[:, 0].tolist(), strict=True))
    assert np.isnan(used.pop("d"))
    # The window is as long as from the middle of one request to that of the other.
    assert used == pytest.approx({"a": 150, "b": 0, "e": 0}, rel=0.01)


def statistics(**held: dict[str, float]) -> Answer:
    topics: dict[str, Any] = {"persistent": held, "non-persistent": {"n": {"msgRateIn": 1}}}
    return Answer(200, {"acme/orders": {"0x00000000_0xffffffff": topics}})


async def test_statistics_count_once_and_who_has_gone_is_counted_too(server: RestServer) -> None:
    source, path = Snapshots(every_s=1.0), "GET broker-stats/topics"
    server.answers[path] = statistics(a={"msgRateIn": 30, "msgInCount": 100}, b={"msgInCount": 100})
    first = await look(server, source, 0.0)
    assert first is not None
    assert first.topics == ["a", "b"]
    assert first.usage[:, 0].tolist() == [30, 0]
    assert await look(server, source, 1.0) is None
    # 900 in no more than 9 s and a look, by a producer that is not there any more.
    server.answers[path] = statistics(
        a={"msgRateIn": 31.0, "msgInCount": 200}, b={"msgInCount": 1000}, c={"msgRateOut": 2.0}
    )
    then = await look(server, source, 9.0)
    assert then is not None
    assert then.usage[:, 0].tolist() == [31, 90, 0]
    assert then.usage[2].tolist() == [0, 0, 2, 0]
    server.answers[path] = Answer(200, {})
    nothing = await look(server, source, 14.0)
    assert nothing is not None
    assert nothing.usage.shape == (0, 4)


@pytest.mark.parametrize("said", [[1], {"n": 1}, {"n": {"b": {"persistent": {"t": 1}}}}, "text"])
async def test_what_is_no_statistics_is_an_error(server: RestServer, said: Any) -> None:
    server.answers["GET broker-stats/topics"] = Answer(200, said)
    with pytest.raises(ClusterError, match="topics: the answer has no usable statistics"):
        await look(server, Snapshots(1.0), 0.0)


EVERY = "statsUpdateFrequencyInSecs"


@pytest.mark.parametrize(
    ("runtime", "told"),
    [
        ({EVERY: "5"}, StatsExposure(True, 5.0)),
        ({EVERY: "0", "exposeTopicLevelMetricsInPrometheus": "false"}, StatsExposure(False, 1.0)),
        ({EVERY: "60"}, StatsExposure(True, 60.0)),
        ({EVERY: "60", "metricsBufferResponse": "true"}, StatsExposure(False, 60.0)),
        ({}, StatsExposure(True, 60.0)),
    ],
)
def test_what_brokers_tell(runtime: dict[str, str], told: StatsExposure) -> None:
    assert stats_exposure(runtime) == told


async def test_a_token_goes_to_no_host_that_is_none_of_the_brokers(server: RestServer) -> None:
    server.answers["GET brokers"] = Answer(200, ["127.0.0.1:1"])
    async with server.rest(token="secret") as rest:
        with pytest.raises(ClusterError, match="redirects to localhost"):
            await rest.get_metrics("http://localhost:8080", [b"x"])
    assert [asked.path for asked in server.asked] == ["brokers"]
