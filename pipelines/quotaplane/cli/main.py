"""The command ``quotaplane``: starts no JVM, and imports only the chosen subcommand.

A subcommand is a module with these functions:

- ``configure(parser)`` adds its arguments to an ``argparse.ArgumentParser``;
- if it has one, ``add_options(parser, words)`` adds those that depend on the command's words;
- ``run(args) -> int`` does the work, prints its answer to stdout and returns the exit code.

It is registered in ``COMMANDS`` with its help line, so that ``--help`` lists everything without
importing anything. A ``QuotaplaneError`` is printed as one line on stderr, and its exit code is
returned. So is an error of stdout, unless the reader of a pipe has left: that ends a command
quietly.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Final, cast

from quotaplane import __version__
from quotaplane.cli.command_output import command_output, discard_unwritten
from quotaplane.errors import OutputError, QuotaplaneError
from quotaplane.option_parser import OptionParser
from quotaplane.terminal import one_line, print_to_stderr

COMMANDS: Final = {
    "allocate": ("quotaplane.cli.allocate", "divide one quota among brokers as a law would"),
    "simulate": ("quotaplane.cli.simulate", "run the control loop on a scenario, round by round"),
    "throttle": ("quotaplane.cli.throttle", "answer requests as a throttle law would"),
    "groups": ("quotaplane.cli.groups", "put, get, list, delete and restore resource groups"),
    "audit": ("quotaplane.cli.audit", "ask a question of the history: limits exceeded, ..."),
    "replay": (
        "quotaplane.cli.quota_replay",
        "run recorded rounds of the quota job again, exactly or with other quotas",
    ),
    "upgrade": ("quotaplane.cli.upgrade", "upgrade the tables of an earlier version's history"),
    "doctor": ("quotaplane.cli.doctor", "check tables and checkpoints on disk, and mend tables"),
    "balance": ("quotaplane.cli.balance", "decide which bundles leave which broker, and why"),
    "balance collect": ("quotaplane.cli.balance_collect", "publish the load of Pulsar's brokers"),
    "balance execute": ("quotaplane.cli.balance_execute", "show or execute the balancer's plans"),
    "balance replay": (
        "quotaplane.cli.balance_replay",
        "decide the balancer's recorded rounds again, and compare",
    ),
    "balance what-if": (
        "quotaplane.cli.balance_what_if",
        "show what another strategy would have done with the recorded load",
    ),
    "serve": ("quotaplane.cli.serve", "serve groups and their history over HTTP"),
    "enforce": ("quotaplane.cli.enforce", "make a cluster of stock brokers obey the limits"),
}
"""Subcommand: (module, help line). A name may have two words."""

_INTERRUPTED: Final = 130
_BROKEN_PIPE: Final = 141


def build_parser(chosen: str | None = None, words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of the whole command; only the chosen subcommand gets its arguments.

    ``words`` are those of the command line behind the subcommand.
    """
    parser = OptionParser(
        prog="quotaplane",
        description="One global quota, shared fairly among many brokers.",
        epilog="The Spark jobs are started by ./spark-submit.sh JOB.",
    )
    parser.add_argument("--version", action="version", version=f"quotaplane {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, text) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=text, description=f"{text.capitalize()}.")
        if name == chosen:
            command = importlib.import_module(module)
            command.configure(subparser)
            if hasattr(command, "add_options"):
                command.add_options(subparser, words)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, one of those in docs/runbook.md."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if " ".join(arguments[:2]) in COMMANDS:
        arguments[:2] = [" ".join(arguments[:2])]
    code = _run(arguments)
    if sys.stderr is not None:
        discard_unwritten(sys.stderr)
    return code


def _run(arguments: Sequence[str]) -> int:
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    try:
        with command_output():
            words = arguments[arguments.index(chosen) + 1 :] if chosen else ()
            args = build_parser(chosen, words).parse_args(arguments)
            return cast(int, importlib.import_module(COMMANDS[args.command][0]).run(args))
    except QuotaplaneError as error:
        if isinstance(error, OutputError) and isinstance(error.__cause__, BrokenPipeError):
            return _BROKEN_PIPE
        print_to_stderr(f"quotaplane: error: {one_line(str(error))}")
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as finished:  # --help and --version
        return finished.code if isinstance(finished.code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
