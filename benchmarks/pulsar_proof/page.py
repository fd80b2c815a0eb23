"""The results page: every word about who did well is made from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.machine import machine
from benchmarks.prose import wrapped, wrapped_all
from benchmarks.pulsar_proof.contenders import OBSERVED, Contender
from benchmarks.pulsar_proof.scenarios import (
    ALL,
    MUTED_FOR_S,
    PARTS,
    REPORT_INTERVAL_S,
    SWITCHED_ON,
    Scenario,
)
from benchmarks.quota_proof.figures import Figures, figures
from benchmarks.quota_proof.page import (
    WANTED_FAIR_S,
    WANTED_OVER,
    WANTED_SERVED_S,
    WANTED_UTILISATION,
    Verdicts,
    meanings,
    misses,
    titled,
    wants,
    within_s,
    words,
    write_files,
)
from benchmarks.quota_proof.record import Record

FOLDER: Final = "pulsar-proof"
WANTED_START_S: Final = 30.0
"""From the start of our programs until all topics have their rates."""
_CAUSES: Final = {
    "killed": " No report arrives until another broker has taken over the topic of usage reports, "
    "which the killed broker had.",
}
"""Reasons why a scenario is slow by itself, by its name."""
_PICTURES: Final = ("idle_wakes", "killed")
"""The scenarios whose plots are on the page; links lead to the others."""

Found = Mapping[tuple[str, str], Figures]
"""From the names of scenario and contender."""
Starts = Mapping[str, Mapping[str, float]]
"""From a contender's title to the milestones of its start, in seconds."""


def write(docs: Path, records: Sequence[Record], contenders: Sequence[Contender]) -> Path:
    """Write the page, its plots and its numbers; return the page's path."""

    def text(where: str | None) -> str:
        return page(records, contenders, where)

    found = found_in(records)
    return write_files(docs, FOLDER, ALL, contenders, records, found, text)


def page(
    records: Sequence[Record], contenders: Sequence[Contender], where: str | None = None
) -> str:
    """The page as Markdown; ``where`` it was measured, by default here and today."""
    starts = {
        contender.title: record.start
        for contender in contenders
        for record in records
        if record.contender == contender.name and record.start
    }
    return text(found_in(records), starts, contenders, where or machine("pyspark", "pulsar-client"))


def found_in(records: Sequence[Record]) -> dict[tuple[str, str], Figures]:
    """The figures of each record."""
    return {(record.scenario, record.contender): figures(record) for record in records}


def text(found: Found, starts: Starts, contenders: Sequence[Contender], machine: str) -> str:
    """The page, made of figures; ``machine`` is the paragraph about it."""
    there = [c for c in contenders if any(name == c.name for _, name in found)]
    verdicts = Verdicts(ALL, found, misses, words)
    lines = [
        "# Proof: a stock Pulsar cluster",
        "",
        *wrapped(
            "How soon and how well a quota is shared on a real cluster of three stock Pulsar "
            "brokers: with Pulsar's own calculator, with quotaplane as conf/pulsar.yaml sets it "
            "up, and with quotaplane on the brokers' *own reports only* (without "
            "[observed usage](../operate/pulsar.md#observed-usage)). [The arena](arena.md) "
            "compares more laws. `make pulsar-proof` writes this page; do not edit it."
        ),
        "## Result",
        "",
        *wrapped(
            f"Wanted: fair within {WANTED_FAIR_S:.0f} s of the event, or within "
            f"{WANTED_SERVED_S:.0f} s of the take-over where producers were muted before it; "
            f"utilisation at least {WANTED_UTILISATION:.0%}; overshoot at most {WANTED_OVER:.0%} "
            "once settled."
        ),
        *wrapped_all(*(verdicts.verdict(contender) for contender in there)),
        *_table(verdicts, there),
        *wrapped_all(
            *meanings(
                "after a kill, from the moment when the cluster's list of brokers shows it. Fair "
                "is max-min by what the topics at each broker want on average."
            )
        ),
    ]
    for scene in ALL:
        if scene.name in _PICTURES and any(name == scene.name for name, _ in found):
            lines += [
                f"{scene.title}:",
                "",
                f"![What got through at each broker]({FOLDER}/{scene.name}.svg)",
                "",
            ]
    lines += [
        *_starts(starts),
        *_short_falls(verdicts, starts),
        "## Method",
        "",
        *wrapped(
            "One ZooKeeper, one bookie, three brokers (4.0.8), their clients and our programs "
            "share a machine, and are started anew for each contender. The brokers publish "
            f"PIP-82's usage reports every {REPORT_INTERVAL_S} s. Each topic has a producer that "
            "drops what does not fit its queue; messages count that the broker acknowledged, or "
            "that a consumer received. Scenarios run in parts, side by side, each with a group of "
            f"its own; in *{SWITCHED_ON[0].title}* topics want their rates {MUTED_FOR_S:.0f} s "
            "before our programs are started. Settings are the defaults, with one shard. One run "
            "each: figures move by a few percent, and times by up to an interval of reports."
        ),
        machine,
        "",
        "## Run it again",
        "",
        *wrapped(
            f"`make pulsar-proof` writes [{FOLDER}/results.csv]({FOLDER}/results.csv) (each second "
            f"of each broker), [{FOLDER}/figures.csv]({FOLDER}/figures.csv) (all figures of all "
            "contenders), the plots and this page. `python -m benchmarks.pulsar_proof none` "
            "writes them again from the kept records."
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(verdicts: Verdicts[Scenario, Figures], contenders: Sequence[Contender]) -> list[str]:
    """Seconds to fair of all contenders, and more of the shipped settings."""
    lines = [
        "| scenario | wants, of the quota per second | seconds to fair: "
        + " | ".join(contender.title for contender in contenders)
        + " | utilisation | overshoot, settled | overshoot at most, 1 s / 5 s |",
        "|---|---|" + "---|" * (len(contenders) + 3),
    ]
    found = verdicts.found
    for scene in ALL:
        if not any(name == scene.name for name, _ in found):
            continue
        of_scene = [found.get((scene.name, contender.name)) for contender in contenders]
        seconds = [verdicts.seconds(scene, one) for one in of_scene]
        ours = found.get((scene.name, OBSERVED.name))
        cells = ["", "", ""] if ours is None else _cells(verdicts, scene, ours)
        lines.append(f"| {' | '.join((titled(scene, FOLDER), _wants(scene), *seconds, *cells))} |")
    return [
        *lines,
        "",
        *wrapped(
            "The last three columns are of quotaplane as shipped. Bold: not as good as wanted. A "
            "scenario's name leads to its plot."
        ),
    ]


def _cells(verdicts: Verdicts[Scenario, Figures], scene: Scenario, found: Figures) -> list[str]:
    return [
        verdicts.marked("utilisation", scene, found, f"{found.utilisation:.1%}"),
        verdicts.marked("over_settled", scene, found, f"{found.over_settled:.1%}"),
        f"{found.over_1_s:.0%} / {found.over_5_s:.0%}",
    ]


def _wants(scene: Scenario) -> str:
    """Demand of the brokers' topics before and after the event, and the quota.

    >>> _wants(ALL[1])
    '80/80/0 → 80/80/60 of 120'
    """
    return wants(scene, 1000.0, " kB") if scene.in_bytes else wants(scene)


def _starts(found: Starts) -> list[str]:
    """From the start of our programs until they are in control, under load."""
    if not found:
        return []
    milestones = list(dict.fromkeys(what for start in found.values() for what in start))
    rows = (
        f"| {what} | {' | '.join(f'{start[what]:.1f} s' for start in found.values())} |"
        for what in milestones
    )
    groups = (*SWITCHED_ON, *PARTS[0])
    return [
        "## From the start to control",
        "",
        *wrapped(
            "Job and enforcer are started at the same moment, without history or checkpoint, under "
            f"the load of {len(groups)} groups. Wanted: all topics have their rates within "
            f"{WANTED_START_S:.0f} s."
        ),
        f"| until | {' | '.join(found)} |",
        "|---|" + "---|" * len(found),
        *rows,
        "",
    ]


def _short_falls(verdicts: Verdicts[Scenario, Figures], starts: Starts) -> list[str]:
    """Shortfalls of the shipped settings; empty if they were not measured, or miss nothing."""
    _, missed = verdicts.judged(OBSERVED)
    if not missed:
        return []
    late = [
        over
        for scene in missed
        for one in [verdicts.found[scene.name, OBSERVED.name]]
        if misses(scene, one) == ["seconds_to_fair"] and one.seconds_to_fair is not None
        if (over := one.seconds_to_fair - within_s(scene)) < REPORT_INTERVAL_S
    ]
    start = starts.get(OBSERVED.title, {})
    return [
        "## Where quotaplane falls short",
        "",
        *wrapped(
            f"Bold figures miss what is wanted, in {len(missed)} scenarios."
            + (
                f" In {len(late)} of them the only miss is that shares are fair up to "
                f"{max(late):.1f} s too late: less than one interval of reports."
                if late
                else ""
            )
        ),
        *wrapped_all(
            *(verdicts.miss(scene, OBSERVED, _CAUSES.get(scene.name, "")) for scene in missed)
        ),
        "Besides:",
        "",
        *wrapped_all(
            *(
                [f"- From the start until {what} it takes {took:.1f} s."]
                if (took := start.get(what := "all topics have their rates", 0.0)) > WANTED_START_S
                else []
            ),
            "- Usage peaks in every report interval, also where the limits add up to the quota: "
            "stock brokers create new limiters whenever their calculator has run, and a new "
            "limiter lets a burst through.",
        ),
    ]
