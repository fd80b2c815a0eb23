"""Targets for what a Pulsar cluster's REST API answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any
from unittest import mock

import httpx
import numpy as np
import pyarrow as pa

from quotabalance.agent.cluster_view import isolation_policies
from quotabalance.pulsar_admin.broker_stats import read_broker_stats
from quotabalance.pulsar_admin.bundle_actions import (
    bundle_bounds,
    claim,
    owned_bundles,
    topic_weights,
)
from quotabalance.pulsar_admin.namespace_policies import (
    anti_affinity_group,
    read_failure_domains,
    read_isolation,
)
from quotaplane.groups.names import name_flaw
from quotaplane.groups.pulsar_fields import PulsarFields, fields_in, read_fields
from quotaplane.model import BASIC
from quotaplane.pulsar_admin.active_brokers import look_up_broker
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.configured_rates import (
    NO_RATES,
    TopicRates,
    rates_of_brokers,
    rates_of_namespace,
)
from quotaplane.pulsar_admin.http_answers import ChosenLines, HttpAnswer
from quotaplane.pulsar_admin.namespace_rates import namespace_rates
from quotaplane.pulsar_admin.placement import tenant_bundle
from quotaplane.pulsar_admin.quota_proposals import ConfiguredNamespace, propose
from quotaplane.pulsar_admin.resource_groups import group_of, has_zero, rates_of, read_runtime
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_rates import own_rate, read_rate
from quotaplane.pulsar_admin.topic_usage import Counters, Snapshots, stats_exposure
from tests.fuzz.mutators import changed_json, joined, parts_of, texts
from tests.fuzz.target import Target
from tests.unit.balance.load_report_cases import local_broker_data
from tests.unit.pulsar_admin.cluster_cases import transport_to

BUNDLE = "acme/orders/0x00000000_0xffffffff"
_TOPIC = {
    "msgRateIn": 1.5,
    "msgThroughputIn": 100.0,
    "msgRateOut": 1.0,
    "msgThroughputOut": 90.0,
    "msgInCount": 7,
    "bytesInCount": 700,
    "msgOutCount": 6,
    "bytesOutCount": 600,
    "producerCount": 1,
    "subscriptions": {"s": {"consumers": [{"msgRateOut": 1.0}], "msgBacklog": 3}},
}
STATISTICS = {
    "acme/orders": {
        "0x00000000_0xffffffff": {
            "persistent": {"persistent://acme/orders/a": _TOPIC},
            "non-persistent": {"non-persistent://acme/orders/b": _TOPIC},
        }
    }
}
_RATE = {"publishThrottlingRateInMsg": 20, "publishThrottlingRateInByte": -1}
POLICIES = {
    "resource_group_name": "rg",
    "publishMaxMessageRate": {"standalone": _RATE},
    "topicDispatchRate": {
        "standalone": {
            "dispatchThrottlingRateInMsg": 10,
            "dispatchThrottlingRateInByte": -1,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 1,
        }
    },
    "properties": {"quotaplane.rates.standalone": '{"publish": [[20, -1]]}'},
    "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
}
GROUPS = (
    {"publishRateInMsgs": 100, "publishRateInBytes": -1, "dispatchRateInMsgs": 5.5},
    {"publishRateInMsgs": 0, "publishRateInBytes": 2**63 - 1},
    {"publishRateInMsgs": 1, "replicationDispatchRateInMsgs": 7, "replicatorDispatchRate": {}},
)
LOOKUP = {
    "brokerUrl": "pulsar://b1:6650",
    "httpUrl": "http://b1:8080",
    "httpUrlTls": None,
    "nativeUrl": "pulsar://b1:6650",
}
CONFIGURATION = {
    "clusterName": "standalone",
    "exposeTopicLevelMetricsInPrometheus": "true",
    "statsUpdateFrequencyInSecs": "60",
    "statsUpdateInitialDelayInSecs": "60",
    "resourceUsageTransportClassName": "x",
    "resourceUsageTransportPublishIntervalInSecs": "60",
    "maxPublishRatePerTopicInMessages": "20",
    "dispatchThrottlingRateRelativeToPublishRate": "false",
}
ISOLATION = {
    "p": {
        "namespaces": ["acme/.*"],
        "primary": ["b1.*"],
        "secondary": ["b2"],
        "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": 1}},
    }
}
METRICS = (
    'pulsar_in_messages_total{cluster="c",topic="persistent://a/b/c",partition="-1"} 7.0\n'
    'pulsar_in_bytes_total{cluster="c",topic="persistent://a/b/c"} 700\n'
    'pulsar_out_bytes_total{topic="persistent://a/b/c",partition="3",subscription="s"} 6E2\n'
    'pulsar_out_messages_total{topic="persistent://a/b/c",consumer_name="x"} 1\n',
)
_MACHINE = [
    {
        "metrics": {"brk_lb_cpu_usage": 12.5, "brk_lb_bandwidth_in_usage": 0.0},
        "dimensions": {"broker": "b1", "metric": "loadBalancing"},
    },
    {"metrics": {"brk_active_connections": 3}, "dimensions": {}},
]
_METRIC_TOKENS = (
    *("{", "}", '"', "\\", '\\"', "\n", ",", "=", " ", "} ", "1e999", "1.2.3", "e", "NaN", "-5"),
    *('topic="', 'partition="', 'partition="5"', "\0", "é", "pulsar_in_bytes_total{", "9" * 400),
)


class FakeRest(Rest):
    """Answers every request with the same bytes; the parsing is that of ``Rest``."""

    def __init__(self) -> None:
        super().__init__(transport_to("http://127.0.0.1:1"))
        self.answers: Sequence[bytes] = ()
        self._turn = 0

    async def _answer(
        self,
        method: str,
        base: str,
        path: str,
        body: object,
        timeout_s: float | None = None,
        lines: ChosenLines | None = None,
    ) -> HttpAnswer:
        content = self.answers[self._turn % len(self.answers)]
        self._turn += 1
        if lines is not None:
            half = len(content) // 2
            parts = (content[:half], content[half:], b"\n")
            content = b"".join(map(lines.take, parts))
        return HttpAnswer(200, "OK", "application/json", None, content)


_REST = FakeRest()


def done(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing but threads; its clock stands still."""

    async def at_once(function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    loop = mock.Mock(time=lambda: 0.0)
    with (
        mock.patch.object(asyncio, "to_thread", at_once),
        mock.patch.object(asyncio, "get_running_loop", return_value=loop),
    ):
        try:
            coroutine.send(None)
        except StopIteration as result:
            return result.value
    raise AssertionError("the coroutine waits")


def with_answers(*answers: bytes) -> FakeRest:
    """A cluster that gives these answers in turn."""
    _REST.answers, _REST._turn = answers, 0
    return _REST


def _statistics(value: bytes) -> None:
    rest = with_answers(value)
    source = Snapshots(60.0)
    first = done(source.read(rest, "http://b1", 0.0))
    assert not (first.usage < 0).any()
    assert not np.isinf(first.usage).any()
    assert first.usage.shape == (len(first.topics), BASIC)
    hashes, weights = done(
        topic_weights(with_answers(value, b'["persistent://acme/orders/z"]'), BUNDLE, "x")
    )
    assert len(hashes) == len(weights)
    assert np.isfinite(weights).all()
    assert not (weights < 0).any()


def _metrics(value: bytes) -> None:
    two = parts_of(value)
    source, rest = Counters(), with_answers(*two)
    done(source.read(rest, "http://b1", 0.0))
    sample = done(source.read(rest, "http://b1", 10.0))
    assert not (sample.usage < 0).any()
    assert not np.isinf(sample.usage).any()


def _load(*answers: bytes) -> None:
    extensible = len(answers) > 1
    stats = done(read_broker_stats(with_answers(*answers), "http://b1", extensible=extensible))
    assert np.isfinite(stats.rates).all()
    assert np.isfinite(stats.usage).all()


def _policies(value: bytes) -> None:
    policies = done(with_answers(value).get("/admin/v2/namespaces/acme/orders"))
    group = group_of(policies)
    assert group is None or isinstance(group, str), "the name of a group is no text"
    rates = namespace_rates(policies, "standalone")
    assert (rates.in_force > 0).all(), "a rate in force is 0, negative or NaN"
    _proposed(rates_of_namespace(policies, "standalone"), NO_RATES)


def _groups(value: bytes) -> None:
    group = done(with_answers(value).get("/admin/v2/resourcegroups/rg"))
    assert all(rate > 0 for rate in rates_of(group)), "a rate is 0, negative or NaN"
    has_zero(group)
    text = fields_in(group)
    # It goes into a column, and is what is read from there.
    assert PulsarFields(read_fields(pa.array([text])[0].as_py())).text() == text


def _rate(value: bytes) -> None:
    for kind in (0, 1):
        found = done(read_rate(with_answers(value), "persistent://a/b/c", kind))
        assert (found.rates > 0).all(), "a rate is 0, negative or NaN"
        if found.policy is not None:
            again = own_rate(json.loads(json.dumps(found.policy)), kind)
            assert again.policy == found.policy, "a recorded rate is read as another one"


def _lookups(value: bytes) -> None:
    address = done(look_up_broker(with_answers(value), "b1:8080"))
    assert isinstance(address.name, str)
    assert isinstance(address.url, str)
    done(claim(with_answers(value), BUNDLE, "http://b1"))


def _configurations(value: bytes) -> None:
    runtime = done(read_runtime(with_answers(value)))
    exposure = stats_exposure(runtime.configuration)
    assert 1.0 <= exposure.stats_interval_s < float("inf"), exposure
    assert 0 <= exposure.first_stats_after_s < float("inf"), exposure
    assert runtime.report_interval_s is None or 0 < runtime.report_interval_s < float("inf")
    _proposed(NO_RATES, rates_of_brokers(runtime.configuration))


def _proposed(rates: TopicRates, broker: TopicRates) -> None:
    namespace = ConfiguredNamespace("acme/orders", rates=rates, parts={"t": 3})
    (proposal,) = propose([namespace], broker, {}, name_flaw)
    assert (proposal.quotas >= 1).all(), "a quota is below 1 or NaN"


def _isolation(value: bytes) -> None:
    isolation_policies(done(read_isolation(with_answers(value), "standalone")))


def _failure_domains(value: bytes) -> None:
    done(read_failure_domains(with_answers(value), "standalone"))


def _lists(value: bytes) -> None:
    done(anti_affinity_group(with_answers(value), "acme/orders"))
    for name in done(read_names(with_answers(value), "/admin/v2/tenants")):
        Rest.path("namespaces", name)
        name.encode()


def _bundles(value: bytes) -> None:
    for name in done(owned_bundles(with_answers(value), "standalone", "b1")):
        tenant_bundle(name)


def _bounds(value: bytes) -> None:
    done(bundle_bounds(with_answers(value), "acme/orders"))


def _http(random: Random) -> bytes:
    """An answer with status and headers, as JSON."""
    content = changed_json(random, (*GROUPS, ["a"], {"reason": "no such group"}, "text"))
    return json.dumps(
        {
            "status": random.choice((200, 200, 204, 307, 307, 401, 404, 409, 412, 500, 503, 599)),
            "location": random.choice(
                (None, "", "/x", "http://[", "http://b1:99999", "https://é.x/")
            ),
            "encoding": random.choice((None, None, "gzip", "identity", "br", "\x7f")),
            "type": random.choice((None, "application/json", "text/plain")),
            "content": content.hex(),
        }
    ).encode()


def _client(value: bytes) -> None:
    given = json.loads(value)
    names = {"location": "location", "content-encoding": "encoding", "content-type": "type"}
    headers = {name: given[key] for name, key in names.items() if given[key] is not None}

    def answer(_: httpx.Request) -> httpx.Response:
        stream = httpx.ByteStream(bytes.fromhex(given["content"]))
        return httpx.Response(
            given["status"],
            headers=[(n.encode(), t.encode()) for n, t in headers.items()],
            stream=stream,
        )

    async def ask() -> None:
        rest = _CLIENT
        rest._client = httpx.AsyncClient(transport=httpx.MockTransport(answer), auth=None)
        await rest.get("/admin/v2/x")

    asyncio.run(ask())


_CLIENT = Rest(transport_to("http://127.0.0.1:1"))


def _json(*samples: Any) -> Callable[[Random], bytes]:
    return lambda random: changed_json(random, samples)


_metric_text = texts(METRICS, _METRIC_TOKENS)


TARGETS = {
    "rest-statistics": Target(_json(STATISTICS), _statistics),
    "rest-metrics": Target(
        lambda random: joined([_metric_text(random), _metric_text(random)]), _metrics
    ),
    "rest-load-report": Target(_json(local_broker_data(bundles=2)), _load),
    "rest-load-by-topics": Target(
        lambda random: joined(
            [changed_json(random, [STATISTICS]), changed_json(random, [_MACHINE])]
        ),
        lambda value: _load(*parts_of(value)),
    ),
    "rest-policies": Target(_json(POLICIES), _policies),
    "rest-groups": Target(_json(*GROUPS), _groups),
    "rest-rates": Target(_json(_RATE, {}), _rate),
    "rest-lookups": Target(_json(LOOKUP), _lookups),
    "rest-configurations": Target(_json(CONFIGURATION), _configurations),
    "rest-isolation": Target(_json(ISOLATION), _isolation),
    "rest-failure-domains": Target(_json({"rack": {"brokers": ["b1:80"]}}), _failure_domains),
    "rest-names": Target(_json(["acme", "public"], ["acme/orders"]), _lists),
    "rest-bundles": Target(_json({BUNDLE: {"broker_assignment": "shared"}}), _bundles),
    "rest-bounds": Target(_json(POLICIES["bundles"]), _bounds),
    "rest-client": Target(_http, _client),
}
