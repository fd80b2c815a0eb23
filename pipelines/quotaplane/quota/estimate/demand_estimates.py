"""The demand estimate, as it is kept from one report window to the next."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, Final

import numpy as np

from quotaplane.arrays import map_arrays, taken
from quotaplane.model import BoolArray, FloatArray, IntArray


class Doubt(IntEnum):
    """Why a demand is not certain; the next window decides it."""

    NONE = 0
    JUMPED = 1
    """The demand jumped in the last window: that may have been noise."""
    SOME_MORE = 2
    """The broker touches its limit often: a little more than it used is asked for it."""
    MORE = 3
    """It touched its limit as noise hardly does: several times as much is asked for it."""
    SATURATED = 4
    """The broker is at its limit, and nothing says how much it wants."""


@dataclass(frozen=True)
class Estimates:
    """Demand estimates, carried from one window to the next; all arrays have one shape."""

    demand: FloatArray
    """Estimate, without noise; inf = saturated: its amount is not known."""
    noise: FloatArray
    """Standard deviation divided by the square root of the demand, see ``noise``; 0: not known."""
    last_deviation: FloatArray
    """Deviation of the last window from the level, divided by the square root of the level."""
    earlier_deviation: FloatArray
    """The same of the window before that."""
    rise: FloatArray
    """Sum of recent deviations upwards (CUSUM), in standard deviations."""
    fall: FloatArray
    """The same downwards."""
    rise_windows: IntArray
    """Windows that ``rise`` is the sum of."""
    fall_windows: IntArray
    """Windows that ``fall`` is the sum of."""
    windows: IntArray
    """Windows that the level is the mean of; 0 before the first."""
    doubt: IntArray
    """See ``Doubt``."""
    old_demand: FloatArray
    """The level before the doubt began; 0 without doubt."""
    old_windows: IntArray
    """Windows that ``old_demand`` is the mean of; 0 without doubt."""
    distrust: IntArray
    """0 to 255: twice the recently refuted claims in 32nds (at most 127), plus 1 if the demand
    rests on a claim."""

    @staticmethod
    def blank(shape: tuple[int, ...]) -> Estimates:
        """Estimates before the first window: no demand, no noise, no distrust."""
        return Estimates(**{name: np.zeros(shape, kind) for name, kind in ESTIMATE_ARRAYS.items()})

    def take(self, chosen: Any) -> Estimates:
        """The estimates that ``chosen`` selects along the last axis."""
        return taken(self, chosen)

    def put(self, chosen: Any, others: Estimates) -> None:
        """Overwrite the estimates that ``chosen`` selects along the last axis."""
        for name in ESTIMATE_ARRAYS:
            getattr(self, name)[..., chosen] = getattr(others, name)

    @property
    def suspected(self) -> BoolArray:
        """The broker was asked for more than the level, in case that its limit hid it."""
        suspected: BoolArray = self.doubt >= Doubt.SOME_MORE
        return suspected

    @property
    def level(self) -> FloatArray:
        """The demand that was shown, finite: the old one of a broker that was asked for more."""
        return np.where(self.suspected, self.old_demand, self.demand)

    def with_noise(self, noise: FloatArray) -> Estimates:
        """The same with another noise."""
        return replace(self, noise=noise)

    def where(self, condition: BoolArray, other: Estimates) -> Estimates:
        """These estimates where the condition holds, else the other ones."""
        return map_arrays(lambda own, others: np.where(condition, own, others), self, other)


ESTIMATE_ARRAYS: Final[dict[str, type]] = {
    field.name: np.int64 if field.type == "IntArray" else np.float64 for field in fields(Estimates)
}
"""The arrays of the estimates and what they hold, in order."""
