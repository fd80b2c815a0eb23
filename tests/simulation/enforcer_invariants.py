"""Conditions on the cluster that an enforcer limits, read from outside.

* **no quota opened**: each group has its quota in the cluster, or a rate limits each of its topics.
* **one writer**: once an enforcer that got the lead later has written, no earlier one writes.
* **within** (some time after the last fault): what a group's topics use under their rates is within
  the quota, but for what docs/explain/enforcer.md allows them to grow by.
* **a number or a copy**: at any time the cluster has each group's quota, or a copy of it.
* **no quota lost** (at the end): the table has every quota, and so has the cluster or its copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from tests.simulation.invariants import ViolationError
from tests.simulation.process_loop import ProcessLoop

if TYPE_CHECKING:
    from tests.simulation.enforcer_world import EnforcerWorld

_CALM_MS: Final = 40_000
"""Without faults for so long, rates are settled."""
_AT_REST: Final = 1.1


class EnforcerInvariants:
    """See the module."""

    def __init__(self, world: EnforcerWorld) -> None:
        self.world = world
        self._quotas: dict[str, float] = {}
        """Quota that somebody set last, by group."""
        self._newest_writer = 0

    def fail(self, text: str) -> NoReturn:
        """Report a violation.

        Raises:
            ViolationError: always.
        """
        # An enforcer logs whatever happens in its own tasks, and goes on.
        error = self.world.machines.failure = ViolationError(text)
        raise error

    def quota_set(self, group: str, quota: float) -> None:
        """Somebody set a group's quota in the cluster."""
        self._quotas[group] = quota

    def wrote(self, loop: ProcessLoop, method: str, path: str) -> None:
        """A process sends a request that changes something."""
        if self.world.job is loop:
            return
        process = next(each for each in self.world.enforcers if each and each.loop is loop)
        if process.seat.tenure < self._newest_writer:
            self.fail(
                f"one writer: {process.name} sends {method} {path}, and another one that got the "
                "lead later has written"
            )
        self._newest_writer = process.seat.tenure

    def check_open(self) -> None:
        """Look at every group that has no quota in the cluster."""
        cluster = self.world.cluster
        for group in self.world.scenario.groups:
            if cluster.quota_of(group) is not None:
                continue
            if cluster.quota_of(f"{group}.taken-over") is None:
                self.fail(f"a number or a copy: {group} has neither")
            rates = self._rates(group)
            free = [topic for topic, rate in rates.items() if rate is None]
            if free:
                self.fail(f"no quota opened: {group} has none, and nothing limits {free}")
            self._check_within(group, rates)

    def _check_within(self, group: str, rates: dict[str, float | None]) -> None:
        ended_ms = self.world.faults.ended_ms
        if ended_ms is None or self.world.timeline.now_ms < ended_ms + _CALM_MS:
            return
        quota, total = self._quotas[group], sum(map(self.world.cluster.use_of, rates))
        # The lowest rate of a topic is 1, and rates are whole numbers.
        if total > quota * _AT_REST + len(rates):
            self.fail(f"within: topics of {group} use {total:g} of {quota:g}: {rates}")

    def _rates(self, group: str) -> dict[str, float | None]:
        cluster = self.world.cluster
        return {t: cluster.rate_of(t) for t in cluster.topics_of(self.world.namespaces[group])}

    def check_end(self) -> None:
        """Long after the last fault.

        Raises:
            ViolationError: a quota is lost, or rates exceed one.
        """
        self.check_open()
        cluster, world = self.world.cluster, self.world
        leaders = [e for e in world.enforcers if e is not None and e.parts.leads()]
        if len(leaders) != 1:
            self.fail(f"one writer: {len(leaders)} enforcers lead")
        for group in world.scenario.groups:
            quota = self._quotas[group]
            row = world.table.rows.get(group, {})
            if row.get("publish_messages_per_s") != quota:
                self.fail(f"no quota lost: {group} has {quota:g}, and the table's row is {row}")
            if cluster.quota_of(group) is not None:
                if cluster.quota_of(group) != quota:
                    self.fail(f"no quota lost: {group}: {quota:g}, not {cluster.groups[group]}")
                continue
            if cluster.quota_of(f"{group}.taken-over") != quota:
                self.fail(f"no quota lost: {group}: {quota:g}, its copy differs: {cluster.groups}")
