"""``python -m tests.faults points``, ``... power``: tries all points or states, and prints a table.

``... disk``: the real job on a disk that fails.

A process of its own: one that has used deltalake can't fork.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.faults.cases import CASES
from tests.faults.points import FAULTS, Points, summary
from tests.faults.power_points import SEQUENCES, PowerPoints


def main() -> int:
    """Returns 1 if anything does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    points = kinds.add_parser("points", help="faults at the n-th system call")
    points.add_argument("names", nargs="*", metavar="CASE", help=", ".join(CASES))
    points.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    power = kinds.add_parser("power", help="states that a power loss may leave")
    power.add_argument("names", nargs="*", metavar="SEQUENCE", help=", ".join(SEQUENCES))
    kinds.add_parser("note", help="faults at each call of the checkpoint's note (starts a JVM)")
    disk = kinds.add_parser("disk", help="the real job on a small disk (needs root)")
    disk.add_argument("names", nargs="*", metavar="FAULT", help="full, read-only, gone")
    for each in (points, power):
        each.add_argument("--every", type=int, default=1, metavar="N", help="try every N-th call")
    points.add_argument("--first", type=int, default=0, metavar="N", help="leave out N calls first")
    points.add_argument("--middle", action="store_true", help="try one point of each fault")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quotaplane-faults-") as scratch:
        kind = {"points": _points, "power": _power, "note": _note, "disk": _disk}[options.kind]
        return kind(options, Path(scratch))


def _points(options: argparse.Namespace, scratch: Path) -> int:
    tried = wrong = 0
    for case in options.names or CASES:
        points = Points(case, scratch / case.replace(" ", "-"))
        _say(f"{case}: {len(points.calls)} calls")
        for fault in options.faults:
            numbers = points.numbers(FAULTS[fault])[options.first :: options.every]
            if options.middle:
                numbers = numbers[len(numbers) // 2 :][:1]
            outcomes = [points.outcome(fault, number) for number in numbers]
            bad = [outcome for outcome in outcomes if outcome.problems]
            for outcome in bad:
                _say(str(outcome))
            tried, wrong = tried + len(outcomes), wrong + len(bad)
            print(summary(fault, outcomes), flush=True)
    print(f"{tried} points, {wrong} wrong")
    return 1 if wrong else 0


def _power(options: argparse.Namespace, scratch: Path) -> int:
    wrong = 0
    for sequence in options.names or SEQUENCES:
        points = PowerPoints(sequence, scratch / sequence.replace(" ", "-"))
        counts: Counter[str] = Counter()
        for survivor in points.survivors(options.every):
            counts.update(states=1, mended=survivor.mended, wrong=bool(survivor.problems))
            if survivor.problems:
                _say(str(survivor))
        wrong += counts["wrong"]
        print(
            f"{sequence}: {len(points.calls)} calls, {counts['states']} states, "
            f"{counts['mended']} mended, {counts['wrong']} wrong",
            flush=True,
        )
    return 1 if wrong else 0


def _note(_: argparse.Namespace, scratch: Path) -> int:
    from tests.faults import notes

    calls, attempts = notes.tried(scratch / "notes")
    wrong = [(each, problems) for each in attempts if (problems := notes.problems(each))]
    for each, problems in wrong:
        _say(f"{each} {problems}")
    codes = sorted(Counter(each.code for each in attempts).items())
    print(f"note: {calls} calls, {len(attempts)} points, {len(wrong)} wrong, codes {codes}")
    return 1 if wrong or not attempts else 0


def _disk(options: argparse.Namespace, scratch: Path) -> int:
    from tests.faults import small_disk  # needs what the others do not

    try:
        faults = options.names or [*small_disk.FAULTS]
        small_disk.run(scratch, faults)
        print(f"{len(faults)} points")
    except AssertionError as problem:
        _say(f"problem: {problem}")
        return 1
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
