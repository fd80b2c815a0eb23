"""``quotaplane enforce``: runs the enforcer, which makes stock brokers obey the job's limits."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from typing import Any, ClassVar, Final

from quotaplane.agents.clock_steps import steady_clock_ms
from quotaplane.agents.conditions import Conditions
from quotaplane.cli.agent_process import LatestReadings, print_line, print_status, stop_at_signal
from quotaplane.console.terminal import warn
from quotaplane.errors import ClusterError, ConfigError
from quotaplane.settings import MetricsPorts, PulsarTransport, Settings, load_settings

_EPILOG: Final = """\
Runs beside the quota job until SIGTERM or Ctrl-C, and prints its status every 10 s as a line of
JSON. The setting enforce.on_exit decides what it leaves behind: the rates as they are (keep), each
broker's safe limit (safe), or no rates (remove). A second signal ends it at once, as with keep.

--dry-run reads everything and writes nothing: it prints the requests that it would make, a JSON
object per line, and ends.

--remove gives everything back to the cluster and ends: publish quotas, then rates of namespaces and
topics, in whose place administrators' rates are in force again. It prints what it did as a line of
JSON, and ends with exit code 6 if something is left. Stop all enforcers first. See
docs/explain/enforcer.md.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG
    clusters = parser.add_subparsers(dest="cluster", metavar="CLUSTER", required=True)
    pulsar = clusters.add_parser("pulsar", help="stock Pulsar: rates of topics, over its REST API")
    pulsar.add_argument("--conf", metavar="FILE", required=True, help="the quota job's settings")
    once = pulsar.add_mutually_exclusive_group()
    once.add_argument("--dry-run", action="store_true", help="print what would be written")
    once.add_argument("--remove", action="store_true", help="give everything back, and end")


def run(args: argparse.Namespace) -> int:
    """Enforce until a signal comes.

    Raises:
        ConfigError: the settings are wrong.
        ClusterError: the cluster can't be reached, or refuses us; with --remove: something is left.
        HistoryError: with --remove: the record of administrators' rates can't be read.
        TransportError: the limits can't be read.
    """
    settings = load_settings(args.conf)
    transport = settings.transport
    if not isinstance(transport, PulsarTransport) or transport.admin_url is None:
        raise ConfigError("enforce pulsar needs transport.kind: pulsar and transport.admin_url")
    latest = LatestReadings()
    once = args.dry_run or args.remove
    with nullcontext() if once else _exposed(settings.metrics, latest):
        asyncio.run(_enforce(settings, transport, latest, args))
    return 0


def _exposed(metrics: MetricsPorts, latest: LatestReadings) -> AbstractContextManager[object]:
    """A context in which Prometheus can read the metrics, if the settings have a port."""
    port = metrics.enforcer_port
    if port is None:
        return nullcontext()
    from quotaplane.metrics.exposition import endpoint, registry_of  # needs prometheus-client

    registry = registry_of("enforcer", latest)
    return endpoint(registry, metrics.host, port, "metrics.enforcer_port")


async def _enforce(
    settings: Settings, transport: PulsarTransport, latest: LatestReadings, args: argparse.Namespace
) -> None:
    from quotaplane.enforce.agent.clean_stop import give_back
    from quotaplane.enforce.agent.enforcer import Enforcer
    from quotaplane.enforce.agent.enforcer_parts import EnforcerParts
    from quotaplane.enforce.agent.leader_election import LeaderRest, take_part
    from quotaplane.enforce.agent.muted_connections import probes_of
    from quotaplane.enforce.agent.usage_publisher import usage_outbox
    from quotaplane.transport import open_broker_link

    stop, enforce = stop_at_signal(), settings.enforce

    class DryRest(LeaderRest):
        """Prints each request that would change something, once, instead of making it."""

        printed: ClassVar[set[str]] = set()

        async def ask(
            self, method: str, path: str, body: object = None, *, timeout_s: float | None = None
        ) -> Any:
            if method == "GET":
                return await super().ask(method, path, body, timeout_s=timeout_s)
            if path not in self.printed:
                self.printed.add(path)
                print_line({"method": method, "path": path, "body": body})
            return None

    client, wrong = DryRest if args.dry_run else LeaderRest, Conditions(warn)
    async with AsyncExitStack() as ends:

        def closes(closable: Any) -> None:
            ends.push_async_callback(asyncio.to_thread, closable.close)

        rest = await ends.enter_async_context(
            client(transport, concurrency=enforce.concurrency, conditions=wrong)
        )
        link = await asyncio.to_thread(open_broker_link, transport, limits_from="earliest")
        closes(link)
        if args.dry_run:
            parts = EnforcerParts(settings, rest, link, warn)
            await parts.start()
            await Enforcer(parts).run_dry(stop)
            return
        outbox = None if args.remove else await asyncio.to_thread(usage_outbox, settings)
        if outbox is not None:
            closes(outbox)
        election = await take_part(rest, transport, transport.full_name(enforce.leader_topic), warn)
        ends.push_async_callback(election.leave)
        parts = EnforcerParts(
            *(settings, rest, link, warn, election),
            open_probe=probes_of(transport),
            steady_ms=steady_clock_ms(),
            outbox=outbox,
        )
        await parts.start()
        if args.remove:
            done = await give_back(parts)
            print_line(done._asdict())
            if done.left:
                raise ClusterError(
                    f"--remove: {done.left} rates and quotas are left in the cluster; run it again"
                )
            return
        enforcer = Enforcer(parts)
        status_lines = asyncio.create_task(print_status(lambda: enforcer.status()._asdict()))
        following = asyncio.create_task(latest.follow(enforcer.readings))
        await enforcer.run(stop)
        status_lines.cancel()
        following.cancel()
        print_line(enforcer.status()._asdict(), stamped=True)
