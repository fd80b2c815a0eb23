"""The knowledge that an enforcer must have before it acts, by its requests and their answers.

* **hidden too early**: a quota is set to unlimited in the cluster only once limits were published
  that follow it, after the table had it.
* **administrators' rates**: once an enforcer has read what somebody set on a topic by hand, the
  topic has no higher rate until somebody changes that by hand again.
* **known**: the rate that an enforcer counts as in force on a topic is the one in the cluster.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.simulation.process_loop import ProcessLoop
from tests.unit.enforce.enforce_cluster import administrators
from tests.unit.pulsar_admin.cluster_cases import Answer

if TYPE_CHECKING:
    from tests.simulation.enforcer_world import EnforcerWorld

_GROUP: Final = re.compile(r"/admin/v2/resourcegroups/([^/]+)")
_RATE: Final = re.compile(r"/admin/v2/persistent/(.+)/publishRate")
_QUOTA: Final = "publishRateInMsgs"
_PUBLISH: Final = 0


class EnforcerKnowledge:
    """See the module. It hears of each request when it is sent, arrives and is answered."""

    def __init__(self, world: EnforcerWorld) -> None:
        self.world = world
        self.published_ms: dict[tuple[str, float], int] = {}
        """By (group, quota): when limits that follow it were published last."""
        self._seen: dict[tuple[str, str], float] = {}
        """By (process, group): the quota that the process read last."""
        self._on_the_way: dict[str, int] = defaultdict(int)
        """By topic: requests to change its rate that have not arrived."""
        self._changed_ms: dict[str, int] = {}
        """By topic: when its rate was changed last."""
        self._knows_ms: dict[tuple[str, str], int] = {}
        """By (process, topic): its last answer from which it should know the rate."""

        self._by_hand: dict[str, int] = {}
        """By topic: the rate that somebody set by hand last."""
        self._seen_by_hand: set[str] = set()
        """Topics whose rate by hand an enforcer has read."""

    def set_by_hand(self, topic: str, rate: int | None) -> None:
        """Somebody sets a topic's rate by hand; None: removes what is there."""
        place = topic.removeprefix("persistent://")
        self._changed_ms[place] = self.world.timeline.now_ms
        self._by_hand.pop(place, None)
        self._seen_by_hand.discard(place)
        if rate is None:
            self.world.cluster.rates.pop((topic, "publishRate"), None)
        else:
            self.world.cluster.rates[topic, "publishRate"] = administrators(rate)
            self._by_hand[place] = rate

    # --- requests ---------------------------------------------------------------------------------

    def sent(self, loop: ProcessLoop, method: str, path: str, body: str) -> None:
        """An enforcer sends a request."""
        if method == "GET":
            return
        if rate := _RATE.fullmatch(path):
            self._on_the_way[rate[1]] += 1
        group = _GROUP.fullmatch(path)
        if group and group[1] in self.world.scenario.groups and self._hides(body):
            self._check_hidden(loop, group[1])

    @staticmethod
    def _hides(body: str) -> bool:
        return bool(json.loads(body).get(_QUOTA, 1) <= 0) if body else False

    def arrived(self, method: str, path: str) -> None:
        """A request arrived at the cluster."""
        if method != "GET" and (rate := _RATE.fullmatch(path)):
            self._on_the_way[rate[1]] -= 1
            self._changed_ms[rate[1]] = self.world.timeline.now_ms

    def answered(self, loop: ProcessLoop, method: str, path: str, answer: Answer) -> None:
        """A process gets an answer."""
        succeeded = answer.status < 300
        if rate := _RATE.fullmatch(path):
            if succeeded or method != "GET":
                self._knows_ms[loop.name, rate[1]] = self.world.timeline.now_ms
            by_hand = self._by_hand.get(rate[1])
            if by_hand is not None and answer.body == administrators(by_hand):
                self._seen_by_hand.add(rate[1])
        elif method == "GET" and succeeded and (group := _GROUP.fullmatch(path)):
            assert isinstance(answer.body, dict)
            quota = float(answer.body.get(_QUOTA, -1))
            if quota > 0:
                self._seen[loop.name, group[1]] = quota

    # --- what is checked --------------------------------------------------------------------------

    def _check_hidden(self, loop: ProcessLoop, group: str) -> None:
        quota = self._seen.get((loop.name, group))
        if quota is None:
            return
        since_ms = self.world.table.quota_since_ms.get((group, quota))
        published_ms = self.published_ms.get((group, quota), -1)
        if since_ms is None or published_ms < since_ms:
            self.world.invariants.fail(
                f"hidden too early: {loop.name} sets {group} to unlimited, and no limits follow "
                f"its quota {quota:g}"
            )

    def check_by_hand(self) -> None:
        """Look at the topics whose rate by hand an enforcer has read."""
        for place in sorted(self._seen_by_hand):
            most = self._by_hand[place]
            rate = self.world.cluster.rate_of(f"persistent://{place}")
            if rate is None or rate > most:
                self.world.invariants.fail(
                    f"administrators' rates: {place} has {rate}, and somebody set {most} by hand"
                )

    def check_rates(self) -> None:
        """Compare the rates that the leading enforcer counts as in force with the cluster's."""
        for process in self.world.enforcers:
            if process is None or not process.parts.leads():
                continue
            topic_rates = process.parts.topic_rates
            for at, topic in enumerate(topic_rates.layout.topics):
                place = topic.removeprefix("persistent://")
                knows_ms = self._knows_ms.get((process.loop.name, place), -1)
                if (
                    not self._on_the_way[place]
                    and knows_ms > self._changed_ms.get(place, -1)
                    and topic_rates.is_known(at, _PUBLISH)
                    and not topic_rates._uncertain[at, _PUBLISH]
                ):
                    self._check_rate(process.name, topic, float(topic_rates.in_force[at, 0]))

    def _check_rate(self, name: str, topic: str, counted: float) -> None:
        rate = self.world.cluster.own_rate_of(topic)
        actual = np.inf if rate is None else rate
        if np.ceil(counted) != actual:
            self.world.invariants.fail(
                f"known: {name} counts {counted:g} as in force on {topic}, and it is {actual:g}"
            )
