"""The results page, written from the table: the whole table is in the CSV beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.arena import held as throttle_laws
from benchmarks.arena import wished
from benchmarks.arena.contenders import CAUSAL, CLAIRVOYANT, Contender
from benchmarks.arena.grid import Cell, Key, Table
from benchmarks.arena.scenarios import CONDITIONS, FEW, HARDER, WINDOW_S, Scenario
from benchmarks.arena.wishes import judge
from benchmarks.prose import wrapped, wrapped_all
from quotaplane.sim.broker_throttle import BY_DEFAULT
from quotaplane.sim.controller import LEASE_ROUNDS, SILENT_ROUNDS

_DEFAULT: Final = "ours, fast"
_STRICT: Final = "ours, strict"
_PIP82: Final = "pip82 each, stealing"
_SAME: Final = 0.005
"""Parts that differ by no more count as equal."""
_QUIET: Final = CONDITIONS[0].name
_ONLY_IN_THE_PLOTS: Final = (
    "ours, fast, over 10 %, stock reports",
    "pip82 each",
    "pip82 proportional",
    "Doorman PROPORTIONAL_SHARE",
    CLAIRVOYANT,
)
"""Laws whose figures are in the plots and in the CSV, but not in the tables."""


def page(
    table: Table,
    laws: Sequence[Contender],
    scenes: Sequence[Scenario],
    held: Sequence[throttle_laws.Held],
    pictures: str,
) -> str:
    """The page as Markdown; ``pictures`` is the folder of the plots and the CSV beside it."""
    ours = [law for law in laws if law.transition is not None]
    shown = [law for law in laws if law.name not in _ONLY_IN_THE_PLOTS]
    lines = [
        "# Arena: laws of division against each other",
        "",
        *wrapped(
            "A simulation of quotaplane's default law (*ours*) beside the laws of PIP-82, stock "
            "Pulsar, Doorman and TiKV, for readers who choose or change a law. "
            "[Laws](../explain/laws.md) has the formulas, [the proof](pulsar-proof.md) the "
            "comparison on a real cluster. `make arena` writes this page; do not edit it."
        ),
        *_method(),
        "## Result without noise",
        "",
        *wrapped(
            f"Mean of {len(scenes)} scenarios / the worst scenario; *limits over quota* is that of "
            "the worst."
        ),
        *_by_measure(table, shown, scenes),
        "Rounds to settle after the worst shift of a scenario (ours in bold):",
        "",
        f"![Rounds to settle, law by scenario]({pictures}/settling.svg)",
        "",
        "Two brokers share a quota; a third wakes in round 12 and sleeps again in round 28:",
        "",
        f"![Use of each broker while an idle one wakes]({pictures}/idle_wakes.svg)",
        "",
        "## Result with noise, losses and delays",
        "",
        "Fair rounds / refused of innocents, means of the scenarios:",
        "",
        *_by_condition(table, shown, scenes),
        f"Refused of innocents with {FEW} (grey: no innocents):",
        "",
        f"![Refused of innocents, law by scenario]({pictures}/innocents.svg)",
        "",
        "## Where our law loses",
        "",
        *wrapped(
            f"Scenarios in which another law, the ceilings apart, is better than *{_DEFAULT}* by "
            "more than half a percentage point, or by a round:"
        ),
        *_beaten(table, laws, scenes),
        *_reasons(table, scenes),
        "## Wishes",
        "",
        *wrapped(
            "Each of our laws is held to bounds in each scenario and condition. *Harder places* "
            "are scenarios and conditions that are counted by themselves: "
            f"{', '.join(sorted(HARDER))}."
        ),
        *wished.section(judge(table, ours), _DEFAULT),
        *throttle_laws.section(held, f"{pictures}/throttle.csv"),
        "## Run it again",
        "",
        *wrapped_all(
            f"- `make arena` writes [{pictures}/results.csv]({pictures}/results.csv) (every law, "
            "scenario, condition and measure), the plots and this page. The same code gives the "
            "same numbers.",
            "- `python -m benchmarks.arena --page` writes only this page, from the CSV files.",
            "- `python -m benchmarks.arena --brief` prints a summary of chosen laws and scenarios.",
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _method() -> list[str]:
    burst = BY_DEFAULT.samples * BY_DEFAULT.window_s / WINDOW_S
    return [
        "## Method",
        "",
        *wrapped(
            f"A round is {WINDOW_S:g} s. Each broker uses what it wants, up to its limit, and "
            "reports; at the end of the round a controller decides, and its limits are in force in "
            "the next round. A changed quota is known one round late, too. Brokers enforce limits "
            f"by token buckets in soft mode and may use {burst:.0%} more than the limit in the "
            "round in which they begin to want that much. Brokers that report what they refused "
            "report all of it: the best case for ours, Doorman and TiKV. With stock reports and "
            "under PIP-82's laws they report "
            "none of it. All laws run with the same random numbers. The scenarios are in "
            "`benchmarks/arena/scenarios.py`: PIP-82's examples, a flash crowd, a day in two time "
            "zones (*diurnal*), brokers that die and come back (*churn*), changing quotas, and "
            "others."
        ),
        "| condition | |",
        "|---|---|",
        *(
            f"| {condition.name} | {condition.says}"
            f"{f'; {condition.seeds} seeds' if condition.seeds > 1 else ''} |"
            for condition in CONDITIONS
        ),
        "",
        *wrapped_all(
            "- *ours*: `max_min` in the job's own step, transition `fast` or `strict`. *Stock "
            "reports*: brokers do not report what they refused. *Over 10 %*: limits may add up to "
            "1.1 times the quota, and overuse is paid back.",
            "- *pip82*: PIP-82 as worded, with stealing; the residual for *each* broker or "
            "*proportional*. *static*: an even split. *proportional*: stock Pulsar's calculator.",
            f"- *{CAUSAL}*: a ceiling, exact max-min of the last round's true demand.",
        ),
        *wrapped(
            "Measures ([glossary](../reference/glossary.md): *fair round*, *innocent*); parts are "
            "of the quota:"
        ),
        *wrapped_all(
            "- *use*: used, divided by what the causal optimum uses. Above 1: limits exceeded the "
            "quota, or busy brokers kept the share of others.",
            "- *not settled*: scenarios in which shares were not fair again before the next shift.",
            "- *limits over quota*: the sum of the limits in force above the quota; a broker "
            "without a limit counts as one that has the whole quota.",
            "- *movement*: the sum of the changes of all limits in a settled round.",
        ),
    ]


def _by_measure(table: Table, laws: Sequence[Contender], scenes: Sequence[Scenario]) -> list[str]:
    lines = [
        "| law | use, mean / worst | fair rounds | refused of innocents, mean / worst "
        "| not settled | limits over quota | movement |",
        "|---|---|---|---|---|---|---|",
    ]
    for law in laws:
        cells = _cells(table, law.name, _QUIET, scenes)
        use, refused = _known(cells, "of_causal"), _known(cells, "throttled_innocents")
        lines.append(
            f"| {_name(law)} | {np.mean(use):.3f} / {min(use):.3f} "
            f"| {np.mean(_known(cells, 'fair_part')):.0%} "
            f"| {_percent(np.mean(refused))} / {_percent(max(refused))} "
            f"| {_unsettled(cells)} of {len(cells)} "
            f"| {max(_known(cells, 'limits_over_quota')):.0%} "
            f"| {_percent(_mean(cells, 'movement'))} |"
        )
    return [*lines, ""]


def _by_condition(table: Table, laws: Sequence[Contender], scenes: Sequence[Scenario]) -> list[str]:
    names = [condition.name for condition in CONDITIONS if condition.name != _QUIET]
    lines = [f"| law | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for law in laws:
        found = (_cells(table, law.name, name, scenes) for name in names)
        cells = (
            f"{_mean(each, 'fair_part'):.0%} / {_percent(_mean(each, 'throttled_innocents'))}"
            for each in found
        )
        lines.append(f"| {_name(law)} | {' | '.join(cells)} |")
    return [*lines, ""]


def _beaten(table: Table, laws: Sequence[Contender], scenes: Sequence[Scenario]) -> list[str]:
    """In how many scenarios a rival is better, by measure and condition."""
    ceilings = (CAUSAL, CLAIRVOYANT)
    rivals = [law.name for law in laws if law.transition is None and law.name not in ceilings]
    measures = (
        ("of_causal", 1.0, _SAME),
        ("throttled_innocents", -1.0, _SAME),
        ("fair_part", 1.0, _SAME),
        ("settled_worst", -1.0, 0.0),
    )
    lines = [
        "| condition | more use | less refused of innocents | more fair rounds | settles sooner |",
        "|---|---|---|---|---|",
    ]
    for condition in CONDITIONS:
        counts = []
        for figure, sign, same in measures:
            beaten = 0
            for scene in scenes:
                key = Key(_DEFAULT, scene.name, condition.name)
                own = _value(table[key], figure)
                best = max(
                    sign * _value(table[key._replace(law=rival)], figure) for rival in rivals
                )
                beaten += best > sign * own + same
            counts.append(str(beaten))
        lines.append(f"| {condition.name} | {' | '.join(counts)} |")
    return [*lines, ""]


def _value(cell: Cell, figure: str) -> float:
    """A figure to compare; no innocents: nothing refused, never settled: infinite."""
    value: float | None = getattr(cell, figure)
    if value is None:
        return np.inf if figure == "settled_worst" else 0.0
    return value


def _reasons(table: Table, scenes: Sequence[Scenario]) -> list[str]:
    """The reasons, with the figures that show them."""

    def of(law: str, condition: str) -> list[Cell]:
        return _cells(table, law, condition, scenes)

    churn, mourned = (table[Key(law, "churn", _QUIET)] for law in (_DEFAULT, _STRICT))
    diurnal = table[Key(f"{_DEFAULT}, stock reports", "diurnal", _QUIET)]
    late, stuck = of(_DEFAULT, "delayed"), of(_STRICT, "delayed")
    few, pip82 = of(_DEFAULT, FEW), of(_PIP82, FEW)
    moves, over = of(_DEFAULT, "lost"), of(f"{_DEFAULT}, over 10 %", "lost")
    return wrapped_all(
        f"- **A broker dies.** Its share stays unused for {SILENT_ROUNDS[1]} rounds of silence, in "
        f"`strict` for the {LEASE_ROUNDS} rounds of its lease. In *churn* shares are "
        f"{_settled(churn)} and use is {churn.of_causal:.3f}; with `strict` shares are "
        f"{_settled(mourned)} and use is {mourned.of_causal:.3f}.",
        "- **Few messages in a round.** Limits keep headroom for noise, which costs use: "
        f"{_mean(few, 'of_causal'):.3f} with {FEW}, where *{_PIP82}* has "
        f"{_mean(pip82, 'of_causal'):.3f}. Its limits exceed the quota by up to "
        f"{max(_known(pip82, 'limits_over_quota')):.0%}, and shares do not settle in "
        f"{_unsettled(pip82)} of {len(pip82)} scenarios (ours: {_unsettled(few)}).",
        "- **Late reports.** `fast` acts on old reports: in a stretch of rounds usage exceeds the "
        f"quota by up to {max(_known(late, 'stretch_worst')):.0%} of one round's. `strict` waits "
        f"for confirmations that come late: use {_mean(stuck, 'of_causal'):.3f}, "
        f"{_percent(_mean(stuck, 'throttled_innocents'))} of innocents refused, "
        f"{_unsettled(stuck)} of {len(stuck)} scenarios not settled.",
        "- **Stock reports.** The demand of a saturated broker is guessed, step by step. In "
        f"*diurnal*, where demand moves all the time, shares are {_settled(diurnal)}.",
        "- **Limits over the quota.** In `fast` a broker has no limit until its first report. With "
        f"*over 10 %* limits move more when reports are lost: {_percent(_mean(over, 'movement'))} "
        f"of the quota in a round instead of {_percent(_mean(moves, 'movement'))}.",
    )


def _settled(cell: Cell) -> str:
    took = cell.settled_worst
    return "never fair" if took is None else f"fair after {took:g} rounds"


def _cells(table: Table, law: str, condition: str, scenes: Sequence[Scenario]) -> list[Cell]:
    return [table[Key(law, scene.name, condition)] for scene in scenes]


def _known(cells: Sequence[Cell], figure: str) -> list[float]:
    return [value for cell in cells if (value := getattr(cell, figure)) is not None]


def _mean(cells: Sequence[Cell], figure: str) -> float:
    return float(np.mean(_known(cells, figure)))


def _unsettled(cells: Sequence[Cell]) -> int:
    return sum(cell.settled_worst is None for cell in cells)


def _name(law: Contender) -> str:
    return f"**{law.name}**" if law.transition is not None else law.name


def _percent(part: float | np.floating) -> str:
    return f"{part:.2%}"
