"""Runs ``quotaplane enforce pulsar`` in a process, and sends it limits over a real topic."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from quotaplane.settings import Settings
from quotaplane.transport import open_transport
from quotaplane.transport.base import Message
from quotaplane.wire.limits import encode_limits
from tests.job import environment, write_conf
from tests.servers.pulsar_clients import pulsar_transport
from tests.servers.pulsar_server import PulsarServer
from tests.waiting import wait_until

LEASE_S = 3600.0
"""The usual lease: it outlasts every test, so a slow machine does not bring the safe limits."""


class Limits:
    """Publishes limits of one broker and group."""

    def __init__(self, settings: Settings, broker: str, group: str) -> None:
        self._transport = open_transport(settings.transport)
        self._broker, self.group = broker, group
        self._seq = 0

    def send(
        self,
        publish: float = np.inf,
        dispatch: float = np.inf,
        *,
        publish_bytes: float = np.inf,
        safe_publish: float = np.inf,
        safe_dispatch: float = np.inf,
        lease_s: float = LEASE_S,
    ) -> None:
        """Publish limits, in messages but for one."""
        self._seq += 1
        value = encode_limits(
            broker=self._broker,
            shard=0,
            epoch=1,
            seq=self._seq,
            issued_at_ms=int(time.time() * 1000),
            lease_ms=int(lease_s * 1000),
            groups=[self.group],
            limits=np.array([[publish, publish_bytes, dispatch, np.inf]]),
            safe_limits=np.array([[safe_publish, np.inf, safe_dispatch, np.inf]]),
        )
        self._transport.publish([Message(self._broker, value)])

    def close(self) -> None:
        self._transport.close()


class EnforcerProcess:
    """One enforcer process; a context manager that always ends it."""

    def __init__(self, conf: Path, *options: str) -> None:
        self._errors = conf.with_suffix(".err")
        self._out = conf.with_suffix(".out")
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            command = ["-m", "quotaplane", "enforce", "pulsar", "--conf", str(conf), *options]
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdout=out,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env=environment(),
            )

    def errors(self) -> str:
        return self._errors.read_text(encoding="utf-8")

    def wait_until(self, done: Callable[[], object], within_s: float = 60.0) -> None:
        """Poll until ``done()``; fails with the process's stderr if it ends or takes too long."""
        wait_until(done, within_s, process=self.process, said=self.errors)

    def stop(self) -> dict[str, Any]:
        """Stop it with SIGTERM; returns its last status line."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(30) == 0, self.errors()
        return self.status()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def status(self) -> dict[str, Any]:
        """Its last status line, which it prints every 10 s; empty before the first."""
        lines = self._out.read_text().splitlines()
        return json.loads(lines[-1]) if lines else {}

    def ended(self) -> list[Any]:
        """Wait until it ends with exit code 0; returns the lines that it printed."""
        with self:
            assert self.process.wait(60) == 0, self.errors()
        return [json.loads(line) for line in self._out.read_text().splitlines()]

    def __enter__(self) -> EnforcerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def conf_for(server: PulsarServer, folder: Path, limits_topic: str, **enforce: Any) -> Path:
    """Write a settings file; by default without take-over."""
    transport = pulsar_transport(server.service_url, server.admin_url, limits_topic)
    usual = {"interval_s": 0.2, "take_over": False, "leader_topic": f"{limits_topic}-leader"}
    limits = {"lease_s": LEASE_S}
    return write_conf(folder, transport, limits=limits, enforce={**usual, **enforce})
