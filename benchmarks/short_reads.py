"""Counts processes that abort when they end right after reading the history. Takes minutes.

.venv/bin/python -m benchmarks.short_reads --history data/local/history --processes 500
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from quotaplane.console.option_parser import OptionParser
from quotaplane.errors import QuotaplaneError
from quotaplane.streams.script import run_job

_READ = """\
import sys
from quotaplane.deltalog.read import read_rows
from quotaplane.history.previous_run import read_earlier
from quotaplane.history.store import open_table
from quotaplane.settings import History
history = History(path=sys.argv[1])
read_earlier(history)
read_rows(open_table(history, "rounds"), ["epoch", "round_at"])
"""


def aborted(history: str) -> bool:
    """Read in a new process that ends right after it; True if it aborts."""
    done = subprocess.run([sys.executable, "-c", _READ, history], stderr=subprocess.PIPE)
    if done.returncode > 0:
        raise QuotaplaneError(done.stderr.decode(errors="replace").strip().splitlines()[-1])
    return done.returncode < 0


def main(argv: Sequence[str]) -> int:
    """Exit code 1 if any process aborted."""
    parser = OptionParser(prog="python -m benchmarks.short_reads", description=__doc__)
    parser.add_argument("--history", required=True, metavar="PATH", type=Path)
    parser.add_argument("--processes", type=int, default=500)
    args = parser.parse_args(argv)
    with ThreadPoolExecutor(2) as pool:
        count = sum(pool.map(aborted, [str(args.history)] * args.processes))
    print(f"{count} of {args.processes} processes aborted")
    return min(count, 1)


if __name__ == "__main__":
    run_job(main)
