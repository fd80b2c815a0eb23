"""The results page: every word about who did well is made from the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.arena.contenders import CAUSAL, CLAIRVOYANT, Contender
from benchmarks.arena.grid import Cell, Key, Table
from benchmarks.arena.held import Held, section
from benchmarks.arena.scenarios import CONDITIONS, WINDOW_S, Scenario
from benchmarks.arena.wishes import Verdict, Wish
from quotaplane.sim.broker_throttle import BY_DEFAULT, SLOTS_PER_S
from quotaplane.sim.controller import LEASE_ROUNDS, SILENT_ROUNDS

_HEAD = (
    "| law | utilisation | of the causal optimum's | Jain mean / worst | rounds fair "
    "| rounds to settle, median / worst | overshoot | limits over quota | movement |",
    "|---|---|---|---|---|---|---|---|---|",
)


def page(
    table: Table,
    laws: Sequence[Contender],
    scenes: Sequence[Scenario],
    verdicts: Sequence[Verdict],
    held: Sequence[Held],
    pictures: str,
) -> str:
    """The page as Markdown; ``pictures`` is the folder of the plots and the CSV beside it."""
    lines = [
        "# Arena: laws against each other",
        "",
        "Written by `make arena`; nothing here is edited by hand. What is run and how is told in",
        "`benchmarks/arena/`; the whole table is in",
        f"[{pictures}/results.csv]({pictures}/results.csv), to be compared from one version to the",
        "next: the same code gives the same numbers.",
        "",
        *rules(scenes),
        *_wishes(verdicts),
        "## At a glance",
        "",
        "Rounds until everybody was within 10 % of fair and stayed there, after the worst shift of",
        "a scenario, without noise (ours in bold; the ceilings below):",
        "",
        f"![Rounds to settle, law by scenario]({pictures}/settling.svg)",
        "",
        "What was used, as a part of what the causal optimum used, without noise:",
        "",
        f"![Use, law by scenario]({pictures}/use.svg)",
        "",
        "By how much the limits in force exceeded the quota in the worst round, without noise:",
        "",
        f"![Limits over the quota, law by scenario]({pictures}/over.svg)",
        "",
        "Two brokers share a quota, a third wakes in round 12 and sleeps again in round 28:",
        "",
        f"![Use of each broker while an idle one wakes]({pictures}/idle_wakes.svg)",
        "",
        "One of five brokers wants thirty times as much from round 12 to 28:",
        "",
        f"![Use of each broker in a flash crowd]({pictures}/flash_crowd.svg)",
        "",
        "Over all scenarios (means; overshoot, limits and worst are those of the worst scenario;",
        "*never* counts scenarios in which some shift was not settled before the next one):",
        "",
        *_overview(table, laws, scenes),
        *section(held),
        "## Every scenario",
        "",
        "Overshoot (of usage), limits and movement are parts of the quota. Without noise; other",
        f"conditions are in [{pictures}/results.csv]({pictures}/results.csv).",
        "",
    ]
    for scene in scenes:
        lines += [f"### {scene.name}", "", f"{scene.asks[0].upper()}{scene.asks[1:]}.", ""]
        lines += _results(table, laws, scene)
    return "\n".join(lines).rstrip() + "\n"


def rules(scenes: Sequence[Scenario]) -> list[str]:
    """How it is played and by whom."""
    rates = np.concatenate([scene.demand[scene.demand > 0] for scene in scenes])
    burst = BY_DEFAULT.samples * BY_DEFAULT.window_s
    low, high = (100 / np.sqrt(WINDOW_S * rate) for rate in (rates.max(), rates.min()))
    return [
        "## The game",
        "",
        f"A round is {WINDOW_S:g} s. Every broker uses what it wants, as far as its limit lets it,",
        "and reports; at the end of the round a controller gets the reports that have arrived and",
        "decides; its limits are in force in the next round. A quota that changes is known at the",
        "end of the first round in which it holds, one round late like everything else. A dead",
        "broker neither uses nor reports; one that comes back knows nothing. Ours gives a silent",
        f"broker up after {SILENT_ROUNDS[1]} rounds; strict, when its lease of {LEASE_ROUNDS}",
        "rounds is over. Round 0 has no limits yet and is not judged, so no cold start can be",
        "settled in fewer rounds than 1.",
        "",
        "Limits are token buckets, at every broker and under every law: what a limit allows in",
        f"{burst:g} s is there at first, and then comes in bit by bit. A request that overdraws",
        "the bucket is admitted, and its client sends nothing until that is paid for: the soft",
        f"mode, as stock brokers have it. Requests come {SLOTS_PER_S} times a second and are for",
        f"{1 / SLOTS_PER_S:g} s of the limit at most; what a client could not send is lost. So a",
        f"broker may use {burst / WINDOW_S:.0%} more than its limit in the round in which it",
        "begins to want that much. In any time all brokers together use no more than their limits",
        "times that time, the bursts, and a request each. Only the clairvoyant's brokers are",
        "ideal, and use min(demand, limit).",
        "",
        "Brokers that tell what they refused tell all of it, demand - usage: they are taken to",
        "know what their clients want, as our report format asks (refused or delayed). A soft",
        "broker that no longer reads from a client sees less than that. So the figures of whoever",
        "uses it are the best case: ours, Doorman, TiKV. Stock reports, and PIP-82's laws, do",
        "without.",
        "",
        "| condition | |",
        "|---|---|",
        *(
            f"| {condition.name} | {condition.says}"
            f"{f'; {condition.seeds} seeds' if condition.seeds > 1 else ''} |"
            for condition in CONDITIONS
        ),
        "",
        f"Poisson noise (standard deviation) here is {low:.1f} % of the largest broker's demand",
        f"and {high:.1f} % of the smallest's. Fairness is judged on mean demand: whether",
        "min(mean demand, limit) is within 10 % of the fair share of mean demand. Every law has",
        "the same luck.",
        "",
        "- *utilisation*: used of what could have been used, min(quota, demand), which is what the",
        f"  {CLAIRVOYANT} uses; *of the causal optimum's*: divided by that of the {CAUSAL}, which",
        "  sees each round's true demand at its end and divides the quota by exact max-min, the",
        "  spare evenly: the best for anyone who sees demand one round late. (A law can be above 1",
        "  if its limits exceed the quota, or if the greedy keep what others should have.)",
        "- *Jain*: Jain's index of used / fair share of the round's true demand.",
        "- *rounds fair*: part of the rounds in which that was so for everybody.",
        "- *rounds to settle*: after a shift, until that is so and stays so; of shifts and seeds.",
        "- *limits over quota*: of all limits in force together, in the worst round; a broker that",
        "  has no limit yet counts as one that has the whole quota.",
        "- *overshoot*: of what was used, in the worst round. That of the round in which a quota",
        "  falls, of which nobody can know, and of bursts is in it.",
        "- *movement*: the sum of all limits' moves per settled round.",
        "",
    ]


def _wishes(verdicts: Sequence[Verdict]) -> list[str]:
    """What is wanted of our law, met or missed, and by how much."""
    by_law: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_law.setdefault(verdict.law, []).append(verdict)
    verdicts = [verdict for group in by_law.values() for verdict in group]
    places = {
        law: (sum(v.met for v in group), sum(v.met + len(v.missed) for v in group))
        for law, group in by_law.items()
    }
    lines = [
        "## Wanted of our default law",
        "",
        "Rounds to settle are those of the worst shift and seed. What noise moves is taken to be",
        "what the causal optimum's limits move, which only follow demand. Met, of all wishes in",
        "all scenarios:",
        "",
        *(f"- {law}: {met} of {count}" for law, (met, count) in places.items()),
        "",
        "| wish | law | met in | worst |",
        "|---|---|---|---|",
    ]
    for verdict in verdicts:
        places = verdict.met + len(verdict.missed)
        word = "all" if not verdict.missed else f"{verdict.met}"
        lines.append(
            f"| {verdict.wish.name} | {verdict.law} | {word} of {places} | {_worst(verdict)} |"
        )
    lines.append("")
    if any(verdict.missed for verdict in verdicts):
        lines += [
            "Where a wish is not met, by how much, and what the figures tell of the reason:",
            "",
        ]
    for verdict in verdicts:
        if verdict.missed:
            lines += _missed(verdict)
    return lines


def _worst(verdict: Verdict) -> str:
    if not verdict.missed:
        return ""
    wish = verdict.wish

    def by(missed: tuple[float | None, float]) -> float:
        value, wanted = missed
        if value is None:
            return np.inf
        return value - wanted if wish.at_most else wanted - value

    worst = max(verdict.missed, key=lambda place: by(place.found[:2]))
    return f"{_number(wish, worst.found.value)} ({worst.key.scenario}, {worst.key.condition})"


def _missed(verdict: Verdict) -> list[str]:
    wish = verdict.wish
    return [
        f"**{wish.name}** ({verdict.law}):",
        "",
        "| scenario | condition | found | wanted | causal optimum | |",
        "|---|---|---|---|---|---|",
        *(
            f"| {place.key.scenario} | {place.key.condition} | {_number(wish, place.found.value)} "
            f"| {'at most' if wish.at_most else 'at least'} {_number(wish, place.found.wanted)} "
            f"| {_number(wish, place.found.best)} | {place.why} |"
            for place in verdict.missed
        ),
        "",
    ]


def _number(wish: Wish, value: float | None) -> str:
    if value is None:
        return "never"
    return {"rounds": f"{value:.0f}", "part": f"{value:.4f}", "quota": f"{100 * value:.2f} %"}[
        wish.unit
    ]


def _overview(table: Table, laws: Sequence[Contender], scenes: Sequence[Scenario]) -> list[str]:
    lines = []
    for condition in CONDITIONS:
        lines += [
            f"**{condition.name}**: {condition.says}",
            "",
            "| law | of the causal optimum's use, mean / worst | Jain mean | rounds fair | never "
            "| overshoot | limits over quota | movement |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for law in laws:
            cells = [table[Key(law.name, scene.name, condition.name)] for scene in scenes]
            moved = [cell.movement for cell in cells if cell.movement is not None]
            of_causal = [cell.of_causal for cell in cells]
            lines.append(
                f"| {_name(law)} | {np.mean(of_causal):.3f} / {min(of_causal):.3f} "
                f"| {np.mean([cell.jain_mean for cell in cells]):.3f} "
                f"| {np.mean([cell.fair_part for cell in cells]):.0%} "
                f"| {sum(cell.settled_worst is None for cell in cells)} of {len(cells)} "
                f"| {max(cell.overshoot_worst for cell in cells):.0%} "
                f"| {max(cell.limits_over_quota for cell in cells):.0%} "
                f"| {_percent(float(np.mean(moved)) if moved else None)} |"
            )
        lines.append("")
    lines += ["The laws:", "", "| law | |", "|---|---|"]
    lines += [f"| {_name(law)} | {law.says} |" for law in laws]
    return [*lines, ""]


def _results(table: Table, laws: Sequence[Contender], scene: Scenario) -> Iterable[str]:
    key = Key("", scene.name, CONDITIONS[0].name)
    return [*_HEAD, *(_row(law, table[key._replace(law=law.name)]) for law in laws), ""]


def _row(law: Contender, cell: Cell) -> str:
    settled = " / ".join(
        "never" if rounds is None else f"{rounds:g}"
        for rounds in (cell.settled_median, cell.settled_worst)
    )
    return (
        f"| {_name(law)} | {cell.utilisation:.3f} | {cell.of_causal:.3f} "
        f"| {cell.jain_mean:.3f} / {cell.jain_worst:.2f} | {cell.fair_part:.0%} | {settled} "
        f"| {cell.overshoot_worst:.0%} | {cell.limits_over_quota:.0%} "
        f"| {_percent(cell.movement)} |"
    )


def _name(law: Contender) -> str:
    return f"**{law.name}**" if law.transition is not None else law.name


def _percent(part: float | None) -> str:
    return "" if part is None else f"{100 * part:.2f} %"
