"""An agent keeps to its limits, and its journal says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from quotaplane.settings import load_settings
from quotaplane.transport import open_transport
from quotaplane.transport.base import Message
from quotaplane.wire.limits import encode_limits
from tests.job import write_conf
from tests.outside.journal import Held, Look, read_journal
from tests.outside.processes import AgentProcess, now_ms

LEASE_MS = 60_000


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    """An agent on embedded topics."""
    conf = write_conf(
        tmp_path,
        {"kind": "delta", "path": str(tmp_path / "topics")},
        reports={"interval_s": 0.5},
    )
    open_transport(load_settings(conf).transport).check()
    process = AgentProcess("b1", conf, tmp_path / "b1.jsonl")
    yield process
    process.stop()


def _looks(agent: AgentProcess) -> list[Look]:
    if not agent.journal.exists():
        return []
    with agent.journal.open() as lines:
        return read_journal(lines)


def _until(agent: AgentProcess, done: Callable[[Look], bool]) -> Look:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        agent.check()
        if (looks := _looks(agent)) and done(looks[-1]):
            return looks[-1]
        time.sleep(0.05)
    raise AssertionError(_looks(agent)[-3:])


def test_a_limit_holds_until_its_lease_end(agent: AgentProcess, tmp_path: Path) -> None:
    agent.want("g", 50.0)
    first = _until(agent, lambda look: look.demand == {"g": 50.0})
    assert first.held["g"].limit == 0.0
    issued_ms = now_ms()
    message = encode_limits(
        broker="b1",
        shard=0,
        epoch=3,
        seq=7,
        issued_at_ms=issued_ms,
        lease_ms=LEASE_MS,
        groups=["g"],
        limits=np.array([[20.0]]),
        safe_limits=np.array([[0.0]]),
    )
    transport = open_transport(load_settings(tmp_path / "conf.yaml").transport)
    transport.publish([Message("b1", message)])
    look = _until(agent, lambda look: look.held["g"].limit > 0)
    assert look.held["g"] == Held(20.0, issued_ms + LEASE_MS, 3, 7)
    # Its own clock is ahead, so the lease ends earlier by the true time.
    agent.clock(100.0)
    look = _until(agent, lambda look: look.held["g"].limit == 0.0)
    assert look.held["g"] == Held(0.0, issued_ms + LEASE_MS - 100_000, 3, 7)


def test_a_killed_agent_starts_anew(agent: AgentProcess) -> None:
    agent.want("g", 50.0)
    before = _until(agent, lambda look: bool(look.demand))
    agent.kill()
    assert _looks(agent)[-1].ended
    agent.start()
    again = _until(agent, lambda look: not look.ended and bool(look.demand))
    assert again.started_at_ms > before.started_at_ms
