"""``python -m tests.outside kafka --seed 1 --minutes 5``: faults in real servers.

What was seen is kept in data/outside, also after a run without a violation.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time

from tests.job import ROOT
from tests.outside import kafka_run
from tests.outside.checks import learning, served_from, violations
from tests.outside.journal import Evidence
from tests.outside.kafka_world import empty
from tests.outside.wrong_clock import COMPILER


def main() -> int:
    """Returns 1 if anything does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.outside", description=__doc__)
    parser.add_argument("servers", choices=["kafka"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    if options.minutes * 60 <= kafka_run.QUIET_S:
        parser.error(f"--minutes: the last {kafka_run.QUIET_S:.0f} s of a run are quiet")
    begun_s = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun_s:5.0f}] {text}", flush=True)

    if COMPILER is None:
        say("no C compiler (apt-get install gcc): the jobs' clocks stay right")
    folder = empty(ROOT / "data" / "outside" / f"{options.servers}-{options.seed}")
    evidence = kafka_run.run(options.seed, options.minutes, folder, say)
    (folder / "evidence.pickle").write_bytes(pickle.dumps(evidence))
    return report(evidence, say)


def report(evidence: Evidence, say: object) -> int:
    """Print what was seen and what does not hold; returns the exit code."""
    found = violations(evidence)
    recovered_ms = served_from(evidence)
    looks = sum(map(len, evidence.looks.values()))
    epochs = len({each.epoch for each in evidence.published})
    exempt_ms = sum(end - begin for begin, end in learning(evidence))
    print(
        f"{len(evidence.published)} limits of {epochs} epochs, {looks} looks, "
        f"{sum(put.acknowledged for put in evidence.puts)} of {len(evidence.puts)} quotas "
        f"acknowledged, exits {sorted(each.code for each in evidence.exits)}; strict promised "
        f"nothing for {exempt_ms / 1000:.0f} s; recovered "
        + ("never" if recovered_ms is None else f"{recovered_ms / 1000:.1f} s after the last fault")
    )
    for violation in found[:50]:
        print(violation)
    print(f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
