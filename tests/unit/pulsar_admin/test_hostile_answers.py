"""Answers of a REST API that no Pulsar gives: refused with a ``ClusterError``, whatever is in them.

Fuzzers found most of these (``tests/fuzz``).
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import numpy as np
import pytest

from quotabalance.pulsar_admin import broker_stats
from quotabalance.pulsar_admin.broker_settings import read_broker_settings
from quotabalance.pulsar_admin.broker_stats import read_broker_stats
from quotabalance.pulsar_admin.bundle_actions import topic_weights
from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin import topic_usage
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.http_answers import read_answer
from quotaplane.pulsar_admin.namespace_rates import namespace_rates
from quotaplane.pulsar_admin.resource_groups import group_of, read_runtime
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.pulsar_admin.topic_rates import read_rate
from quotaplane.pulsar_admin.topic_usage import (
    Counters,
    Snapshots,
    StatsExposure,
    counters_in,
    stats_exposure,
)
from quotaplane.server.tokens import parse_key_set
from tests.fuzz.rest_targets import BUNDLE, FakeRest, done, with_answers
from tests.unit.balance.load_report_cases import local_broker_data
from tests.unit.pulsar_admin.cluster_cases import transport_to

HUGE = 10**400
NOTHING = httpx.ByteStream(b"")


def rest(*answers: object) -> FakeRest:
    """A cluster that gives these answers in turn."""
    made = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in answers]
    return with_answers(*made)


def by_http(
    response: Callable[[httpx.Request], httpx.Response], most_bytes: int | None = None
) -> Any:
    """Result of a request whose answer is this response."""

    async def ask() -> Any:
        wire = httpx.MockTransport(response)
        if most_bytes is not None:
            client = httpx.AsyncClient(transport=wire)
            return await read_answer(client, client.build_request("GET", "http://b1/x"), most_bytes)
        async with Rest(transport_to("http://b1:8080"), wire=wire) as asked:
            return await asked.get("/admin/v2/x")

    return asyncio.run(ask())


class Endless(httpx.AsyncByteStream):
    """A body without an end; ``sent`` counts its parts."""

    def __init__(self) -> None:
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.sent += 1
            yield b"x" * 1000


def test_an_endless_answer_is_not_read_to_its_end() -> None:
    body = Endless()
    with pytest.raises(ClusterError, match="http://b1/x: the answer has more than 5000 bytes"):
        by_http(lambda _: httpx.Response(200, stream=body), 5000)
    assert body.sent == 6


def test_an_answer_of_just_the_size_is_read() -> None:
    answer = by_http(lambda _: httpx.Response(200, stream=httpx.ByteStream(b"x" * 5000)), 5000)
    assert answer.content == b"x" * 5000


class Metrics(httpx.AsyncByteStream):
    """A broker's metrics: 80 MB of other lines, and two wanted ones, one of them in two parts."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        other = b'pulsar_rate_in{topic="persistent://a/b/c"} 1.0\n' * 1000
        for _ in range(1700):
            yield other
        yield b'pulsar_in_bytes_total{topic="persistent://a/b/c"} 7\npulsar_in_mess'
        yield b'ages_total{topic="persistent://a/b/c"} 2\n'
        yield b"pulsar_in_bytes_total_of_no_topic 9"


def metrics_of(stream: httpx.AsyncByteStream, url: str = "http://b1:8080") -> bytes:
    async def ask() -> bytes:
        wire = httpx.MockTransport(lambda _: httpx.Response(200, stream=stream))
        async with Rest(transport_to("http://b1:8080"), wire=wire) as asked:
            names = [b"pulsar_in_bytes_total", b"pulsar_in_messages_total"]
            return await asked.get_metrics(url, names)

    return asyncio.run(ask())


def test_of_large_metrics_only_some_lines_are_kept() -> None:
    counts = {"persistent://a/b/c": [2.0, 7.0, 0.0, 0.0]}
    assert counters_in(metrics_of(Metrics())) == counts


def test_metrics_without_lines_are_not_read_to_their_end() -> None:
    body = Endless()
    with pytest.raises(ClusterError, match="a line of more than 1048576 bytes"):
        metrics_of(body)
    assert body.sent < 1100


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
def test_nothing_is_decompressed(encoding: str) -> None:
    def answer(status: int) -> httpx.Response:
        body = httpx.ByteStream(gzip.compress(b"{}"))
        return httpx.Response(status, headers={"Content-Encoding": encoding}, stream=body)

    with pytest.raises(ClusterError, match="compressed"):
        by_http(lambda _: answer(200))
    with pytest.raises(RefusedError) as raised:
        by_http(lambda _: answer(404))
    assert raised.value.status == 404


def test_compression_is_not_asked_for() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(b"[]"))

    by_http(answer)
    assert [request.headers["accept-encoding"] for request in asked] == ["identity"]


def test_json_beyond_the_bounds_is_an_error_and_no_text() -> None:
    with pytest.raises(ClusterError, match="GET /admin/v2/x: the answer has about 300002 values"):
        done(rest(b"[" + b"1," * 300_000 + b"1]").get("/admin/v2/x"))
    with pytest.raises(ClusterError, match="nested too deeply"):
        done(rest(b"[" * 500 + b"]" * 500).get("/admin/v2/x"))


def test_a_broker_whose_url_is_none() -> None:
    with pytest.raises(ClusterError, match=r"check transport\.admin_url"):
        by_http(lambda _: httpx.Response(307, headers={"Location": "http://["}, stream=NOTHING))
    with pytest.raises(ClusterError, match=r"check transport\.admin_url"):
        metrics_of(NOTHING, "http://[")


def statistics(**stats: object) -> dict[str, Any]:
    namespace, _, range_ = BUNDLE.rpartition("/")
    return {namespace: {range_: {"persistent": {"persistent://acme/orders/a": stats}}}}


INTERVAL = "resourceUsageTransportPublishIntervalInSecs"
RUNTIME = {"clusterName": "c", "resourceUsageTransportClassName": "x"}
B1 = "http://b1"
ODD: list[tuple[Callable[[Any], object], str, list[Any]]] = [
    (
        lambda policies: namespace_rates(policies, "c"),
        "a namespace",
        [
            [],
            {"topicDispatchRate": 5},
            {"topicDispatchRate": {"c": [1]}},
            {"publishMaxMessageRate": {"c": {"publishThrottlingRateInMsg": HUGE}}},
            {"publishMaxMessageRate": {"c": {"publishThrottlingRateInMsg": "x"}}},
            {"publishMaxMessageRate": {"c": {"publishThrottlingRateInByte": {}}}},
            {"properties": ["quotaplane.rates.c"]},
        ],
    ),
    (group_of, "resource_group_name is no text", [{"resource_group_name": ["rg"]}]),
    (group_of, "the answer has no policies", ["rg"]),
    (
        lambda interval: done(read_runtime(rest(RUNTIME | {INTERVAL: interval}))),
        "IntervalInSecs is no number of seconds",
        ["x", "nan", "inf", "0", "-5", [], None, HUGE],
    ),
    (
        lambda rate: done(read_rate(rest({"publishThrottlingRateInMsg": rate}), "p://a/b/c", 0)),
        "no valid rates",
        [HUGE],
    ),
    (
        lambda rate: done(topic_weights(rest(statistics(msgThroughputIn=rate), []), BUNDLE, B1)),
        "the answer has no statistics",
        ["1e999", -5, "NaN", HUGE],
    ),
    (lambda it: done(Snapshots(60.0).read(rest(it), B1, 0.0)), "no usable statistics", [b""]),
    (
        lambda changed: done(read_broker_stats(rest(local_broker_data() | changed), B1)),
        "the answer has no usable load",
        [
            {"lastStats": [1]},
            {"lastStats": {"a/b/0x00000000_0xffffffff": [1]}},
            {"cpu": [1, 2]},
            {"cpu": {"usage": HUGE, "limit": 1}},
            {"startTimestamp": "1e999"},
            {"startTimestamp": float("inf")},
        ],
    ),
    (
        lambda metrics: done(
            read_broker_stats(
                with_answers(b"{}", json.dumps(metrics).encode()), B1, extensible=True
            )
        ),
        "the answer has no usable load",
        [
            {"metrics": 1},
            [1],
            [{}],
            [{"metrics": 1}],
            [{"metrics": {"brk_lb_cpu_usage": "NaN"}}],
            [{"metrics": {"brk_lb_cpu_usage": HUGE}}],
        ],
    ),
    (
        lambda start: done(
            read_broker_stats(with_answers(b"{}", b"[]", start), B1, extensible=True)
        ),
        "the process's start is no time",
        [b"process_start_time_seconds{} x\n", b"process_start_time_seconds 1e999\n"],
    ),
    (
        lambda settings: done(read_broker_settings(rest(settings), B1)),
        "the answer has no settings",
        [5, "x", [1]],
    ),
    (
        lambda names: done(read_names(rest(names), "/admin/v2/tenants")),
        "not a list of names",
        [["a", 1], {"a": 1}, "a", ["\ud800"], [["a"]]],
    ),
]


@pytest.mark.parametrize(
    ("read", "answer", "says"),
    [(read, answer, says) for read, says, answers in ODD for answer in answers],
)
def test_answers_of_another_form(read: Callable[[Any], object], answer: Any, says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        read(answer)


@pytest.mark.parametrize("given", ["nan", "inf", HUGE, "x", []])
def test_times_of_statistics_that_are_none(given: object) -> None:
    for key in ("statsUpdateFrequencyInSecs", "statsUpdateInitialDelayInSecs"):
        runtime = {"statsUpdateFrequencyInSecs": "5", key: given}
        assert stats_exposure(runtime) == StatsExposure(True, 60.0)


@pytest.mark.parametrize("given", ["1e999", -5, "NaN"])
def test_an_impossible_rate_is_unknown_and_the_others_are_used(given: object) -> None:
    answer = statistics(msgRateIn=given, msgRateOut=3.0)
    sample = done(Snapshots(60.0).read(rest(answer), "http://b1", 0.0))
    assert np.isnan(sample.usage[0, 0])
    assert sample.usage[0, 2] == 3.0


def test_statistics_of_more_topics_than_a_broker_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (broker_stats, topic_usage):
        monkeypatch.setattr(module, "MOST_TOPICS", 5)
    topics = {f"persistent://a/b/t{number}": {} for number in range(6)}
    answer = {"a/b": {"0x00000000_0xffffffff": {"persistent": topics}}}
    with pytest.raises(ClusterError, match="more than 5 topics"):
        done(Snapshots(60.0).read(rest(answer), "http://b1", 0.0))
    by_topics = with_answers(json.dumps(answer).encode(), b"[]")
    with pytest.raises(ClusterError, match="more than 5 topics"):
        done(read_broker_stats(by_topics, "http://b1", extensible=True))


def test_counters_that_cost_more_than_they_say() -> None:
    with pytest.raises(ValueError, match="labels of 20014 bytes"):
        counters_in(b'pulsar_in_bytes_total{topic="x",a="' + b"y" * 20_000 + b'"} 1\n')
    with pytest.raises(ValueError, match="counters in"):
        counters_in(b"pulsar_in_bytes_total{} 1\n" * 200_000)
    with pytest.raises(ClusterError, match="no usable statistics"):
        done(Counters().read(rest(b'pulsar_in_bytes_total{topic="\xff"} 1\n'), "http://b1", 0.0))


def test_labels_are_found_by_their_whole_names() -> None:
    metrics = (
        b'pulsar_in_bytes_total{my_topic="a",topic="b\\"c\\\\d\\ne",sub="x=\\",topic=\\"z"} 2\n'
    )
    assert counters_in(metrics) == {'b"c\\d\ne': [0.0, 2.0, 0.0, 0.0]}


def test_a_key_whose_id_is_no_text_is_passed_over() -> None:
    key = {"kty": "RSA", "kid": ["a"], "n": "u" * 342, "e": "AQAB"}
    with pytest.raises(ValueError, match="has no RSA key"):
        parse_key_set(json.dumps({"keys": [key]}).encode())
