"""Finds overloaded brokers: new samples, confirmation, hysteresis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.options import BalanceOptions
from quotaplane.model import BoolArray, FloatArray, IntArray

PROVEN_SAMPLES: Final = 15
"""A broker that was overloaded and seems so again probably is: for this number of samples a quarter
of ``noise_z`` is enough."""

HARMLESS: Final = 0.6
"""Noise must not explain what a broker carries above 1 + this part of its start."""


@dataclass(frozen=True)
class BrokerWatch:
    """Memory about B brokers between rounds."""

    brokers: tuple[str, ...]
    counted_at_s: FloatArray
    """Shape (B,): when the latest sample that counted was measured; -inf = none yet."""
    active: BoolArray
    """Shape (B,): bundles are leaving, until ``stop_below`` is reached."""
    proven: IntArray
    """Shape (B,): number of further samples in which a quarter of ``noise_z`` is enough."""

    lost_at_s: FloatArray
    """Shape (B,): when another broker measured a bundle that left it without an order; -inf = none
    did, or it has been measured since."""

    @classmethod
    def empty(cls) -> BrokerWatch:
        """No brokers."""
        none = np.zeros(0, np.bool_)
        return cls((), np.zeros(0), none, np.zeros(0, np.int64), np.zeros(0))

    def aligned(self, brokers: tuple[str, ...]) -> BrokerWatch:
        """The same for exactly these brokers."""
        if brokers == self.brokers:
            return self
        place = dict(zip(self.brokers, range(len(self.brokers)), strict=True))
        at = np.array([place.get(name, len(self.brokers)) for name in brokers], np.int64)
        return BrokerWatch(
            brokers,
            np.append(self.counted_at_s, -np.inf)[at],
            np.append(self.active, False)[at],
            np.append(self.proven, 0)[at],
            np.append(self.lost_at_s, -np.inf)[at],
        )

    def fresh(
        self, measured_at_s: FloatArray, differs: BoolArray, options: BalanceOptions
    ) -> BoolArray:
        """Brokers with a new sample: other numbers than before, or equal ones of a later period.

        Args:
            measured_at_s: shape (B,); -inf = nothing is known of the broker.
            differs: shape (B,): some bundle's numbers are others than before.
            options: ``sample_period_s``.
        """
        # a period that is measured by two clocks may be a little short
        first = np.isneginf(self.counted_at_s)
        due_s = self.counted_at_s + 0.99 * options.sample_period_s
        later = measured_at_s >= due_s
        newer = measured_at_s > self.counted_at_s
        # Reports come in order: numbers this much older are of a clock that was set back.
        set_back = measured_at_s < self.counted_at_s - options.sample_period_s
        return np.isfinite(measured_at_s) & (first | later | (differs & newer) | set_back)


class Overload(NamedTuple):
    """How much B brokers carry, relative to the cluster's mean."""

    ratio: FloatArray
    """Shape (B,): of the resource that is used most."""
    error: FloatArray
    """Shape (B,): standard error of ``ratio``."""
    sample_ratios: FloatArray
    """Shape (samples, B): of each of the latest samples alone, the newest first; nan = there is
    none."""
    start: FloatArray
    """Shape (B,): above 1 + this the broker is overloaded."""
    stop: float = 0.0
    """Bundles leave it until it carries 1 + this; at most ``start``."""
    caution: float = 1.0
    """The margin in standard errors, at most 1."""
    receives: BoolArray | bool = False
    """Shape (B,): it got bundles lately, and should not give any away because of noise."""
    newness: FloatArray | float = 0.0
    """Shape (B,): mean of one by the samples of a bundle, weighted by load. With few samples the
    noise estimate is unreliable, and biased if a seeming change of load is the reason."""

    def probable_start(self) -> FloatArray:
        """The start less one standard error, but no more than half of the hysteresis; shape (B,).

        A broker that seems to be a little below the start is above it every other time.

        >>> one, none = np.full(1, 0.02), np.zeros(1)
        >>> Overload(none + 1.14, one, none, none + 0.15, 0.13).probable_start().round(3).tolist()
        [0.14]
        """
        margin: FloatArray = np.minimum(self.caution * self.error, (self.start - self.stop) / 2)
        return self.start - margin

    def target(self, broker: int, relieved: int) -> float:
        """How far above the mean a relieved broker may seem to be, so that it truly is below start:
        ``stop``, or the start less its probable error, at least half of ``stop``.

        Of several relieved brokers, the most underestimated one is to be below start, too. Its
        error is probably the largest of all (Blom 1958), at least one standard error.

        Args:
            broker: its place.
            relieved: number of brokers relieved in this round.

        >>> one = np.full(1, 0.02)
        >>> overload = Overload(one * 60, one, one * 60, one * 7.5, 0.13)
        >>> [round(overload.target(0, relieved), 3) for relieved in (1, 4, 10, 100)]
        [0.13, 0.129, 0.119, 0.1]
        """
        largest = NormalDist().inv_cdf((relieved - 0.375) / (relieved + 0.25))
        error = max(largest, 1.0) * self.caution * float(self.error[broker])
        return max(min(self.stop, float(self.start[broker]) - error), self.stop / 2)


class Verdict(NamedTuple):
    """The judgement about B brokers in this round."""

    watch: BrokerWatch
    hits: IntArray
    """Shape (B,): number of the latest ``confirm_window_samples`` samples above the start."""
    above: BoolArray
    """Shape (B,): the estimate is above the start, or less than a standard error below it."""
    confirmed: BoolArray
    """Shape (B,): enough samples were above it, too."""
    sure: BoolArray
    """Shape (B,): it is above ``HARMLESS`` of the start by more than noise explains."""


def judge(
    watch: BrokerWatch,
    overload: Overload,
    fresh: BoolArray,
    measured_at_s: FloatArray,
    options: BalanceOptions,
) -> Verdict:
    """Judge each broker after ``fresh`` ones have got a new sample.

    A broker becomes active when its estimate and ``confirm_samples`` of the latest
    ``confirm_window_samples`` samples, of the bundles that it has now, are probably above its
    start, and the estimate is ``noise_z``
    standard errors above 1 + ``HARMLESS`` of the start, up to twice as many if there are few
    samples. A quarter of that is enough if it was active lately. If another broker is active, so
    that bundles move anyway, one sample and one standard error are enough. Neither holds for
    brokers that got bundles lately. It stays active until it carries less than 1 + ``stop_below``.
    """
    start = 1 + overload.probable_start()
    hits: IntArray = (overload.sample_ratios > start).sum(axis=0)
    confirmed = hits >= options.confirm_samples
    above = overload.ratio > start
    stop = 1 + overload.stop
    proven = (watch.proven > 0) & ~np.asarray(overload.receives)
    z = np.where(proven, options.noise_z / 4, options.noise_z)
    level = 1 + HARMLESS * overload.start
    sure = overload.ratio - z * (1 + overload.newness) * overload.error > level
    active = (watch.active | (confirmed & above & sure)) & (overload.ratio > stop)
    if active.any():
        sure |= overload.ratio - np.minimum(z, 1) * overload.error > level
        sure &= ~np.asarray(overload.receives)
        active |= (hits > 0) & above & sure
    counted = np.where(fresh, measured_at_s, watch.counted_at_s)
    proven = np.where(active, PROVEN_SAMPLES, np.maximum(watch.proven - fresh, 0))
    return Verdict(
        replace(watch, counted_at_s=counted, active=active, proven=proven),
        hits,
        above,
        confirmed,
        sure,
    )
