"""A group sync of the fake cluster: what it reads, writes and reports."""

from __future__ import annotations

from collections.abc import Callable

from quotaplane.agents.conditions import Conditions
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.group_sync.sync import GroupSync
from quotaplane.history.store import open_table
from quotaplane.registry.table import list_groups
from quotaplane.settings import Cluster, Enforce, History, Settings
from tests.histories import make_history
from tests.unit.pulsar_admin.cluster_cases import FakeCluster
from tests.unit.registry.groups_cases import rates
from tests.virtual_loop import run_virtually

BY = "pulsar:blue"


class Rig:
    """A group sync of the fake cluster; ``told`` has the lines for the administrator."""

    def __init__(self, cluster: FakeCluster, history: History) -> None:
        self.cluster = cluster
        self.history = history
        self.take_over = True
        self.tenants: dict[str, str] = {}
        self.poll_interval_s = 2.0
        self.told: list[str] = []
        make_history(history)

    def conditions(self) -> Conditions:
        """Conditions that print into ``told``, at one moment."""
        return Conditions(self.told.append, clock=lambda: 0.0)

    @property
    def settings(self) -> Settings:
        return Settings(
            transport=self.cluster.transport(),
            history=self.history,
            checkpoint="unused",
            cluster=Cluster(tenants=self.tenants, poll_interval_s=self.poll_interval_s),
            enforce=Enforce(take_over=self.take_over),
        )

    def follower(self) -> Callable[..., list[QuotaplaneError]]:
        """One sync, which remembers; a call polls so many times and returns the failures."""
        settings = self.settings
        assert settings.cluster is not None
        group_sync = GroupSync(settings.cluster, settings, BY, self.conditions())

        async def once() -> list[QuotaplaneError]:
            async with self.cluster.rest() as rest:
                try:
                    return await group_sync.sync(rest)
                except ClusterError as error:
                    return [error]

        def poll(times: int = 1) -> list[QuotaplaneError]:
            return [error for _ in range(times) for error in run_virtually(once())]

        return poll

    def run(self, *before: Callable[[], object]) -> list[list[QuotaplaneError]]:
        """Call each of ``before`` and poll after it; returns each poll's failures."""
        poll, failures = self.follower(), []
        for prepare in before:
            prepare()
            failures.append(poll())
        return failures

    def sync(self, *before: Callable[[], object]) -> None:
        """Like ``run``, but nothing may fail."""
        assert self.run(*(before or (lambda: None,))) == [[]] * max(1, len(before))

    def table(self) -> dict[str, list[float | None]]:
        return {row["group"]: rates(row)[:4] for row in list_groups(self.history).to_pylist()}

    def version(self) -> int:
        return int(open_table(self.history, "resource_groups").version())


def hide(rig: Rig, *groups: str) -> None:
    """Take over groups as the enforcer does: a copy of the quota, then -1."""
    for group in groups:
        rig.cluster.put(f"{group}.taken-over", **rig.cluster.groups.get(group, {}))
        rig.cluster.put(group, publishRateInMsgs=-1, publishRateInBytes=-1)
