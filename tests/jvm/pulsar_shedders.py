"""Pulsar's own strategies in a JVM, and ours, on the same cases."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from quotaplane.balance.stock.average_shedder import AvgShedder
from quotaplane.balance.stock.leader import decide_rounds, parse_case
from quotaplane.balance.stock.shedders import new_shedder
from tests.jvm.balance_cases import Case
from tests.jvm.kafka_classes import java_of_a_jdk
from tests.servers.pulsar_roles import pulsar_home

QUIET: Final = ("-Dlog4j2.level=OFF", "-Dlog4j2.StatusLogger.level=OFF", "-Xshare:auto")


def ask_pulsar(source: str, cases: Iterable[Case]) -> list[Any]:
    """The answers of a program in this folder, a line for each case.

    Raises:
        RuntimeError: the JVM failed; with what it said.
    """
    asked = "".join(f"{json.dumps(case)}\n" for case in cases).encode()
    path = Path(__file__).with_name(source)
    command = [java_of_a_jdk(), *QUIET, "-cp", f"{pulsar_home()}/lib/*", str(path)]
    done = subprocess.run(command, input=asked, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{source} failed:\n{done.stderr.decode()[-3000:]}")
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def our_answers(cls: str, case: Case) -> list[dict[str, Any]]:
    """Of each round: moves in order; AvgShedder's targets of these, and all that it remembers."""
    parsed = parse_case(case)
    shedder = new_shedder(cls, parsed.settings)
    answers = []
    for round_, decisions in decide_rounds(parsed, shedder):
        names = list(round_.load.bundles)
        moves = [[move.source, move.bundle] for move in decisions.moves]
        targets, planned = {}, {}
        if isinstance(shedder, AvgShedder):
            random = np.random.default_rng(0)
            for _, bundle in moves:
                at = names.index(bundle)
                targets[bundle] = shedder.select_broker(round_.load.brokers, at, round_, random)
            known = ((name, shedder.targets.get(round_, at)) for at, name in enumerate(names))
            planned = {name: broker for name, broker in known if broker}
        answers.append({"moves": moves, "targets": targets, "planned": planned})
    return answers


def differences(cls: str, cases: Sequence[Case]) -> tuple[list[str], int]:
    """What differs between Pulsar's answers and ours, and how many moves were compared."""
    theirs = ask_pulsar("PulsarShedders.java", [{**case, "cls": cls} for case in cases])
    found, moves = [], 0
    for number, (case, answers) in enumerate(zip(cases, theirs, strict=True)):
        ours = our_answers(cls, case)
        assert len(ours) == len(answers) == len(case["rounds"])
        for turn, (our, their) in enumerate(zip(ours, answers, strict=True)):
            moves += len(their["moves"])
            if our != their:
                part = next(key for key in their if our[key] != their[key])
                found.append(
                    f"{cls}, case {number}, round {turn}, {part}:"
                    f"\n  Pulsar {their[part]}\n  ours   {our[part]}"
                )
                break
    return found, moves
