"""The model on docs/measured/scale-out.md: its constants, its errors, and a size beyond."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.prose import wrapped
from benchmarks.scale_out.model import (
    Costs,
    Line,
    Machines,
    Size,
    fitted,
    machines,
    straight,
)
from benchmarks.scale_out.observed_round import (
    DRIVER_JVM,
    DRIVER_PYTHON,
    EXECUTOR_JVM,
    EXECUTOR_PYTHON,
)
from benchmarks.scale_out.runs import ACTIVE, Run

Kept = dict[str, Any]
"""The figures of a run."""
KINDS: Final = ("whole", "active")
"""Kinds of rounds: every group is reported, or those that are active."""
_HELD_OUT: Final = 1_000_000
"""Runs with so many groups or more check the model that is fitted to smaller ones."""
_BEYOND: Final = (10_000_000, 5, 1_000)
"""Groups, brokers of each, and brokers."""


def size_in_words(run: Kept) -> str:
    """Its groups, and what is unusual."""
    spread = "" if run["spread"] == 5 else f" on {run['spread']} brokers"
    return f"{run['groups']:,}{spread}{', driver writes' if run['driver_writes'] else ''}"


def driver_s(of: Kept) -> float:
    """Processor seconds of the driver, JVM and Python."""
    return float(of[DRIVER_PYTHON] + of[DRIVER_JVM])


def _tasks(of: Kept) -> float:
    return float(of[EXECUTOR_PYTHON] + of[EXECUTOR_JVM])


def costs_of(runs: Sequence[Kept]) -> Costs:
    """The model's constants, fitted to runs on clusters of as many executors."""
    rounds = [(_round_size(run, kind), run[kind]) for run in runs for kind in KINDS]
    sizes = [size for size, _ in rounds]
    entries = [run["entries"] for run in runs]
    peaks = [run["peak_gb"] for run in runs]
    of_shard = [run["entries"] / run["shards"] for run in runs]
    of_executor = [run["entries"] / run["executors"] for run in runs]
    return Costs(
        fitted(sizes, [_tasks(of) for _, of in rounds]),
        fitted(sizes, [driver_s(of) for _, of in rounds]),
        fitted(sizes, [of["to Python"] for _, of in rounds]),
        straight(of_shard, [peak[EXECUTOR_PYTHON] for peak in peaks]),
        straight(of_executor, [peak[EXECUTOR_JVM] for peak in peaks]),
        straight(entries, [peak[DRIVER_PYTHON] + peak[DRIVER_JVM] for peak in peaks]),
    )


def _round_size(run: Kept, kind: str) -> Size:
    share = ACTIVE if kind == "active" else 1.0
    return Size(run["groups"], run["entries"], share * run["entries"])


def model_section(runs: Sequence[Kept]) -> list[str]:
    """The section of the page; ``runs``: those with figures of rounds."""
    of_two = [run for run in runs if run["executors"] == 2 and not run["driver_writes"]]
    held = [run for run in of_two if run["groups"] >= _HELD_OUT]
    costs = costs_of(of_two)
    return [
        "## A model for more",
        "",
        *wrapped(
            "Each quantity is a sum: a part of each round, of each group, of each entry in the "
            "state (a group on a broker), and of each reported entry, with its new limit. Fitted "
            "to the runs on two executors "
            f"({', '.join(size_in_words(run) for run in of_two)} groups), both kinds of rounds:"
        ),
        "| | a round | a group | an entry | a reported entry |",
        "|---|---|---|---|---|",
        _constants("executors, processor time", costs.tasks_s, "s", "µs", 1.0),
        _constants("driver, processor time", costs.driver_s, "s", "µs", 1.0),
        _constants("to the driver", costs.to_driver, "MB", "bytes", 1e-6),
        "",
        "| memory | fixed | an entry |",
        "|---|---|---|",
        _memory_line("Python, on each core of executors; entries of a shard", costs.worker_gb),
        _memory_line("the JVM of an executor; entries that it has", costs.jvm_gb),
        _memory_line("the driver; all entries", costs.driver_gb),
        "",
        *(line for run in held for line in _checked(_of_smaller(of_two, run), run)),
        *_beyond(costs),
    ]


def _constants(name: str, line: Line, unit: str, small: str, scale: float) -> str:
    cells = [f"{line.fixed * scale:.2f} {unit}"]
    cells += [f"{each * scale * 1e6:.2f} {small}" for each in line[1:]]
    return f"| {name} | {' | '.join(cells)} |"


def _memory_line(name: str, line: tuple[float, float]) -> str:
    return f"| {name} | {line[0]:.2f} GB | {line[1] * 1e6:.2f} kB |"


def _of_smaller(runs: Sequence[Kept], than: Kept) -> Costs:
    """The model as it is without the larger runs."""
    return costs_of([run for run in runs if run["groups"] < than["groups"]])


def _checked(costs: Costs, held: Kept) -> list[str]:
    """How wrong the model is at a size to which it was not fitted."""
    parts = []
    for kind, words in zip(KINDS, ("all report", f"{100 * ACTIVE:.0f} % do"), strict=True):
        size, of = _round_size(held, kind), held[kind]
        of_tasks = _wrong_by(costs.tasks_s.at(size), _tasks(of))
        of_driver = _wrong_by(costs.driver_s.at(size), driver_s(of))
        parts.append(f"executors {of_tasks}, driver {of_driver} where {words}")
    size, peak = _round_size(held, "whole"), held["peak_gb"]
    needs = machines(costs, size, held["shards"], math.inf)
    jvm = costs.jvm_gb[0] + costs.jvm_gb[1] * held["entries"] / held["executors"]
    python = costs.worker_gb[0] + costs.worker_gb[1] * held["entries"] / held["shards"]
    of_driver = _wrong_by(needs.driver_gb, peak[DRIVER_PYTHON] + peak[DRIVER_JVM])
    of_executor = _wrong_by(jvm + python, peak[EXECUTOR_JVM] + peak[EXECUTOR_PYTHON])
    whole = held["whole"]
    round_s = driver_s(whole) + _tasks(whole) / held["executors"]
    return wrapped(
        f"Fitted to the smaller sizes alone, at {held['groups']:,} groups it is wrong "
        f"by: processor time of {'; '.join(parts)}; memory of an executor {of_executor}, of the "
        f"driver {of_driver}. A round took {whole['round, s']:.1f} s; the driver's seconds and a "
        f"core's share of the tasks' are {round_s:.1f} s together."
    )


def _beyond(costs: Costs) -> list[str]:
    """The model at a size that no machine here can hold."""
    groups, spread, brokers = _BEYOND
    shards = Run(groups, 1).shards
    lines = [
        *wrapped(
            f"{groups:,} groups, each on {spread} of {brokers:,} brokers ({groups * spread:,} "
            f"entries) in {shards} shards, with executors of one core each:"
        ),
        "| reported | a round, s | driver, s | tasks, processor s | to the driver, GB "
        "| cores of executors | their memory, GB | driver's memory, GB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for share in (1.0, ACTIVE):
        size = Size(groups, groups * spread, share * groups * spread)
        for round_s in (10.0, 30.0, 60.0):
            needs = machines(costs, size, shards, round_s)
            lines += [
                f"| {100 * share:.0f} % | {round_s:.0f} | {needs.driver_s:.1f} "
                f"| {costs.tasks_s.at(size):.0f} | {costs.to_driver.at(size) / 1e9:.2f} "
                f"| {_of_executors(needs)} | {needs.driver_gb:.1f} |"
            ]
    return [*lines, "", *_limits_of_model()]


def _of_executors(needs: Machines) -> str:
    if math.isinf(needs.cores):
        return "the driver alone takes longer | "
    return f"{needs.cores:.0f} | {needs.executors_gb:.0f}"


def _wrong_by(modelled: float, found: float) -> str:
    return f"{round(100 * (modelled / found - 1)):+d} %"


def _limits_of_model() -> list[str]:
    return wrapped(
        "Tasks and driver take turns: a round takes the driver's seconds, then the tasks' divided "
        "by the cores. Here it took longer, as Kafka needs the two cores, too, and shards differ. "
        "More shards need less memory of Python. Several cores of one executor share a JVM, which "
        "was not measured. Nothing of the size above was run. The model has no network, no slower "
        "disks and no stragglers in it, and assumes that each group is on few brokers: with every "
        "group on every one of 1,000 brokers there were 200 times as many entries. Another "
        "machine's seconds differ by as much as its yardstick does (below)."
    )
