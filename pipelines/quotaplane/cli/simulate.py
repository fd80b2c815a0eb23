"""``quotaplane simulate``: runs the control loop on a scenario, round by round."""

from __future__ import annotations

import argparse
import json
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from quotaplane.console.answers import add_answer_options, print_answer, table_text
from quotaplane.console.option_parser import whole_number
from quotaplane.errors import ConfigError, InputError
from quotaplane.laws import LAWS, get_law
from quotaplane.model import FloatArray, Transition
from quotaplane.parsing.strict_json import CaseModel, Rate, json_type, load_case, source_name
from quotaplane.sim.controller import StepController, step_config
from quotaplane.sim.demand_schedule import POISSON, CountNoise, noisy
from quotaplane.sim.figures import MEANINGS, closeness, figures
from quotaplane.sim.loop import Network, Run, run_loop
from quotaplane.throttle.terms import ThrottleTerms

_EXAMPLE: Final = """\
example of SCENARIO.json (defaults shown; only quota, brokers and demand are required):
  {"quota": 100, "brokers": ["a", "b", "c"], "demand": [[80, 80, 0], [80, 80, 60]],
   "noise": "none", "loss": 0.0, "delay_rounds": 0, "transition": "fast",
   "throttled_told": true}
  quota, demand   rates per second; demand has one row per round, one number per broker
  noise           none; poisson: each round's demand is a Poisson count with the given mean; or
                  {"counts": 30, "dispersion": 4}: a count of which a small broker has 30 in a
                  round on average, with a variance of 4 times its mean. A quarter of the brokers
                  want no more than a small one (in the round in which that is least). Without
                  counts a count is 1 of the rates; dispersion is 1 (Poisson, the default) or more
  loss            the probability that a report is lost
  delay_rounds    how many rounds later a report arrives
  transition      fast: all limits of a round come into force together; strict: a raise waits
                  until there is room, and a broker without a limit may use nothing
  throttled_told  whether brokers report how much they refused; stock Pulsar's don't
  throttle        how brokers enforce their limits: {"law": "token_bucket", "mode": "soft",
                  "samples": 1, "window_s": 1.0}, or other terms; a round then takes a second.
                  Without it they enforce them ideally: usage is min(demand, limit) in each round

figures:
"""

_NOISES: Final = {"none": None, "poisson": POISSON}


def _named_noise(value: object) -> object:
    """The noise that a name stands for; other values unchanged."""
    if isinstance(value, str) and value in _NOISES:
        return _NOISES[value]
    if isinstance(value, dict):
        return value
    found = repr(value) if isinstance(value, str) else json_type(value)
    raise ValueError(f"must be {', '.join(map(repr, _NOISES))} or an object, not {found}")


class SimulationCase(CaseModel):
    """SCENARIO.json."""

    quota: Rate
    brokers: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
    demand: Annotated[list[list[Rate]], Field(min_length=1)]
    noise: Annotated[CountNoise | None, BeforeValidator(_named_noise)] = None
    loss: Annotated[float, Field(ge=0, le=1)] = 0.0
    delay_rounds: Annotated[int, Field(ge=0)] = 0
    transition: Literal["fast", "strict"] = "fast"
    throttled_told: bool = True
    """Whether brokers report how much they refused."""
    throttle: ThrottleTerms | None = None
    """How brokers enforce limits; None = ideally."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    width = max(map(len, MEANINGS))
    parser.epilog = _EXAMPLE + "\n".join(f"  {k:<{width}}  {v}" for k, v in MEANINGS.items())
    parser.add_argument("scenario", metavar="SCENARIO.json", help="the scenario; - is stdin")
    parser.add_argument("--law", default="max_min", help=f"one of {', '.join(LAWS)} (max_min)")
    parser.add_argument("--seed", type=whole_number, default=0, help="of noise and loss (0)")
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run the scenario and print its rounds and figures; as CSV, the rounds.

    Raises:
        InputError: the scenario is wrong; the message names the field.
        ConfigError: the law or the seed is wrong.
    """
    law = get_law(args.law)
    if args.seed < 0:
        raise ConfigError(f"--seed: must be at least 0, not {args.seed}")
    scenario = load_case(args.scenario, SimulationCase)
    _check(scenario, source_name(args.scenario))
    wanted = np.array(scenario.demand, dtype=np.float64)
    # Two generators, so that the kind of noise does not change which reports are lost.
    noise, loss = map(np.random.default_rng, np.random.SeedSequence(args.seed).spawn(2))
    done = run_loop(
        _demand(scenario, wanted, noise, source_name(args.scenario)),
        StepController(
            step_config(law, Transition(scenario.transition), scenario.delay_rounds),
            len(scenario.brokers),
        ),
        scenario.quota,
        network=Network(
            lost=loss.random(wanted.shape) < scenario.loss, delay_rounds=scenario.delay_rounds
        ),
        throttled_told=scenario.throttled_told,
        throttle=scenario.throttle,
    )
    answer: dict[str, Any] = {
        "law": args.law,
        "rounds": _rounds(scenario.brokers, done),
        "figures": figures(done, wanted, close=_close(scenario, wanted)),
    }
    columns = ("round", "broker", "demand", "limit", "usage")
    rows = [
        (number, name, *(each[column][name] for column in columns[2:]))
        for number, each in enumerate(answer["rounds"])
        for name in scenario.brokers
    ]
    print_answer(
        args,
        lambda: json.dumps(answer, indent=2, allow_nan=False),
        lambda: (
            f"{table_text(columns, rows)}\n\n"
            f"{table_text(('figure', 'value'), list(answer['figures'].items()))}"
        ),
        lambda: (columns, rows),
    )
    return 0


def _demand(
    scenario: SimulationCase, wanted: FloatArray, rng: np.random.Generator, source: str
) -> FloatArray:
    """The demand of each broker in each round, (rounds, brokers), with noise."""
    try:
        return noisy(wanted, scenario.noise, rng)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _close(scenario: SimulationCase, wanted: FloatArray) -> float:
    """Greatest distance of a broker from its fair share in a fair round, as a part of it."""
    return closeness(0.0 if scenario.noise is None else scenario.noise.relative(wanted, 1.0))


def _check(scenario: SimulationCase, source: str) -> None:
    """Check conditions on several fields."""
    count = len(scenario.brokers)
    for index, name in enumerate(scenario.brokers):
        if name in scenario.brokers[:index]:
            raise InputError(f"{source}: brokers.{index}: {name!r} is listed twice")
    for index, row in enumerate(scenario.demand):
        if len(row) != count:
            raise InputError(
                f"{source}: demand.{index}: row {index} (counted from 0) has {len(row)} "
                f"number{'s' * (len(row) != 1)} for {count} broker{'s' * (count != 1)}"
            )


def _rounds(brokers: list[str], done: Run) -> list[dict[str, dict[str, Any]]]:
    """The rounds by broker; null = unlimited, as JSON has no infinity."""

    def named(values: FloatArray) -> dict[str, Any]:
        finite = np.isfinite(values)
        return {
            name: value if is_finite else None
            for name, value, is_finite in zip(brokers, values.tolist(), finite, strict=True)
        }

    return [
        {"demand": named(demand), "limit": named(limit), "usage": named(usage)}
        for demand, limit, usage in zip(done.demand, done.limit, done.usage, strict=True)
    ]
