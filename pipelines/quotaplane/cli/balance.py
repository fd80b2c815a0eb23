"""``quotaplane balance``: mounts collect and execute."""

from __future__ import annotations

import argparse

from quotaplane.cli import balance_collect, balance_execute


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    commands = parser.add_subparsers(dest="work", metavar="WORK", required=True)
    for name, module, text in (
        ("collect", balance_collect, "publish the load of a Pulsar cluster's brokers"),
        ("execute", balance_execute, "show or execute the balancer's plans"),
    ):
        module.configure(commands.add_parser(name, help=text, description=f"{text.capitalize()}."))


def run(args: argparse.Namespace) -> int:
    """Run the chosen subcommand."""
    if args.work == "collect":
        return balance_collect.run(args)
    return balance_execute.run(args)
