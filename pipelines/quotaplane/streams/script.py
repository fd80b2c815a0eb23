"""Shared code of the scripts in jobs/: the option ``--conf``, errors as one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from quotaplane.errors import QuotaplaneError
from quotaplane.option_parser import OptionParser
from quotaplane.terminal import write_line

INTERRUPTED = 130


def run_job(main: Callable[[Sequence[str]], int | None]) -> None:
    """Run a job's ``main`` with the command line's arguments and exit with its code."""
    try:
        code = main(sys.argv[1:]) or 0
    except QuotaplaneError as error:
        write_line(f"quotaplane: error: {' '.join(str(error).split())}")
        code = error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception:
        sys.stderr = sys.__stderr__  # a job redirects it to Spark's log
        raise
    sys.exit(code)


def add_skip_batch(parser: OptionParser, what: str) -> None:
    """Add ``--skip-batch N``; ``what`` names the input that is skipped."""
    parser.add_argument(
        "--skip-batch",
        type=int,
        metavar="N",
        help=f"commit batch N, which runs next, without its {what} (one dead letter records it), "
        "then continue as usual; for a batch that failed again and again",
    )


def conf_parser(job: str, default: str | None = None) -> OptionParser:
    """A parser with the option ``--conf FILE``, which every job has."""
    parser = OptionParser(prog=f"./spark-submit.sh {job}")
    parser.add_argument(
        "--conf",
        metavar="FILE",
        default=default,
        required=default is None,
        help="settings file (see conf/)" + (f"; default {default}" if default else ""),
    )
    return parser
