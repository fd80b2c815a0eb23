"""The results page: every verdict on a contender is made from the records."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.balance_proof.contenders import (
    EXTENSIBLE_SETTINGS,
    OUR_BALANCE,
    STOCK_SETTINGS,
    Contender,
)
from benchmarks.balance_proof.figures import GOALS, STAYS_S, Figures, figures
from benchmarks.balance_proof.plots import picture
from benchmarks.balance_proof.record import SceneRecord
from benchmarks.balance_proof.scenes import (
    BROKERS,
    BUNDLES,
    FIRST_SHARES,
    HOT_SHARE,
    HOT_TOPICS,
    MESSAGE_BYTES,
    SCENES,
    STATS_INTERVAL_S,
    TOTAL_PER_S,
    Scene,
)
from benchmarks.prose import wrapped, wrapped_all

FOLDER: Final = "balance-proof"
_FIRST_BUNDLES: Final = BUNDLES + 1

_DESCRIPTIONS: Final = {
    "skewed": (
        "The load begins with brokers that carry "
        f"{', '.join(f'{share:.0%}' for share in FIRST_SHARES)} of it."
    ),
    "restarted": (
        "A broker is stopped cleanly, so the others get its bundles, and started again. The time "
        "begins when it serves again."
    ),
    "hot": (
        f"The {HOT_TOPICS} topics of one bundle want {HOT_SHARE:.0%} of all traffic: more than any "
        "broker should carry, so that only a split helps."
    ),
    "policy": (
        "While the load stays, an isolation policy leaves one broker to the namespace of the hot "
        "bundle alone. A broker's mean is now what its namespaces want, divided by their brokers. "
        "Pulsar itself unloads the bundles of a namespace that a new policy names, but not those "
        "of others on the policy's brokers. quotaplane's settings get the policy, too; the time "
        "begins when its programs, which are started again for that, are ready."
    ),
}

_HEAD: Final = (
    "| scenario | contender | max/mean, begin → end | "
    + " | ".join(f"seconds to {goal:g}" for goal in GOALS)
    + " | moves (repeated) | MB/s moved | splits | longest publish | seconds with one > 1 s"
    " | lost messages |",
    "|---|---|---|" + "---|" * (len(GOALS) + 6),
)


def write(docs: Path, records: Sequence[SceneRecord], contenders: Sequence[Contender]) -> Path:
    """Write the page, its plots and its numbers; return the page's path."""
    folder = docs / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for scene in SCENES:
        found = [(c, r) for c in contenders for r in records if _is(r, scene, c)]
        if found:
            drawn = picture([record for _, record in found], [c.title for c, _ in found])
            (folder / f"{scene.name}.svg").write_text(drawn, encoding="utf-8")
    (folder / "results.csv").write_text(results_csv(records), encoding="utf-8")
    path = docs / f"{FOLDER}.md"
    path.write_text(page(records, contenders), encoding="utf-8")
    return path


def page(records: Sequence[SceneRecord], contenders: Sequence[Contender]) -> str:
    """The page as Markdown."""
    lines = [
        "# Proof: balancing a stock Pulsar cluster",
        "",
        *wrapped(
            f"How soon load is balanced on a real cluster of {BROKERS} stock Pulsar brokers: with "
            "the brokers' own balancing, and with [quotaplane's](../operate/balance-executor.md), "
            "each with the modular and the extensible load manager. "
            "[The arena](balance-arena.md) has more scenarios and strategies. `make balance-proof` "
            "writes this page; do not edit it."
        ),
        "## Result",
        "",
        *_verdicts(records, contenders),
        *_HEAD,
        *(row for scene in SCENES for row in _rows(scene, records, contenders)),
        "",
        *wrapped_all(
            f"- *seconds to*: after the event, until max/mean is at most this for {STAYS_S} s. "
            "Load is what the topics of a broker want, in and out.",
            "- *moves*: changes of a bundle's owner, in brackets those of a bundle that had moved "
            "in the scenario already; *MB/s moved*: their traffic, in and out.",
            "- *longest publish*: from `send` until the acknowledgement. *lost*: did not fit a "
            "queue of 10 s, or failed.",
        ),
    ]
    for scene in SCENES:
        if any(record.scene == scene.name for record in records):
            lines += [
                *wrapped(f"**{scene.title}.** {_DESCRIPTIONS[scene.name]}"),
                f"![{scene.title}: imbalance and longest publish over time]"
                f"({FOLDER}/{scene.name}.svg)",
                "",
            ]
    lines += [
        "## Method",
        "",
        *wrapped(
            "One ZooKeeper, one bookie and the brokers (4.0.8; the modular load manager, where "
            "*extensible* is not said) on one machine, started anew for each contender. "
            "*quotaplane*: the brokers' shedding and splitting are off, and beside them run "
            "`quotaplane balance collect`, `./spark-submit.sh balance` and "
            "`quotaplane balance execute --auto`. "
            f"{BUNDLES} bundles with one topic each and one bundle with {HOT_TOPICS} topics begin "
            f"on the same brokers. Producers want {TOTAL_PER_S:.0f} messages of {MESSAGE_BYTES} "
            "bytes a second in total, by a fixed lognormal draw. Scenarios run one after the "
            "other on the same cluster. One run each: another run may differ by a decision "
            "interval."
        ),
        *wrapped(
            "Settings other than the defaults: "
            f"`statsUpdateFrequencyInSecs={STATS_INTERVAL_S}` for all (60 by default); for stock "
            f"{_listed(STOCK_SETTINGS)}; for stock, extensible {_listed(EXTENSIBLE_SETTINGS)}; "
            f"for quotaplane a round each {OUR_BALANCE['round_interval_s']:g} s, and bytes as the "
            "only resource (`OUR_BALANCE` in `benchmarks/balance_proof/contenders.py`)."
        ),
        *wrapped(
            "Limits of the comparison: ThresholdShedder (the default), AvgShedder and "
            "TransferShedder (the only one of the extensible manager) compare machines' processors "
            "and network cards, which are the same for all brokers here, and do nothing. "
            "UniformLoadShedder compares the bundles' "
            "traffic; its minimums are lowered to fit the load of one machine, and it sheds once a "
            "minute, the shortest interval that its setting allows."
        ),
        "## Run it again",
        "",
        *wrapped(
            f"`make balance-proof` writes [{FOLDER}/results.csv]({FOLDER}/results.csv) (each "
            "second of each scenario), the plots and this page. "
            "`python -m benchmarks.balance_proof none` writes them again from the kept records."
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _listed(settings: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in settings.items())


def results_csv(records: Sequence[SceneRecord]) -> str:
    """Each second of each scene and contender, as CSV."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    brokers = [f"broker_{place + 1}_bytes_per_s" for place in range(BROKERS)]
    measured = ["longest_ms", "p99_ms", "published", "lost", "moves"]
    rows.writerow(["scenario", "contender", "second", *brokers, "max_mean", *measured])
    for record in records:
        moves = [0] * len(record.wanted)
        for change in record.changes:
            moves[min(int(change.second), len(moves) - 1)] += 1
        for second, (wanted, imbalance) in enumerate(
            zip(record.wanted, record.max_mean().tolist(), strict=True)
        ):
            rows.writerow(
                [
                    *(record.scene, record.contender, second),
                    *(f"{amount:.0f}" for amount in wanted),
                    f"{imbalance:.3f}",
                    *(f"{ms[second]:.1f}" for ms in (record.longest_ms, record.p99_ms)),
                    *(record.published[second], record.lost[second], moves[second]),
                ]
            )
    return out.getvalue()


def _is(record: SceneRecord, scene: Scene, contender: Contender) -> bool:
    return (record.scene, record.contender) == (scene.name, contender.name)


def _figures(records: Sequence[SceneRecord], contender: Contender) -> dict[str, Figures]:
    found, bundles = {}, _FIRST_BUNDLES
    for scene in SCENES:
        for record in records:
            if _is(record, scene, contender):
                found[scene.name] = figures(record, bundles)
                bundles = record.bundles
    return found


def _rows(
    scene: Scene, records: Sequence[SceneRecord], contenders: Sequence[Contender]
) -> list[str]:
    rows = []
    for contender in contenders:
        one = _figures(records, contender).get(scene.name)
        if one is not None:
            to = " | ".join("never" if s is None else str(s) for s in one.seconds_to)
            rows.append(
                f"| {scene.title} | {contender.title} | {one.begin:.2f} → {one.end:.2f} | {to} "
                f"| {one.moves} ({one.repeated}) | {one.moved_mb_per_s:.2f} | {one.splits} "
                f"| {one.longest_ms / 1000:.2f} s | {one.slow_seconds} | {one.lost} |"
            )
    return rows


def _verdicts(records: Sequence[SceneRecord], contenders: Sequence[Contender]) -> list[str]:
    """In which scenes each contender reached the last goal."""
    lines = []
    for contender in contenders:
        found = _figures(records, contender)
        if not found:
            continue
        titles = {scene.name: scene.title for scene in SCENES}
        met = [titles[name] for name, one in found.items() if one.seconds_to[-1] is not None]
        missed = [
            f"{titles[name]} ({one.end:.2f} at the end)"
            for name, one in found.items()
            if one.seconds_to[-1] is None
        ]
        text = f"- {contender.title} reached {GOALS[-1]:g} in {len(met)} of {len(found)} scenarios"
        lines.append(text + (f"; not in: {', '.join(missed)}." if missed else "."))
    return wrapped_all(*lines)
