"""Runs the sync of a cluster's resource groups in a thread beside the quota job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence

from quotaplane.agents.background_task import BackgroundTask, background_task
from quotaplane.agents.conditions import Conditions, Say
from quotaplane.agents.known_conditions import GROUP_SYNC
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.group_sync.sync import GroupSync
from quotaplane.pulsar_admin.resource_groups import Runtime, read_runtime
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.settings import Cluster, PulsarTransport, Settings
from quotaplane.settings.transports import STOCK_REPORTS


@contextlib.contextmanager
def following(
    cluster: Cluster,
    settings: Settings,
    conditions: Conditions,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Iterator[None]:
    """Sync within this context: once before it begins, then every ``cluster.poll_interval_s``.

    ``conditions`` are of the program.

    Raises:
        ClusterError: the cluster can't be reached, or refuses us.
        HistoryError: the table can't be read or written.
    """

    async def main(task: BackgroundTask) -> None:
        transport = settings.transport
        assert isinstance(transport, PulsarTransport)
        async with Rest(transport, conditions=conditions) as rest:
            runtime = await read_runtime(rest)
            _check(runtime, settings, transport, conditions.say)
            group_sync = GroupSync(cluster, settings, f"pulsar:{runtime.cluster}", conditions)
            failures = await group_sync.sync(rest)
            _raise_at_start(failures)
            conditions.note(GROUP_SYNC, "", _summary(failures))
            task.started()
            while task.running:
                await sleep(cluster.poll_interval_s)
                conditions.note(GROUP_SYNC, "", _summary(await _sync_again(group_sync, rest)))

    with background_task("cluster", main):
        yield


async def _sync_again(group_sync: GroupSync, rest: Rest) -> Sequence[Exception]:
    try:
        return await group_sync.sync(rest)
    except Exception as error:
        # Any exception: a bug must be logged, and end neither the sync nor the job.
        return [error]


def _check(runtime: Runtime, settings: Settings, transport: PulsarTransport, say: Say) -> None:
    """Warn if the brokers' report interval differs from the settings: all usage would be wrong."""
    if STOCK_REPORTS not in transport.report_topics:
        return
    brokers_s, ours_s = runtime.report_interval_s, settings.reports.interval_s
    if brokers_s is None:
        say(
            f"cluster {runtime.cluster}: its brokers send no usage reports: set their "
            "resourceUsageTransportClassName (docs/operate/pulsar-groups.md)"
        )
    elif brokers_s != ours_s:
        say(
            f"cluster {runtime.cluster}: its brokers report every {brokers_s:g} s "
            "(resourceUsageTransportPublishIntervalInSecs), but reports.interval_s is "
            f"{ours_s:g}: all usage is computed as {brokers_s / ours_s:g} times the true one; make "
            "them equal"
        )


def _raise_at_start(failures: Sequence[QuotaplaneError]) -> None:
    """Raise the first failure that concerns more than a single group; the others are retried."""
    for error in failures:
        if not isinstance(error, RefusedError) or error.status in (401, 403):
            raise error


def _summary(failures: Sequence[Exception]) -> Exception | None:
    """The first failure of a sync, with the number of the others."""
    if len(failures) < 2:
        return next(iter(failures), None)
    return ClusterError(f"{failures[0]} (and {len(failures) - 1} more)")
