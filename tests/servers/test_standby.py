"""A leader and its standby as processes: what brokers see when the leader dies, sleeps or ends."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from quotaplane.settings import load_settings
from quotaplane.streams.standby import PATIENCE_S
from tests.job import RunningJob, put_quotas, write_conf
from tests.servers.outages import WANTED_WITH_STANDBY_S, Outages
from tests.servers.reporting_brokers import Outage, ReportingBrokers
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly

MOST_S: Final = 15.0
"""Longest time without limits at a broker after a leader's death; on an idle machine it is 10 s."""


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
        settings = load_settings(self.conf)
        put_quotas(settings, g=100.0)
        self.brokers = ReportingBrokers(settings, a=80.0, b=80.0)
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

    def through(self, harm: Callable[[], object]) -> Outage:
        """Do harm that a standby mends."""
        return self.brokers.through(harm, within_s=60.0)


@contextmanager
def running(folder: Path) -> Iterator[Rig]:
    with ExitStack() as held:
        rig = Rig(folder, held)
        first = rig.job("first", "--standby")
        rig.leads(first)
        held.enter_context(rig.brokers)
        wait_until(lambda: rig.brokers.heard_since(0.0), 60.0)
        yield rig


def note(outages: Outages, harm: str, outage: Outage, most_s: float = MOST_S) -> None:
    """Note an outage that lasted less than this."""
    part = "two processes, one stands by"
    wanted_s = WANTED_WITH_STANDBY_S
    outages.note(part, harm, outage, versions="embedded transport", wanted_s=wanted_s)
    assert outage.gap_s < most_s


def test_when_the_leader_is_killed_its_standby_goes_on_within_seconds(
    tmp_path: Path, outages: Outages
) -> None:
    with running(tmp_path) as rig:
        second = rig.job("second", "--standby")
        rig.stands_by(second)
        note(outages, "the leader killed", rig.through(rig.jobs["first"].kill))
        rig.stands_by(rig.job("first", "--standby"))
        outage = rig.through(second.stop)
        note(outages, "the leader stopped by SIGTERM", outage, MOST_S - PATIENCE_S)


def test_a_leader_that_was_frozen_publishes_nothing_new_and_is_the_standby_next(
    tmp_path: Path, outages: Outages
) -> None:
    with running(tmp_path) as rig:
        first = rig.jobs["first"]
        second = rig.job("second", "--standby")
        rig.stands_by(second)

        def freeze() -> None:
            os.killpg(first.process.pid, signal.SIGSTOP)
            time.sleep(1.0)  # until brokers have read all that it had published

        frozen = rig.through(freeze)
        rig.leads(second)

        def wake() -> None:
            os.killpg(first.process.pid, signal.SIGCONT)
            first.ended(14)

        woken = rig.through(wake)
        assert any("deposed: another process leads now" in line for line in first.printed())
        rig.stands_by(rig.job("again", "--standby"))
        note(outages, "the leader frozen", frozen)
        note(outages, "the frozen leader goes on, and finds that it is deposed", woken)


def test_of_two_standbys_one_leads_and_the_other_goes_on_standing_by(
    tmp_path: Path, outages: Outages
) -> None:
    with running(tmp_path) as rig:
        others = [rig.job(name, "--standby") for name in ("second", "third")]
        for each in others:
            rig.stands_by(each)
        outage = rig.through(rig.jobs["first"].kill)
        rounds = rig.rounds()
        wait_until(lambda: rig.rounds() > rounds + 10)
        alive = [each for each in others if each.process.poll() is None]
        ended = [each.process.returncode for each in others if each not in alive]
        leaders = [each for each in alive if any(": ready:" in line for line in each.printed())]
        assert len(leaders) == 1
        assert set(ended) <= {14}, "it found out that it was deposed, and is started again"
        note(outages, "the leader of three killed", outage, MOST_S + PATIENCE_S)


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
        wait_until(lambda: rig.brokers.heard_since(at_s), 60.0)
        assert rig.jobs["first"].process.poll() is None
