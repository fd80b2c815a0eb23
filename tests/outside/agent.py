"""An agent: a broker by ``quotaplane.client`` that keeps to its limits, and writes a journal.

    python -m tests.outside.agent SETTINGS BROKER JOURNAL      groups and demand follow on stdin

Lines on stdin: ``want GROUP MESSAGES_PER_S``; ``clock SECONDS``, by which its own clock is ahead.
The end of stdin ends it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final

from quotaplane.client.agent import BrokerClient
from quotaplane.errors import TransportError
from quotaplane.settings import load_settings
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import BrokerLink
from quotaplane.wire.signatures import SigningKeys

_TICK_S: Final = 0.1
_POLL_S: Final = 0.3
_WRITE_S: Final = 1.0
"""A look that shows nothing new is written this often."""


class Agent:
    """One process of a broker."""

    def __init__(self, conf: str, broker: str, journal: Path) -> None:
        self._settings = load_settings(conf)
        self._broker = broker
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.demand: dict[str, float] = {}
        self.ahead_ms = 0
        self._last: tuple[str, float] = ("", 0.0)

    def run(self) -> None:
        """Report, poll and write until the process ends."""
        link = self._link()
        client = BrokerClient(
            link,
            self._broker,
            now_ms=self._now_ms,
            strict=True,
            keys=SigningKeys.of(self._settings.limits.signing),
        )
        due_report = due_poll = used_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            client.attach(self.demand)
            self._use(client, now_s - used_s)
            used_s = now_s
            self._look(client)
            try:
                if now_s >= due_poll:
                    due_poll = now_s + _POLL_S
                    client.poll()
                    self._look(client)
                if now_s >= due_report:
                    due_report = now_s + self._settings.reports.interval_s
                    client.report()
            except TransportError as error:
                print(error, file=sys.stderr, flush=True)
            time.sleep(_TICK_S)

    def _link(self) -> BrokerLink:
        while True:
            try:
                return open_broker_link(self._settings.transport)
            except TransportError as error:
                print(error, file=sys.stderr, flush=True)
                time.sleep(0.5)

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def _use(self, client: BrokerClient, for_s: float) -> None:
        for group in client.groups:
            want = self.demand.get(group, 0.0)
            used = min(want, client.limit(group)["publish_messages"])
            client.use(group, publish_messages=used * for_s)
            client.refuse(group, publish_messages=(want - used) * for_s)

    def _look(self, client: BrokerClient) -> None:
        """Write what the limits are now, unless nothing is new."""
        t_ms, ahead_ms, received = time.time_ns() // 1_000_000, self.ahead_ms, client._received
        columns = received.columns_of(client.groups)
        limits = received.of(0, columns, t_ms + ahead_ms)[:, 0].tolist()
        held = {}
        for group, column, limit in zip(client.groups, columns.tolist(), limits, strict=True):
            epoch, seq = int(received._epoch[0, column]), int(received._seq[0, column])
            until_ms = int(received._until_ms[0, column])
            held[group] = [
                limit if column >= 0 else 0.0,
                until_ms,
                epoch if column >= 0 else -1,
                seq,
            ]
        line = {
            "off": ahead_ms,
            "start": received._started_at_ms[0],
            "demand": self.demand,
            "limits": held,
        }
        text = json.dumps(line)
        if text != self._last[0] or time.monotonic() > self._last[1] + _WRITE_S:
            self._last = (text, time.monotonic())
            os.write(self._journal, f"{json.dumps({'t': t_ms, **line})}\n".encode())

    def obey(self, line: str) -> None:
        """A line of stdin."""
        word, *rest = line.split()
        if word == "want":
            self.demand = {**self.demand, rest[0]: float(rest[1])}
        elif word == "clock":
            self.ahead_ms = round(float(rest[0]) * 1000)


def main() -> None:
    """Run the agent that the command line names."""
    conf, broker, journal = sys.argv[1:]
    agent = Agent(conf, broker, Path(journal))

    def listen() -> None:
        for line in sys.stdin:
            agent.obey(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    agent.run()


if __name__ == "__main__":
    main()
