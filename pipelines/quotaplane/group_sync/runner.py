"""The thread that follows a cluster's groups beside the quota job."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Final

from quotaplane.agents.failures import FailureLog
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.group_sync.sync import GroupSync, Say
from quotaplane.pulsar_admin.resource_groups import Runtime, read_runtime
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.settings import Cluster, PulsarTransport, Settings
from quotaplane.settings.transports import STOCK_REPORTS
from quotaplane.terminal import warn

_PATIENCE_S: Final = 5.0
_PART: Final = "resource group sync"


@contextlib.contextmanager
def following(
    cluster: Cluster,
    settings: Settings,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    say: Say = warn,
) -> Iterator[None]:
    """Within this the table follows the cluster; at its beginning it is as the cluster is.

    Raises:
        ClusterError: the cluster can't be reached, or does not let us in.
        HistoryError: the table can't be read or written.
    """
    begun: Future[Callable[[], None]] = Future()
    ended = threading.Event()

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        end = _calling(asyncio.get_running_loop(), task)
        transport = settings.transport
        assert isinstance(transport, PulsarTransport)
        async with Rest(transport, timeout_s=cluster.request_timeout_s) as rest:
            runtime = await read_runtime(rest)
            _check(runtime, settings, transport, say)
            follower = GroupSync(cluster, settings, f"pulsar:{runtime.cluster}", say)
            log = FailureLog(say)
            failures = await follower.sync(rest)
            _refuse(failures)
            log.note(_PART, "", _first_of(failures))
            begun.set_result(end)
            # Python before 3.12 may lose a cancellation that comes with an answer.
            while not ended.is_set():
                await sleep(cluster.poll_interval_s)
                log.note(_PART, "", _first_of(await _tried(follower, rest)))

    def run() -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(main())
        except BaseException as error:  # for who waits for it
            begun.set_exception(error)

    thread = threading.Thread(target=run, name="cluster", daemon=True)
    thread.start()
    end = begun.result()
    try:
        yield
    finally:
        ended.set()
        end()
        thread.join(_PATIENCE_S)


def _calling(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> Callable[[], None]:
    def end() -> None:
        loop.call_soon_threadsafe(task.cancel)

    return end


async def _tried(follower: GroupSync, rest: Rest) -> Sequence[Exception]:
    try:
        return await follower.sync(rest)
    except Exception as error:
        # A mistake of ours must not end the following unseen, nor the job.
        return [error]


def _check(runtime: Runtime, settings: Settings, transport: PulsarTransport, say: Say) -> None:
    """What makes all figures wrong, and can be seen at the start."""
    if STOCK_REPORTS not in transport.report_topics:
        return
    told_s, ours_s = runtime.report_interval_s, settings.reports.interval_s
    if told_s is None:
        say(
            f"cluster {runtime.cluster}: its brokers send no usage reports: set their "
            "resourceUsageTransportClassName (docs/pulsar.md)"
        )
    elif told_s != ours_s:
        say(
            f"cluster {runtime.cluster}: its brokers report every {told_s:g} s "
            "(resourceUsageTransportPublishIntervalInSecs), and reports.interval_s is "
            f"{ours_s:g}: all usage comes out {told_s / ours_s:g} times what it is; make them equal"
        )


def _refuse(failures: Sequence[QuotaplaneError]) -> None:
    """At the start somebody is looking: only what a single thing is refused for can wait."""
    for error in failures:
        if not isinstance(error, RefusedError) or error.status in (401, 403):
            raise error


def _first_of(failures: Sequence[Exception]) -> Exception | None:
    """What is told of the failures of a sync."""
    if len(failures) < 2:
        return next(iter(failures), None)
    return ClusterError(f"{failures[0]} (and {len(failures) - 1} more)")
