"""Every strategy on every scenario with every seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.balance_arena.contenders import Contender
from benchmarks.balance_arena.figures import LEVELS, Figures, figures
from benchmarks.balance_arena.play import play
from benchmarks.balance_arena.scenario import Scenario
from benchmarks.balance_arena.scenarios import named
from quotaplane.model import FloatArray


class Key(NamedTuple):
    """A place in the table."""

    contender: str
    scenario: str


@dataclass(frozen=True)
class Cell:
    """The figures of a strategy on a scenario: of S seeds the mean, unless it says otherwise."""

    runs: tuple[Figures, ...]
    """One for each seed."""

    def mean(self, name: str) -> float:
        """Mean of a figure over the seeds."""
        return float(np.mean([getattr(run, name) for run in self.runs]))

    def most(self, name: str) -> float:
        """The largest over the seeds."""
        return float(max(getattr(run, name) for run in self.runs))

    def rounds(self, level: int) -> tuple[float, float]:
        """Median and worst rounds until a level of ``LEVELS``; inf = never."""
        took = [run.rounds[level] for run in self.runs]
        return float(np.median(took)), max(took)

    def series(self) -> FloatArray:
        """Imbalance of each minute, mean of the seeds; shape (M,)."""
        found: FloatArray = np.mean([run.imbalance for run in self.runs], axis=0)
        return found


Table = dict[Key, Cell]


def fill(
    contenders: Sequence[Contender],
    scenes: Sequence[Scenario],
    processes: int,
    most_seeds: int = 99,
) -> Table:
    """Run everything."""
    jobs = [
        (contender, scene.name, seed)
        for scene in sorted(scenes, key=lambda scene: scene.seeds)  # the biggest first
        for contender in contenders
        for seed in range(min(scene.seeds, most_seeds))
    ]
    found: dict[Key, list[Figures]] = {}
    with ProcessPoolExecutor(processes) as pool:
        for (contender, name, _), figure in zip(jobs, pool.map(_run, jobs), strict=True):
            found.setdefault(Key(contender.name, name), []).append(figure)
    return {key: Cell(tuple(runs)) for key, runs in found.items()}


def _run(job: tuple[Contender, str, int]) -> Figures:
    contender, name, seed = job
    scene = named(name)
    return figures(play(contender, scene, seed), scene)


def rows(table: Table) -> Iterable[dict[str, Any]]:
    """The table as flat rows, one for each seed; inf = never."""
    for key, cell in table.items():
        for seed, run in enumerate(cell.runs):
            row: dict[str, Any] = {**key._asdict(), "seed": seed, "start": run.imbalance[0]}
            for name, value in vars(run).items():
                if name == "rounds":
                    row |= {
                        f"rounds_to_{level:.2f}": took
                        for level, took in zip(LEVELS, value, strict=True)
                    }
                elif name != "imbalance":
                    row[name] = value
            yield {
                name: round(value, 6) if isinstance(value, float) else value
                for name, value in row.items()
            }
