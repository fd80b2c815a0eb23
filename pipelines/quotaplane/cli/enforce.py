"""``quotaplane enforce``: runs the enforcer, which makes stock brokers obey the job's limits."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, ClassVar, Final

from quotaplane.cli.agent_process import print_line, print_status, stop_at_signal
from quotaplane.errors import ConfigError
from quotaplane.settings import PulsarTransport, Settings, load_settings
from quotaplane.terminal import warn

_TIMEOUT_S: Final = 10.0

_EPILOG: Final = """\
Runs beside the quota job until SIGTERM or Ctrl-C, and prints its status every 10 s as a line of
JSON. The setting enforce.on_exit decides what it leaves behind: the rates as they are (keep), each
broker's safe limit (safe), or no rates (remove). A second signal ends it at once, as with keep.

--dry-run reads everything and writes nothing: it prints the requests that it would make, a JSON
object per line, and ends. See docs/enforcer.md.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    clusters = parser.add_subparsers(dest="cluster", metavar="CLUSTER", required=True)
    pulsar = clusters.add_parser("pulsar", help="stock Pulsar: rates of topics, over its REST API")
    pulsar.add_argument("--conf", metavar="FILE", required=True, help="the quota job's settings")
    pulsar.add_argument("--dry-run", action="store_true", help="print what would be written")


def run(args: argparse.Namespace) -> int:
    """Enforce until a signal comes.

    Raises:
        ConfigError: the settings are wrong.
        ClusterError: the cluster can't be reached, or refuses us.
        TransportError: the limits can't be read.
    """
    settings = load_settings(args.conf)
    transport = settings.transport
    if not isinstance(transport, PulsarTransport) or transport.admin_url is None:
        raise ConfigError("enforce pulsar needs transport.kind: pulsar and transport.admin_url")
    asyncio.run(_enforce(settings, transport, dry=args.dry_run))
    return 0


async def _enforce(settings: Settings, transport: PulsarTransport, *, dry: bool) -> None:
    from quotaplane.enforce.agent.enforcer import Enforcer
    from quotaplane.pulsar_admin.rest import Rest
    from quotaplane.transport import open_broker_link

    timeout_s = settings.cluster.request_timeout_s if settings.cluster else _TIMEOUT_S
    stop = stop_at_signal()

    class DryRest(Rest):
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

    client = DryRest if dry else Rest
    async with client(
        transport, timeout_s=timeout_s, concurrency=settings.enforce.concurrency
    ) as rest:
        link = await asyncio.to_thread(open_broker_link, transport, limits_from="earliest")
        try:
            enforcer = Enforcer(settings, rest, link, warn)
            await enforcer.start()
            if dry:
                await enforcer.run_dry(stop)
                return
            status_lines = asyncio.create_task(print_status(enforcer.status))
            await enforcer.run(stop)
            status_lines.cancel()
            print_line(enforcer.status(), stamped=True)
        finally:
            await asyncio.to_thread(link.close)
