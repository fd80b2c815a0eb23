"""A Kafka server, quota jobs and agents, each behind a proxy of its own; and faults in them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import KafkaError

from quotaplane.settings import load_settings
from tests.job import put_quotas, write_conf
from tests.outside.commands import put_quota
from tests.outside.jobs import Jobs
from tests.outside.journal import Published, Put
from tests.outside.kafka_lanes import AGENTS, GROUPS
from tests.outside.processes import AgentProcess, Job, now_ms
from tests.outside.published import read_published
from tests.outside.schedule import Fault
from tests.outside.world import World
from tests.servers.kafka_server import KafkaServer
from tests.servers.proxy import KINDS, NetFault, Proxies, Proxy
from tests.waiting import wait_until
from tests.wall_clock import WallClock

LEASE_S: Final = 45.0
INTERVAL_S: Final = 2.0
STALE_INTERVALS: Final = 5.0
_REPORTS, _LIMITS = "reports", "limits"
_KEY: Final = "outside-" + "k" * 32
_JOB_LISTENERS: Final = ("JOBA", "JOBB")


class KafkaWorld(World):
    """The parts of a run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.history = folder / "history"
        listeners = [*_JOB_LISTENERS, *(_listener(agent) for agent in AGENTS)]
        self.server = KafkaServer(folder / "kafka", proxied=listeners, access_rules=True)
        self.proxies: dict[str, Proxy] = {}
        self._clock = WallClock(folder, "job")
        self.jobs = Jobs(folder, self._clock, self._conf_of_job)
        self.programs = self.jobs.all
        self.agents: dict[str, AgentProcess] = {}
        self.puts: list[Put] = []

    def _start(self) -> None:
        self._held.enter_context(self.server)
        proxies = self._held.enter_context(Proxies())
        for listener in (*_JOB_LISTENERS, *map(_listener, AGENTS)):
            self.proxies[listener] = proxies.open(*self.server.proxy_ports(listener))
        self.server.create_topic(_REPORTS, partitions=2)
        configs = {"message.timestamp.type": "LogAppendTime"}
        self.server.create_topic(_LIMITS, partitions=1, configs=configs)
        for right in _RIGHTS:
            self._allow(right)
        self._held.callback(self.jobs.kill)
        put_quotas(load_settings(self._conf("set-up", "JOBA", self.folder / "unused")), **GROUPS)
        self.jobs.start(new_checkpoint=True)
        for agent in AGENTS:
            conf = self._conf(agent, _listener(agent), self.folder / "unused")
            journal = self.folder / f"{agent}.jsonl"
            self.agents[agent] = AgentProcess(agent, conf, journal)
            self._held.callback(self.agents[agent].stop)

    def _conf_of_job(self, name: str, number: int, checkpoint: Path) -> Path:
        return self._conf(name, _JOB_LISTENERS[number % len(_JOB_LISTENERS)], checkpoint)

    def _conf(self, name: str, listener: str, checkpoint: Path) -> Path:
        listen_port, _ = self.server.proxy_ports(listener)
        transport = {
            "kind": "kafka",
            "bootstrap_servers": f"127.0.0.1:{listen_port}",
            "report_topics": [_REPORTS],
            "limits_topic": _LIMITS,
            "timeout_s": 5.0,
        }
        return write_conf(
            self.folder / name,
            transport,
            history={"path": str(self.history)},
            checkpoint=str(checkpoint),
            reports={"interval_s": INTERVAL_S},
            brokers={"stale_after_intervals": STALE_INTERVALS, "expire_after_intervals": 8.0},
            limits={
                "lease_s": LEASE_S,
                "refresh_rounds": 5,
                "transition": "strict",
                "signing": {"keys": {"k1": _KEY}, "sign_with": "k1"},
            },
            trigger={"interval_s": 0.5},
        )

    @property
    def conf(self) -> Path:
        """Settings for commands."""
        return self.folder / "job-1" / "conf.yaml"

    @property
    def job(self) -> Job:
        """The job that leads, or will."""
        return self.jobs.last

    def supervise(self) -> None:
        """Start jobs again that have ended; check that agents run."""
        super().supervise()
        for agent in self.agents.values():
            agent.check()

    # --- faults -----------------------------------------------------------------------------------

    def happening(self, fault: Fault) -> Iterator[None]:
        """Begin a fault, or make a change; then, if it lasts, end it."""
        kind, target, more = fault.kind, fault.target, fault.more
        if kind in KINDS:
            self._network(target, NetFault(kind, **more), kind)
            yield
            self._network(target, None, kind)
        elif kind == "silence":
            for agent in AGENTS:
                self._network(agent, NetFault("half-open"), kind)
            yield
            for agent in AGENTS:
                self._network(agent, None, kind)
        elif kind == "clock":
            self._set_clock(target, more["by_s"])
            yield
            self._set_clock(target, 0.0)
        elif kind == "put":
            self.later("groups put", lambda: self._put(target, more["quota"]))
        elif kind == "want":
            self.agents[target].want(more["group"], more["rate"])
        elif kind == "table away":
            (self.history / target).rename(self.folder / f"{target}-away")
            yield
            self._bring_back(target)
        elif kind == "access":
            self.later(f"taking away: {target}", lambda: self._forbid(target), line="server")
            yield
            self.later(f"giving back: {target}", lambda: self._allow(target), line="server")
        elif target == "server":
            self._server(kind)
            yield
            self._signal_server(signal.SIGCONT)
        elif target in self.agents:
            self._agent(self.agents[target], kind)
            yield
            self.agents[target].thaw()
        else:
            self.jobs.begin(kind)
            yield
            self.jobs.thaw()

    def heal(self) -> None:
        """Wait until what was begun in the background is done; no connection is disturbed."""
        self.settle()
        for proxy in self.proxies.values():
            proxy.clear()

    def _network(self, client: str, fault: NetFault | None, by: str) -> None:
        listeners = _JOB_LISTENERS if client == "job" else (_listener(client),)
        for listener in listeners:
            self.proxies[listener].set(fault, by)

    def _set_clock(self, target: str, by_s: float) -> None:
        if target == "job":
            self._clock.set_by_s(by_s)
        else:
            self.agents[target].clock(by_s)

    def _server(self, kind: str) -> None:
        if kind == "kill":
            self.server.kill()
            self.later("starting Kafka", self.server.start, line="server")
        else:
            self._signal_server(signal.SIGSTOP)

    def _signal_server(self, number: signal.Signals) -> None:
        if self.server.pid > 0:  # otherwise it is being started again; -1 would be everybody
            os.kill(self.server.pid, number)

    def _agent(self, agent: AgentProcess, kind: str) -> None:
        if kind == "kill":
            agent.kill()
            agent.start()
        else:
            agent.freeze()

    def _bring_back(self, table: str) -> None:
        """A table comes back; what a program made in its place meanwhile is moved away."""
        if (self.history / table).exists():
            made = self.folder / f"{table}-made-{now_ms()}"
            (self.history / table).rename(made)
        (self.folder / f"{table}-away").rename(self.history / table)

    def _put(self, group: str, quota: float) -> None:
        self.puts.append(put_quota(self.conf, group, "publish_messages", quota))

    def published(self) -> list[Published]:
        """All limits on the topic."""
        return read_published(self.server.bootstrap_servers, _LIMITS, "publish_messages")

    def _allow(self, right: str) -> None:
        operation, topic = _RIGHTS[right]
        with_all = [operation, ACLOperation.DESCRIBE, ACLOperation.DESCRIBE_CONFIGS]
        both = [*with_all, ACLOperation.READ if topic == _LIMITS else ACLOperation.WRITE]
        failed = self._asked(lambda admin: admin.create_acls([_acl(each, topic) for each in both]))
        if failed["failed"]:
            raise RuntimeError(f"{right}: {failed['failed']}")

    def _forbid(self, right: str) -> None:
        operation, topic = _RIGHTS[right]
        pattern = ResourcePatternFilter(ResourceType.TOPIC, topic, ACLResourcePatternType.LITERAL)
        wanted = [ACLFilter(None, None, operation, ACLPermissionType.ALLOW, pattern)]
        ((_, removed, _),) = self._asked(lambda admin: admin.delete_acls(wanted))
        if not removed:
            raise RuntimeError(f"{right}: there was no such rule")

    def _asked(self, ask: Callable[[KafkaAdminClient], Any]) -> Any:
        """The server's answer, once it serves: it may be frozen, or start."""

        def answer() -> Any:
            with suppress(KafkaError):
                servers = self.server.bootstrap_servers
                with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
                    return ask(admin)

        return wait_until(answer, _SERVES_WITHIN_S, every_s=1.0)


_SERVES_WITHIN_S: Final = 60.0
_RIGHTS: Final = {
    "write limits": (ACLOperation.WRITE, _LIMITS),
    "read reports": (ACLOperation.READ, _REPORTS),
}


def _acl(operation: ACLOperation, topic: str) -> ACL:
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    return ACL("User:ANONYMOUS", "*", operation, ACLPermissionType.ALLOW, pattern)


def _listener(agent: str) -> str:
    """The listener of an agent: letters and digits only.

    >>> _listener("broker-1")
    'BROKER1'
    """
    return agent.upper().replace("-", "")
