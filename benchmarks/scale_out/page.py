"""Writes docs/measured/scale-out.md from the figures that were kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.prose import wrapped
from benchmarks.scale_out.observed_round import (
    DRIVER_JVM,
    DRIVER_PYTHON,
    EXECUTOR_JVM,
    EXECUTOR_PYTHON,
    PARTS,
    WRITTEN,
)
from benchmarks.scale_out.page_model import KINDS, Kept, driver_s, model_section, size_in_words
from benchmarks.scale_out.runs import ACTIVE, ALL

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
            "This page shows the processor time, memory and bytes of a round of the quota job on "
            "a Spark cluster of one and of two executors, apart for the driver and the executors, "
            "and a model for more groups than one machine can hold. `make bench-scale-out` writes "
            "this page; do not edit it."
        ),
        *_processor(done),
        *_through_driver(done),
        *_memory(runs),
        *_store(store),
        *model_section(done),
        *_method(about),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _executors(run: Kept) -> str:
    return f"{run['executors']}" if run["executors"] else "local"


def _name(run: Kept) -> str:
    return f"| {size_in_words(run)} | {run['entries']:,} | {_executors(run)} "


def _processor(runs: Sequence[Kept]) -> list[str]:
    lines = ["## Processor time of a round", ""]
    titles = {
        "whole": "Every broker reports all of its groups, and nearly every value has changed: the "
        "worst case. *Executors*: how many, with one core each; *local*: none, tasks run in the "
        "driver's JVM.",
        "active": f"{100 * ACTIVE:.0f} % of the groups are reported, by all of their brokers:",
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


def _through_driver(runs: Sequence[Kept]) -> list[str]:
    lines = [
        "## What passes the driver",
        "",
        *wrapped(
            "MB of a round. *Results*: of all tasks, as Spark counts them; *limits*: the messages "
            "for brokers; *rest*: all else that the driver's Python gets; *it writes*: into files "
            "and pipes, but not to Kafka. Tasks write the history, and the driver commits it; "
            "*driver writes*: the executors have another disk than the history's."
        ),
        "| groups | executors | reports | results | limits | rest | it writes | by tasks: files "
        "| rows | MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        for kind, share in zip(KINDS, ("all", f"{100 * ACTIVE:.0f} %"), strict=True):
            of = run[kind]
            limits = of.get("to Python: messages", 0)
            cells = [of["resultSize"], limits, of["to Python"] - limits, of[WRITTEN]]
            lines += [
                f"| {size_in_words(run)} | {_executors(run)} | {share} | "
                + " | ".join(f"{each / _MB:.2f}" for each in cells)
                + f" | {of['files of tasks']:.0f} | {of['rows of files']:,.0f} "
                f"| {of['bytes of files'] / _MB:.1f} |"
            ]
    return [*lines, "", *_not_flat(runs)]


def _not_flat(runs: Sequence[Kept]) -> list[str]:
    by_tasks = [run for run in runs if not run["driver_writes"] and run["executors"]]
    least, most = (
        choose(by_tasks, key=lambda run: (run["groups"], run["executors"])) for choose in (min, max)
    )
    rest = [
        max(run[kind]["to Python"] - run[kind].get("to Python: messages", 0) for kind in KINDS)
        for run in (least, most)
    ]
    per_limit = most["whole"]["bytes of messages"] / most["entries"]
    shares = [f"{100 * driver_s(run['whole']) / _all(run['whole']):.0f} %" for run in (least, most)]
    lines = wrapped(
        f"**The history does not pass the driver.** Beside limits it gets {rest[0] / _MB:.2f} MB "
        f"of a round with {least['groups']:,} groups, and {rest[1] / _MB:.2f} MB with "
        f"{most['groups']:,}: the names of the files, counts, and those tables of a shard that "
        "are smaller than 1 MB. It takes "
        f"{shares[0]} of the processor time of a round with {least['groups']:,} groups, and "
        f"{shares[1]} with {most['groups']:,}."
    )
    for run in runs:
        if run["driver_writes"]:
            of = run["whole"]
            lines += wrapped(
                f"Where the driver writes the history, {of['to Python'] / _MB:.0f} MB pass it with "
                f"{run['groups']:,} groups, and it takes {driver_s(of):.2f} s, "
                f"{100 * driver_s(of) / _all(of):.0f} % of a round's processor time."
            )
    return lines + wrapped(
        f"**Limits do pass it**, {per_limit:.0f} bytes for each that changes where brokers use "
        "ids, and some 40 more with names of 40 characters. They are published after the history "
        "is committed, by one process, which checks before whether it still leads and has the "
        "keys that sign them. So the driver's part grows with the limits that change (below)."
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
        on = f"{_executors(run)} | {run['heap_gb']}"
        lines += [f"| {size_in_words(run)} | {on} | {' | '.join(cells)} |"]
    lines += [""]
    for run in runs:
        if "whole" not in run:
            lines += wrapped(
                f"{size_in_words(run)} groups on {run['executors']} executors did not fit: "
                f"{run['stopped']}"
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


def _method(about: str) -> list[str]:
    return [
        "## Method",
        "",
        *wrapped(
            "Medians of the warm rounds; with 3,000,000 groups there is one of each kind. A real "
            "Kafka server, a standalone cluster with authentication and encryption, history and "
            "checkpoint in a folder that all share, the law `max_min`, four dimensions. Brokers "
            "report in our own format, with ids, so that the feed is cheap; all reports are "
            "written before the job starts, and neither that nor Kafka counts. Shards have at most "
            "125,000 groups. A shard writes a snapshot of its leases (a row an entry) after 5 to "
            "31 s, by its size: with 3,000,000 groups in each round, else in some. A run is "
            "stopped before the machine's memory is used up. The code is `benchmarks/scale_out`."
        ),
        about,
        "",
    ]
