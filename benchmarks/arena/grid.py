"""Every law on every scenario under every condition, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.arena.contenders import CAUSAL, Contender, play
from benchmarks.arena.scenarios import Condition, Scenario, draw, relative_noise, scaled
from quotaplane.sim.broker_throttle import BY_DEFAULT
from quotaplane.sim.figures import closeness, fair_shares, figures
from quotaplane.sim.loop import Run
from quotaplane.throttle.terms import ThrottleTerms

JUDGED_FROM: Final = 1
"""In round 0 nobody can have decided anything yet; from the next on every round counts."""


REPORTS: Final = 3
"""After so many reports the quota is to be used again; see ``Cell.used_later``."""


class Key(NamedTuple):
    """A place in the table."""

    law: str
    scenario: str
    condition: str


@dataclass(frozen=True)
class Cell:
    """Results of a law on a scenario under a condition, over all seeds.

    Rounds to settle are counted for each shift of each seed; None: in at least one (worst), or at
    least half of them (median), it never got there before the next shift or the end.
    """

    utilisation: float
    """Used of what could have been: against the clairvoyant."""
    of_causal: float
    """Utilisation by that of the causal optimum with the same luck."""
    used_later: float
    """Utilisation in the rounds before which three reports or more showed the last shift."""
    jain_mean: float
    jain_worst: float
    noise: float
    """Standard deviation of a small broker's demand in a round, by its mean."""
    fair_part: float
    """Part of fair rounds: everybody could use its fair share, within 10 % or the noise."""
    throttled_innocents: float | None
    """Refused of all that innocents wanted, without the rounds of shifts; mean of the seeds. None:
    there are no innocents."""
    throttled_worst: float | None
    """The same of the innocent that it is most of."""
    settled_median: float | None
    settled_worst: float | None
    worst_shift: str
    """The shift after which it took longest."""
    overshoot_worst: float
    """Excess of usage over the quota, in the worst round."""
    stretch_worst: float
    """Excess of usage over the quota, in the worst stretch of rounds all together, as a part of one
    round's quota."""
    limits_over_quota: float
    """Excess of the limits in force over the quota, in the worst round."""
    limits_over_known: float
    """The same, over the quota of the round in which they were decided: in the round in which a
    quota falls nobody can have known."""
    movement: float | None
    """Movement of limits per settled round, as a part of the quota; None: it never settled."""
    last_off: str
    """Broker that was last away from its fair share after that, and how far; empty: none, ever."""
    lost_in_shifts: float
    """Part of what could have been used that was not, in the very rounds of the shifts."""
    lost_in_limits: float
    """The same in other rounds: limits that their brokers did not use up."""
    lost_withheld: float
    """The same: quota that none of the living had a limit for."""


Table = dict[Key, Cell]


def fill(
    laws: Sequence[Contender],
    scenes: Sequence[Scenario],
    conditions: Sequence[Condition],
    *,
    throttle: ThrottleTerms | None = BY_DEFAULT,
    jobs: int = 1,
) -> Table:
    """Run everything; ``laws`` must hold the causal optimum, which others are measured by.

    Args:
        laws: who takes part.
        scenes: what they are run on.
        conditions: under which each scenario is played.
        throttle: how brokers enforce limits; None: ideally.
        jobs: number of processes.
    """
    places = [(scenario, condition) for scenario in scenes for condition in conditions]

    def play_at(place: int) -> Table:
        return _play(laws, *places[place], throttle)

    table: Table = {}
    for part in _map(play_at, len(places), jobs):
        table |= part
    return table


def _map(work: Callable[[int], Table], count: int, jobs: int) -> Iterable[Table]:
    """``work`` of 0 to count - 1, in order, in ``jobs`` processes."""
    if jobs == 1:
        return map(work, range(count))
    # A forked process has the work as it is; functions in it can't be sent to another one.
    with get_context("fork").Pool(jobs, _keep, (work,)) as pool:
        return pool.map(_work, range(count), chunksize=1)


_kept: list[Callable[[int], Table]] = []


def _keep(work: Callable[[int], Table]) -> None:
    _kept[:] = [work]


def _work(place: int) -> Table:
    return _kept[0](place)


def _play(
    laws: Sequence[Contender],
    scenario: Scenario,
    condition: Condition,
    throttle: ThrottleTerms | None,
) -> Table:
    """Every law on a scenario under a condition."""
    sized, noise = scaled(scenario, condition), relative_noise(scenario, condition)
    cases = [draw(sized, condition, seed) for seed in range(condition.seeds)]
    runs = iter(play(sized, [(law, case) for law in laws for case in cases], throttle))
    judged = {law.name: [_judge(next(runs), sized, noise) for _ in cases] for law in laws}
    return {
        Key(law.name, scenario.name, condition.name): _cell(
            judged[law.name], judged[CAUSAL], sized, noise
        )
        for law in laws
    }


def _judge(done: Run, scenario: Scenario, noise: float) -> dict[str, Any]:
    """The figures of one run, and where it left quota unused that somebody wanted."""
    shifts = [shift.round_ for shift in scenario.shifts]
    found = figures(
        done,
        scenario.demand,
        shifts=shifts,
        judged_from=JUDGED_FROM,
        close=closeness(noise),
    )
    possible = np.minimum(done.demand.sum(axis=1), done.quota)
    used = np.minimum(done.usage.sum(axis=1), possible)
    lost = possible - used
    lost[:JUDGED_FROM] = 0.0
    lost /= possible[JUDGED_FROM:].sum()
    # Whoever has no limit counts as one that has the whole quota.
    limit = np.where(np.isinf(done.limit), done.quota[:, None], done.limit)
    unused = np.maximum(limit - done.usage, 0.0).sum(axis=1)
    withheld = np.maximum(done.quota - limit.sum(axis=1), 0.0)
    both = unused + withheld
    in_limits = np.divide(unused, both, out=np.zeros(len(both)), where=both > 0.0)
    in_shift = np.zeros(len(lost), dtype=np.bool_)
    in_shift[shifts] = True
    rounds = np.arange(len(lost))
    since_shift = rounds - np.array(shifts)[np.searchsorted(shifts, rounds, side="right") - 1]
    later = since_shift >= REPORTS
    known = np.concatenate([done.quota[:1], done.quota[:-1]])
    over = limit.sum(axis=1)[JUDGED_FROM:] / np.maximum(known, done.quota)[JUDGED_FROM:] - 1.0
    return {
        **found,
        "used_later": used[later].sum() / possible[later].sum(),
        "limits_over_known": float(np.maximum(over, 0.0).max()),
        "off": [_last_off(done, scenario, phase) for phase in found["phases"]],
        "lost_in_shifts": lost[in_shift].sum(),
        "lost_in_limits": (lost * in_limits)[~in_shift].sum(),
        "lost_withheld": (lost * (1.0 - in_limits))[~in_shift].sum(),
    }


def _last_off(done: Run, scenario: Scenario, phase: dict[str, int | None]) -> str:
    """Broker farthest from its fair share in the last round of a phase that was not fair."""
    begin, took = phase["from_round"] or 0, phase["rounds_to_fair"]
    last = (phase["to_round"] or 0) if took is None else begin + took - 1
    if last < max(begin, JUDGED_FROM):
        return ""
    want, limit = scenario.demand[last], done.limit[last]
    fair = fair_shares(want[None], done.quota[last])[0]
    got = np.minimum(want, limit)
    part = np.divide(got, fair, out=np.ones(len(fair)), where=fair > 0.0)
    worst = int(np.argmax(np.abs(part - 1.0)))
    side = "below" if part[worst] < 1.0 else "above"
    kind = "wants no more than" if want[worst] <= fair[worst] else "wants more than"
    return (
        f"in round {last} a broker that {kind} its fair share is "
        f"{abs(part[worst] - 1.0):.0%} {side} it"
    )


def _cell(
    judged: Sequence[dict[str, Any]],
    causal: Sequence[dict[str, Any]],
    scenario: Scenario,
    noise: float,
) -> Cell:
    took = np.array(
        [
            [np.inf if p["rounds_to_fair"] is None else p["rounds_to_fair"] for p in one["phases"]]
            for one in judged
        ],
        dtype=np.float64,
    )
    worst = int(np.argmax(took.max(axis=0)))

    def mean(name: str) -> float:
        return float(np.mean([one[name] for one in judged]))

    def mean_known(name: str) -> float | None:
        known = [one[name] for one in judged if one[name] is not None]
        return float(np.mean(known)) if known else None

    return Cell(
        utilisation=mean("utilisation"),
        of_causal=float(
            np.mean(
                [
                    one["utilisation"] / best["utilisation"]
                    for one, best in zip(judged, causal, strict=True)
                ]
            )
        ),
        used_later=mean("used_later"),
        jain_mean=mean("jain_mean"),
        jain_worst=min(one["jain_worst"] for one in judged),
        noise=noise,
        fair_part=mean("fair_part"),
        throttled_innocents=mean_known("throttled_innocents"),
        throttled_worst=mean_known("throttled_innocents_worst"),
        settled_median=_rounds(float(np.median(took))),
        settled_worst=_rounds(float(took.max())),
        worst_shift=scenario.shifts[worst].what,
        overshoot_worst=max(one["overshoot_worst"] for one in judged),
        stretch_worst=max(one["stretch_worst"] for one in judged),
        limits_over_quota=max(one["limits_over_quota"] for one in judged),
        limits_over_known=max(one["limits_over_known"] for one in judged),
        movement=mean_known("movement"),
        last_off=judged[int(np.argmax(took[:, worst]))]["off"][worst],
        lost_in_shifts=mean("lost_in_shifts"),
        lost_in_limits=mean("lost_in_limits"),
        lost_withheld=mean("lost_withheld"),
    )


def _rounds(took: float) -> float | None:
    return took if np.isfinite(took) else None


def rows(table: Table) -> list[dict[str, Any]]:
    """The table as flat rows, for JSON and CSV; to nine decimals, so that runs compare."""
    return [
        {
            **key._asdict(),
            **{
                name: round(value, 9) if isinstance(value, float) else value
                for name, value in asdict(cell).items()
            },
        }
        for key, cell in table.items()
    ]
