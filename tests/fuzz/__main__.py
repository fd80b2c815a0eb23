"""Feeds generated inputs to the product: ``python -m tests.fuzz TARGET|all --inputs N --seed S``.

An input may give a result or an error of quotaplane's own. Anything else ends the run with exit
code 1, and prints what repeats it.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from random import Random
from typing import NamedTuple

from tests.fuzz import rest_targets, text_targets, wire_targets
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    **wire_targets.TARGETS,
    **rest_targets.TARGETS,
    **text_targets.TARGETS,
}
MOST_S = 1.0
"""Processor time of one input; inputs of the fuzzers have some kilobytes."""
_SHOWN_EVERY_S = 60.0


class Run(NamedTuple):
    """Result of a run of one target."""

    inputs: int
    refused: int
    """Number of inputs that ended in an error of quotaplane's own."""
    slowest_s: float


class Found(Exception):  # noqa: N818
    """An input with which the product does something that it must not."""


def input_of(name: str, seed: int, number: int) -> bytes:
    """An input by its target, seed and number."""
    return TARGETS[name].make(Random(f"{name}/{seed}/{number}"))


def fuzz(name: str, *, seed: int, first: int, inputs: int, until_s: float = float("inf")) -> Run:
    """Run inputs ``first`` to ``first + inputs - 1`` of a target, but no longer than ``until_s``.

    Raises:
        Found: one of them fails.
    """
    target, refused, slowest_s = TARGETS[name], 0, 0.0
    done = shown_s = time.monotonic()
    for number in range(first, first + inputs):
        value = input_of(name, seed, number)
        begun_s = time.process_time()
        try:
            target.run(value)
        except target.refusals:
            refused += 1
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise Found(_report(name, seed, number, value, what)) from error
        took_s = time.process_time() - begun_s
        slowest_s = max(slowest_s, took_s)
        if took_s > MOST_S:
            raise Found(_report(name, seed, number, value, f"took {took_s:.1f} s"))
        done = time.monotonic()
        if done > until_s:
            return Run(number - first + 1, refused, slowest_s)
        if done - shown_s > _SHOWN_EVERY_S:
            shown_s = done
            print(f"{name}: {number - first + 1} inputs", file=sys.stderr, flush=True)
    return Run(inputs, refused, slowest_s)


def _report(name: str, seed: int, number: int, value: bytes, what: str) -> str:
    shown = value if len(value) <= 4000 else value[:4000] + b"..."
    return (
        f"{name}: {what[:500]}\n"
        f"repeat: python -m tests.fuzz {name} --seed {seed} --first {number} --inputs 1\n"
        f"input ({len(value)} bytes): {shown!r}"
    )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=("all", *TARGETS))
    parser.add_argument("--inputs", type=int, default=10_000, help="of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seconds", type=float, help="most time of each target")
    given = parser.parse_args()
    failed = 0
    for name in TARGETS if given.target == "all" else (given.target,):
        begun_s = time.monotonic()
        until_s = float("inf") if given.seconds is None else begun_s + given.seconds
        try:
            run = fuzz(
                name, seed=given.seed, first=given.first, inputs=given.inputs, until_s=until_s
            )
        except Found as found:
            failed += 1
            traceback.print_exception(found.__cause__)
            print(found, flush=True)
            continue
        rate = run.inputs / max(time.monotonic() - begun_s, 1e-9)
        print(
            f"{name}: {run.inputs} inputs, {run.refused} refused, slowest "
            f"{run.slowest_s * 1000:.0f} ms, {rate:.0f} a second",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
