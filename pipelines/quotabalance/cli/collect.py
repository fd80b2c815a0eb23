"""``quotaplane balance collect``: publishes the load of a Pulsar cluster's brokers."""

from __future__ import annotations

import argparse
import asyncio

from quotabalance.settings import BalanceSettings, load_balance_settings, pulsar_cluster
from quotaplane.agents.conditions import Conditions
from quotaplane.cli.agent_process import print_line, print_status, stop_at_signal
from quotaplane.console.terminal import warn
from quotaplane.parsing.strict_yaml import write_yaml
from quotaplane.settings import PulsarTransport

_EPILOG = """\
Runs until SIGTERM or Ctrl-C, and prints its status every 10 s as a line of JSON. --once reads and
publishes each broker once, prints what it published, and ends. --policies prints the cluster's
isolation policies, anti-affinity groups and failure domains as the setting balance.policies, and
publishes nothing.
See docs/operate/balance-executor.md.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("--conf", metavar="FILE", required=True, help="the balance job's settings")
    parser.add_argument("--once", action="store_true", help="one round only")
    parser.add_argument("--policies", action="store_true", help="print the cluster's policies")


def run(args: argparse.Namespace) -> int:
    """Collect until a signal comes.

    Raises:
        ConfigError: the settings are wrong.
        ClusterError: the cluster can't be reached, or refuses us.
        TransportError: the topics can't be reached.
    """
    settings = load_balance_settings(args.conf)
    transport = pulsar_cluster(settings.transport)
    if args.policies:
        return asyncio.run(_print_policies(transport))
    return asyncio.run(_collect(settings, transport, once=args.once))


async def _print_policies(transport: PulsarTransport) -> int:
    from quotabalance.agent.cluster_view import read_policies
    from quotaplane.pulsar_admin.resource_groups import read_runtime
    from quotaplane.pulsar_admin.rest import Rest

    async with Rest(transport) as rest:
        policies = await read_policies(rest, (await read_runtime(rest)).cluster)
    print(write_yaml({"balance": {"policies": policies}}), end="")
    return 0


async def _collect(settings: BalanceSettings, transport: PulsarTransport, *, once: bool) -> int:
    from quotabalance.agent.collector import AT_ONCE, Collector
    from quotaplane.pulsar_admin.rest import Rest
    from quotaplane.transport import open_broker_link
    from quotaplane.transport.base import Topics

    collect = settings.balance.collect
    stop = stop_at_signal()
    topics = Topics(settings.balance.loads_topic, settings.balance.plans_topic)
    async with Rest(transport, concurrency=AT_ONCE, conditions=Conditions(warn)) as rest:
        link = await asyncio.to_thread(open_broker_link, transport, topics=topics)
        try:
            collector = Collector(collect, rest, link)
            await collector.start()
            if once:
                for load in await collector.collect():
                    print_line(
                        {
                            "broker": load.broker,
                            "measured_at_ms": load.measured_at_ms,
                            "bundles": len(load.bundles),
                            "bytes_per_s": round(float(load.rates[:, :2].sum()), 1),
                        }
                    )
                return 0 if not collector.status()["failures"] else 6
            lines = asyncio.create_task(print_status(collector.status))
            await collector.run(stop)
            lines.cancel()
            print_line(collector.status(), stamped=True)
        finally:
            await asyncio.to_thread(link.close)
    return 0
