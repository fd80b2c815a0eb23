"""Measurements of the simulated cluster: once a minute, with noise, and reported late."""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.balance_arena.world import CAPACITY_BYTES_PER_S, NIC_BYTES_PER_S, World
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import BoolArray, FloatArray

STATS_EVERY_S: Final = 60
"""``statsUpdateFrequencyInSecs`` and ``loadBalancerHostUsageCheckIntervalMinutes``."""
CHECK_EVERY_S: Final = 5
"""``loadBalancerReportUpdateMinIntervalMillis``: how often a broker may report. The tick."""
CORE_PERCENT: Final = 1600.0
"""Limit of a machine of size 1: sixteen cores."""
_FEW: Final = 30.0


class Noise:
    """Measured rates: bursts of a bundle, and the chance of counting few messages in a minute.

    All strategies see the same noise of a bundle in a minute.

    >>> noise = Noise(seed=1, sigma=0.0)
    >>> noise.measured(np.array([[0.0, 0.0, 0.0, 0.0]]), minute=3).tolist()
    [[0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(self, seed: int, sigma: float) -> None:
        """``sigma``: of the logarithm of a bundle's burst in a minute."""
        self._seed, self._sigma = seed, sigma
        self._minute, self._drawn = -1, np.zeros((0, 3))

    def measured(self, rates: FloatArray, minute: int) -> FloatArray:
        """The brokers' measurements of these true rates; shape (N, 4)."""
        if minute != self._minute or len(self._drawn) < len(rates):
            rng = np.random.default_rng((self._seed, minute))
            self._minute = minute
            # The same numbers for a bundle, however many there are.
            drawn = rng.standard_normal((len(rates), 3))
            self._drawn = drawn
        burst, chance_in, chance_out = self._drawn[: len(rates)].T
        factor = np.exp(self._sigma * burst - self._sigma**2 / 2)
        found = np.empty_like(rates)
        for column, chance in ((2, chance_in), (3, chance_out)):
            true = rates[:, column]
            counted = _counted(true * factor * STATS_EVERY_S, chance) / STATS_EVERY_S
            found[:, column] = counted
            part = np.divide(counted, true, out=np.zeros(len(true)), where=true > 0)
            found[:, column - 2] = rates[:, column - 2] * part
        return found


def _counted(mean: FloatArray, chance: FloatArray) -> FloatArray:
    """Poisson counts from standard normal numbers; shape (N,)."""
    counts = np.maximum(np.rint(mean + np.sqrt(mean) * chance), 0.0)
    few = (mean < _FEW) & (mean > 0)
    if few.any():
        low = mean[few]
        steps = np.arange(1, 100)
        logs = np.concatenate(
            [np.zeros((len(low), 1)), np.cumsum(np.log(low[:, None] / steps), axis=1)], axis=1
        )
        below = np.cumsum(np.exp(logs - low[:, None]), axis=1)
        part = 0.5 * (1.0 + _erf(chance[few] / np.sqrt(2.0)))
        counts[few] = (below < part[:, None]).sum(axis=1)
    return counts


def _erf(x: FloatArray) -> FloatArray:
    """Abramowitz and Stegun 7.1.26; its error is below 1.5e-7."""
    t = 1.0 / (1.0 + 0.3275911 * np.abs(x))
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    found: FloatArray = np.sign(x) * (1.0 - series * np.exp(-(x**2)))
    return found


class Stats:
    """The newest numbers of every broker, as REST gives them. B brokers, N bundles."""

    def __init__(self, world: World) -> None:
        brokers = len(world.brokers)
        self.measured_s = np.full(brokers, -np.inf)
        """Shape (B,): when the broker measured."""
        self.rates = np.zeros((len(world.bundles), 4))
        """Shape (N, 4)."""
        self.holder = np.full(len(world.bundles), -1)
        """Shape (N,): broker in whose numbers the bundle is; -1 = in nobody's."""
        self._bytes = np.zeros(brokers)

    def measure(self, world: World, noisy: FloatArray, due: BoolArray, now_s: float) -> None:
        """Brokers that are due count what their bundles carry; ``noisy``: shape (N, 4)."""
        self._grow(len(world.bundles))
        self.holder[(self.holder >= 0) & due[self.holder]] = -1
        mine = (world.owner >= 0) & due[world.owner]
        self.holder[mine] = world.owner[mine]
        self.rates[mine] = noisy[mine]
        carried = np.bincount(
            world.owner[mine], noisy[mine, 0] + noisy[mine, 1], len(world.brokers)
        )
        self._bytes[due] = carried[due]
        self.measured_s[due] = now_s

    def forget(self, bundle: int) -> None:
        """A broker drops the numbers of a bundle when it lets go of it."""
        if bundle < len(self.holder):
            self.holder[bundle] = -1

    def forget_all(self, broker: int) -> None:
        """A broker is gone, and its numbers with it."""
        self.holder[self.holder == broker] = -1
        self._bytes[broker] = 0.0

    def usage(self, world: World) -> tuple[FloatArray, FloatArray]:
        """Usage and limit of each resource; shape (B, 5) each. The processor's as measured."""
        brokers = len(world.brokers)
        limit = np.empty((brokers, 5))
        usage = np.empty((brokers, 5))
        limit[:, 0] = CORE_PERCENT * world.size
        limit[:, 1:3] = 100.0
        limit[:, 3:] = NIC_BYTES_PER_S * 8e-3 * world.size[:, None]
        part = world.foreign + self._bytes / (CAPACITY_BYTES_PER_S * world.size)
        usage[:, 0] = limit[:, 0] * np.minimum(part, 1.0)
        usage[:, 1], usage[:, 2] = 40.0, 20.0
        held = self.holder >= 0
        for column in (0, 1):
            sums = np.bincount(self.holder[held], self.rates[held, column], brokers)
            usage[:, 3 + column] = np.minimum(sums * 8e-3, limit[:, 3 + column])
        return usage, limit

    def sums(self, brokers: int) -> FloatArray:
        """Messages per second, bytes per second and bundles of each broker; shape (B, 3)."""
        held = self.holder >= 0
        of = self.holder[held]
        rates = self.rates[held]
        return np.stack(
            [
                np.bincount(of, rates[:, 2] + rates[:, 3], brokers),
                np.bincount(of, rates[:, 0] + rates[:, 1], brokers),
                np.bincount(of, minlength=brokers).astype(np.float64),
            ],
            axis=1,
        )

    def _grow(self, bundles: int) -> None:
        more = bundles - len(self.holder)
        if more > 0:
            self.holder = np.concatenate([self.holder, np.full(more, -1)])
            self.rates = np.concatenate([self.rates, np.zeros((more, 4))])


class ReportRule:
    """Whether a broker reports at its five-second check: both managers have the same rule.

    Source: ``ModularLoadManagerImpl.needBrokerDataUpdate`` and ``BrokerLoadDataReporter``. Usage is
    compared in points, all else in per cent; what was 0 has changed by infinitely many.

    >>> rule = ReportRule(1, StockSettings())
    >>> def report(now_s: float, rate: float, percent: float) -> bool:
    ...     sums, usage = np.array([[rate, 1e6, 10.0]]), np.array([percent])
    ...     due = rule.due(now_s, sums, usage)
    ...     rule.reported(due, now_s, sums, usage)
    ...     return bool(due[0])
    >>> report(0, 100, 50), report(5, 109, 59), report(10, 111, 50), report(15, 111, 61)
    (True, False, True, True)
    >>> report(915, 111, 61), report(916, 111, 61)
    (False, True)
    """

    def __init__(self, brokers: int, settings: StockSettings) -> None:
        self._change_percent = settings.loadBalancerReportUpdateThresholdPercentage
        self._after_s = 60 * settings.loadBalancerReportUpdateMaxIntervalMinutes
        self._sums = np.zeros((brokers, 3))
        self._usage = np.zeros(brokers)
        self._at_s = np.full(brokers, -np.inf)

    def due(self, now_s: float, sums: FloatArray, usage_percent: FloatArray) -> BoolArray:
        """Which brokers report; ``sums`` as of ``Stats.sums``, usage of the scarcest resource."""
        with np.errstate(divide="ignore", invalid="ignore"):
            change = 100.0 * np.abs((self._sums - sums) / self._sums)
        change[(self._sums == 0) & (sums == 0)] = 0.0
        most = np.maximum(change.max(axis=1), np.abs(self._usage - usage_percent))
        found: BoolArray = (most > self._change_percent) | (now_s - self._at_s > self._after_s)
        return found

    def reported(
        self, which: BoolArray, now_s: float, sums: FloatArray, usage_percent: FloatArray
    ) -> None:
        """These brokers reported."""
        self._sums[which], self._usage[which] = sums[which], usage_percent[which]
        self._at_s[which] = now_s

    def void(self, broker: int) -> None:
        """A broker must report at its next check."""
        self._at_s[broker] = -np.inf
