"""``python -m tests.outside kafka --seed 1 --minutes 10``: faults in real servers.

What was seen is kept in data/outside. ``--again FOLDER`` judges it once more.
"""

from __future__ import annotations

import argparse
import pickle
import shutil
import signal
import sys
import time
from pathlib import Path

from tests.job import ROOT
from tests.outside import kafka_run, plugin_run, pulsar_run
from tests.outside.checks import violations
from tests.outside.journal import Run
from tests.wall_clock import COMPILER

RUNS = {"kafka": kafka_run, "plugin": plugin_run, "pulsar": pulsar_run}
_EVIDENCE = "evidence.pickle"
_SHOWN = 50


def main() -> int:
    """Returns 1 if anything does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.outside", description=__doc__)
    parser.add_argument("servers", choices=[*RUNS])
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--runs", type=int, default=1, help="with this seed and the next ones")
    parser.add_argument("--minutes", type=float, default=10.0, help="of a run, with its quiet time")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="judge what a run left there")
    options = parser.parse_args()
    if options.again is not None:
        return report(pickle.loads((options.again / _EVIDENCE).read_bytes()))
    quiet_s = RUNS[options.servers].QUIET_S
    if options.minutes * 60 <= quiet_s:
        parser.error(f"--minutes: the last {quiet_s:.0f} s of a run are quiet")
    if COMPILER is None:
        print("no C compiler (apt-get install gcc): the jobs' clocks stay right")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as with Ctrl-C, all servers end
    seeds = range(options.seed, options.seed + options.runs)
    failed = [seed for seed in seeds if _run(options.servers, seed, options.minutes)]
    print(f"{options.runs} runs; seeds with violations: {failed or 'none'}")
    return 1 if failed else 0


def _run(servers: str, seed: int, minutes: float) -> int:
    begun_s = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun_s:5.0f}] {text}", flush=True)

    folder = ROOT / "data" / "outside" / f"{servers}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say(f"{servers}, seed {seed}, {minutes:g} minutes: starting")
    evidence = RUNS[servers].run(seed, minutes, folder, say)
    (folder / _EVIDENCE).write_bytes(pickle.dumps(evidence))
    return report(evidence)


def report(evidence: Run) -> int:
    """Print what was seen, and what does not hold; returns the exit code."""
    (runs,) = (each for each in RUNS.values() if isinstance(evidence, each.EVIDENCE))
    print(runs.summary(evidence))
    found = violations(evidence, runs.CHECKS)
    for violation in found[:_SHOWN]:
        print(violation)
    print(f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
