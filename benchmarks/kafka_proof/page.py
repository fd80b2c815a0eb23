"""The results page: every word about who did well is made from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from benchmarks.kafka_proof.contenders import BROKERS, OURS, THIRD, WINDOW, Contender
from benchmarks.kafka_proof.figures import KafkaFigures, found_in
from benchmarks.kafka_proof.record import KafkaRecord, together
from benchmarks.kafka_proof.scenarios import ALL, GONE_S, LEASE_S, Scenario
from benchmarks.machine import machine
from benchmarks.prose import wrapped, wrapped_all
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
    words,
    write_files,
)

FOLDER: Final = "kafka-proof"
WANTED_MUTE_S: Final = 5.0
"""Nobody shall be muted for longer."""
WANTED_OTHERS: Final = 0.01
"""A client without a quota shall lose no larger part of its demand."""
_PICTURES: Final = ("idle_wakes", "killed", "gone")
"""The scenarios whose plots are on the page; links lead to the others."""
_SLOW_ROUND: Final = (
    " Brokers report each second, a round begins up to a second after a report, and a client "
    "counts as held back after a whole report."
)
_NOISE: Final = (
    " The two small brokers get headroom for their noise, at most 5% of the third's share. What "
    "they do not use of it is lost, as limits together keep to the quota (`limits.over` is 0); so "
    "is what does not fit a client's queue of half a second."
)
_FULL: Final = (
    " The quota is just used up. Kafka mutes the clients of the small brokers nearly all the time "
    "then, though they get what they want, and the plugin can't tell; so the third one gives way "
    "for a second now and then."
)
_CHANGE: Final = (
    " Clients are not seen to be held back in the second in which their limits change, so the next "
    "limits follow what they used in it, and the ones after that are right."
)
_CAUSES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("idle_wakes", "grows", "hot", "large"), _SLOW_ROUND),
    **dict.fromkeys(("halved", "doubled"), _CHANGE),
    **dict.fromkeys(("poisson", "on_off"), _NOISE),
    "gone": _FULL,
}
"""Reasons why a scenario falls short, by its name."""

Found = Mapping[tuple[str, str], KafkaFigures]
"""From the names of scenario and contender."""


def write(docs: Path, records: Sequence[KafkaRecord], contenders: Sequence[Contender]) -> Path:
    """Write the page, its plots and its numbers; return the page's path."""
    records = _in_order(records, contenders)
    found = found_in(records)
    whole = [
        together(list(own)) for _, own in groupby(records, lambda r: (r.contender, r.scenario))
    ]

    def written(where: str | None) -> str:
        return text(found, contenders, where or machine("pyspark", "confluent-kafka"))

    return write_files(docs, FOLDER, ALL, contenders, whole, found, written)


def _in_order(records: Sequence[KafkaRecord], contenders: Sequence[Contender]) -> list[KafkaRecord]:
    """As the scenarios and contenders are: some may have been measured again."""
    scenes = [scene.name for scene in ALL]
    names = [contender.name for contender in contenders]
    return sorted(
        records,
        key=lambda r: (names.index(r.contender), scenes.index(r.scenario), r.tenant),
    )


def missed_by(scene: Scenario, found: KafkaFigures) -> list[str]:
    """The figures that are not as good as wanted."""
    missed = misses(scene, found)
    if found.mute_s > WANTED_MUTE_S:
        missed.append("mute_s")
    if found.others_refused > WANTED_OTHERS:
        missed.append("others_refused")
    return missed


def _words(found: KafkaFigures) -> dict[str, str]:
    return words(found) | {
        "mute_s": f"a client muted for {found.mute_s:.1f} s",
        "others_refused": f"a client without a quota lost {found.others_refused:.1%}",
    }


def text(found: Found, contenders: Sequence[Contender], machine: str) -> str:
    """The page, made of figures; ``machine`` is the paragraph about it."""
    there = [c for c in contenders if any(name == c.name for _, name in found)]
    verdicts = Verdicts(ALL, found, missed_by, _words)
    lines = [
        "# Proof: a Kafka cluster",
        "",
        *wrapped(
            "How soon and how well a tenant's quota is shared on a real cluster of three Kafka "
            "brokers: with Kafka's own client quotas, which are the same number on every broker, "
            "set to the whole quota or to a third of it; and with quotaplane's plugin in the "
            "brokers and its job beside them. [The arena](arena.md) compares more laws. `make "
            "kafka-proof` writes this page; do not edit it."
        ),
        "## Result",
        "",
        *wrapped(
            f"Wanted: fair within {WANTED_FAIR_S:.0f} s of the event, or within "
            f"{WANTED_SERVED_S:.0f} s of the take-over where nobody limited before it; "
            f"utilisation at least {WANTED_UTILISATION:.0%}; overshoot at most {WANTED_OVER:.0%} "
            f"once settled; no client muted for more than {WANTED_MUTE_S:.0f} s; a client without "
            f"a quota gets at least {1 - WANTED_OTHERS:.0%} of what it wants."
        ),
        *wrapped_all(*(verdicts.verdict(contender) for contender in there)),
        *_table(verdicts, there),
        *wrapped_all(
            *meanings(
                "after a kill, from the moment when the cluster's metadata shows it; after a "
                "restart, from the moment when the broker's partitions have a leader again; after "
                "the job's absence, from its first new limits. Fair is max-min by what clients at "
                "each broker want on average."
            ),
            "- *longest mute*: for how long a client had messages waiting at a broker, and none "
            "was acknowledged, or received; not while a partition had no leader.",
        ),
        *_windows(verdicts),
        *_others(found, there),
    ]
    for scene in ALL:
        if scene.name in _PICTURES and any(name == scene.name for name, _ in found):
            lines += [
                f"{scene.title}:",
                "",
                f"![What got through at each broker]({FOLDER}/{scene.name}.svg)",
                "",
            ]
    lines += [*_short_falls(verdicts), *_method(), machine, "", *_again()]
    return "\n".join(lines).rstrip() + "\n"


def _table(
    verdicts: Verdicts[Scenario, KafkaFigures], contenders: Sequence[Contender]
) -> list[str]:
    """A row for each scenario; a cell has the figure of each contender."""
    lines = [
        "| scenario | wants, of the quota, kB per second | seconds to fair: "
        + " | ".join(contender.title for contender in contenders)
        + " | utilisation | overshoot, settled | longest mute, s | overshoot at most, 1 s / 5 s |",
        "|---|---|" + "---|" * (len(contenders) + 4),
    ]
    for scene in ALL:
        found = [verdicts.found.get((scene.name, contender.name)) for contender in contenders]
        if any(found):
            cells = [verdicts.seconds(scene, one) for one in found]
            cells += [_of_all(verdicts, scene, figure, found) for figure in _FORMATS]
            ours = verdicts.found.get((scene.name, OURS.name))
            cells.append("" if ours is None else f"{ours.over_1_s:.0%} / {ours.over_5_s:.0%}")
            head = titled(scene, FOLDER), f"{_tenants(scene)}{wants(scene)}"
            lines.append(f"| {' | '.join((*head, *cells))} |")
    return [
        *lines,
        "",
        *wrapped(
            "Where a cell has a figure of each contender, their order is that of the first "
            "columns; the last column is of quotaplane. Bold: not as good as wanted. A scenario's "
            "name leads to its plot."
        ),
    ]


_FORMATS: Final = {"utilisation": ".1%", "over_settled": ".1%", "mute_s": ".1f"}
"""Figures that are shown of all contenders, by name."""


def _of_all(
    verdicts: Verdicts[Scenario, KafkaFigures],
    scene: Scenario,
    figure: str,
    found: Sequence[KafkaFigures | None],
) -> str:
    return " / ".join(
        "-"
        if one is None
        else verdicts.marked(figure, scene, one, format(getattr(one, figure), _FORMATS[figure]))
        for one in found
    )


def _tenants(scene: Scenario) -> str:
    return f"{scene.tenants} times " if scene.tenants > 1 else ""


def _windows(verdicts: Verdicts[Scenario, KafkaFigures]) -> list[str]:
    """Misses of brokers whose limits are right all the time; empty if that was not measured."""
    right = [
        scene
        for scene in ALL
        if min(scene.after) >= (scene.quota_after or scene.quota) / BROKERS
        and scene.event != "kill"
        and (scene.name, THIRD.name) in verdicts.found
    ]
    if not right:
        return []
    own = [verdicts.found[scene.name, THIRD.name] for scene in right]
    late = [scene for scene in right if scene in verdicts.judged(THIRD)[1]]
    return wrapped(
        f"In {len(right)} scenarios a third of the quota is each broker's fair share, so "
        f"*{THIRD.title}* has the right limits before the event. What it misses there is what "
        f"Kafka's own enforcement costs: it missed what is wanted in {len(late)} of them; "
        f"overshoot, settled, was up to {max(one.over_settled for one in own):.1%}. All "
        f"contenders have quota.window.num={WINDOW['quota.window.num']}: [windows]"
        "(../operate/kafka-plugin.md#windows) says what others do."
    )


def _others(found: Found, contenders: Sequence[Contender]) -> list[str]:
    """The fate of the client without a quota."""
    lines = []
    for contender in contenders:
        own = [one for (_, name), one in found.items() if name == contender.name]
        got = 1.0 - max(one.others_refused for one in own)
        waited_s = max(one.others_mute_s for one in own)
        lines.append(
            f"- {contender.title}: it got at least {got:.1%} of what it wanted, and waited at most "
            f"{waited_s:.1f} s."
        )
    return [
        *wrapped("A client without any quota runs beside all scenarios:"),
        *wrapped_all(*lines),
    ]


def _short_falls(verdicts: Verdicts[Scenario, KafkaFigures]) -> list[str]:
    """Shortfalls of ours; empty if it was not measured, or misses nothing."""
    _, missed = verdicts.judged(OURS)
    if not missed:
        return []
    return [
        "## Where quotaplane falls short",
        "",
        *wrapped_all(
            *(verdicts.miss(scene, OURS, _CAUSES.get(scene.name, "")) for scene in missed)
        ),
    ]


def _method() -> list[str]:
    return [
        "## Method",
        "",
        *wrapped(
            "Three servers (Kafka 4.1.0, KRaft, each a broker and a controller), their clients and "
            "our programs share a machine, and are started anew for each contender. A tenant is a "
            "client id; its librdkafka clients want what the table says, and drop what does not "
            "fit a queue of half a second. Bytes count that the broker acknowledged, or that a "
            "consumer received, with what requests have around messages, as Kafka's quotas count "
            "it. Scenarios run in parts, side by side, each with tenants of its own. One run each: "
            "figures move by a few percent, and times to fair by up to five seconds between two "
            "runs: an even quota that is halved took 0.6 and 6.0 s."
        ),
        *wrapped(
            "Settings: "
            + ", ".join(f"`{name}={value}`" for name, value in WINDOW.items())
            + " for all contenders; reports and rounds each second, leases of "
            f"{LEASE_S:.0f} s, one shard. The job is away for {GONE_S:.0f} s in its scenario, "
            "which stock brokers do not have."
        ),
    ]


def _again() -> list[str]:
    return [
        "## Run it again",
        "",
        *wrapped(
            f"`make kafka-proof` writes [{FOLDER}/results.csv]({FOLDER}/results.csv) (each second "
            f"of each broker; of fifty tenants their sum), [{FOLDER}/figures.csv]({FOLDER}/"
            "figures.csv) (all figures; of fifty tenants the worst), the plots and this page. "
            "`python -m benchmarks.kafka_proof third --only hot` measures one contender in one "
            "scenario anew, and `none` writes the page again from the kept records."
        ),
    ]
