"""Two enforcer processes on a real Pulsar: one leads, the other takes over within 10 s."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable

import pytest

from tests.servers.enforcer_process import EnforcerProcess
from tests.servers.test_enforce_pulsar import Scene
from tests.servers.test_enforce_pulsar import scene as scene

TAKES_OVER_WITHIN_S = 10.0


def _seconds(waiting: EnforcerProcess, done: Callable[[], object]) -> float:
    begun_s = time.monotonic()
    waiting.wait_until(done)
    return time.monotonic() - begun_s


@pytest.mark.nightly
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
def test_when_the_leader_ends_the_other_one_writes(scene: Scene, end: signal.Signals) -> None:
    topic = scene.topic("t")
    other_conf = shutil.copy(scene.conf, scene.conf.with_name("other.yaml"))
    scene.limits.send(publish=100)
    with EnforcerProcess(scene.conf) as leader:
        leader.wait_until(lambda: scene.rate(topic) == 100)
        with EnforcerProcess(other_conf) as waiting:
            waiting.wait_until(lambda: "leads; this one waits" in waiting.errors())
            time.sleep(3.0)  # it reads the cluster meanwhile
            leader.process.send_signal(end)
            scene.limits.send(publish=70)
            took_s = _seconds(waiting, lambda: scene.rate(topic) == 70)
            print(f"{end.name}: the other enforcer wrote after {took_s:.1f} s")
            if end is signal.SIGSTOP:
                assert took_s < TAKES_OVER_WITHIN_S
                # The frozen one comes back, and has never seen the newest limit.
                leader.process.send_signal(signal.SIGCONT)
                leader.wait_until(lambda: "another one has taken the lead" in leader.errors())
                scene.limits.send(publish=40)
                waiting.wait_until(lambda: scene.rate(topic) == 40)
                assert leader.stop()["written"] == 1
                assert waiting.stop()["written"] == 2
            elif end is signal.SIGKILL:
                assert took_s < TAKES_OVER_WITHIN_S
            else:
                assert leader.process.wait(30) == 0
