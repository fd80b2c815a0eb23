"""``python -m tests.faults [CASE ...]``: tries all points, and prints what came of them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.faults.cases import CASES
from tests.faults.points import FAULTS, Outcome, Points, table


def main() -> int:
    """Returns 1 if anything does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--stride", type=int, default=1, help="try every N-th point")
    parser.add_argument("--all-lines", action="store_true", help="print every different line")
    options = parser.parse_args()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="quotaplane-faults-") as scratch:
        for case in options.cases or CASES:
            points = Points(case, Path(scratch, case.replace(" ", "-")))
            print(f"{case}: {len(points.calls)} calls", file=sys.stderr, flush=True)
            seen: set[str] = set()
            for fault in options.faults:
                for outcome in points.outcomes(fault, options.stride):
                    outcomes.append(outcome)
                    if outcome.problems:
                        print(outcome, file=sys.stderr, flush=True)
                    elif options.all_lines and outcome.line not in seen:
                        seen.add(outcome.line)
                        print(outcome.fault, outcome.code, outcome.line, flush=True)
    print(table(outcomes))
    return 1 if any(outcome.problems for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
