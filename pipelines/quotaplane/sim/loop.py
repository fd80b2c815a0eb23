"""The control loop on one quota, round by round: brokers measure, reports travel, limits come back.

One dimension of one group. ``sim.world`` simulates a whole cluster with its messages; here it is
only what is wanted, what the network does to reports, and a controller, so that any controller can
be run against any other (``benchmarks/arena``) and a law be tried (``quotaplane simulate``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import numpy as np

from quotaplane.model import BoolArray, FloatArray, IntArray


class Heard(NamedTuple):
    """Reports that arrived at the end of a round; all arrays (k,), rates per second.

    Ordered by arrival; those that arrive in the same round by the round they measure, then by
    broker.
    """

    broker: IntArray
    """The broker's index."""
    about_round: IntArray
    """The round it measures."""
    usage: FloatArray
    throttled: FloatArray
    """Refused: demand - usage; NaN when brokers don't tell."""
    limit: FloatArray
    """In force in that round at that broker; inf = none."""
    decided_round: IntArray
    """The round whose decision that limit came from; -1 = none yet. An acknowledgement."""


class Controller(Protocol):
    """Whatever turns reports into limits; one object per run, it may remember."""

    @property
    def initial_limit(self) -> float:
        """What a broker has before it was told anything: inf, or 0 where nothing may be risked."""

    def decide(self, round_: int, heard: Heard, quota: float) -> FloatArray:
        """New limits of shape (brokers,), at the end of a round; in force in the next one.

        ``quota`` is that of the round that ends: a change is known one round late, like everything
        else. NaN: nothing is sent, the broker keeps the limit it has.
        """


@dataclass(frozen=True)
class Network:
    """What happens to reports on their way; they may overtake each other."""

    lost: BoolArray | None = None
    """(rounds, brokers): the report about that round never arrives; None: all do."""
    delay_rounds: IntArray | int = 0
    """(rounds, brokers) or one number for all: 0 arrives at the end of the round it measures."""


PERFECT: Final = Network()


@dataclass(frozen=True)
class Run:
    """What happened; arrays have shape (rounds, brokers), ``quota`` (rounds,); rates per second.

    ``limit`` is the one in force in the round, inf where there was none. A dead broker's demand,
    limit and usage are 0.
    """

    demand: FloatArray
    limit: FloatArray
    usage: FloatArray
    alive: BoolArray
    quota: FloatArray


def run_loop(
    demand: FloatArray,
    controller: Controller,
    quota: float | FloatArray,
    *,
    alive: BoolArray | None = None,
    network: Network = PERFECT,
    throttled_told: bool = True,
) -> Run:
    """Run a controller on true demand.

    Each broker uses what it wants up to its limit, and reports. At the end of a round the
    controller gets what arrived and decides; its limits are in force in the next round at every
    broker that is alive in both. A broker that (re)joins has ``initial_limit`` again.

    Args:
        demand: (rounds, brokers), per second.
        controller: decides; not to be used for a second run.
        quota: one, or one for each round; inf is unlimited.
        alive: (rounds, brokers): a dead broker neither uses nor reports nor hears; None: all are.
        network: what happens to reports.
        throttled_told: brokers report what they refused; else NaN (stock Pulsar's reports).

    >>> class Even:
    ...     initial_limit = np.inf
    ...     def decide(self, round_, heard, quota):
    ...         return np.full(2, quota / 2)
    >>> run = run_loop(np.array([[80.0, 20.0]] * 2), Even(), 100.0)
    >>> run.limit.tolist(), run.usage.tolist()
    ([[inf, inf], [50.0, 50.0]], [[80.0, 20.0], [50.0, 20.0]])
    """
    rounds, brokers = demand.shape
    lives = np.ones(demand.shape, dtype=np.bool_) if alive is None else alive
    quotas: FloatArray = np.broadcast_to(np.asarray(quota, dtype=np.float64), (rounds,))
    wants = np.where(lives, demand, 0.0)
    limits, usage = np.zeros(demand.shape), np.zeros(demand.shape)
    decided = np.full(demand.shape, -1)
    arriving = _arrivals(lives, network)
    in_force, source = np.full(brokers, controller.initial_limit), np.full(brokers, -1)
    for this, (about, broker) in enumerate(arriving):
        here = lives[this]
        in_force[~here], source[~here] = controller.initial_limit, -1
        limits[this], decided[this] = np.where(here, in_force, 0.0), source
        usage[this] = np.minimum(wants[this], limits[this])
        measured = usage[about, broker]
        refused = wants[about, broker] - measured
        told = controller.decide(
            this,
            Heard(
                broker=broker,
                about_round=about,
                usage=measured,
                throttled=refused if throttled_told else np.full(len(about), np.nan),
                limit=limits[about, broker],
                decided_round=decided[about, broker],
            ),
            float(quotas[this]),
        )
        new = ~np.isnan(told) & here
        in_force[new], source[new] = told[new], this
    return Run(demand=wants, limit=limits, usage=usage, alive=lives, quota=quotas)


def _arrivals(alive: BoolArray, network: Network) -> Iterator[tuple[IntArray, IntArray]]:
    """For each round the reports that arrive at its end: rounds measured, and brokers."""
    rounds = len(alive)
    sent = alive if network.lost is None else alive & ~network.lost
    about, broker = np.nonzero(sent)
    at = about + np.broadcast_to(network.delay_rounds, alive.shape)[about, broker]
    by_arrival = np.argsort(at, kind="stable")
    edges = np.searchsorted(at[by_arrival], np.arange(rounds + 1))
    for begin, end in pairwise(edges):
        chosen = by_arrival[begin:end]
        yield about[chosen], broker[chosen]
