"""Shared code of the scripts in jobs/: the option ``--conf``, errors as one line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from quotaplane.console.command_output import exit_code_of
from quotaplane.console.option_parser import OptionParser, whole_number
from quotaplane.console.terminal import write_line
from quotaplane.files import set_umask
from quotaplane.streams.spark_log import in_cluster_mode

SECRETS: Final = "quotaplane-secrets.json"
"""A file in the folder of a driver in cluster mode: the values of the variables in its settings."""


def run_job(main: Callable[[Sequence[str]], int | None]) -> None:
    """Run a job's ``main`` with the command line's arguments and exit with its code."""

    def run() -> int | None:
        if in_cluster_mode() and Path(SECRETS).exists():
            os.environ.update(json.loads(Path(SECRETS).read_bytes()))
        set_umask()
        return main(sys.argv[1:])

    sys.exit(exit_code_of(run, write_line))


def add_skip_batch(parser: OptionParser, what: str) -> None:
    """Add ``--skip-batch N``; ``what`` names the input that is skipped."""
    parser.add_argument(
        "--skip-batch",
        type=whole_number,
        metavar="N",
        help=f"commit batch N, which runs next, without its {what} (one dead letter records it), "
        "then continue as usual; for a batch that failed again and again",
    )


def conf_parser(job: str, description: str | None) -> OptionParser:
    """A parser with the options that every job has."""
    parser = OptionParser(prog=f"quotaplane run {job}", description=description)
    parser.add_argument("--conf", metavar="FILE", required=True, help="settings file (see conf/)")
    parser.add_argument(
        "--standby",
        action="store_true",
        help="if another process of the job lives, wait until it is dead, with Spark started, and "
        "then go on in its place; two processes may have the same command line",
    )
    return parser
