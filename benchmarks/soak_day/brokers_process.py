"""The process of the brokers: each is a ``BrokerClient``, as the agent of a real broker is.

Brokers that live all day see 10,000 groups come and go, so their memory is that of an agent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.soak_day.churn import ROUND_S, brokers, groups, has_group, undefined_group
from benchmarks.soak_day.quota_process import Reported
from quotaplane.client.agent import BrokerClient
from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.transport.base import Message, Polled, Portion

_USED_PER_S = 120.0
"""Mean use of a group by a broker that has it; groups have a quota of 1000."""


class _Link:
    """Link over which reports go out, and limits come in."""

    def __init__(self) -> None:
        self.sent: list[Reported] = []
        self.came: list[Polled] = []

    def send_reports(self, reports: Sequence[tuple[str, bytes, int]]) -> None:
        self.sent += [Reported(*report) for report in reports]

    def poll_limits(self) -> Portion:
        came, self.came = self.came, []
        return Portion(came, more=False, caught_up=True)

    def close(self) -> None:
        pass


class Brokers:
    """All brokers of a round."""

    def __init__(self) -> None:
        self._clients: dict[str, tuple[BrokerClient, _Link]] = {}
        self._random = np.random.default_rng(1)
        self._now_ms = 0

    def report(self, round_: int, now_ms: int) -> list[Reported]:
        """A report of each broker that lives; those that died are forgotten."""
        self._now_ms = now_ms
        names, all_groups = brokers(round_), groups(round_)
        self._clients = {
            name: self._clients.get(name) or self._started(name, now_ms) for name in names
        }
        for name, (client, _) in self._clients.items():
            wanted = [group for group in all_groups if has_group(name, group)]
            wanted.append(undefined_group(round_))
            client.detach([group for group in client.groups if group not in {*wanted}])
            client.attach(wanted)
            shape = (len(client.groups), 1)
            used = np.zeros((shape[0], len(DIMENSIONS)))
            used[:, :BASIC] = self._random.gamma(2.0, _USED_PER_S / 2.0, shape) * ROUND_S
            client.use_all(used)
            client.report()
        sent = [report for _, link in self._clients.values() for report in link.sent]
        for _, link in self._clients.values():
            link.sent.clear()
        return sent

    def _started(self, name: str, now_ms: int) -> tuple[BrokerClient, _Link]:
        link = _Link()
        # It started before its first report.
        self._now_ms = now_ms - ROUND_S * 1000
        client = BrokerClient(link, name, now_ms=lambda: self._now_ms)
        self._now_ms = now_ms
        return client, link

    def receive(self, messages: Sequence[Message]) -> float:
        """Give each broker its messages; the share of known groups with a finite limit."""
        for message in messages:
            known = self._clients.get(message.key)
            if known is not None:
                known[1].came.append(Polled(message.key, message.value, ""))
        limited = total = 0
        for client, _ in self._clients.values():
            client.poll()
            limits = client.limits()[:-1, 0]  # the last group is the undefined one
            limited += int(np.isfinite(limits).sum())
            total += len(limits)
        return limited / max(total, 1)


def main(pipe: Connection) -> None:
    """Answer until the pipe ends."""
    world = Brokers()
    pipe.send(time.time())
    while True:
        try:
            what, *arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(world, what)(*arguments))
