"""``quotaplane setup``: makes the topics that the settings need, with their policies and rights."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from typing import Final

from quotaplane.cli.group_edits import WOULD_CHANGE
from quotaplane.errors import ConfigError
from quotaplane.pulsar_admin.cluster_setup import Roles, Step, find_missing, make
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.settings import PulsarTransport, Settings, load_settings

_EPILOG: Final = """\
Without --apply nothing is changed: stdout has the commands of pulsar-admin that do the same, each
below a comment. With --apply each line of stdout is something that was made. What nobody can make
from outside, such as lines of broker.conf, is a comment that begins with "by hand".

Exit code 0: nothing is missing (any more). 12: something is. A second run continues after a
failure, and makes nothing that is there. See docs/operate/pulsar.md.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG
    clusters = parser.add_subparsers(dest="cluster", metavar="CLUSTER", required=True)
    pulsar = clusters.add_parser("pulsar", help="topics, retention and rights, over its REST API")
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
    """Print or make what is missing.

    Raises:
        ConfigError: the settings are wrong.
        ClusterError: the cluster can't be reached, or refuses something.
    """
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
