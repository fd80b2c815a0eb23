"""An agent keeps to its limits, and its journal says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from quotaplane.settings import load_settings
from quotaplane.transport import open_transport
from quotaplane.transport.base import Message
from quotaplane.wire.limits import encode_limits
from tests.job import write_conf
from tests.outside.journal import Held, Look
from tests.outside.processes import AgentProcess, now_ms
from tests.waiting import wait_until

LEASE_MS = 60_000


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    """An agent on embedded topics."""
    conf = write_conf(
        tmp_path, {"kind": "delta", "path": str(tmp_path / "topics")}, reports={"interval_s": 0.5}
    )
    open_transport(load_settings(conf).transport).check()
    process = AgentProcess("b1", conf, tmp_path / "b1.jsonl")
    yield process
    process.stop()


def _until(agent: AgentProcess, done: Callable[[Look], bool]) -> Look:
    def last() -> Look | None:
        agent.check()
        return next((look for look in agent.looks()[-1:] if done(look)), None)

    found = wait_until(last, 60.0, said=lambda: str(agent.looks()[-3:]))
    assert found is not None
    return found


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
    assert agent.looks()[-1].ended
    agent.start()
    again = _until(agent, lambda look: not look.ended and bool(look.demand))
    assert again.started_at_ms > before.started_at_ms
