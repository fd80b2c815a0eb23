"""The demand in a simulated cluster: a schedule of its mean, and the noise around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import numpy as np
from pydantic import Field

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, PARTS, FloatArray
from quotaplane.parsing.strict_json import CaseModel


class Change(NamedTuple):
    """A change of one broker's demand for one group at ``at_s``; absent dimensions do not change.

    Totals can't be given: they are the sums of their parts.
    """

    at_s: float
    broker: str
    group: str
    rates: dict[str, float]


@dataclass(frozen=True)
class Schedule:
    """Piecewise constant demand.

    ``starts_s`` has shape (pieces,), ascending from 0; ``rates`` has shape
    (pieces, brokers, groups, dimensions) in units per second.
    """

    starts_s: FloatArray
    rates: FloatArray

    def at(self, t_s: float) -> FloatArray:
        """The demand at a time, shape (brokers, groups, dimensions); before 0 it is that of 0.

        >>> steps = Schedule(np.array([0.0, 5.0]), np.arange(14.0).reshape(2, 1, 1, 7))
        >>> float(steps.at(4.9)[0, 0, 0]), float(steps.at(5.0)[0, 0, 0])
        (0.0, 7.0)
        """
        piece = max(int(np.searchsorted(self.starts_s, t_s, side="right")) - 1, 0)
        now: FloatArray = self.rates[piece]
        return now


def build_schedule(
    brokers: tuple[str, ...], groups: tuple[str, ...], changes: Iterable[Change]
) -> Schedule:
    """Make a schedule of changes in any order; demand is 0 before a broker's first one.

    Raises:
        InputError: a change names an unknown broker, group or dimension, or a total.
    """
    ordered = sorted(changes, key=lambda change: change.at_s)
    starts = sorted({0.0, *(change.at_s for change in ordered)})
    rates = np.zeros((len(starts), len(brokers), len(groups), len(DIMENSIONS)))
    for change in ordered:
        piece = starts.index(change.at_s)
        broker, group = _index(brokers, change.broker), _index(groups, change.group)
        for dimension, rate in change.rates.items():
            index = _index(DIMENSIONS, dimension)
            if index in PARTS:
                raise InputError(f"schedule: {dimension} follows from publish and dispatch")
            rates[piece:, broker, group, index] = rate
    return Schedule(np.array(starts), added_up(rates))


def added_up(rates: FloatArray) -> FloatArray:
    """Set the totals in rates (..., dimensions) to the sums of their parts, in place.

    >>> added_up(np.array([1.0, 2.0, 10.0, 20.0, 0.0, 0.0, 5.0])).tolist()
    [1.0, 2.0, 10.0, 20.0, 11.0, 22.0, 5.0]
    """
    for total, parts in PARTS.items():
        rates[..., total] = rates[..., parts].sum(axis=-1)
    return rates


class CountNoise(CaseModel):
    """Noise by which the demand in a window is a whole number of counts, drawn around its mean."""

    counts: Annotated[float, Field(ge=0.01, le=1e9)] | None = None
    """A small broker's mean count in a window; None: a count is one unit of the rates, as with
    messages."""
    dispersion: Annotated[float, Field(ge=1, le=1e6)] = 1.0
    """Variance of a count divided by its mean. 1: Poisson; more: negative binomial, as where
    messages come in batches."""

    def relative(self, rates: FloatArray, window_s: float) -> float:
        """Standard deviation of a small broker's count divided by its mean; 0 without demand.

        Args:
            rates: mean demand per second, shape (rounds, brokers).
            window_s: length of the window.

        >>> CountNoise(counts=100, dispersion=4).relative(np.array([[50.0, 9.0]]), 1.0)
        0.2
        >>> POISSON.relative(np.array([[50.0, 5.0]]), 5.0)
        0.2
        """
        mean = small_rate(rates) * window_s if self.counts is None else self.counts
        return float(np.sqrt(self.dispersion / mean)) if rates.any() else 0.0


POISSON: Final = CountNoise()

_MOST_COUNTS: Final = 1e15
"""Most counts in a window: random number generators can't draw more."""


def small_rate(rates: FloatArray) -> float:
    """Mean demand of a small broker, per second; ``rates`` has shape (rounds, brokers).

    It is the lower quartile among the brokers with demand, in the round where that is least.
    Infinite if there is no demand at all.

    >>> small_rate(np.array([[8.0, 2.0, 0.0], [8.0, 6.0, 0.0]]))
    2.0
    >>> small_rate(np.arange(1.0, 13.0)[None])
    3.0
    """
    wanted = rates > 0.0
    ascending = np.sort(np.where(wanted, rates, np.inf), axis=1)
    quarter = np.maximum(-(-wanted.sum(axis=1) // 4), 1)
    return float(ascending[np.arange(len(rates)), quarter - 1].min())


def noisy(
    rates: FloatArray, noise: CountNoise | None, rng: np.random.Generator, window_s: float = 1.0
) -> FloatArray:
    """Random rates of a window, drawn around the given means.

    Without ``noise.counts`` rates may have any shape, and vary less in a longer window; with it the
    shape is (rounds, brokers).

    Raises:
        InputError: the mean of a count is too large to be drawn.
    """
    if noise is None or not rates.any():
        return rates
    with np.errstate(over="ignore"):
        per_rate = window_s if noise.counts is None else noise.counts / small_rate(rates)
        mean = rates * per_rate
    if not mean.max() <= _MOST_COUNTS:
        raise InputError(
            f"noise: the largest demand is {mean.max():.0e} counts in a window, "
            f"at most {_MOST_COUNTS:.0e} are possible"
        )
    if noise.dispersion > 1.0:  # a Poisson count whose mean varies is a negative binomial one
        more = noise.dispersion - 1.0
        mean = rng.gamma(mean / more, more)
    return rng.poisson(mean) / per_rate


def _index(names: tuple[str, ...], name: str) -> int:
    try:
        return names.index(name)
    except ValueError:
        raise InputError(f"schedule: there is no {name!r} (there are {', '.join(names)})") from None
