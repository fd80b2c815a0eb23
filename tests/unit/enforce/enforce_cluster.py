"""A fake Pulsar cluster with topics and rates, and a running enforcer of it."""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.enforcer import Enforcer
from quotaplane.enforce.agent.enforcer_parts import EnforcerParts
from quotaplane.settings import Enforce, History, Settings, parse_settings
from quotaplane.topics.rate_marks import unlimited_number
from quotaplane.transport.base import Polled, Portion
from quotaplane.wire.limits import encode_limits
from tests.histories import make_history
from tests.job import write_round
from tests.unit.pulsar_admin.cluster_cases import Answer, FakeCluster

NAMESPACE = "acme/orders"
EPOCH = 1_700_000_000
INTERVAL_S = Enforce().interval_s
ALL_OF_IT = "0x00000000_0xffffffff"
STOCK = "non-persistent://pulsar/system/resource-usage"
"""Where brokers report."""
HELD = {"a": 300, "b": 10, "c": 10}
"""Publish rates for a limit of 300: all of it for the busy topic, floors for idle ones."""
NAMESPACE_KINDS = {"publishRate": "publishMaxMessageRate", "dispatchRate": "topicDispatchRate"}


def full(topic: str, namespace: str = NAMESPACE) -> str:
    return f"persistent://{namespace}/{topic}"


def ours_of(messages: int, *, in_place: bool = False) -> dict[str, Any]:
    """A publish rate as the enforcer writes it; ``in_place`` of an administrator's."""
    unlimited = unlimited_number(in_place=in_place)
    return {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": unlimited}


def administrators(messages: int = -1, in_bytes: int = -1) -> dict[str, Any]:
    """A publish rate as Pulsar's tools write it."""
    return {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": in_bytes}


class FakePulsar(FakeCluster):
    """Brokers ``b0`` ... with bundles, and topics of ``NAMESPACE``, which is in group ``g``.

    With a ``folder`` for the history an enforcer can run beside it.
    """

    def __init__(self, brokers: int = 1, folder: Path | None = None) -> None:
        super().__init__()
        self.folder, self.link = folder, Link()
        self._history: History | None = None
        self.runtime["statsUpdateFrequencyInSecs"] = "1"
        self.runtime["exposeTopicLevelMetricsInPrometheus"] = "false"
        self.namespaces[NAMESPACE] = "g"
        self.owned: dict[str, list[str]] = {f"127.0.0.1:{i}": [] for i in range(brokers)}
        self.owned["127.0.0.1:0"] = [f"{NAMESPACE}/{ALL_OF_IT}"]
        self.topics: set[str] = set()
        self.partitioned: set[str] = set()
        self.used: dict[str, float] = {}
        self.rates: dict[tuple[str, str], dict[str, Any]] = {}
        self.namespace_rates: dict[tuple[str, str], dict[str, Any]] = {}
        self.properties: dict[str, dict[str, str]] = {}
        self.deleted_unseen: set[str] = set()
        """Topics that are listed, but don't exist any more."""

    def add(self, *topics: str, used: float = 0.0) -> None:
        self.topics |= set(map(full, topics))
        self.used |= dict.fromkeys(map(full, topics), used)

    def limit(self, limit: float, broker: str = "b0", **more: Any) -> None:
        """Send a limit in publish messages to a broker."""
        self.link.send(f"pulsar://{broker}", limit, **more)

    @property
    def history(self) -> History:
        """A history with a round of ``EPOCH``; one that a test deletes is not made again."""
        if self._history is None:
            assert self.folder is not None
            self._history = history_in(self.folder)
        return self._history

    def settings(self, **enforce: Any) -> Settings:
        """Settings of an enforcer."""
        return parse_settings(
            {
                "transport": {
                    "kind": "pulsar",
                    "service_url": "pulsar://127.0.0.1:1",
                    "admin_url": self.url,
                    "limits_topic": "persistent://public/default/limits",
                    "report_topics": [STOCK, *filter(None, [enforce.get("report_topic")])],
                },
                "history": {"path": self.history.path},
                "checkpoint": f"{self.folder}/checkpoint",
                "enforce": {"take_over": False, **enforce},
                # The enforcer's clock stands still, that of the links and of the history does not.
                "reports": {"max_clock_skew_s": 3600},
            }
        )

    def conf(self, **enforce: Any) -> str:
        """A file with these settings."""
        path = Path(f"{self.folder}/pulsar.json")
        path.write_text(self.settings(**enforce).model_dump_json(exclude_none=True))
        return str(path)

    def enforcing(
        self, outbox: Any = None, open_probe: Callable[[], Any] | None = None, **enforce: Any
    ) -> AbstractAsyncContextManager[Running]:
        """Run an enforcer, which reads the limits topic from its beginning."""
        self.link.open_again()
        return _enforcing(self, self.settings(**enforce), outbox, open_probe)

    def fail_once(self, request: str) -> None:
        """Refuse the next one of these requests."""

        def once() -> Answer:
            del self.answers[request]
            return Answer(500, {"reason": "upset"})

        self.answers[request] = once

    def published(self) -> dict[str, int]:
        """Rates of publish messages by local name of the topic."""
        return {
            topic.rpartition("/")[2]: body["publishThrottlingRateInMsg"]
            for (topic, kind), body in sorted(self.rates.items())
            if kind == "publishRate"
        }

    def requests(self) -> list[str]:
        """Method and path of all requests."""
        return [f"{a.method} {a.path}" for a in list(self.asked)]

    def writes(self) -> list[str]:
        """Method and path of all requests that change something."""
        return [request for request in self.requests() if not request.startswith("GET ")]

    def topic_writes(self) -> list[str]:
        """The same for topics only."""
        return [write for write in self.writes() if write.partition(" ")[2].startswith("persist")]

    def find(self, method: str, path: str) -> Answer:
        parts = path.split("/")
        if f"{method} {path}" in self.answers:
            return super().find(method, path)
        if parts[0] == "namespaces" and len(parts) >= 3:
            return self._namespace(method, path, "/".join(parts[1:3]), parts[3:])
        if path.startswith("/lookup/"):
            broker = parts[-2]
            number = broker.rpartition(":")[2]
            urls = {"brokerUrl": f"pulsar://b{number}", "httpUrl": f"{self.url}/b{number}"}
            return Answer(200, urls)
        if path.endswith("/broker-stats/topics"):
            return self._stats()
        if parts[0] == "brokers" and len(parts) == 1:
            return Answer(200, list(self.owned))
        if parts[-1] == "ownedNamespaces":
            return Answer(200, {owned: {} for owned in self.owned.get(parts[2], [])})
        if parts[0] == "tenants":
            return Answer(200, sorted({name.partition("/")[0] for name in self.namespaces}))
        if parts[0] == "resourcegroups" and method == "PUT":
            self.put(parts[1], **self._body(path))
            return Answer(204)
        if parts[0] == "persistent" and len(parts) == 3:
            return Answer(200, self._of("/".join(parts[1:3]), self.topics))
        if parts[0] == "persistent" and parts[3] == "partitioned" and len(parts) == 4:
            return Answer(200, self._of("/".join(parts[1:3]), self.partitioned))
        if parts[0] == "persistent" and len(parts) == 5:
            return self._rate(method, full(parts[3], "/".join(parts[1:3])), parts[4])
        return super().find(method, path)

    def _of(self, namespace: str, topics: set[str]) -> list[str]:
        return sorted(topic for topic in topics if topic.startswith(full("", namespace)))

    def _rate(self, method: str, topic: str, kind: str) -> Answer:
        exists = (topic in self.topics | self.partitioned) and topic not in self.deleted_unseen
        if not exists:
            return Answer(404, {"reason": f"Topic {topic} not found"})
        if method == "POST":
            self.rates[topic, kind] = self._body(f"persistent/{topic[13:]}/{kind}")
            return Answer(204)
        if method == "DELETE":
            self.rates.pop((topic, kind), None)
            return Answer(204)
        body = self.rates.get((topic, kind))
        return Answer(200, body) if body else Answer(204)

    def _namespace(self, method: str, path: str, namespace: str, what: list[str]) -> Answer:
        if namespace not in self.namespaces or what[:1] == ["resourcegroup"]:
            return super().find(method, path)
        properties = self.properties.setdefault(namespace, {})
        if not what:
            answer = super().find(method, path)
            rates = {
                policy: {"blue": self.namespace_rates[namespace, kind]}
                for kind, policy in NAMESPACE_KINDS.items()
                if (namespace, kind) in self.namespace_rates
            }
            return Answer(200, {**answer.body, **rates, "properties": dict(properties)})
        if what[0] == "properties":
            properties.update(self._body(path))
        elif what[0] == "property":
            del properties[what[1]]
        elif method == "POST":
            self.namespace_rates[namespace, what[0]] = self._body(path)
        else:
            self.namespace_rates.pop((namespace, what[0]), None)
        return Answer(204)

    def default(self, namespace: str = NAMESPACE) -> int | None:
        """The namespace's rate of publish messages."""
        rates = self.namespace_rates.get((namespace, "publishRate"))
        return rates and rates["publishThrottlingRateInMsg"]

    def _body(self, path: str) -> dict[str, Any]:
        """The body of the last request to this path."""
        asked = next(a for a in reversed(self.asked) if a.path == path and a.body)
        body: dict[str, Any] = json.loads(asked.body)
        return body

    def _stats(self) -> Answer:
        topics = {
            topic: {"msgRateIn": used, "msgThroughputIn": 100 * used, "msgRateOut": 0.0}
            for topic, used in self.used.items()
        }
        return Answer(200, {NAMESPACE: {ALL_OF_IT: {"persistent": topics}}})


class Link:
    """A limits topic in memory."""

    def __init__(self) -> None:
        self.waiting: list[Polled] = []
        self._kept: list[Polled] = []
        self.broken: Exception | None = None

    def send(
        self,
        broker: str,
        limit: float,
        *,
        group: str = "g",
        safe: float | None = None,
        dispatch: float = np.inf,
        safe_dispatch: float = np.inf,
        **more: Any,
    ) -> None:
        """Send a limit in publish messages."""
        limits = np.array([[limit, np.inf, dispatch, np.inf]])
        safe_limits = None if safe is None else np.array([[safe, np.inf, safe_dispatch, np.inf]])
        self._send(broker, groups=[group], limits=limits, safe_limits=safe_limits, **more)

    def remove(self, broker: str, *, group: str = "g") -> None:
        """Send that the group was deleted."""
        self._send(broker, groups=[], limits=np.empty((0, 4)), removed_groups=[group])

    def _send(self, broker: str, *, lease_ms: int = 120_000, **more: Any) -> None:
        value = encode_limits(
            broker=broker,
            shard=0,
            epoch=EPOCH,
            seq=len(self._kept) + 1,
            issued_at_ms=int(time.time() * 1000),
            lease_ms=lease_ms,
            **more,
        )
        self.put(broker, value)

    def put(self, key: str, value: bytes) -> None:
        """Send any message."""
        self._kept.append(Polled(key, value, f"limits@{len(self._kept)}"))
        self.waiting.append(self._kept[-1])

    def open_again(self) -> None:
        """Read from the beginning."""
        self.waiting = list(self._kept)

    def poll_limits(self) -> Portion:
        if self.broken is not None:
            raise self.broken
        polled, self.waiting = self.waiting, []
        return Portion(polled, more=False, caught_up=True)

    def send_reports(self, reports: object) -> None:
        raise AssertionError("an enforcer sends no reports")

    def close(self) -> None:
        pass


@lru_cache
def _recorded() -> Path:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    history = History(path=str(folder))
    make_history(history)
    write_round(history, EPOCH)
    return folder


def history_in(folder: Path) -> History:
    """A history in which a job of ``EPOCH`` wrote a round."""
    path = folder / "history"
    if not path.exists():
        shutil.copytree(_recorded(), path)
    return History(path=str(path))


class Running:
    """A running enforcer and the lines that it printed."""

    enforcer: Enforcer

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.stop = asyncio.Event()
        self.now_ms = time.time() * 1000
        self.set_by_ms = 0.0
        """By how much the wall clock was set: that clock is ahead of the steady one."""

    async def until(self, holds: Callable[[], bool], within_s: float = 60.0) -> None:
        """Wait until it holds."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while not holds():
            assert loop.time() < until_s, (self.lines, self.enforcer.status())
            await asyncio.sleep(0.25)

    async def ticks(self, count: int = 4) -> None:
        """Wait for a few of its ticks."""
        await asyncio.sleep(INTERVAL_S * count)


@asynccontextmanager
async def _enforcing(
    cluster: FakePulsar, settings: Settings, outbox: Any, open_probe: Callable[[], Any] | None
) -> AsyncIterator[Running]:
    """Run an enforcer within this context, in virtual time, and stop it cleanly."""
    lines: list[str] = []
    conditions = Conditions(lines.append, clock=asyncio.get_running_loop().time)
    async with cluster.rest(conditions) as rest:
        running = Running(lines)
        parts = EnforcerParts(
            *(settings, rest, cluster.link, lines.append),
            open_probe=open_probe,
            now_ms=lambda: running.now_ms + running.set_by_ms,
            steady_ms=lambda: running.now_ms,
            outbox=outbox,
        )
        await parts.start()
        enforcer = running.enforcer = Enforcer(parts)
        task = asyncio.create_task(enforcer.run(running.stop))
        try:
            yield running
        finally:
            running.stop.set()
            await task
