"""The results page: every word about who did well is made from what was measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.pulsar_proof.contenders import Contender
from benchmarks.pulsar_proof.figures import SETTLED_S, WINDOW_S, Figures, fair, figures, means
from benchmarks.pulsar_proof.plots import picture
from benchmarks.pulsar_proof.record import SLOTS_PER_S, Record
from benchmarks.pulsar_proof.scenarios import (
    ALONE,
    BASE_S,
    REPORT_INTERVAL_S,
    TOGETHER,
    WATCH_S,
    Scenario,
)

FOLDER: Final = "pulsar-proof"
WANTED_INTERVALS: Final = 2.0
"""How soon after its event a scenario shall be fair again."""

_HEAD = (
    "| scenario | who | utilisation | worst broker's share | seconds to fair "
    "| overshoot, 1 s / 5 s |",
    "|---|---|---|---|---|---|",
)


def write(docs: Path, records: Sequence[Record], contenders: Sequence[Contender]) -> Path:
    """Write the page, its plots and its numbers; return the page's path."""
    folder = docs / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for scene in (*TOGETHER, *ALONE):
        found = _of(scene, records, contenders)
        if found:
            titles = [contender.title for contender, _ in found]
            drawn = picture([record for _, record in found], titles)
            (folder / f"{scene.name}.svg").write_text(drawn, encoding="utf-8")
    (folder / "results.csv").write_text(results_csv(records), encoding="utf-8")
    path = docs / "pulsar-proof.md"
    path.write_text(page(records, contenders), encoding="utf-8")
    return path


def page(records: Sequence[Record], contenders: Sequence[Contender]) -> str:
    """The page as Markdown."""
    there = [c.title for c in contenders if any(r.contender == c.name for r in records)]
    lines = [
        "# Proof: a stock Pulsar cluster",
        "",
        "Written by `make pulsar-proof`; nothing here is edited by hand. How it is measured is in",
        "`benchmarks/pulsar_proof/`; every second of it is in",
        f"[{FOLDER}/results.csv]({FOLDER}/results.csv).",
        "",
        "One ZooKeeper, one bookie and three stock brokers (4.0.8) on one machine, started anew",
        f"for each of: {', '.join(there)}. The brokers publish PIP-82's usage reports",
        f"every {REPORT_INTERVAL_S} s. Each topic has a producer of its own, in a process and on a",
        "connection of its own, that wants so many messages a second; what its queue does not take",
        "is dropped, as users do who do not wait. Counted is what the broker acknowledged, or what",
        f"a consumer received. {_numeral(len(TOGETHER))} scenarios run side by side, each with a",
        f"group of its own; one that fells a broker runs after them. {BASE_S:.0f} s are recorded",
        f"before each event and {WATCH_S:.0f} s after it, {WATCH_S / REPORT_INTERVAL_S:.0f} report",
        "intervals. One run each: figures move by a few percent, and times by up to an interval.",
        "",
        "## At a glance",
        "",
        *_HEAD,
        *(row for scene in (*TOGETHER, *ALONE) for row in _rows(scene, records, contenders)),
        "",
        "- *utilisation*: used of what could be, min(quota, demand), in the last",
        f"  {SETTLED_S:.0f} s.",
        "- *worst broker's share*: what the worst-off broker used of its fair share then. Fair is",
        "  max-min by what the topics at each broker want; a topic takes its demand along, and one",
        "  that no broker has wants nothing.",
        "- *seconds to fair*: after the event, until each broker's mean over the next",
        f"  {WINDOW_S:.0f} s was within 10 % of its fair share and stayed so; in brackets, report",
        "  intervals.",
        "- *overshoot*: by how much all brokers together exceeded the quota at most after the",
        "  event, as means over 1 s and 5 s.",
        "",
        "Stock brokers set their limiters anew whenever their calculator has run, and a new",
        "limiter lets a burst through: that is the peak in every report interval, and why they use",
        "more than the quota even where their limits add up to it.",
        "",
        f"Wanted: fair within {WANTED_INTERVALS:.0f} report intervals of the event.",
        "",
        *(line for contender in contenders for line in _verdict(contender, records)),
        "",
    ]
    for scene in (*TOGETHER, *ALONE):
        if _of(scene, records, contenders):
            lines += _section(scene)
    return "\n".join(lines).rstrip() + "\n"


def results_csv(records: Sequence[Record]) -> str:
    """Each second of each broker: what it wanted, should have had and used, as CSV."""
    out = io.StringIO()
    names = ("scenario", "contender", "second", "broker", "quota", "demand", "fair", "used")
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(names)
    for record in records:
        series = [np.asarray(record.demand).T, fair(record), np.asarray(record.usage).T]
        wanted, due, used = (means(values, 1.0)[::SLOTS_PER_S] for values in series)
        quota = means(np.asarray(record.quota), 1.0)[::SLOTS_PER_S]
        for second, allowed in enumerate(quota.tolist()):
            for broker in range(used.shape[1]):
                cells = (values[second, broker] for values in (wanted, due, used))
                at = (f"{record.from_s + second:.0f}", broker + 1, f"{allowed:g}")
                rows.writerow(
                    [record.scenario, record.contender, *at, *(f"{cell:.1f}" for cell in cells)]
                )
    return out.getvalue()


def _of(
    scene: Scenario, records: Sequence[Record], contenders: Sequence[Contender]
) -> list[tuple[Contender, Record]]:
    return [
        (contender, record)
        for contender in contenders
        for record in records
        if (record.contender, record.scenario) == (contender.name, scene.name)
    ]


def _rows(scene: Scenario, records: Sequence[Record], contenders: Sequence[Contender]) -> list[str]:
    return [
        f"| {scene.title} | {contender.title} | {_cells(figures(record))} |"
        for contender, record in _of(scene, records, contenders)
    ]


def _verdict(contender: Contender, records: Sequence[Record]) -> list[str]:
    """In which scenarios a contender was as good as wanted; nothing where it was not measured."""
    met, missed = [], []
    for scene in (*TOGETHER, *ALONE):
        for _, record in _of(scene, records, [contender]):
            seconds = figures(record).seconds_to_fair
            if seconds is not None and seconds <= WANTED_INTERVALS * REPORT_INTERVAL_S:
                met.append(scene.title)
            else:
                after = "never" if seconds is None else f"{seconds:.1f} s"
                missed.append(f"{scene.title} ({after})")
    if not met + missed:
        return []
    line = f"- {contender.title}: met in {len(met)} of {len(met + missed)}"
    return [f"{line}, not in: {'; '.join(missed)}." if missed else f"{line}."]


def _cells(found: Figures) -> str:
    seconds = found.seconds_to_fair
    fair_after = (
        "never" if seconds is None else f"{seconds:.1f} ({seconds / REPORT_INTERVAL_S:.1f})"
    )
    over = f"{found.over_1_s:.0%} / {found.over_5_s:.0%}"
    return f"{found.utilisation:.0%} | {found.worst_share:.0%} | {fair_after} | {over}"


def _section(scene: Scenario) -> list[str]:
    def wants(rates: Sequence[float]) -> str:
        return "/".join(f"{rate:.0f}" for rate in rates)

    what = "dispatch" if scene.dispatch else "publish"
    on = "a tenant, whose topics are in a namespace each" if scene.tenant else "a namespace"
    story = f"The group hangs on {on}; its {what} quota is {scene.quota:.0f} messages a second."
    story += f" The topics want {wants(scene.before)}"
    story += f", and then {wants(scene.after)}." if scene.after != scene.before else "."
    if scene.quota_after is not None:
        story += f" Then its quota becomes {scene.quota_after:.0f}."
    if scene.unload is not None:
        topic, broker = scene.unload
        story += f" Then the topic of broker {topic + 1} is unloaded to broker {broker + 1}."
    if scene.kill is not None:
        story += (
            f" Then broker {scene.kill + 1} gets SIGKILL; ZooKeeper notices 10 s later. This broker"
            " also holds the topic of usage reports: no report arrives until another broker has"
            " taken that topic over."
        )
    return [
        f"## {scene.title}",
        "",
        story,
        "",
        f"![What got through at each broker]({FOLDER}/{scene.name}.svg)",
        "",
    ]


def _numeral(number: int) -> str:
    words = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
    return words[number]
