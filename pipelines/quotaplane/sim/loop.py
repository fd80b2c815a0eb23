"""Simulates the control loop on one quota of one group in one dimension, round by round.

``sim.world`` simulates a whole cluster with its messages. This loop has only demand, a network that
delays or loses reports, and a controller: controllers can be compared (``benchmarks/arena``) and
laws tried (``quotaplane simulate``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import numpy as np

from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.sim.broker_throttle import BY_DEFAULT, BrokerThrottle
from quotaplane.throttle.terms import ThrottleTerms


class ArrivedReports(NamedTuple):
    """Reports that arrived at the end of a round; all arrays (k,), rates per second.

    Ordered by arrival, then by the round that they measure, then by broker.
    """

    broker: IntArray
    """The broker's index."""
    about_round: IntArray
    """The round it measures."""
    usage: FloatArray
    throttled: FloatArray
    """Refused rate: demand - usage; NaN if brokers do not report it."""
    limit: FloatArray
    """In force in that round at that broker; inf = none."""
    decided_round: IntArray
    """The round whose decision the limit is, -1 for none yet: an acknowledgement."""


class Controller(Protocol):
    """Makes limits from reports; one object per run, which may keep a state."""

    @property
    def initial_limit(self) -> float:
        """The limit of a broker that has received none: inf, or 0 if limits are strict."""

    def decide(self, round_: int, arrived: ArrivedReports, quota: float) -> FloatArray:
        """New limits of shape (brokers,), at the end of a round; in force in the next one.

        ``quota`` is that of the round that ends, so a change is known one round late, as reports
        are. NaN: nothing is sent, and the broker keeps its limit.
        """


@dataclass(frozen=True)
class Network:
    """Losses and delays of reports; a report may overtake another one."""

    lost: BoolArray | None = None
    """(rounds, brokers): the report about that round never arrives; None: all arrive."""
    delay_rounds: IntArray | int = 0
    """(rounds, brokers) or one number for all: 0 arrives at the end of the round it measures."""


PERFECT: Final = Network()


@dataclass(frozen=True)
class Run:
    """The record of a run; arrays (rounds, brokers), ``quota`` (rounds,); rates per second.

    ``limit`` is the one in force in the round, inf for none. A dead broker's demand, limit and
    usage are 0.
    """

    demand: FloatArray
    limit: FloatArray
    usage: FloatArray
    alive: BoolArray
    quota: FloatArray


@dataclass(frozen=True)
class Trial:
    """The arguments of a run; see ``run_loop``."""

    demand: FloatArray
    controller: Controller
    quota: float | FloatArray
    alive: BoolArray | None = None
    network: Network = PERFECT
    throttled_told: bool = True


def run_loop(
    demand: FloatArray,
    controller: Controller,
    quota: float | FloatArray,
    *,
    alive: BoolArray | None = None,
    network: Network = PERFECT,
    throttled_told: bool = True,
    throttle: ThrottleTerms | None = BY_DEFAULT,
    round_s: float = 1.0,
) -> Run:
    """Run a controller on true demand.

    Each broker uses its demand up to its limit, and reports. At the end of a round the controller
    gets the reports that arrived, and decides; its limits are in force in the next round at every
    broker that is alive in both. A broker that joins, or joins again, has ``initial_limit`` and no
    earlier usage.

    Args:
        demand: (rounds, brokers), per second.
        controller: decides; has a state, so each run needs a new one.
        quota: one, or one for each round; inf is unlimited.
        alive: (rounds, brokers): a dead broker neither uses, reports nor receives; None: all live.
        network: losses and delays of reports.
        throttled_told: brokers report refused rates; False: NaN, as in stock Pulsar's reports.
        throttle: terms on which brokers enforce limits. None: usage is min(demand, limit).
        round_s: length of a round; only ``throttle`` depends on it.

    >>> class Even:
    ...     initial_limit = np.inf
    ...     def decide(self, round_, arrived, quota):
    ...         return np.full(2, quota / 2)
    >>> run = run_loop(np.array([[80.0, 20.0]] * 2), Even(), 100.0, throttle=None)
    >>> run.limit.tolist(), run.usage.tolist()
    ([[inf, inf], [50.0, 50.0]], [[80.0, 20.0], [50.0, 20.0]])

    A bucket with a second's limit in it, 50 at first, makes up for 30 a second that are too much:

    >>> run_loop(np.array([[80.0, 20.0]] * 5), Even(), 100.0).usage[:, 0].tolist()
    [80.0, 80.0, 68.0, 50.0, 50.0]
    """
    trial = Trial(demand, controller, quota, alive, network, throttled_told)
    return run_together([trial], throttle=throttle, round_s=round_s)[0]


def run_together(
    trials: Sequence[Trial], *, throttle: ThrottleTerms | None = BY_DEFAULT, round_s: float = 1.0
) -> list[Run]:
    """Run trials with the same number of rounds; returns what ``run_loop`` returns for each.

    The loops do not influence each other; together they are only faster, as the requests of all
    brokers are answered at once.
    """
    playing = [_Playing(trial) for trial in trials]
    edges = np.cumsum([trial.demand.shape[1] for trial in trials])
    enforcer = None
    if throttle is not None:
        enforcer = BrokerThrottle(int(edges[-1]), throttle, interval_s=round_s)
    for this in range(len(trials[0].demand)):
        rows = zip(*(one.begin(this) for one in playing), strict=True)
        wants, limit, alive = (np.concatenate(row) for row in rows)
        if enforcer is None:
            usage = np.minimum(wants, limit)
        else:
            if not alive.all():
                enforcer.forget(~alive)
            usage = enforcer.use(wants, limit)
        for one, used in zip(playing, np.split(usage, edges[:-1]), strict=True):
            one.end(this, used)
    return [one.run for one in playing]


class _Playing:
    """A trial under way; ``run`` is the record so far."""

    def __init__(self, trial: Trial) -> None:
        shape = trial.demand.shape
        alive = np.ones(shape, dtype=np.bool_) if trial.alive is None else trial.alive
        quota: FloatArray = np.broadcast_to(np.asarray(trial.quota, np.float64), shape[:1])
        wants = np.where(alive, trial.demand, 0.0)
        self.run = Run(wants, np.zeros(shape), np.zeros(shape), alive, quota)
        self._trial = trial
        self._initial = trial.controller.initial_limit
        self._decided = np.full(shape, -1)
        self._arriving = _arrivals(alive, trial.network)
        self._in_force, self._source = np.full(shape[1], self._initial), np.full(shape[1], -1)

    def begin(self, this: int) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Demand and limit of each broker in a round, and whether it is alive; (brokers,) each."""
        run, here = self.run, self.run.alive[this]
        self._in_force[~here], self._source[~here] = self._initial, -1
        run.limit[this], self._decided[this] = np.where(here, self._in_force, 0.0), self._source
        return run.demand[this], run.limit[this], here

    def end(self, this: int, usage: FloatArray) -> None:
        """Record the usage of each broker, and let the controller decide."""
        run = self.run
        run.usage[this] = usage
        about, broker = next(self._arriving)
        measured = run.usage[about, broker]
        refused = run.demand[about, broker] - measured
        decided = self._trial.controller.decide(
            this,
            ArrivedReports(
                broker=broker,
                about_round=about,
                usage=measured,
                throttled=refused if self._trial.throttled_told else np.full(len(about), np.nan),
                limit=run.limit[about, broker],
                decided_round=self._decided[about, broker],
            ),
            float(run.quota[this]),
        )
        new = ~np.isnan(decided) & run.alive[this]
        self._in_force[new], self._source[new] = decided[new], this


def _arrivals(alive: BoolArray, network: Network) -> Iterator[tuple[IntArray, IntArray]]:
    """For each round, the reports that arrive at its end: their rounds and brokers, (k,) each."""
    rounds = len(alive)
    sent = alive if network.lost is None else alive & ~network.lost
    about, broker = np.nonzero(sent)
    at = about + np.broadcast_to(network.delay_rounds, alive.shape)[about, broker]
    by_arrival = np.argsort(at, kind="stable")
    edges = np.searchsorted(at[by_arrival], np.arange(rounds + 1))
    for begin, end in pairwise(edges):
        chosen = by_arrival[begin:end]
        yield about[chosen], broker[chosen]
