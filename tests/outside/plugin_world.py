"""Three Kafka brokers with the plugin, a quota job, producers; and faults in them.

The job, and the clients of each broker's plugin, reach all brokers through proxies of their own.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from benchmarks.kafka_proof.admin import set_client_quotas
from benchmarks.kafka_proof.load import Place
from benchmarks.quota_proof.load import Load
from tests.job import write_conf
from tests.jvm.kafka_plugin import plugin_jar
from tests.outside.commands import put_quota
from tests.outside.jobs import Jobs
from tests.outside.journal import Published, Put
from tests.outside.plugin_evidence import Disturbance
from tests.outside.plugin_lanes import BROKERS, FREE, HOT, LEASE_S, QUOTAS, SPREAD, WANTED
from tests.outside.processes import Job, now_ms, quotaplane
from tests.outside.published import read_published
from tests.outside.schedule import Fault
from tests.outside.world import World
from tests.servers.kafka_cluster import KafkaCluster
from tests.servers.kafka_server import KafkaServer
from tests.servers.plugged_kafka import ATTACHMENTS, COMPACTED, LIMITS, REPORTS, plugin_properties
from tests.servers.proxy import KINDS, NetFault, Proxies, Proxy
from tests.wall_clock import WallClock

FALLBACK: Final = 300_000.0
"""Kafka's own quota of each client: a broker that starts may know no other."""
PAYLOAD_BYTES: Final = 5_000
FREE_BYTES_PER_S: Final = 50_000.0
DIMENSION: Final = "publish_bytes"
_INTERVAL_S: Final = 1.0
_KEY: Final = "outside-" + "k" * 32
_JOB: Final = "JOB"
_QUEUE_S: Final = 0.5
_LEAST_PENDING: Final = 4
_CLIENTS: Final = "benchmarks.kafka_proof.load"
SEATS: Final = [(group, broker) for group in (HOT, SPREAD, FREE) for broker in BROKERS]
"""The group and the broker of each place."""


class PluginWorld(World):
    """The parts of a run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        listeners = [_JOB, *map(_listener, BROKERS)]
        self.cluster = KafkaCluster(
            folder / "cluster",
            extra_jars=[plugin_jar()],
            proxied=listeners,
            properties={
                "auto.leader.rebalance.enable": "false",
                "quota.window.size.seconds": "1",
                **plugin_properties(
                    limits_lease_ms=f"{1000 * LEASE_S:.0f}",
                    report_interval_ms=f"{1000 * _INTERVAL_S:.0f}",
                    signing_keys=f"k1:{_KEY}",
                ),
            },
        )
        self.proxies: dict[str, list[Proxy]] = {}
        """By listener, one to each server."""
        self._clock = WallClock(folder, "job")
        self.jobs = Jobs(folder, self._clock, self._conf)
        self.programs = self.jobs.all
        self.puts: list[Put] = []
        self.disturbed: list[Disturbance] = []
        """All disturbances that are over."""
        self._since_ms: dict[str, int] = {}
        """Since when the job, a broker or a plugin's network is disturbed."""
        self.clients = folder / "clients"
        self._wanted = dict.fromkeys(SEATS, 0.0)
        self._load: Load | None = None

    @property
    def job(self) -> Job:
        """The job that leads, or will."""
        return self.jobs.last

    @property
    def conf(self) -> Path:
        """Settings for commands."""
        return self.folder / "set-up" / "conf.yaml"

    def published(self) -> list[Published]:
        """All limits on the topic."""
        return read_published(self.cluster.bootstrap_servers, LIMITS, DIMENSION)

    # --- start ------------------------------------------------------------------------------------

    def _start(self) -> None:
        proxies = self._held.enter_context(Proxies())
        for listener in (_JOB, *map(_listener, BROKERS)):
            ports = [server.proxy_ports(listener) for server in self.cluster.servers]
            self.proxies[listener] = [proxies.open(*each) for each in ports]
        for broker, server in zip(BROKERS, self.cluster.servers, strict=True):
            servers = self._servers(_listener(broker))
            server.more_properties({"quotaplane.bootstrap.servers": servers})
        self._held.enter_context(self.cluster)
        self._held.callback(lambda: [self._signal(b, signal.SIGCONT) for b in BROKERS])
        self._create_topics()
        self._put_groups()
        self._held.callback(self.jobs.kill)
        self.jobs.start(new_checkpoint=True)
        self._start_clients()

    def _create_topics(self) -> None:
        copies, stamped = len(BROKERS), {"message.timestamp.type": "LogAppendTime"}
        self.cluster.create_topic(LIMITS, [1], copies=copies, configs=stamped)
        self.cluster.create_topic(REPORTS, [2, 3], copies=copies)
        self.cluster.create_topic(ATTACHMENTS, [3], copies=copies, configs=COMPACTED)
        for group in (HOT, SPREAD, FREE):
            self.cluster.create_topic(_topic(group), [1, 2, 3])

    def _put_groups(self) -> None:
        self._conf("set-up", 0, self.folder / "unused")
        file = self.folder / "groups.yaml"
        groups = [{"group": g, f"{DIMENSION}_per_s": quota} for g, quota in QUOTAS.items()]
        file.write_text(yaml.safe_dump(groups))
        commands = [("apply", "-f", str(file), "--init")]
        commands += [("attach", SPREAD, "--client", _client(SPREAD, each)) for each in BROKERS]
        for words in commands:
            code, _, error = quotaplane("groups", *words, "--conf", str(self.conf))
            if code != 0:
                raise RuntimeError(f"groups {' '.join(words)}: {error}")

    def _start_clients(self) -> None:
        own = {_client(group, broker): FALLBACK for group, broker in SEATS if group != FREE}
        servers = self.cluster.bootstrap_servers
        set_client_quotas(servers, f"{DIMENSION}_per_s", own)
        self.clients.mkdir()
        load = Load(_CLIENTS, servers, [_place(*seat) for seat in SEATS], self.clients)
        self._held.callback(load.stop)
        self.wait_until(lambda: load.connected, "clients do not connect")
        self._load = load
        self._wanted |= {(FREE, broker): FREE_BYTES_PER_S for broker in BROKERS}
        self.want_at_rest()

    def _servers(self, listener: str) -> str:
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies[listener])

    def _conf(self, name: str, _: int, checkpoint: Path) -> Path:
        transport = {
            "kind": "kafka",
            "bootstrap_servers": self._servers(_JOB),
            "report_topics": [REPORTS],
            "limits_topic": LIMITS,
            "attachments_topic": ATTACHMENTS,
            "timeout_s": 5.0,
        }
        return write_conf(
            self.folder / name,
            transport,
            history={"path": str(self.folder / "history")},
            checkpoint=str(checkpoint),
            reports={"interval_s": _INTERVAL_S},
            limits={"lease_s": LEASE_S, "signing": {"keys": {"k1": _KEY}, "sign_with": "k1"}},
            trigger={"interval_s": 1.0},
            shards=1,
        )

    # --- faults -----------------------------------------------------------------------------------

    def want(self, group: str, broker: str, part: float) -> None:
        """From now on a group wants this part of its quota at the start at a broker."""
        self._wanted[group, broker] = part * QUOTAS[group]
        assert self._load is not None
        self._load.want([self._wanted[seat] / PAYLOAD_BYTES for seat in SEATS])

    def want_at_rest(self) -> None:
        """All groups want more than their quotas."""
        for (group, broker), part in WANTED.items():
            self.want(group, broker, part)

    def supervise(self) -> None:
        """Start again what has ended; note since when the job is away, and check the clients."""
        super().supervise()
        if self._load is not None and not self._load.connected:
            raise RuntimeError("clients are not connected")
        if self.jobs.all and "job frozen" not in self._since_ms:
            self._note("job", not self.job.is_ready)

    def happening(self, fault: Fault) -> Iterator[None]:
        """Begin a fault, or make a change; then, if it lasts, end it."""
        kind, target, more = fault.kind, fault.target, fault.more
        if kind in KINDS:
            self._network(target, NetFault(kind, **more))
            yield
            self._network(target, None)
        elif kind == "clock":
            self._clock.set_by_s(more["by_s"])
            yield
            self._clock.set_by_s(0.0)
        elif kind == "put":
            self.later("groups put", lambda: self._put(target, more["quota"]))
        elif kind == "want":
            self.want(more["group"], target, more["part"])
        elif target == "job":
            self._note("job frozen", kind == "freeze")
            self.jobs.begin(kind)
            self._note("job", True)
            yield
            self.jobs.thaw()
            self._note("job frozen", False)
        else:
            self._note(target, True)
            self._broker(target, kind)
            yield
            self._recover(target, kind)

    def _network(self, target: str, fault: NetFault | None) -> None:
        listener = _JOB if target == "job" else _listener(target.removeprefix("plugin of "))
        self._note("network of job" if target == "job" else target, fault is not None)
        for proxy in self.proxies[listener]:
            proxy.set(fault)

    def _broker(self, broker: str, kind: str) -> None:
        if kind == "kill":
            self._server(broker).kill()
        else:
            self._signal(broker, signal.SIGSTOP)

    def _recover(self, broker: str, kind: str) -> None:
        server = self._server(broker)

        def start() -> None:
            shutil.copy(server.log, server.log.with_name(f"server-until-{now_ms()}.log"))
            server.start()
            self._note(broker, False)

        if kind == "kill":
            self.later(f"starting {broker}", start, line=broker)
        else:
            self._signal(broker, signal.SIGCONT)
            self._note(broker, False)

    def _server(self, broker: str) -> KafkaServer:
        return self.cluster.servers[BROKERS.index(broker)]

    def _signal(self, broker: str, number: signal.Signals) -> None:
        if (pid := self._server(broker).pid) > 0:
            os.kill(pid, number)

    def _note(self, target: str, is_disturbed: bool) -> None:
        """Note that a disturbance began, or is over; nothing if that is known."""
        if is_disturbed:
            self._since_ms.setdefault(target, now_ms())
        elif (since_ms := self._since_ms.pop(target, None)) is not None:
            self.disturbed.append(Disturbance(target, since_ms, now_ms()))

    def _put(self, group: str, quota: float) -> None:
        self.puts.append(put_quota(self.conf, group, DIMENSION, quota))


def _topic(group: str) -> str:
    return "load-" + group.rpartition("=")[2].rpartition("::")[2]


def _client(group: str, broker: str) -> str:
    """The client id of a place: of ``SPREAD`` each broker has a client of its own.

    >>> _client(SPREAD, "broker-1"), _client(HOT, "broker-1")
    ('spread-1', 'hot')
    """
    return f"spread-{broker[-1]}" if group == SPREAD else group.removeprefix("client=")


def _place(group: str, broker: str) -> Place:
    most = FREE_BYTES_PER_S if group == FREE else 2.5 * QUOTAS[group]
    return Place(
        client_id=_client(group, broker),
        topic=_topic(group),
        partition=BROKERS.index(broker),
        payload_bytes=PAYLOAD_BYTES,
        pending=max(_LEAST_PENDING, round(_QUEUE_S * most / PAYLOAD_BYTES)),
        arrivals="even",
        fetch=False,
        backlog=False,
    )


def _listener(broker: str) -> str:
    """The listener of a plugin's clients: letters and digits only.

    >>> _listener("broker-1")
    'PLUGIN1'
    """
    return f"PLUGIN{broker[-1]}"
