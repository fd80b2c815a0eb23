"""Contenders of the arena.

Another controller of ours takes part by being added to ``contenders``; its ``transition`` says
which wishes it is held to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from benchmarks.arena.bare import LawController
from benchmarks.arena.ceilings import CausalOptimum, clairvoyant
from benchmarks.arena.rivals import (
    PIP82_FORGET_ROUNDS,
    Doorman,
    Share,
    StockProportional,
    TikvSlots,
    fair_share,
    proportional_share,
)
from benchmarks.arena.scenarios import WINDOW_S, Case, Scenario
from quotaplane.laws import DEFAULT_LAW, get_law
from quotaplane.model import Transition
from quotaplane.sim.broker_throttle import BY_DEFAULT
from quotaplane.sim.controller import SILENT_ROUNDS, StepController, step_config
from quotaplane.sim.loop import Controller, Run, Trial, run_together
from quotaplane.throttle.terms import ThrottleTerms

FORGET_ROUNDS: Final = SILENT_ROUNDS[1]
"""As many as ours."""

CAUSAL: Final = "causal optimum"
CLAIRVOYANT: Final = "clairvoyant"
STATIC: Final = "static"

Make = Callable[[Scenario, Case], Controller]


@dataclass(frozen=True)
class Contender:
    """One line of the tables."""

    name: str
    make: Make | None
    """A new controller for a run; None: the clairvoyant, who needs no loop."""
    throttled_told: bool = True
    """Whether its brokers report what they refused; stock Pulsar's do not."""
    transition: Literal["fast", "strict"] | None = None
    """Transition of one of ours, by which it has wishes to meet. None: a rival or a ceiling."""


def play(
    scenario: Scenario,
    entries: Sequence[tuple[Contender, Case]],
    throttle: ThrottleTerms | None = BY_DEFAULT,
) -> list[Run]:
    """A run of each; together, which takes much less time than one by one.

    ``throttle`` is how brokers enforce limits; None: ideally.
    """
    done: dict[int, Run] = {}
    trials: dict[int, Trial] = {}
    for place, (contender, case) in enumerate(entries):
        if contender.make is None:
            done[place] = clairvoyant(case.demand, scenario)
            continue
        trials[place] = Trial(
            case.demand,
            contender.make(scenario, case),
            scenario.quota,
            scenario.alive,
            case.network,
            contender.throttled_told,
        )
    if trials:
        runs = run_together(list(trials.values()), throttle=throttle, round_s=WINDOW_S)
        done |= dict(zip(trials, runs, strict=True))
    return [done[place] for place in range(len(entries))]


def contenders() -> tuple[Contender, ...]:
    """All of them, in the order of the tables: ours, the others, the ceilings."""
    return (
        Contender(
            # `max_min` in the real step; brokers report what they refused.
            "ours, fast",
            _ours(Transition.FAST),
            transition="fast",
        ),
        Contender(
            # The same; a raise waits until those who come down have said so.
            "ours, strict",
            _ours(Transition.STRICT),
            transition="strict",
        ),
        Contender(
            # The same as the first, of brokers like stock Pulsar's: what is refused is guessed.
            "ours, fast, stock reports",
            _ours(Transition.FAST),
            throttled_told=False,
            transition="fast",
        ),
        Contender(
            # The same as the first; limits may add up to 1.1 times the quota, overuse is paid back.
            "ours, fast, over 10 %",
            _ours(Transition.FAST, over=0.1),
            transition="fast",
        ),
        Contender(
            # The same, of brokers like stock Pulsar's.
            "ours, fast, over 10 %, stock reports",
            _ours(Transition.FAST, over=0.1),
            throttled_told=False,
            transition="fast",
        ),
        *(
            Contender(
                # PIP-82 as worded; it forgets the dead after a time.
                f"pip82 {residual}{', stealing' if steal else ''}",
                _law("pip82", PIP82_FORGET_ROUNDS, {"residual": residual, "steal": steal}),
                throttled_told=False,
            )
            for residual in ("each", "proportional")
            for steal in (True, False)
        ),
        Contender(
            # An even split among the brokers that reported lately.
            STATIC,
            _law("static", FORGET_ROUNDS),
            throttled_told=False,
        ),
        Contender(
            # As stock Pulsar ships it: in proportion to use; never forgets a broker.
            "proportional",
            lambda scenario, case: StockProportional(_count(scenario)),
            throttled_told=False,
        ),
        Contender(
            # An equal share, and a part of the rest in proportion to wants; leases of 60 rounds.
            "Doorman PROPORTIONAL_SHARE",
            _doorman(proportional_share),
        ),
        Contender(
            # An equal share, and two redistributions of the rest; leases of 60 rounds.
            "Doorman FAIR_SHARE",
            _doorman(fair_share),
        ),
        Contender(
            # Slots by averaged demand (half-life one round), which expire after 120 rounds.
            "TiKV",
            lambda scenario, case: TikvSlots(_count(scenario)),
        ),
        Contender(
            # Ceiling: exact max-min of the last round's true demand, the spare divided evenly.
            CAUSAL,
            lambda scenario, case: CausalOptimum(case.demand, scenario),
        ),
        # Ceiling: exact max-min of the round's own true demand.
        Contender(CLAIRVOYANT, None),
    )


def _count(scenario: Scenario) -> int:
    return scenario.demand.shape[1]


def _ours(transition: Transition, over: float = 0.0) -> Make:
    round_ms = round(1000 * WINDOW_S)
    config = step_config(get_law(DEFAULT_LAW), transition, round_ms=round_ms, over=over)
    return lambda scenario, case: StepController(config, _count(scenario), round_ms)


def _law(name: str, forget: int, options: Mapping[str, Any] | None = None) -> Make:
    law = get_law(name, options)
    return lambda scenario, case: LawController(law, _count(scenario), forget_after_rounds=forget)


def _doorman(share: Share) -> Make:
    return lambda scenario, case: Doorman(share, _count(scenario))
