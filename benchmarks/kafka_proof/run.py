"""Put a contender through all scenarios on a fresh cluster, and measure what gets through."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.kafka_proof.contenders import BROKERS, Contender, Control
from benchmarks.kafka_proof.record import KafkaRecord
from benchmarks.kafka_proof.scenarios import BASE_S, PARTS, Scenario
from benchmarks.kafka_proof.stage import BYSTANDER, VICTIM, Stage

_WARM_UP_S: Final = 10.0
"""Brokers that have just started use the processor for themselves."""
_SETTLE_S: Final = 8.0


def run(
    contender: Contender,
    folder: Path,
    say: Callable[[str], None],
    only: Collection[str] = (),
) -> list[KafkaRecord]:
    """Measure scenarios; all of them take some ten minutes.

    Args:
        contender: The controller to measure.
        folder: Empty; logs and counts go there.
        say: Called with each line about the progress.
        only: Names of scenarios; empty: all.
    """

    def tell(words: str) -> None:
        say(f"{contender.title}: {words}")

    with ExitStack() as held:
        tell(f"starting a cluster of {BROKERS} brokers")
        cluster = held.enter_context(contender.cluster(folder / "cluster"))
        control = contender.control(cluster, folder)
        held.callback(control.end)
        bystander = Stage(BYSTANDER, cluster, folder)
        held.callback(bystander.stop)
        bystander.prepare()
        time.sleep(_WARM_UP_S)
        records: list[KafkaRecord] = []
        for part in asked_of(contender, only):
            tell(", ".join(scene.name for scene in part))
            stages = [Stage(scene, cluster, folder) for scene in part]
            for stage in stages:
                held.callback(stage.stop)
            _watch(stages, control, bystander)
            for stage in stages:
                stage.stop()
                records += stage.records(contender.name, bystander, control.milestones)
            if cluster.servers[VICTIM].pid < 0:
                cluster.servers[VICTIM].start()
        return records


def _watch(stages: Sequence[Stage], control: Control, bystander: Stage) -> None:
    """Let a part's events happen, and wait until what follows was recorded."""
    if not any(stage.scene.before_control for stage in stages):
        control.put([stage.scene for stage in stages])
        control.begin()
    for stage in stages:
        stage.prepare()
    time.sleep(_SETTLE_S + BASE_S)
    for stage in stages:
        stage.happen(control, bystander)
        control.check()
    for stage in stages:
        stage.wait_until_watched()
    control.check()


def asked_of(contender: Contender, only: Collection[str]) -> list[list[Scenario]]:
    """The parts, with those scenarios that are asked for (none: all) and that a contender has."""

    def has(scene: Scenario) -> bool:
        return (contender.plugin or scene.event != "job_gone") and (not only or scene.name in only)

    return [chosen for part in PARTS if (chosen := [scene for scene in part if has(scene)])]
