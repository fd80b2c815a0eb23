"""A leader and its standby as processes: what brokers see when the leader dies, sleeps or ends."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from quotaplane.settings import load_settings
from quotaplane.streams.standby import PATIENCE_S
from quotaplane.transport import open_broker_link
from quotaplane.wire.limits import decode_limits
from tests.contract.rigs import limits_of
from tests.job import RunningJob, history_table, put_quotas, report_of, write_conf
from tests.waiting import meanwhile, wait_until

pytestmark = pytest.mark.nightly

MOST_S: Final = 15.0
"""Longest time without limits at a broker after a leader's death; on an idle machine it is 10 s."""


class Brokers:
    """Two brokers that report every second and keep all limits messages, with their times."""

    def __init__(self, conf: Path) -> None:
        self._settings = load_settings(conf)
        self._out = open_broker_link(self._settings.transport)
        self._in = open_broker_link(self._settings.transport, limits_from="earliest")
        self.messages: list[tuple[float, str, Any]] = []
        """When each arrived, by the monotonic clock, its broker, and the message."""
        self._sequence = 0

    def report(self, over: threading.Event) -> None:
        """Report until this is over."""
        while not over.wait(1.0):
            self._sequence += 1
            now_ms = time.time_ns() // 1_000_000
            made = [(name, report_of(name, 80.0, sequence=self._sequence), now_ms) for name in "ab"]
            self._out.send_reports(made)

    def listen(self, over: threading.Event) -> None:
        """Take in limits until this is over."""
        while not over.wait(0.05):
            for message in limits_of(self._in):
                self.messages.append((time.monotonic(), message.key, decode_limits(message.value)))

    def after(self, at_s: float) -> list[tuple[float, str, Any]]:
        """The messages that arrived after a time."""
        return [each for each in self.messages if each[0] > at_s]

    def gap_s(self, at_s: float) -> float:
        """From the last message before a time to the first after it, which must have arrived."""
        times = [arrived_s for arrived_s, *_ in self.messages]
        after = min(each for each in times if each > at_s)
        return after - max(each for each in times if each <= at_s)

    def check(self) -> None:
        """Each round has one content, however often it was published."""
        seen: dict[tuple[str, int, int], Any] = {}
        for _, broker, message in self.messages:
            limits = dict(zip(message.groups, message.limits.tolist(), strict=True))
            key = broker, message.epoch, message.seq
            assert seen.setdefault(key, limits) == limits, key


class Rig:
    """A settings file, processes of the quota job with it, and brokers."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self.folder, self._held = folder, held
        self.conf = write_conf(
            folder,
            reports={"interval_s": 1.0},
            trigger={"interval_s": 0.5},
            limits={"lease_s": 60.0, "refresh_rounds": 2},
            shards=2,
        )
        put_quotas(load_settings(self.conf), g=100.0)
        self.brokers: Brokers
        self.jobs: dict[str, RunningJob] = {}

    def rounds(self) -> int:
        """How many rounds are in the history."""
        return self.jobs["first"].rounds()

    def job(self, name: str, *options: str) -> RunningJob:
        """A process of the job; it prints into a file of its own."""
        conf = self.folder / f"{name}.yaml"
        shutil.copy(self.conf, conf)
        self.jobs[name] = self._held.enter_context(RunningJob(conf, *options))
        return self.jobs[name]

    def leads(self, job: RunningJob) -> None:
        """Wait until a process is ready."""
        job.wait_until(lambda: any("quotaplane: ready:" in line for line in job.printed()))

    def stands_by(self, job: RunningJob) -> None:
        """Wait until a process stands by, and has rehearsed."""
        job.wait_until(lambda: any("standby: warm" in line for line in job.printed()))

    def limits_after(self, at_s: float, within_s: float = 60.0) -> None:
        """Wait until each broker got limits after a time."""
        wait_until(
            lambda: {broker for _, broker, _ in self.brokers.after(at_s)} == {"a", "b"}, within_s
        )


@contextmanager
def running(folder: Path) -> Iterator[Rig]:
    with ExitStack() as held:
        rig = Rig(folder, held)
        first = rig.job("first", "--standby")
        rig.leads(first)
        rig.brokers = Brokers(rig.conf)
        with meanwhile(rig.brokers.report, rig.brokers.listen):
            rig.limits_after(0.0)
            yield rig
        rig.brokers.check()


def killed_at(job: RunningJob) -> float:
    """SIGKILL to all of a process; returns when."""
    at_s = time.monotonic()
    job.kill()
    return at_s


def test_when_the_leader_is_killed_its_standby_goes_on_within_seconds(tmp_path: Path) -> None:
    with running(tmp_path) as rig:
        first = rig.jobs["first"]
        second = rig.job("second", "--standby")
        rig.stands_by(second)
        at_s = killed_at(first)
        rig.limits_after(at_s)
        gap_s = rig.brokers.gap_s(at_s)
        print(f"gap after kill -9 of the leader: {gap_s:.1f} s")
        assert gap_s < MOST_S
        # All limits in force are in the first messages, with the same epoch.
        (epoch,) = {message.epoch for _, _, message in rig.brokers.messages}
        first = rig.job("first", "--standby")
        rig.stands_by(first)
        at_s = time.monotonic()
        second.stop()
        rig.limits_after(at_s)
        gap_s = rig.brokers.gap_s(at_s)
        print(f"gap after SIGTERM to the leader: {gap_s:.1f} s")
        assert gap_s < MOST_S - PATIENCE_S
        assert {message.epoch for _, _, message in rig.brokers.messages} == {epoch}
        rounds = history_table(first.settings, "rounds")["seq"].to_pylist()
        assert len(rounds) == len({*rounds})


def test_a_leader_that_was_frozen_publishes_nothing_new_and_is_the_standby_next(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as rig:
        first = rig.jobs["first"]
        second = rig.job("second", "--standby")
        rig.stands_by(second)
        at_s = time.monotonic()
        os.killpg(first.process.pid, signal.SIGSTOP)
        rig.limits_after(at_s + 1.0)
        gap_s = rig.brokers.gap_s(at_s + 1.0)
        print(f"gap after SIGSTOP of the leader: {gap_s:.1f} s")
        assert gap_s < MOST_S
        rig.leads(second)
        os.killpg(first.process.pid, signal.SIGCONT)
        first.ended(14)
        assert any("deposed: another process leads now" in line for line in first.printed())
        again = rig.job("again", "--standby")
        rig.stands_by(again)
        rounds = history_table(again.settings, "rounds")["seq"].to_pylist()
        assert len(rounds) == len({*rounds})


def test_of_two_standbys_one_leads_and_the_other_goes_on_standing_by(tmp_path: Path) -> None:
    with running(tmp_path) as rig:
        others = [rig.job(name, "--standby") for name in ("second", "third")]
        for each in others:
            rig.stands_by(each)
        at_s = killed_at(rig.jobs["first"])
        rig.limits_after(at_s)
        gap_s = rig.brokers.gap_s(at_s)
        print(f"gap after kill -9 with two standbys: {gap_s:.1f} s")
        assert gap_s < MOST_S + PATIENCE_S
        rounds = rig.rounds()
        wait_until(lambda: rig.rounds() > rounds + 10)
        alive = [each for each in others if each.process.poll() is None]
        ended = [each.process.returncode for each in others if each not in alive]
        leaders = [each for each in alive if any(": ready:" in line for line in each.printed())]
        assert len(leaders) == 1
        assert set(ended) <= {14}, "it found out that it was deposed, and is started again"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_standby_that_waits_ends_at_once(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with running(tmp_path) as rig:
        second = rig.job("second", "--standby")
        rig.stands_by(second)
        began_s = time.monotonic()
        second.stop(number, code)
        assert time.monotonic() - began_s < 10.0
        at_s = time.monotonic()
        rig.limits_after(at_s)
        assert rig.jobs["first"].process.poll() is None
