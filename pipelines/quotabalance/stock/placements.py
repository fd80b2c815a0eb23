"""Pulsar's placement strategies: of some candidates, which brokers can get a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Final, NamedTuple, Protocol

import numpy as np

from quotabalance.stock.bundle_ranking import max_usage, traffic_of
from quotabalance.stock.interface import StockRound
from quotabalance.stock.java import INT_MAX
from quotabalance.stock.remembered_targets import RememberedTargets
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.errors import InputError
from quotaplane.model import BoolArray, FloatArray, IntArray


class BundleAsked(NamedTuple):
    """The bundle that is to be placed."""

    round_: StockRound
    """The leader's view, or one that holds only this bundle, if brokers report no such one."""
    at: int
    """Its index in ``round_.load.bundles``."""


class MessageRates(NamedTuple):
    """Long-term messages per second of brokers."""

    rounded: FloatArray
    """Shape (B,); the last bits are not Pulsar's."""
    exact: Callable[[int], float]
    """The value of one broker, to the last bit; slow."""


_NEAR: Final = 1e-9
"""Rates that differ by a smaller share may be equal."""


class PlacementStrategy(Protocol):
    """One strategy. An instance keeps histories, so each call of ``offer`` counts."""

    @property
    def is_sticky(self) -> bool:
        """Whether a broker that was drawn is the only one that is offered the next time."""

    def begin(self, round_: StockRound) -> None:
        """New reports have arrived."""

    def offer(self, candidates: IntArray, rates: MessageRates, bundle: BundleAsked) -> IntArray:
        """The brokers that Pulsar draws from, of the candidates.

        Args:
            candidates: indices of brokers, as Pulsar's set lists them; at least one.
            rates: long-term messages per second of each broker, with what has been placed on it
                since its report.
            bundle: what is to be placed.
        """

    def chosen(self, broker: int, bundle: BundleAsked) -> None:
        """One of the offered brokers was drawn."""

    def fork(self) -> PlacementStrategy:
        """A copy that can be asked without a change of this one."""


class RoundRobinBrokerSelector:
    """One after the other, of a list that is made anew when the number of candidates changes, or
    the next one is no candidate any more.
    """

    is_sticky: Final = False

    def __init__(self, settings: StockSettings) -> None:
        del settings  # it has none
        self._count = 0
        self._list: list[str] = []
        self._brokers: Sequence[str] = ()

    def begin(self, round_: StockRound) -> None:
        """See ``PlacementStrategy``."""
        self._brokers = round_.load.brokers

    def offer(self, candidates: IntArray, rates: MessageRates, bundle: BundleAsked) -> IntArray:
        """See ``PlacementStrategy``; it is always one broker."""
        place = self._count % len(candidates)
        self._count = 0 if self._count == INT_MAX else self._count + 1
        names = [self._brokers[index] for index in candidates.tolist()]
        if len(self._list) != len(names) or self._list[place] not in names:
            self._list = names
        return np.array([candidates[names.index(self._list[place])]], np.int64)

    def chosen(self, broker: int, bundle: BundleAsked) -> None:
        """See ``PlacementStrategy``."""

    def fork(self) -> RoundRobinBrokerSelector:
        """See ``PlacementStrategy``."""
        return copy(self)


class LeastLongTermMessageRate:
    """The brokers with the fewest messages per second; those above the threshold of overload only
    if all are.
    """

    is_sticky: Final = False

    def __init__(self, settings: StockSettings) -> None:
        self._settings = settings
        self._overloaded: BoolArray = np.zeros(0, np.bool_)

    def begin(self, round_: StockRound) -> None:
        """See ``PlacementStrategy``."""
        limit = self._settings.loadBalancerBrokerOverloadedThresholdPercentage / 100.0
        self._overloaded = max_usage(round_.load, self._settings) > limit

    def offer(self, candidates: IntArray, rates: MessageRates, bundle: BundleAsked) -> IntArray:
        """See ``PlacementStrategy``."""
        scores = np.where(self._overloaded[candidates], np.inf, rates.rounded[candidates])
        least = scores.min()
        if least == np.inf:
            return candidates
        near = scores <= least * (1 + _NEAR)
        found: IntArray = candidates[near]
        if len(found) == 1:
            return found
        exact = np.array([rates.exact(broker) for broker in found.tolist()])
        equal: IntArray = found[exact == exact.min()]
        return equal

    def chosen(self, broker: int, bundle: BundleAsked) -> None:
        """See ``PlacementStrategy``."""

    def fork(self) -> LeastLongTermMessageRate:
        """See ``PlacementStrategy``."""
        return copy(self)


class LeastResourceUsageWithWeight:
    """Brokers whose average usage is far enough below the candidates' mean; if none is, all.

    State: an average of each broker, which moves on *with every bundle that is placed*, not with
    time.
    """

    is_sticky: Final = False

    def __init__(self, settings: StockSettings) -> None:
        self._settings = settings
        self._brokers: Sequence[str] = ()
        self._average: FloatArray = np.zeros(0)
        self._usage: FloatArray = np.zeros(0)
        self._idle: BoolArray = np.zeros(0, np.bool_)

    def begin(self, round_: StockRound) -> None:
        """See ``PlacementStrategy``."""
        load = round_.load
        traffic = traffic_of(load)
        self._usage = max_usage(load, self._settings)
        self._idle = (traffic.bundles == 0) | (traffic.messages_per_s == 0)
        if load.brokers != self._brokers:
            known = dict(zip(self._brokers, self._average.tolist(), strict=True))
            self._average = np.array([known.get(name, np.nan) for name in load.brokers], float)
            self._brokers = load.brokers

    def offer(self, candidates: IntArray, rates: MessageRates, bundle: BundleAsked) -> IntArray:
        """See ``PlacementStrategy``."""
        settings, usage = self._settings, self._usage[candidates]
        history = settings.loadBalancerHistoryResourcePercentage
        before = np.where(self._idle[candidates], np.nan, self._average[candidates])
        average = np.where(np.isnan(before), usage, before * history + (1 - history) * usage)
        self._average = self._average.copy()
        self._average[candidates] = average
        return below_mean(candidates, average, len(candidates), settings)

    def chosen(self, broker: int, bundle: BundleAsked) -> None:
        """See ``PlacementStrategy``."""

    def fork(self) -> LeastResourceUsageWithWeight:
        """See ``PlacementStrategy``."""
        return copy(self)


def below_mean(
    candidates: IntArray, usage: FloatArray, brokers: int, settings: StockSettings
) -> IntArray:
    """Those whose usage plus the difference threshold is at most the mean; if there is none, all.

    Args:
        candidates: indices of brokers; ``usage`` has the same shape.
        usage: of each of them; 1 = the whole limit.
        brokers: by how many the sum is divided.
        settings: ``loadBalancerAverageResourceUsageDifferenceThresholdPercentage``.
    """
    # accumulate adds one after the other, as Java does
    mean = np.add.accumulate(usage)[-1] / brokers
    percent = settings.loadBalancerAverageResourceUsageDifferenceThresholdPercentage
    found: IntArray = candidates[usage + percent / 100.0 <= mean]
    return found if len(found) else candidates


class AvgPlacement:
    """AvgShedder as placement: the broker that the shedder planned, if it is a candidate; else any,
    which is remembered (crc32 of a random number decides).
    """

    is_sticky: Final = True

    def __init__(self, settings: StockSettings, targets: RememberedTargets | None = None) -> None:
        """``targets`` are those of the ``AvgShedder`` of the same leader."""
        del settings  # it reads none
        self._shared = targets is not None
        self._targets = targets or RememberedTargets()
        self._brokers: Sequence[str] = ()

    def begin(self, round_: StockRound) -> None:
        """See ``PlacementStrategy``."""
        self._brokers = round_.load.brokers
        if not self._shared:  # the shedder has begun the round
            self._targets.begin(round_)

    def offer(self, candidates: IntArray, rates: MessageRates, bundle: BundleAsked) -> IntArray:
        """See ``PlacementStrategy``."""
        planned = self._targets.get(bundle.round_, bundle.at)
        of_name = {self._brokers[index]: index for index in candidates.tolist()}
        if planned in of_name:
            return np.array([of_name[str(planned)]], np.int64)
        return candidates

    def chosen(self, broker: int, bundle: BundleAsked) -> None:
        """See ``PlacementStrategy``."""
        self._targets.put(bundle.round_, bundle.at, self._brokers[broker])

    def fork(self) -> AvgPlacement:
        """See ``PlacementStrategy``. The copy shares the targets: it must not get choices."""
        return copy(self)


PLACEMENTS: Final[dict[str, Callable[[StockSettings], PlacementStrategy]]] = {
    "RoundRobinBrokerSelector": RoundRobinBrokerSelector,
    "LeastLongTermMessageRate": LeastLongTermMessageRate,
    "LeastResourceUsageWithWeight": LeastResourceUsageWithWeight,
    "AvgShedder": AvgPlacement,
}
"""The modular manager's strategies by the names of their classes."""


def new_placement(name: str, settings: StockSettings) -> PlacementStrategy:
    """A new instance of a strategy.

    Raises:
        InputError: Pulsar 4.0.8 has no such strategy.

    >>> type(new_placement("RoundRobinBrokerSelector", StockSettings())).__name__
    'RoundRobinBrokerSelector'
    """
    made = PLACEMENTS.get(name.rpartition(".")[2])
    if made is None:
        known = ", ".join(PLACEMENTS)
        raise InputError(f"Pulsar has no placement {name[:200]!r}; expected one of {known}")
    return made(settings)
