"""The command ``quotaplane``: imports only the chosen subcommand, and starts no JVM for most.

A subcommand is a module with these functions:

- ``configure(parser)`` adds its arguments to an ``argparse.ArgumentParser``;
- if it has one, ``add_options(parser, words)`` adds those that depend on the command's words;
- ``run(args) -> int`` does the work, prints its answer to stdout and returns the exit code.

It is registered in ``COMMANDS`` with its help line, and in ``PURPOSES``, so that ``--help`` lists
everything without importing anything. ``run``, ``demo`` and ``reshard`` become a Spark job, which
has all words after them. A ``QuotaplaneError`` is printed as one line on stderr, and its exit code
is returned. So is an error of stdout, unless the reader of a pipe has left: that ends a command
quietly.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final, cast

from quotaplane import __version__
from quotaplane.cli import spark_jobs
from quotaplane.console.command_output import (
    discard_unwritten,
    exit_code_of,
    without_library_output,
)
from quotaplane.console.option_parser import OptionParser
from quotaplane.console.terminal import print_to_stderr
from quotaplane.errors import ConfigError
from quotaplane.extensions import extensions
from quotaplane.files import set_umask

COMMANDS: Final = {
    "allocate": ("quotaplane.cli.allocate", "divide one quota among brokers as a law would"),
    "simulate": ("quotaplane.cli.simulate", "run the control loop on a scenario, round by round"),
    "throttle": ("quotaplane.cli.throttle", "answer requests as a throttle law would"),
    "dry-run": ("quotaplane.cli.dry_run", "apply quotas to recorded requests"),
    "groups": ("quotaplane.cli.groups", "put, list, apply and restore resource groups"),
    "audit": ("quotaplane.cli.audit", "ask a question of the history: limits exceeded, ..."),
    "status": ("quotaplane.cli.show_status", "show how job, groups and brokers stand"),
    "limits": ("quotaplane.cli.show_limits", "show the limits in force, with their reasons"),
    "brokers": ("quotaplane.cli.show_brokers", "show the brokers, and whether they report"),
    "why": ("quotaplane.cli.show_why", "explain a group's limits, now or at any time"),
    "replay": (
        "quotaplane.cli.quota_replay",
        "run recorded rounds of the quota job again, exactly or with other quotas",
    ),
    "doctor": ("quotaplane.cli.doctor", "check tables and checkpoints on disk, and mend tables"),
    "demo": ("quotaplane.cli.spark_jobs", "the quota job on a simulated cluster, for two minutes"),
    "run": ("quotaplane.cli.spark_jobs", "run a Spark job: quota, balance, ..."),
    "setup": (
        "quotaplane.cli.setup",
        "install Spark for jobs; or make the topics of a cluster, with rights",
    ),
    "up": ("quotaplane.cli.up", "run quota job, enforcer and server of one settings file"),
    "reshard": ("quotaplane.cli.spark_jobs", "give the quota job's state another number of shards"),
    "maintain": ("quotaplane.cli.maintain", "expire, compact and vacuum the history"),
    "serve": ("quotaplane.cli.serve", "serve groups and their history over HTTP"),
    "enforce": ("quotaplane.cli.enforce", "make a cluster of stock brokers obey the limits"),
    **{name: command for each in extensions() for name, command in each.commands.items()},
}
"""Subcommand: (module, help line). A name may have two words."""

PURPOSES: Final = {
    "start": ("demo", "setup", "up", "run", "serve", "enforce"),
    "quotas": ("groups",),
    "how things stand": ("status", "limits", "brokers", "why", "audit"),
    **{each.purpose: tuple(each.commands) for each in extensions()},
    "trying things": ("allocate", "simulate", "throttle", "dry-run", "replay"),
    "upkeep": ("doctor", "maintain", "reshard"),
}
"""The subcommands as ``--help`` groups them."""

_AT_ONCE: Final = {*PURPOSES["quotas"], *PURPOSES["how things stand"]}
"""Commands that answer in half a second, so they avoid packages that take long to import."""

_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
"""For them: numpy starts no threads for matrices, which nothing here has, and pydantic looks for no
plugins in all installed packages."""

_WITH_A_LOG: Final = {"enforce", "serve", "setup", "up"}.union(
    *(e.long_running for e in extensions())
)
"""Their stderr is a log, in which libraries and other programs may write, too."""

_BECOMES_A_JOB: Final = ("run", "demo", "reshard")


class _Hidden(MetaPathFinder):
    """Hides pandas from pyarrow, which imports it: 0.3 of 1.3 s of processor time of ``status``."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("this command does without pandas", name=name)
        return None


def hide_pandas() -> None:
    """Let this process do without pandas, unless it is imported already."""
    sys.meta_path.insert(0, _Hidden())


def build_parser(chosen: str | None = None, words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of the whole command; it knows only the chosen subcommand.

    ``words`` are those of the command line behind the subcommand.
    """
    parser = OptionParser(
        prog="quotaplane",
        usage="quotaplane COMMAND ...",
        description="One global quota, shared fairly among many brokers.",
        epilog=_commands_by_purpose(),
    )
    parser.add_argument("--version", action="version", version=f"quotaplane {__version__}")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog="quotaplane", help=argparse.SUPPRESS
    )
    if chosen is not None:
        module, text = COMMANDS[chosen]
        subparser = subparsers.add_parser(chosen, description=f"{text[0].upper()}{text[1:]}.")
        if chosen not in _BECOMES_A_JOB:
            command = importlib.import_module(module)
            command.configure(subparser)
            if hasattr(command, "add_options"):
                command.add_options(subparser, words)
    return parser


def _commands_by_purpose() -> str:
    width = max(map(len, COMMANDS))
    lines = []
    for purpose, names in PURPOSES.items():
        known = [f"  {name:<{width}}  {COMMANDS[name][1]}" for name in names if name in COMMANDS]
        lines += [f"{purpose}:", *known, ""] if known else []
    return "\n".join([*lines, "`quotaplane COMMAND --help` has the options of one."])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, one of those in docs/reference/cli.md."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if " ".join(arguments[:2]) in COMMANDS:
        arguments[:2] = [" ".join(arguments[:2])]
    if argv is None and _chosen(arguments) in _AT_ONCE:
        hide_pandas()
        os.environ.update(_ENVIRONMENT)
    own_process = argv is None
    code = exit_code_of(lambda: _run(arguments, private=own_process), print_to_stderr)
    if sys.stderr is not None:
        discard_unwritten(sys.stderr)
    return code


def _run(arguments: Sequence[str], *, private: bool) -> int:
    if private:
        set_umask()
    if arguments and arguments[0] in _BECOMES_A_JOB:
        spark_jobs.start(arguments[0], arguments[1:])
    chosen = _chosen(arguments)
    if chosen is not None and chosen not in COMMANDS:
        raise ConfigError(_unknown(chosen))
    words = arguments[arguments.index(chosen) + 1 :] if chosen else ()
    args = build_parser(chosen, words).parse_args(arguments)
    command = importlib.import_module(COMMANDS[args.command][0])
    with nullcontext() if args.command in _WITH_A_LOG else without_library_output():
        return cast(int, command.run(args))


def _chosen(arguments: Sequence[str]) -> str | None:
    """The subcommand's name; None: there is none."""
    return next((word for word in arguments if not word.startswith("-")), None)


def _unknown(command: str) -> str:
    if command in spark_jobs.job_names():
        return f"there is no command {command!r}; the job: quotaplane run {command}"
    near = difflib.get_close_matches(command, COMMANDS, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return f"there is no command {command!r}{meant} (see quotaplane --help)"


if __name__ == "__main__":
    sys.exit(main())
