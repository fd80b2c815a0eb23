"""A Pulsar cluster in memory: its REST API, and the limits topic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import httpx

from quotaplane.errors import TransportError
from quotaplane.transport.base import Polled, Portion
from tests.simulation.process_loop import ProcessLoop
from tests.unit.enforce.enforce_cluster import ALL_OF_IT, FakePulsar, Link
from tests.unit.pulsar_admin.cluster_cases import Answer, Wire

if TYPE_CHECKING:
    from tests.simulation.enforcer_world import EnforcerWorld

PUBLISH: Final = "publishThrottlingRateInMsg"
_OF_BROKER: Final = re.compile(r"/b(\d+)/admin/")


class SimulatedPulsar(FakePulsar):
    """Groups, namespaces (one per group), brokers, topics, rates; without a server."""

    def __init__(self, namespaces: dict[str, str], brokers: int) -> None:
        super().__init__(brokers)
        self.namespaces = dict(namespaces)
        self.owned = {f"127.0.0.1:{at}": [] for at in range(brokers)}
        for at, namespace in enumerate(namespaces):
            self.move(namespace, at % brokers)

    def move(self, namespace: str, broker: int) -> None:
        """The bundle of a namespace goes to a broker."""
        bundle = f"{namespace}/{ALL_OF_IT}"
        for bundles in self.owned.values():
            if bundle in bundles:
                bundles.remove(bundle)
        self.owned[f"127.0.0.1:{broker}"].append(bundle)

    def handle(self, method: str, path: str, body: str, authorization: str | None = None) -> Answer:
        """Answer a request; only the newest one is kept."""
        broker = -1
        if found := _OF_BROKER.match(path):  # the URL that a lookup gave
            broker, path = int(found[1]), path[found.end(1) :]
        if path.endswith("broker-stats/topics"):
            return self._stats_of(broker)
        self.asked.clear()
        return super().handle(method, path, body, authorization)

    def _stats_of(self, broker: int) -> Answer:
        owned = self.owned.get(f"127.0.0.1:{broker}", [])
        found: dict[str, Any] = {}
        for bundle in owned:
            namespace = bundle.rpartition("/")[0]
            topics = {}
            for topic in self.topics_of(namespace):
                used = self.use_of(topic)
                rates = {"msgRateIn": used, "msgThroughputIn": 100 * used, "msgRateOut": 0.0}
                topics[topic] = rates
            found[namespace] = {ALL_OF_IT: {"persistent": topics}}
        return Answer(200, found)

    def topics_of(self, namespace: str) -> list[str]:
        """The topics of a namespace."""
        return self._of(namespace, self.topics)

    def use_of(self, topic: str) -> float:
        """Rate that a topic uses: its clients' demand, as far as its own rate lets them."""
        rate = self.rate_of(topic)
        return self.used[topic] if rate is None else min(self.used[topic], rate)

    def rate_of(self, topic: str) -> float | None:
        """The publish rate that limits a topic now; None: none does."""
        own = self.rates.get((topic, "publishRate"))
        namespace = topic.removeprefix("persistent://").rpartition("/")[0]
        rates = own or self.namespace_rates.get((namespace, "publishRate"))
        rate = None if rates is None else rates.get(PUBLISH)
        return float(rate) if rate is not None and rate > 0 else None

    def own_rate_of(self, topic: str) -> float | None:
        """The publish rate of the topic itself; None: it has none."""
        rate = (self.rates.get((topic, "publishRate")) or {}).get(PUBLISH)
        return float(rate) if rate is not None and rate > 0 else None

    def quota_of(self, group: str) -> float | None:
        """The publish quota in the cluster; None: unlimited."""
        rate = self.groups.get(group, {}).get("publishRateInMsgs", -1)
        return float(rate) if rate > 0 else None


class SimulatedWire(Wire):
    """Requests of httpx by one process of one world."""

    def __init__(self, world: EnforcerWorld, loop: ProcessLoop) -> None:
        super().__init__(world.cluster)
        self._world, self._loop = world, loop

    async def answer(self, request: httpx.Request, body: str) -> Answer:
        """Send a request, and wait for its answer for ever."""
        return await self._world.requested(self._loop, request.method, request.url.path, body)


class LimitsReader(Link):
    """One process's link to the limits topic."""

    def __init__(self, messages: list[Polled]) -> None:
        super().__init__()
        self._messages, self._read = messages, max(len(messages) - 60, 0)
        self.is_cut_off = False

    def poll_limits(self) -> Portion:
        """Messages since the last call."""
        if self.is_cut_off:
            raise TransportError("limits topic: no answer")
        new = self._messages[self._read :]
        self._read = len(self._messages)
        return Portion(new, more=False, caught_up=True)
