"""Contenders in control: the brokers' own calculator, or our job and our enforcer beside them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from benchmarks.program import Program
from benchmarks.pulsar_proof.scenarios import REPORT_INTERVAL_S, Scenario
from quotaplane.settings.transports import STOCK_REPORTS
from tests.servers.pulsar_cluster import PulsarCluster
from tests.servers.pulsar_rest import UNLIMITED, PulsarRest

_IN_CONTROL_WITHIN_S: Final = 240.0
_LOOK_EVERY_S: Final = 0.5
_LIMITS_TOPIC: Final = "persistent://public/quotaplane/limits"
OBSERVED_TOPIC: Final = "persistent://public/quotaplane/observed-usage"


@dataclass(frozen=True)
class Stage:
    """A scenario as a contender sees it: its group, and the topics on each broker, if there are
    any yet.
    """

    scene: Scenario
    topics: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Start:
    """How a contender came into control; times in seconds of the wall clock."""

    taken_over_s: Mapping[str, float]
    """By scenario."""
    milestones: Mapping[str, float]
    """Seconds since its first program was started, by what happened then."""


@dataclass(frozen=True)
class Contender:
    """A controller that is judged, and what has to run for it."""

    name: str
    title: str
    control: Callable[[PulsarCluster, Sequence[Stage], Path], AbstractContextManager[Start]]
    """In control from its beginning to its end."""
    takes_over: bool
    """Whether it limits in the place of the brokers' calculator."""
    reports_topic: str
    """Without it the contender knows of no usage."""


@contextmanager
def _stock(cluster: PulsarCluster, stages: Sequence[Stage], folder: Path) -> Iterator[Start]:
    """The transport is on, and the groups are attached: nothing else to start."""
    now_s = time.time()
    yield Start({stage.scene.name: now_s for stage in stages}, {})


@contextmanager
def _ours(
    cluster: PulsarCluster, stages: Sequence[Stage], folder: Path, *, observed: bool
) -> Iterator[Start]:
    rest = cluster.rest()
    rest.create_namespace("public/quotaplane")
    rest.create_topic(_LIMITS_TOPIC)
    if observed:
        rest.create_topic(OBSERVED_TOPIC)
    conf = folder / "pulsar.yaml"
    conf.write_text(yaml.safe_dump(_settings(cluster, stages, folder, observed=observed)))
    quotaplane = str(Path(sys.executable).with_name("quotaplane"))
    # The table must know they have no publish quota: docs/operate/pulsar-groups.md, New groups.
    unlimited = ["--publish-messages-per-s", "unlimited", "--publish-bytes-per-s", "unlimited"]
    for stage in stages:
        if stage.scene.dispatch:
            put = [quotaplane, "groups", "put", stage.scene.name, *unlimited, "--init"]
            subprocess.run([*put, "--conf", str(conf)], check=True, stdout=subprocess.DEVNULL)
    job = ["./spark-submit.sh", "quota", "--conf", str(conf)]
    enforcer = [quotaplane, "enforce", "pulsar", "--conf", str(conf)]
    begun_s = time.time()
    running = [Program(job, folder / "job.log"), Program(enforcer, folder / "enforcer.log")]
    try:
        there = [stage for stage in stages if stage.topics]
        limited, taken_over = wait_for_control(rest, there, running)
        milestones = {
            "the first group's topics have their rates": min(limited.values()) - begun_s,
            "all topics have their rates": max(limited.values()) - begun_s,
            "all groups are taken over": max(taken_over.values()) - begun_s,
        }
        yield Start(taken_over, milestones)
        for program in running:
            program.check()
    finally:
        for program in reversed(running):
            program.stop()


def wait_for_control(
    rest: PulsarRest, stages: Sequence[Stage], running: Sequence[Program] = ()
) -> tuple[dict[str, float], dict[str, float]]:
    """Wait until every topic has a rate, and each group is taken over; the times of both.

    Raises:
        RuntimeError: a program ended.
        TimeoutError: it took too long.
    """
    deadline = time.monotonic() + _IN_CONTROL_WITHIN_S
    limited: dict[str, float] = {}
    taken_over: dict[str, float] = {}
    while len(taken_over) < len(stages):
        for program in running:
            program.check()
        if time.monotonic() > deadline:
            raise TimeoutError("our enforcer did not take the groups over; see its log")
        time.sleep(_LOOK_EVERY_S)
        for stage in stages:
            name = stage.scene.name
            if name not in limited and _has_rates(rest, stage):
                limited[name] = time.time()
            if name not in taken_over and name in limited and _is_unlimited(rest, name):
                taken_over[name] = time.time()
    return limited, taken_over


def _has_rates(rest: PulsarRest, stage: Stage) -> bool:
    """Whether the first and the last topic on each broker have a rate of their own."""
    what = "dispatchRate" if stage.scene.dispatch else "publishRate"
    ends = (topic for topics in stage.topics for topic in {topics[0], topics[-1]})
    return all(rest.call("GET", f"{topic.replace('://', '/')}/{what}") for topic in ends)


def _is_unlimited(rest: PulsarRest, group: str) -> bool:
    """Whether the brokers' own calculator has nothing to enforce any more."""
    quotas = rest.call("GET", f"resourcegroups/{group}")
    return quotas["publishRateInMsgs"] == quotas["publishRateInBytes"] == UNLIMITED


STOCK: Final = Contender("stock", "Stock Pulsar's calculator", _stock, False, STOCK_REPORTS)
REPORTS: Final = Contender(
    *("reports", "quotaplane, own reports only"),
    *(partial(_ours, observed=False), True, STOCK_REPORTS),
)
OBSERVED: Final = Contender(
    "observed", "quotaplane", partial(_ours, observed=True), True, OBSERVED_TOPIC
)
"""As conf/pulsar.yaml sets it up."""
CONTENDERS: Final = (STOCK, REPORTS, OBSERVED)


def _settings(
    cluster: PulsarCluster, stages: Sequence[Stage], folder: Path, *, observed: bool
) -> dict[str, object]:
    scenes = [stage.scene for stage in stages]
    tenants = {tenant_of(scene): scene.name for scene in scenes if scene.tenant}
    return {
        "transport": {
            "kind": "pulsar",
            "service_url": cluster.service_urls[0],
            "admin_url": cluster.admin_urls[0],
            "limits_topic": _LIMITS_TOPIC,
            "report_topics": [STOCK_REPORTS, *([OBSERVED_TOPIC] if observed else [])],
        },
        "cluster": {"poll_interval_s": 1.0, "tenants": tenants},
        "enforce": {"report_topic": OBSERVED_TOPIC} if observed else {},
        "reports": {"interval_s": float(REPORT_INTERVAL_S)},
        "history": {"path": str(folder / "history")},
        "checkpoint": str(folder / "checkpoint"),
        "shards": 1,
    }


def tenant_of(scene: Scenario) -> str:
    return f"tenant-of-{scene.name}" if scene.tenant else "public"
