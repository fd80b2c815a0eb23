"""The results page: every word about who did well is made from what was measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.machine import machine, machine_on
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
from benchmarks.quota_proof.figures import (
    SETTLED_S,
    WINDOW_S,
    Figures,
    by_window,
    fair,
    figures,
    means,
)
from benchmarks.quota_proof.plots import picture
from benchmarks.quota_proof.record import SLOTS_PER_S, Record

FOLDER: Final = "pulsar-proof"
WANTED_FAIR_S: Final = 3.0
"""How soon after its event a scenario shall be fair again."""
WANTED_SERVED_S: Final = 10.0
"""The same after the take-over, for producers that were muted until then."""
WANTED_UTILISATION: Final = 0.97
WANTED_OVER: Final = 0.05
WANTED_START_S: Final = 30.0
"""From the start of our programs until all topics have their rates."""
_OF_ARRIVALS: Final = {"even": "", "poisson": "", "on_off": " (0.25 s each)"}
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
    folder = docs / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for scene in ALL:
        found = _of(scene, records, contenders)
        if found:
            titles = [contender.title for contender, _ in found]
            drawn = picture([record for _, record in found], titles)
            (folder / f"{scene.name}.svg").write_text(drawn, encoding="utf-8")
    (folder / "results.csv").write_text(results_csv(records), encoding="utf-8")
    path, figures_file, new = docs / f"{FOLDER}.md", folder / "figures.csv", found_in(records)
    known = path.exists() and figures_file.exists() and figures_file.read_text() == figures_csv(new)
    figures_file.write_text(figures_csv(new), encoding="utf-8")
    path.write_text(page(records, contenders, machine_on(path) if known else None), "utf-8")
    return path


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
        *wrapped_all(*(_verdict(contender, found) for contender in there)),
        *_table(found, there),
        *wrapped_all(
            "- *seconds to fair*: after the event, until each broker's mean over the next "
            f"{WINDOW_S:.0f} s was within 10 % of its fair share and stayed so; after a kill, from "
            "the moment when the cluster's list of brokers shows it. Fair is max-min by what the "
            "topics at each broker want on average.",
            "- *utilisation*: used of what could be, min(quota, demand), in the last "
            f"{SETTLED_S:.0f} s.",
            "- *overshoot, settled*: by how much all brokers together exceeded the quota at most "
            f"in the last {SETTLED_S:.0f} s, as means over {WINDOW_S:.0f} s; *at most*: at any "
            "time after the event.",
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
        *_short_falls(found, starts),
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


def _table(found: Found, contenders: Sequence[Contender]) -> list[str]:
    """Seconds to fair of all contenders, and more of the shipped settings."""
    lines = [
        "| scenario | wants, of the quota per second | seconds to fair: "
        + " | ".join(contender.title for contender in contenders)
        + " | utilisation | overshoot, settled | overshoot at most, 1 s / 5 s |",
        "|---|---|" + "---|" * (len(contenders) + 3),
    ]
    for scene in ALL:
        of_scene = {name: found[at] for at in found if (name := at[1]) and at[0] == scene.name}
        if not of_scene:
            continue
        seconds = [_seconds(scene, of_scene.get(contender.name)) for contender in contenders]
        ours = of_scene.get(OBSERVED.name)
        cells = ["", "", ""] if ours is None else _cells(scene, ours)
        link = f"[{scene.title}{_OF_ARRIVALS[scene.arrivals]}]({FOLDER}/{scene.name}.svg)"
        lines.append(f"| {' | '.join((link, _wants(scene), *seconds, *cells))} |")
    return [
        *lines,
        "",
        *wrapped(
            "The last three columns are of quotaplane as shipped. Bold: not as good as wanted. A "
            "scenario's name leads to its plot."
        ),
    ]


def _seconds(scene: Scenario, found: Figures | None) -> str:
    if found is None:
        return ""
    took = found.seconds_to_fair
    return _marked("seconds_to_fair", scene, found, "never" if took is None else f"{took:.1f}")


def _cells(scene: Scenario, found: Figures) -> list[str]:
    return [
        _marked("utilisation", scene, found, f"{found.utilisation:.1%}"),
        _marked("over_settled", scene, found, f"{found.over_settled:.1%}"),
        f"{found.over_1_s:.0%} / {found.over_5_s:.0%}",
    ]


def _marked(figure: str, scene: Scenario, found: Figures, words: str) -> str:
    return f"**{words}**" if figure in misses(scene, found) else words


def _wants(scene: Scenario) -> str:
    """Demand of the brokers' topics before and after the event, and the quota.

    >>> _wants(ALL[1])
    '80/80/0 → 80/80/60 of 120'
    """
    scale = 1000 if scene.in_bytes else 1

    def rates(values: Sequence[float]) -> str:
        return "/".join(f"{value / scale:g}" for value in values)

    wants = rates(scene.before)
    if scene.after != scene.before:
        wants += f" → {rates(scene.after)}"
    quota = rates([scene.quota])
    if scene.quota_after is not None:
        quota += f" → {rates([scene.quota_after])}"
    return f"{wants} of {quota}{' kB' if scene.in_bytes else ''}"


def figures_csv(found: Found) -> str:
    """All figures of all contenders as CSV; empty: never fair, or no innocents."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["scenario", "contender", *Figures.__dataclass_fields__])
    digits = {"utilisation": 3, "throttled_innocents": 3, "seconds_to_fair": 1, "over_settled": 3}
    for (scene, contender), one in found.items():
        cells = (
            None if value is None else f"{value:.{digits.get(name, 2)}f}"
            for name, value in asdict(one).items()
        )
        rows.writerow([scene, contender, *cells])
    return out.getvalue()


def results_csv(records: Sequence[Record]) -> str:
    """Each second of each broker: what it wanted, should have had and used, as CSV."""
    out = io.StringIO()
    names = ("scenario", "contender", "second", "broker", "quota", "demand", "fair", "used")
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(names)
    for record in records:
        wanted, used = (by_window(series, 1.0) for series in (record.demand, record.usage))
        series = (wanted, fair(record, 1.0), used, means(np.asarray(record.quota), 1.0))
        wanted, due, used, quota = (each[::SLOTS_PER_S] for each in series)
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


def misses(scene: Scenario, found: Figures) -> list[str]:
    """The figures that are not as good as wanted."""
    seconds = found.seconds_to_fair
    missed = []
    if seconds is None or seconds > _within_s(scene):
        missed.append("seconds_to_fair")
    if found.utilisation < WANTED_UTILISATION:
        missed.append("utilisation")
    if found.over_settled > WANTED_OVER:
        missed.append("over_settled")
    return missed


def _within_s(scene: Scenario) -> float:
    return WANTED_SERVED_S if scene.before_control else WANTED_FAIR_S


def _judged(contender: Contender, found: Found) -> tuple[list[Scenario], list[Scenario]]:
    """The scenarios in which a contender was as good as wanted, and the others."""
    own = [scene for scene in ALL if (scene.name, contender.name) in found]
    missed = [scene for scene in own if misses(scene, found[scene.name, contender.name])]
    return [scene for scene in own if scene not in missed], missed


def _verdict(contender: Contender, found: Found) -> str:
    met, missed = _judged(contender, found)
    own = [one for (_, name), one in found.items() if name == contender.name]
    unfair = sum(one.seconds_to_fair is None for one in own)
    return (
        f"- {contender.title}: met in {len(met)} of {len(met) + len(missed)} scenarios; never fair "
        f"in {unfair}; overshoot, settled, up to {max(one.over_settled for one in own):.1%}."
    )


def _miss(scene: Scenario, found: Figures) -> str:
    """A scenario that misses what is wanted, with the figures that do."""
    took = found.seconds_to_fair
    words = {
        "seconds_to_fair": "never fair" if took is None else f"fair after {took:.1f} s",
        "utilisation": f"utilisation {found.utilisation:.1%}",
        "over_settled": f"overshoot, settled, {found.over_settled:.1%}",
    }
    missed = ", ".join(words[name] for name in misses(scene, found))
    return f"- *{scene.title}*: {missed}.{_CAUSES.get(scene.name, '')}"


def _short_falls(found: Found, starts: Starts) -> list[str]:
    """Shortfalls of the shipped settings; empty if they were not measured, or miss nothing."""
    _, missed = _judged(OBSERVED, found)
    if not missed:
        return []
    late = [
        over
        for scene in missed
        for one in [found[scene.name, OBSERVED.name]]
        if misses(scene, one) == ["seconds_to_fair"] and one.seconds_to_fair is not None
        if (over := one.seconds_to_fair - _within_s(scene)) < REPORT_INTERVAL_S
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
        *wrapped_all(*(_miss(scene, found[scene.name, OBSERVED.name]) for scene in missed)),
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
