"""Runs seeds: ``python -m tests.simulation.run --seeds 0:1000``; see docs/explain/simulation.md."""

from __future__ import annotations

import argparse
import gc
import math
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Final, NamedTuple
from unittest.mock import patch

import pyarrow as pa

from quotaplane import arrow as arrow_tables
from quotaplane.history import leadership
from tests.simulation.enforcer_bugs import ENFORCER_PLANTED
from tests.simulation.enforcer_scenario import enforcer_scenario_of
from tests.simulation.enforcer_world import EnforcerWorld
from tests.simulation.planted_bugs import PLANTED
from tests.simulation.planting import planted
from tests.simulation.scenario import scenario_of
from tests.simulation.storage import claimed_at_once
from tests.simulation.world import World

BUGS: Final = PLANTED | ENFORCER_PLANTED


class Result(NamedTuple):
    """Result of a seed."""

    rounds: int
    digest: str
    failure: str | None


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which no code of the job starts a thread, and claims need no disk."""
    writing = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    reading = pa.ipc.IpcReadOptions(use_threads=False)
    ipc = SimpleNamespace(
        new_stream=pa.ipc.new_stream, open_stream=partial(pa.ipc.open_stream, options=reading)
    )
    arrow = SimpleNamespace(**{**vars(pa), "ipc": ipc})
    cores = pa.cpu_count()
    pa.set_cpu_count(1)
    gc.disable()  # by hand between seeds: it would look at all modules again and again
    try:
        with (
            patch.object(arrow_tables, "_OPTIONS", writing),
            patch.object(arrow_tables, "pa", arrow),
            patch.object(leadership, "optimistically", claimed_at_once),
        ):
            yield
    finally:
        gc.enable()
        pa.set_cpu_count(cores)


def run_seed(
    seed: int, chaos_rounds: int | None = None, *, settles: bool = True, enforcer: bool = False
) -> Result:
    """Run one seed (see ``World.run``); a failure is returned as text.

    ``enforcer``: in the enforcer's world.
    """
    with one_thread():
        world: World | EnforcerWorld
        if enforcer:
            world = EnforcerWorld(seed, chaos_rounds=chaos_rounds)
        else:
            world = World(seed, chaos_rounds=chaos_rounds)
        failure = None
        try:
            world.run(settles=settles)
        except Exception as error:
            failure = _failure(world, error)
    gc.collect(1)
    return Result(world.rounds, world.trace.digest(), failure)


def _failure(world: World | EnforcerWorld, error: Exception) -> str:
    trace = "" if isinstance(error, AssertionError) else traceback.format_exc()
    option = " --enforcer" if isinstance(world, EnforcerWorld) else ""
    return "\n".join(
        [
            f"seed {world.scenario.seed}, round {world.rounds}: {type(error).__name__}: {error}",
            world.scenario.in_words(),
            "faults:",
            *world.trace.faults,
            "last events:",
            *world.trace.last_events(),
            trace,
            f"again: python -m tests.simulation.run{option} --seeds {world.scenario.seed}",
        ]
    )


def seeds_to_find(bug: str, seeds: range) -> tuple[int, str] | None:
    """The first seed that finds a planted bug, and how it failed."""
    of_enforcer, plant = bug in ENFORCER_PLANTED, BUGS[bug]
    drawn = enforcer_scenario_of if of_enforcer else scenario_of
    with planted(plant):
        for seed in seeds:
            if not plant.may_be_found_in(drawn(seed, Random(seed)).traits()):
                continue
            result = run_seed(seed, settles=plant.at_end, enforcer=of_enforcer)
            if result.failure is not None:
                return seed, result.failure
    return None


def main(argv: list[str] | None = None) -> int:
    """Run seeds until one fails, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:100", help="a number, or FIRST:END")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--enforcer", action="store_true", help="the enforcer's world")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant a bug, and look for it")
    parser.add_argument("--go-on", action="store_true", help="go on after a failure")
    args = parser.parse_args(argv)
    first, _, end = args.seeds.partition(":")
    seeds = range(int(first), int(end) if end else int(first) + 1)
    if args.bug:
        found = seeds_to_find(args.bug, seeds)
        if found is None:
            print(f"{args.bug}: not found by seeds {args.seeds}")
            return 1
        seed, failure = found
        print(f"{args.bug}: found by seed {seed}: {failure.splitlines()[0]}")
        return 0
    began_s, rounds, failures, count = time.perf_counter(), 0, 0, 0
    for result in map(partial(run_seed, enforcer=args.enforcer), seeds):
        rounds, count = rounds + result.rounds, count + 1
        if result.failure is not None:
            failures += 1
            print(result.failure, flush=True)
            if not args.go_on:
                break
        if time.perf_counter() > began_s + args.seconds:
            break
        if count % 100 == 0:
            _print(count, rounds, failures, began_s)
    _print(count, rounds, failures, began_s)
    return 1 if failures else 0


def _print(seeds: int, rounds: int, failures: int, began_s: float) -> None:
    took_s = time.perf_counter() - began_s
    print(
        f"{seeds} seeds, {rounds} rounds in {took_s:.0f} s ({rounds / took_s:.0f} a second), "
        f"{failures} failed",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
