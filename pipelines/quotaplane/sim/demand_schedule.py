"""What a simulated cluster wants: a schedule of true demand, and the noise around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, PARTS, FloatArray


class Change(NamedTuple):
    """From ``at_s`` on, what one broker wants of one group; absent dimensions stay as they are.

    Totals are what their parts add up to, and not to be given.
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
    """Put changes, in any order, into a schedule; nobody wants anything before its first one.

    Raises:
        InputError: a change names a broker, a group or a dimension that there is not, or a total.
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
    """Rates of shape (..., dimensions), their totals made the sum of their parts; changed in place.

    >>> added_up(np.array([1.0, 2.0, 10.0, 20.0, 0.0, 0.0, 5.0])).tolist()
    [1.0, 2.0, 10.0, 20.0, 11.0, 22.0, 5.0]
    """
    for total, parts in PARTS.items():
        rates[..., total] = rates[..., parts].sum(axis=-1)
    return rates


def noisy(
    rates: FloatArray, noise: str, rng: np.random.Generator, window_s: float = 1.0
) -> FloatArray:
    """Rates as they turn out over a window; any shape.

    ``poisson`` draws the count of the window, so a longer window is steadier.
    """
    if noise == "none":
        return rates
    return rng.poisson(rates * window_s) / window_s


def _index(names: tuple[str, ...], name: str) -> int:
    try:
        return names.index(name)
    except ValueError:
        raise InputError(f"schedule: there is no {name!r} (there are {', '.join(names)})") from None
