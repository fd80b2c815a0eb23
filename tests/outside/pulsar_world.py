"""Three Pulsar brokers behind proxies, a quota job, two enforcers, producers; faults in them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.job import write_conf
from tests.outside.processes import Enforcer, Job
from tests.outside.pulsar_lanes import CLIENTS, ENFORCERS
from tests.outside.pulsar_producers import Topic
from tests.outside.schedule import Fault
from tests.outside.world import World
from tests.servers.proxy import KINDS, NetFault, Proxies, Proxy
from tests.servers.pulsar_clients import pulsar_transport
from tests.servers.pulsar_cluster import PulsarCluster
from tests.servers.tools import free_ports
from tests.wall_clock import WallClock

NAMESPACE, GROUP, QUOTA = "acme/orders", "orders", 300
LEASE_S: Final = 40.0
_LIMITS: Final = "persistent://public/quotaplane/limits"
_MOST_PRODUCERS: Final = 20
"""The oldest leaves for the next: ninety take all of this process's time on a slow machine."""
_FAULTY: Final = 2
"""The broker that faults happen to; the others answer our own questions."""


class PulsarWorld(World):
    """The parts of a run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.cluster = PulsarCluster(folder / "cluster", report_interval_s=2, proxied=True)
        self.quota: float
        """The one that the cluster acknowledged last."""
        self.topics: list[Topic] = []
        self.enforcers: dict[str, Enforcer] = {}
        self._proxies: list[Proxy] = []
        """Proxies of the brokers."""
        self._own: dict[str, tuple[Proxy, Proxy]] = {}
        """By client: of service_url, and of admin_url."""

    def _start(self) -> None:
        self._held.enter_context(self.cluster)
        proxies = self._held.enter_context(Proxies())
        for ports in self.cluster.proxy_ports:
            self._proxies.append(proxies.open(*ports))
        service = self.cluster.proxy_ports[0][1]
        admin = int(self.cluster.admin_urls[0].rpartition(":")[2])
        for client in CLIENTS:
            first, second = free_ports(2)
            self._own[client] = (proxies.open(first, service), proxies.open(second, admin))
        rest = self.cluster.rest()
        rest.create_tenant("acme")
        rest.create_namespace(NAMESPACE, bundles=12)
        rest.create_namespace("public/quotaplane")
        rest.create_topic(_LIMITS)
        self.put_quota(QUOTA)
        rest.attach(NAMESPACE, GROUP)
        self.job = Job("job", self._conf("job"), WallClock(self.folder, "job"))
        self._held.callback(lambda: self.job.kill())
        for name in ENFORCERS:
            self.enforcers[name] = Enforcer(name, self._conf(name))
            self._held.callback(self.enforcers[name].stop)
        self.programs = [self.job, *self.enforcers.values()]
        self._held.callback(lambda: [topic.stop() for topic in self.topics])

    def _conf(self, name: str) -> Path:
        service, admin = self._own[name]
        urls = f"pulsar://127.0.0.1:{service.port}", f"http://127.0.0.1:{admin.port}"
        return write_conf(
            self.folder / name,
            pulsar_transport(*urls, _LIMITS),
            history={"path": str(self.folder / "history")},
            checkpoint=str(self.folder / "checkpoint"),
            cluster={"poll_interval_s": 1.0},
            reports={"interval_s": 2.0},
            brokers={"stale_after_intervals": 5.0, "expire_after_intervals": 6.0},
            limits={"lease_s": LEASE_S, "refresh_rounds": 5},
            trigger={"interval_s": 0.5},
            enforce={},
        )

    def put_quota(self, quota: float) -> None:
        """An administrator sets the group's quota in the cluster."""
        self.cluster.rest().put_group(GROUP, publish_messages_per_s=round(quota))
        self.quota = quota

    def new_topic(self, rate: float) -> Topic:
        """A new topic, whose producer begins at once; beyond ``_MOST_PRODUCERS`` one leaves."""
        for topic in self.topics[: 1 - _MOST_PRODUCERS]:
            topic.leave()
        name = f"persistent://{NAMESPACE}/topic-{len(self.topics)}"
        urls = (self.cluster.service_urls[0], self.cluster.admin_urls[0])
        self.topics.append(Topic(name, *urls, rate))
        return self.topics[-1]

    def happening(self, fault: Fault) -> Iterator[None]:
        """Begin a fault, or make a change; then, if it lasts, end it."""
        kind, target, more = fault.kind, fault.target, fault.more
        if kind == "new topic":
            self.new_topic(more["rate"])
        elif kind == "put":
            self.later("a quota", lambda: self.put_quota(more["quota"]))
        elif target == "rest":
            for _, admin in self._own.values():
                admin.set(NetFault(kind, **more), target)
            yield
            for _, admin in self._own.values():
                admin.set(None, target)
        elif kind in KINDS:
            service, admin = self._own[target]
            service.set(NetFault(kind, **more))
            if kind in ("cut", "half-open"):
                admin.set(NetFault(kind, **more))
            yield
            service.set(None)
            admin.set(None)
        elif target == "broker":
            self._broker(kind)
            yield
            self._signal_broker(signal.SIGCONT)
        else:
            program = self.job if target == "job" else self.enforcers[target]
            program.kill() if kind == "kill" else program.freeze()
            yield
            program.thaw()

    def _broker(self, kind: str) -> None:
        if kind == "kill":
            self.cluster.kill_broker(_FAULTY)
            self.later("starting a broker", lambda: self.cluster.start_broker(_FAULTY), "broker")
        else:
            self._signal_broker(signal.SIGSTOP)

    def _signal_broker(self, number: signal.Signals) -> None:
        if self.cluster.pid(_FAULTY) > 0:  # otherwise it is being started again
            os.killpg(self.cluster.pid(_FAULTY), number)
