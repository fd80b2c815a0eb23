"""The results page, written from the tables: every run is in the CSV beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.balance_arena.contenders import EPS, OURS, START, STOCK, STOP, Contender
from benchmarks.balance_arena.grid import Cell, Key, Table
from benchmarks.balance_arena.scenario import Scenario
from benchmarks.balance_arena.verdicts import Minimum, judge, rounds, still
from benchmarks.prose import wrapped, wrapped_all

_OURS: Final = OURS[0].name
_SHOWN: Final = (*STOCK, *OURS[: len(EPS)])


def page(
    table: Table, scenes: Sequence[Scenario], minimum: Sequence[Minimum], pictures: str
) -> str:
    """The page as Markdown; ``pictures`` is the folder of the plots and the CSV beside it."""
    lines = [
        "# Balance arena: quotaplane's balancer and Pulsar's",
        "",
        *wrapped(
            "A simulation of quotaplane's load balancer beside Pulsar's own shedders, for readers "
            "who choose between them. [Balance](../explain/balance.md) has the method, [the "
            "proof](balance-proof.md) the comparison on a real cluster. `make balance-arena` "
            "writes this page; do not edit it."
        ),
        *_method(),
        "## Result by strategy",
        "",
        *wrapped(
            f"Over the {sum(map(still, scenes))} scenarios that have to be balanced and then stay "
            "as they are: median and worst of the scenarios. *Moved* is the bytes per second of "
            "all moved bundles, as a part of the cluster's. *Moved again* and *receivers shed* "
            "(moves to a broker that shed within ten minutes, without an event between) are sums "
            "of the scenarios' means. "
            "The last column counts moves and splits in the balanced scenarios, where each is one "
            "too many: "
            f"{', '.join(_link(scene, pictures) for scene in scenes if scene.balanced)}."
        ),
        *_by_strategy(table, scenes),
        "## Result by scenario",
        "",
        *wrapped(
            "Final max/mean, median rounds to 1.15 and bytes moved; *best of Pulsar's* is the "
            "strategy with the lowest final max/mean. Ours stops at the wanted one. A scenario's "
            "name leads to its plot over time."
        ),
        *_by_scenario(table, scenes, pictures),
        "## Policies",
        "",
        *wrapped(
            "Scenarios with isolation policies or anti-affinity groups. Max/mean is that of pools. "
            "*Forbidden* is bundle-minutes on brokers that an isolation policy forbids; *together* "
            "minutes of namespaces that share a failure domain or broker with others of their "
            "group, beyond what is unavoidable. Rounds count until no bundle is where an isolation "
            "policy forbids it. When a policy is set, Pulsar by default unloads the namespaces "
            "that it matches (*rule added, unloaded*); with the unload scope `none` (*rule added "
            "under load*) it does not. It never unloads other namespaces that are on reserved "
            "brokers: these stay until they are shed."
        ),
        *_by_policy(table, scenes, pictures),
        *wrapped(
            "Balance costs moved bytes. Each panel shows bytes moved (to the right) and final "
            "max/mean (upwards); lower left is better. The line joins quotaplane's settings."
        ),
        f"![Bytes moved and final imbalance, a panel a scenario]({pictures}/planes.svg)",
        "",
        "## Where it falls short",
        "",
        *_verdicts(table, scenes, minimum),
        *_reasons(table, minimum),
        "## Run it again",
        "",
        *wrapped_all(
            f"- `make balance-arena` writes [{pictures}/results.csv]({pictures}/results.csv) "
            f"(every run), [{pictures}/minimum.csv]({pictures}/minimum.csv) (the least bytes), the "
            "plots and this page.",
            "- `python -m benchmarks.balance_arena --page` writes only this page, from the CSV "
            "files.",
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def slug(scene: Scenario) -> str:
    """The scenario's name in file names."""
    return "".join(c if c.isalnum() else "_" for c in scene.name).replace("___", "_")


def _method() -> list[str]:
    return [
        "## Method",
        "",
        *wrapped(
            "A cluster is simulated in steps of 5 seconds; three seeds, one for 200 brokers. "
            "Imbalance is judged on true loads: the use of the most used broker by the mean, "
            "weighted by capacity. With isolation policies a broker's mean is that of its pool, as "
            "in the [objective](../explain/balance.md#objective). "
            "Strategies know measured loads only, which are up to a minute old and have bursts and "
            "counting noise; they decide once a minute. A moved bundle is off line while it is "
            "closed and loaded. `benchmarks/balance_arena/` has the details."
        ),
        *wrapped(
            "Pulsar's strategies have its classes' names. They are quotaplane's reproductions "
            "of 4.0.8, which `tests/jvm/` compares with Pulsar's own classes to the last bit, with "
            "Pulsar's defaults; but `failureDomainsEnabled` is true where there are such domains. "
            "In the modular manager a bundle can end on another broker than the shedder wanted, "
            "as in 4.0.8. *Ours x* is quotaplane for a wanted max/mean of 1 + x, with "
            f"`start_above` {START:g} x and `stop_below` {STOP:g} x. The least bytes that must "
            "move are found by integer programming on the true loads of the start; isolation "
            "policies are part of it, anti-affinity is not."
        ),
    ]


def _by_strategy(table: Table, scenes: Sequence[Scenario]) -> list[str]:
    lines = [
        "| strategy | 1.15 reached | final max/mean | moved | off line, bundle-s | moved again "
        "| receivers shed | moves and splits if balanced |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for law in _SHOWN:
        cells = [table[Key(law.name, scene.name)] for scene in scenes if still(scene)]
        quiet = [table[Key(law.name, scene.name)] for scene in scenes if scene.balanced]
        reached = sum(bool(np.isfinite(cell.rounds(0)[0])) for cell in cells)
        lines.append(
            f"| {_name(law)} | {reached} of {len(cells)} "
            f"| {_median_and_worst(cells, 'final', 3)} | {_median_and_worst(cells, 'moved', 3)} "
            f"| {_median_and_worst(cells, 'offline_bundle_s', 0)} "
            f"| {_sum(cells, 'again')} | {_sum(cells, 'receivers_shed')} "
            f"| {_sum(quiet, 'actions')} |"
        )
    return [*lines, ""]


def _by_scenario(table: Table, scenes: Sequence[Scenario], pictures: str) -> list[str]:
    default = STOCK[0].name
    lines = [
        f"| scenario | {_OURS} | {default} (Pulsar's default) | best of Pulsar's | |",
        "|---|---|---|---|---|",
    ]
    for scene in scenes:
        if scene.balanced or scene.policies:
            continue
        best = _best(table, scene)
        cells = (_cell(table[Key(name, scene.name)]) for name in (_OURS, default, best))
        lines.append(f"| {_link(scene, pictures)} | {' | '.join(cells)} | {best} |")
    return [*lines, ""]


def _best(table: Table, scene: Scenario) -> str:
    """The strategy of Pulsar's that ends lowest."""
    return min(STOCK, key=lambda law: table[Key(law.name, scene.name)].mean("final")).name


def _by_policy(table: Table, scenes: Sequence[Scenario], pictures: str) -> list[str]:
    lines = [
        "| scenario | strategy | final max/mean | rounds to 1.15 | moves | moved | splits "
        "| forbidden | together |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for scene in scenes:
        if not scene.policies:
            continue
        best = _best(table, scene)
        for name in dict.fromkeys((_OURS, STOCK[0].name, best)):
            cell = table[Key(name, scene.name)]
            kind = {_OURS: f"**{_OURS}**", STOCK[0].name: f"{name} (default)"}.get(name, name)
            kind += ", best of Pulsar's" if name == best else ""
            counts = (f"{cell.mean(of):.0f}" for of in ("splits", "forbidden", "together"))
            lines.append(
                f"| {_link(scene, pictures)} | {kind} | {cell.mean('final'):.3f} "
                f"| {rounds(cell.rounds(0)[0])} | {cell.mean('moves'):.0f} "
                f"| {cell.mean('moved'):.3f} | {' | '.join(counts)} |"
            )
    return [*lines, ""]


def _link(scene: Scenario, pictures: str) -> str:
    return f"[{scene.name}]({pictures}/{slug(scene)}.svg)"


def _cell(cell: Cell) -> str:
    return f"{cell.mean('final'):.3f} / {rounds(cell.rounds(0)[0])} / {cell.mean('moved'):.3f}"


def _verdicts(table: Table, scenes: Sequence[Scenario], minimum: Sequence[Minimum]) -> list[str]:
    return [
        "| wanted of ours at 0.15, 0.10 and 0.05 | met | missed |",
        "|---|---|---|",
        *(
            f"| {one.wish} | {one.met} of {one.met + len(one.missed)} | {'; '.join(one.missed)} |"
            for one in judge(table, scenes, minimum)
        ),
        "",
    ]


def _reasons(table: Table, minimum: Sequence[Minimum]) -> list[str]:
    """The reasons, with the figures that show them."""
    many = table[Key(_OURS, "100 hot + 100 new")]
    drift, closer = (table[Key(law.name, "diurnal skew")] for law in OURS[:2])
    foreign = table[Key(_OURS, "foreign load")]
    new = next(one for one in minimum if (one.scenario, one.wanted) == ("new empty broker", 1.15))
    return wrapped_all(
        f"- **100 full brokers and 100 new ones**: {many.mean('moves'):,.0f} bundles move. A round "
        "has at most 3 moves for each broker, and all bundles have one of four hash ranges, of "
        "which Pulsar 4.0 can hand over one bundle at a time: some 10 moves a second.",
        f"- **A new empty broker** costs {new.ours_by_least:.2f} times the minimum at 1.15. The "
        "minimum knows true loads; after two samples a broker's load is known to 2 %, so ours "
        "relieves brokers below what is wanted.",
        "- **Load that moves by 1 % a minute** (diurnal skew): estimates are two to three minutes "
        f"behind. At 0.15 max/mean is above 1.15 in {drift.mean('over_minutes'):.0f} of 240 "
        f"minutes and {drift.mean('final'):.3f} at the end; at 0.10 in "
        f"{closer.mean('over_minutes'):.0f} minutes.",
        f"- **Foreign load**: ours moves {foreign.mean('moved'):.3f} of the bytes, down to "
        f"{foreign.mean('final'):.3f}. A strategy that stops earlier, in the last row of the "
        "table, moves less.",
        "- **Receivers that shed** exist at 0.05 and 0.10 only: where the load drifts, after a "
        "split, and while a new rule is followed.",
    )


def _median_and_worst(cells: Sequence[Cell], figure: str, digits: int) -> str:
    values = [cell.mean(figure) for cell in cells]
    return f"{np.median(values):.{digits}f} / {max(values):.{digits}f}"


def _sum(cells: Sequence[Cell], figure: str) -> str:
    return f"{sum(cell.mean(figure) for cell in cells):.0f}"


def _name(law: Contender) -> str:
    return f"**{law.name}**" if law.options else law.name
