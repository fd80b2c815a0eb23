"""Pulsar's own strategies in a JVM, and ours, on the same cases."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from quotabalance.planning.cases import parse_balance_case
from quotabalance.stock.average_shedder import AvgShedder
from quotabalance.stock.interface import StockRound
from quotabalance.stock.leader import decide_rounds, stock_case
from quotabalance.stock.placements import AvgPlacement, BundleAsked, MessageRates
from quotabalance.stock.shedders import new_shedder
from quotabalance.stock.stock_settings import StockSettings
from tests.jvm.balance_cases import Case
from tests.jvm.jdk import run_jdk
from tests.servers.pulsar_roles import pulsar_home

OPTIONS: Final = (
    *("-Dlog4j2.level=OFF", "-Dlog4j2.StatusLogger.level=OFF"),
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx1g"),
)


def ask_pulsar(source: str, cases: Iterable[Case]) -> list[Any]:
    """The answers of a program in this folder, a line for each case.

    Raises:
        RuntimeError: the JVM failed; with what it said.
    """
    asked = "".join(f"{json.dumps(case)}\n" for case in cases).encode()
    path = str(Path(__file__).with_name(source))
    answers = run_jdk("java", *OPTIONS, "-cp", f"{pulsar_home()}/lib/*", path, asked=asked)
    return [json.loads(line) for line in answers.decode().splitlines()]


def our_answers(cls: str, case: Case) -> list[dict[str, Any]]:
    """Moves of each round in order; AvgShedder's targets of these, and all that it remembers."""
    parsed = stock_case(parse_balance_case(case, "case"))
    shedder = new_shedder(cls, parsed.settings)
    answers = []
    for round_, decisions in decide_rounds(parsed, shedder):
        moves = [[move.source, move.bundle] for move in decisions.moves]
        targets, planned = {}, {}
        if isinstance(shedder, AvgShedder):
            names = round_.load.bundles
            place = {name: at for at, name in enumerate(names)}
            for _, bundle in moves:
                targets[bundle] = _target(shedder, round_, place[bundle])
            known = ((name, shedder.targets.get(round_, at)) for at, name in enumerate(names))
            planned = {name: broker for name, broker in known if broker}
        answers.append({"moves": moves, "targets": targets, "planned": planned})
    return answers


def _target(shedder: AvgShedder, round_: StockRound, bundle: int) -> str:
    """The broker that the shedder's placement gives a bundle, if all of them are candidates."""
    brokers = round_.load.brokers
    placement = AvgPlacement(StockSettings(), shedder.targets)
    placement.begin(round_)
    no_rates = MessageRates(np.zeros(0), lambda _: 0.0)
    (target,) = placement.offer(
        np.arange(len(brokers)), no_rates, BundleAsked(round_, bundle)
    ).tolist()
    return brokers[target]


class Compared(NamedTuple):
    """Pulsar's answers beside ours."""

    differences: Sequence[str]
    """At most one for each case and class: the first round that differs."""
    moves: Counter[str]
    """For each class: how many moves Pulsar made."""


def compare(classes: Sequence[str], cases: Sequence[Case]) -> Compared:
    """Ask one JVM, and ours, for all answers to all cases."""
    asked = [{**case, "classes": list(classes)} for case in cases]
    return compare_answers(classes, cases, ask_pulsar("PulsarShedders.java", asked))


def compare_answers(
    classes: Sequence[str], cases: Sequence[Case], answers: Sequence[Any]
) -> Compared:
    """Compare answers that Pulsar has given to these cases with ours."""
    moves: Counter[str] = Counter()
    found = []
    for number, answer in enumerate(answers):
        for cls in classes:
            ours, theirs = our_answers(cls, cases[number]), answer[cls]
            assert len(ours) == len(theirs) == len(cases[number]["rounds"])
            moves[cls] += sum(len(their["moves"]) for their in theirs)
            differing = (turn for turn in range(len(theirs)) if ours[turn] != theirs[turn])
            turn = next(differing, None)
            if turn is not None:
                part = next(key for key in theirs[turn] if ours[turn][key] != theirs[turn][key])
                found.append(
                    f"{cls}, case {number}, round {turn}, {part}:"
                    f"\n  Pulsar {theirs[turn][part]}\n  ours   {ours[turn][part]}"
                )
    return Compared(found, moves)
