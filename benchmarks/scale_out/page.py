"""Writes docs/measured/scale-out.md from the figures that were kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.prose import wrapped
from benchmarks.scale_out.model import Costs, Line, Size, fitted, machines
from benchmarks.scale_out.observed_round import (
    DRIVER_JVM,
    DRIVER_PYTHON,
    EXECUTOR_JVM,
    EXECUTOR_PYTHON,
    PARTS,
    WRITTEN,
)
from benchmarks.scale_out.runs import ACTIVE, ALL

Kept = dict[str, Any]
_KINDS: Final = ("whole", "active")
_HELD_OUT: Final = 1_000_000
"""Groups of the size by which the model is checked; it is not fitted to it."""
_BEYOND: Final = (10_000_000, 5, 1_000)
"""Groups, brokers of each, and brokers."""
_MB: Final = 1e6


def page(runs: Sequence[Kept], store: Kept | None, about: str) -> str:
    """The page.

    Args:
        runs: the figures of all runs; one that was stopped has no figures of rounds.
        store: those of the run on an object store; None: there was none.
        about: the paragraph about the machine.
    """
    done = [run for run in runs if "whole" in run]
    lines = [
        "# Scale out: rounds on a Spark cluster",
        "",
        *wrapped(
            "What a round of the quota job takes on a Spark cluster of one and of two executors, "
            "apart for the driver and the executors, and a model for more groups than one machine "
            "can hold. `make bench-scale-out` writes this page; do not edit it."
        ),
        *_processor(done),
        *_through_driver(done),
        *_memory(runs),
        *_store(store),
        *_model(done),
        *_method(about),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _name(run: Kept) -> str:
    on = f"{run['executors']}" if run["executors"] else "local"
    return f"| {run['groups']:,} | {run['entries']:,} | {on} "


def _processor(runs: Sequence[Kept]) -> list[str]:
    lines = ["## Processor time of a round", ""]
    titles = {
        "whole": "Every broker reports all of its groups, and nearly every value has changed: the "
        "worst case. *Executors*: how many, with one core each; *local*: all in the driver's JVM, "
        "whose tasks count as the driver's there.",
        "active": f"{ACTIVE:.0%} of the groups are reported, by all of their brokers:",
    }
    for kind, title in titles.items():
        lines += [
            *wrapped(title),
            "| groups | entries | executors | driver: Python | JVM | executors: Python | JVM "
            "| all | µs a group | round, s |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for run in runs:
            of = run[kind]
            order = (DRIVER_PYTHON, DRIVER_JVM, EXECUTOR_PYTHON, EXECUTOR_JVM)
            cells = [f"{of[part]:.2f}" for part in order]
            cells += [f"{_all(of):.2f}", f"{_all(of) / run['groups'] * 1e6:.0f}"]
            lines += [f"{_name(run)}| {' | '.join(cells)} | {of['round, s']:.2f} |"]
        lines += [""]
    return lines + wrapped(
        "Driver, executors and Kafka share two cores here, so the seconds of a round say little "
        "about a cluster with a machine for each; processor seconds do."
    )


def _all(of: Kept) -> float:
    return sum(of[part] for part in PARTS)


def _driver(of: Kept) -> float:
    return float(of[DRIVER_PYTHON] + of[DRIVER_JVM])


def _tasks(of: Kept) -> float:
    return float(of[EXECUTOR_PYTHON] + of[EXECUTOR_JVM])


def _through_driver(runs: Sequence[Kept]) -> list[str]:
    lines = [
        "## What passes the driver",
        "",
        *wrapped(
            "MB of a round. *Results*: of all tasks, as Spark counts them; *limits*: the messages "
            "for brokers; *rest*: all else that the driver's Python gets; *it writes*: into files "
            "and pipes, but not to Kafka. Tasks write the history, and the driver commits it."
        ),
        "| groups | executors | reports | results | limits | rest | it writes | by tasks: files "
        "| rows | MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        for kind, share in zip(_KINDS, ("all", f"{ACTIVE:.0%}"), strict=True):
            of = run[kind]
            limits = of.get("to Python: messages", 0)
            cells = [of["resultSize"], limits, of["to Python"] - limits, of[WRITTEN]]
            on = f"{run['executors']}" if run["executors"] else "local"
            lines += [
                f"| {_size(run)} | {on} | {share} | "
                + " | ".join(f"{each / _MB:.2f}" for each in cells)
                + f" | {of['files of tasks']:.0f} | {of['rows of files']:,.0f} "
                f"| {of['bytes of files'] / _MB:.1f} |"
            ]
    return [*lines, "", *_not_flat(runs)]


def _size(run: Kept) -> str:
    return f"{run['groups']:,}" + ("" if run["spread"] == 5 else f" on {run['spread']} brokers")


def _not_flat(runs: Sequence[Kept]) -> list[str]:
    least, most = (
        choose(runs, key=lambda run: (run["groups"], run["executors"])) for choose in (min, max)
    )
    rest = [
        max(run[kind]["to Python"] - run[kind].get("to Python: messages", 0) for kind in _KINDS)
        for run in (least, most)
    ]
    per_limit = [run["whole"].get("bytes of messages", 0) / run["entries"] for run in (least, most)]
    return wrapped(
        f"The history does not pass the driver: beside limits it gets {rest[0] / _MB:.2f} MB a "
        f"round with {least['groups']:,} groups and {rest[1] / _MB:.2f} MB with "
        f"{most['groups']:,}; what grows are tables of a shard below 1 MB, which the driver writes "
        "as one file of all shards. **Limits do pass it**, and grow with the limits that change: "
        f"{per_limit[1]:.0f} bytes each where brokers use ids, 40 more with names of that length. "
        "They are published after the history is committed, by one process that checks before "
        "whether it still leads."
    )


def _memory(runs: Sequence[Kept]) -> list[str]:
    lines = [
        "## Memory",
        "",
        *wrapped(
            "Peaks in GB (shared pages count once), of the executor with more. JVMs take what they "
            "may before they collect garbage; *heap* is what each executor's may have."
        ),
        "| groups | executors | heap | driver: Python | JVM | an executor: Python | JVM | all |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        peak = run["peak_gb"]
        order = (DRIVER_PYTHON, DRIVER_JVM, EXECUTOR_PYTHON, EXECUTOR_JVM, ALL)
        cells = [f"{peak.get(part, 0):.2f}" for part in order]
        on = f"{run['executors']}" if run["executors"] else "local"
        lines += [f"| {_size(run)} | {on} | {run['heap_gb']} | {' | '.join(cells)} |"]
    lines += [""]
    for run in runs:
        if "whole" not in run:
            lines += wrapped(
                f"{_size(run)} groups on {run['executors']} executors did not fit: {run['stopped']}"
            )
    return lines


def _store(store: Kept | None) -> list[str]:
    if store is None:
        return []
    whole = store["whole"]
    rows = " and ".join(
        f"{sum(of_round.values()):,} of `{table}`" for table, of_round in store["rows"].items()
    )
    return [
        "## On an object store",
        "",
        *wrapped(
            f"{store['groups']:,} groups with the history on S3Proxy, one executor: in a round "
            f"tasks write {whole['files of tasks']:.0f} files with {whole['rows of files']:,.0f} "
            f"rows ({whole['bytes of files'] / _MB:.0f} MB), no task had to leave its rows to the "
            f"driver, and the rows of `usage` are exactly those of the reports ({rows} in "
            f"{len(store['rows']['usage'])} rounds). A round takes {whole['round, s']:.1f} s and "
            f"{_all(whole):.2f} processor seconds."
        ),
    ]


def costs_of(runs: Sequence[Kept]) -> Costs:
    """The model's constants, fitted to runs on two executors."""
    rounds = [(_round_size(run, kind), run, run[kind]) for run in runs for kind in _KINDS]
    sizes = [size for size, _, _ in rounds]
    whole = [size for size, run, of in rounds if of is run["whole"]]
    peaks = [run["peak_gb"] for _, run, of in rounds if of is run["whole"]]
    return Costs(
        fitted(sizes, [_tasks(of) for _, _, of in rounds]),
        fitted(sizes, [_driver(of) for _, _, of in rounds]),
        _grows_with_entries(whole, [_of_executors(peak) for peak in peaks]),
        _grows_with_entries(whole, [peak[DRIVER_PYTHON] + peak[DRIVER_JVM] for peak in peaks]),
        fitted(sizes, [of["to Python"] for _, _, of in rounds]),
    )


def _of_executors(peak: Kept) -> float:
    return float(peak[ALL] - peak[DRIVER_PYTHON] - peak[DRIVER_JVM])


def _grows_with_entries(sizes: Sequence[Size], found: Sequence[float]) -> Line:
    """Of memory only peaks are known, so its parts can't be told apart."""
    entries = [size.entries for size in sizes]
    count, total = len(entries), math.fsum(entries)
    mean, mean_found = total / count, math.fsum(found) / count
    over = math.fsum((each - mean) ** 2 for each in entries)
    slope = sum(
        (each - mean) * (value - mean_found) for each, value in zip(entries, found, strict=True)
    )
    slope = max(slope / over, 0.0)
    return Line(max(mean_found - slope * mean, 0.0), 0.0, slope, 0.0)


def _round_size(run: Kept, kind: str) -> Size:
    share = ACTIVE if kind == "active" else 1.0
    return Size(run["groups"], run["entries"], share * run["entries"])


def _model(runs: Sequence[Kept]) -> list[str]:
    of_two = [run for run in runs if run["executors"] == 2]
    used = [run for run in of_two if run["groups"] != _HELD_OUT]
    held = next(run for run in of_two if run["groups"] == _HELD_OUT)
    costs = costs_of(used)
    groups, spread, brokers = _BEYOND
    lines = [
        "## A model for more",
        "",
        *wrapped(
            "Each quantity is a sum: a part of each round, of each group, of each entry in the "
            "state (a group on a broker), and of each reported entry, with its new limit. Fitted "
            "to the runs on two executors "
            f"({', '.join(_size(run) for run in used)} groups), both kinds of rounds:"
        ),
        "| | a round | a group | an entry | a reported entry |",
        "|---|---|---|---|---|",
        _constants("executors, processor time", costs.tasks_s, "s", "µs"),
        _constants("driver, processor time", costs.driver_s, "s", "µs"),
        _constants("to the driver", costs.to_driver, "MB", "bytes", 1e-6, 1.0),
        _constants("memory of all executors", costs.executors_gb, "GB", "kB", 1.0, 1e6),
        _constants("memory of the driver", costs.driver_gb, "GB", "kB", 1.0, 1e6),
        "",
        *_checked(costs, held),
        *wrapped(
            f"For {groups:,} groups, each on {spread} of {brokers:,} brokers "
            f"({groups * spread:,} entries), that gives:"
        ),
        "| reported | tasks, processor s | driver, processor s | to the driver | executors "
        "| driver | cores for a round of 60 s | of 10 s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for share in (1.0, ACTIVE):
        size = Size(groups, groups * spread, share * groups * spread)
        needs = machines(costs, size, 60.0)
        cores = [machines(costs, size, round_s).cores for round_s in (60.0, 10.0)]
        lines += [
            f"| {share:.0%} | {costs.tasks_s.at(size):.0f} | {needs.driver_s:.0f} "
            f"| {costs.to_driver.at(size) / 1e9:.1f} GB | {needs.executors_gb:.0f} GB "
            f"| {needs.driver_gb:.0f} GB | {' | '.join(map(_cores, cores))} |"
        ]
    return [*lines, "", *_limits_of_model()]


def _constants(
    name: str, line: Line, unit: str, small: str, scale: float = 1.0, small_scale: float = 1e6
) -> str:
    cells = [f"{line.fixed * scale:.2f} {unit}"]
    cells += [f"{each * small_scale:.2f} {small}" for each in line[1:]]
    return f"| {name} | {' | '.join(cells)} |"


def _cores(count: float) -> str:
    return "the driver alone takes longer" if math.isinf(count) else f"{math.ceil(count)}"


def _checked(costs: Costs, held: Kept) -> list[str]:
    errors = []
    for kind, words in zip(_KINDS, ("all report", f"{ACTIVE:.0%} do"), strict=True):
        size, of = _round_size(held, kind), held[kind]
        for name, line, found in (
            ("executors", costs.tasks_s, _tasks(of)),
            ("driver", costs.driver_s, _driver(of)),
        ):
            errors.append(f"{name} {line.at(size) / found - 1:+.0%} where {words}")
    peak = held["peak_gb"]
    size = _round_size(held, "whole")
    memory = costs.executors_gb.at(size) / _of_executors(peak) - 1
    return wrapped(
        f"At {held['groups']:,} groups on two executors, which it was not fitted to, it is wrong "
        f"by: processor time of {', '.join(errors)}; memory of the executors {memory:+.0%}."
    )


def _limits_of_model() -> list[str]:
    return wrapped(
        "Tasks and driver take turns: a round takes the driver's seconds, then the tasks' divided "
        "by the cores. Nothing of the size above was run. The model has no network, no slower "
        "disks and no stragglers in it, and assumes that each group is on few brokers: with every "
        "group on every one of 1,000 brokers there were 200 times as many entries. Take the "
        "processor time of your machine for that of this one (the yardstick below)."
    )


def _method(about: str) -> list[str]:
    return [
        "## Method",
        "",
        *wrapped(
            "Medians of the warm rounds. A real Kafka server, a standalone cluster with "
            "authentication and encryption, history and checkpoint in a folder that all share, the "
            "law `max_min`, four dimensions. Brokers report in our own format, with ids, so that "
            "the feed is cheap; all reports are written before the job starts, and neither that "
            "nor Kafka counts. Shards have at most 125,000 groups. A run is stopped before the "
            "machine's memory is used up. The code is `benchmarks/scale_out`."
        ),
        about,
        "",
    ]
