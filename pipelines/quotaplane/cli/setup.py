"""``quotaplane setup``: makes what jobs need: Spark here, or topics and rights in a cluster."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from typing import TYPE_CHECKING, Final

from quotaplane.cli import spark_jobs
from quotaplane.cli.group_edits import WOULD_CHANGE
from quotaplane.errors import ConfigError
from quotaplane.settings import PulsarTransport, Settings, load_settings

if TYPE_CHECKING:
    from quotaplane.pulsar_admin.cluster_setup import Roles, Step

_EPILOG: Final = """\
Without CLUSTER it installs what `quotaplane run` needs into the virtual environment of quotaplane:
Spark with its connectors, and the tried version of each package in place of another, all with
known hashes (450 MB). Java is not among it.
"""
_OF_CLUSTER: Final = """\
Without --apply nothing is changed: stdout has the commands of pulsar-admin that do the same, each
below a comment. With --apply each line of stdout is something that was made. What nobody can make
from outside, such as lines of broker.conf, is a comment that begins with "by hand".

Exit code 0: nothing is missing (any more). 12: something is. A second run continues after a
failure, and makes nothing that is there. See docs/operate/pulsar.md.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--spark",
        metavar="VERSION",
        help="4.0 (the default), 4.1 or 4.2",
    )
    clusters = parser.add_subparsers(dest="cluster", metavar="CLUSTER")
    pulsar = clusters.add_parser(
        "pulsar", help="topics, retention and rights, over its REST API", epilog=_OF_CLUSTER
    )
    pulsar.add_argument(
        "--conf", metavar="FILE", required=True, help="the settings of all programs"
    )
    how = pulsar.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="print what is missing (the default)")
    how.add_argument("--apply", action="store_true", help="make what is missing")
    of_job = "the quota job's role, which gets its rights on the topics"
    pulsar.add_argument("--job-role", metavar="ROLE", help=of_job)
    pulsar.add_argument("--enforcer-role", metavar="ROLE", help="the enforcer's role, likewise")


def run(args: argparse.Namespace) -> int:
    """Become the set-up of Spark; with a cluster, print or make what is missing there.

    Raises:
        ConfigError: the settings are wrong.
        ClusterError: the cluster can't be reached, or refuses something.
    """
    if args.cluster is None:
        spark_jobs.start("setup", () if args.spark is None else ("--spark", args.spark))
    if args.spark is not None:
        raise ConfigError("--spark is for `quotaplane setup` without a cluster")
    from quotaplane.pulsar_admin.cluster_setup import Roles

    settings = load_settings(args.conf)
    transport = settings.transport
    if not isinstance(transport, PulsarTransport) or transport.admin_url is None:
        raise ConfigError("setup pulsar needs transport.kind: pulsar and transport.admin_url")
    roles = Roles(args.job_role, args.enforcer_role)
    complete = asyncio.run(_set_up(settings, transport, roles, apply=args.apply))
    return 0 if complete else WOULD_CHANGE


async def _set_up(
    settings: Settings, transport: PulsarTransport, roles: Roles, *, apply: bool
) -> bool:
    """Returns whether nothing is missing any more."""
    from quotaplane.pulsar_admin.cluster_setup import find_missing, make
    from quotaplane.pulsar_admin.rest import Rest

    async with Rest(transport) as rest:
        if apply:
            missing = await make(rest, settings, transport, roles, _say_made)
        else:
            missing = await find_missing(rest, settings, transport, roles)
    for step in missing.steps:
        print(f"# {step.what}\npulsar-admin {shlex.join(step.command)}")
    for line in missing.by_hand:
        print(f"# by hand: {line}")
    for line in missing.notes:
        print(f"# note: {line}")
    return not (missing.steps or missing.by_hand)


def _say_made(step: Step) -> None:
    print(f"made: {step.what}", flush=True)
