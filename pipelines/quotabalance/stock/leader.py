"""The leader around a strategy: reads cases, keeps averages, gives a strategy its rounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from quotabalance.planning.cases import BalanceCase, loads_of
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions, Skip
from quotabalance.stock.averages import BundleAverages
from quotabalance.stock.interface import ForgetsBrokers, Shedder, StockRound
from quotabalance.stock.stock_settings import StockSettings, stock_settings
from quotaplane.errors import InputError
from quotaplane.model import BoolArray

_MINUTE_S: Final = 60


class StockCase(NamedTuple):
    """Some rounds of a cluster, which one instance of a strategy gets."""

    settings: StockSettings
    rounds: Sequence[ClusterLoad]
    recent: frozenset[str]
    """Bundles that count as recently unloaded in every round."""


class Leader:
    """Makes rounds for a strategy: one sample of every bundle a round, and the grace period."""

    def __init__(self, settings: StockSettings, recent: Iterable[str] = ()) -> None:
        """Begin without samples.

        Args:
            settings: has the grace period.
            recent: bundles that count as recently unloaded in every round.
        """
        self._averages = BundleAverages()
        self._recent = frozenset(recent)
        self._unloaded: dict[str, float] = {}
        self._settings = settings

    def round(self, load: ClusterLoad, now_s: float) -> StockRound:
        """The strategy's view of this load. Each call adds a sample to the averages.

        Raises:
            InputError: the load has an unusable value.
        """
        load.check()
        self._unloaded = {
            name: unloaded_s
            for name, unloaded_s in self._unloaded.items()
            if is_recent(unloaded_s, now_s, self._settings)
        }
        averages = self._averages.update(load)
        return StockRound(
            load,
            averages.short_term,
            averages.long_term,
            self._mask(load.bundles),
            now_s,
            averages.samples,
        )

    def note_unloaded(self, bundles: Iterable[str], now_s: float) -> None:
        """These bundles were unloaded now; the grace period begins."""
        self._unloaded.update(dict.fromkeys(bundles, now_s))

    def _mask(self, bundles: Sequence[str]) -> BoolArray:
        names = self._recent | self._unloaded.keys()
        if not names:
            return np.zeros(len(bundles), np.bool_)
        return np.fromiter((name in names for name in bundles), np.bool_, len(bundles))


def is_recent(unloaded_s: float, now_s: float, settings: StockSettings) -> bool:
    """Whether a bundle was unloaded less than the grace period ago, or exactly as long.

    >>> is_recent(0, 1800, StockSettings()), is_recent(0, 1800.001, StockSettings())
    (True, False)
    """
    grace_s = settings.loadBalancerSheddingGracePeriodMinutes * _MINUTE_S
    return unloaded_s >= now_s - grace_s


def decide_rounds(
    case: StockCase, shedder: Shedder, round_s: float = 60.0
) -> Iterator[tuple[StockRound, Decisions]]:
    """Feed a case's rounds to an instance; the rounds are ``round_s`` seconds apart.

    The strategy is called even for a single broker; Pulsar's leader does not call it then.
    """
    leader = Leader(case.settings, case.recent)
    for number, load in enumerate(case.rounds):
        round_ = leader.round(load, number * round_s)
        yield round_, shed_round(shedder, round_, case.settings)


def shed_round(
    shedder: Shedder, round_: StockRound, settings: StockSettings, fewest: int = 0
) -> Decisions:
    """Call a strategy, unless settings switch it off or there are fewer brokers than ``fewest``."""
    off = switched_off(settings, "loadBalancerSheddingEnabled", "nothing is moved")
    if off:
        return Decisions(skips=(off,))
    brokers = round_.load.brokers
    if isinstance(shedder, ForgetsBrokers):
        shedder.active_brokers(brokers)
    if len(brokers) < fewest:
        return Decisions(skips=(Skip("", "NoBrokers", f"{len(brokers)} broker"),))
    return shedder.shed(round_)


def switched_off(settings: StockSettings, switch: str, effect: str) -> Skip | None:
    """Why nothing is done, if a switch or that of the whole balancer is off.

    >>> switched_off(StockSettings(loadBalancerEnabled=False), "preferLaterVersions", "-").reason
    'loadBalancerEnabled is false: nothing is moved or split'
    """
    if not settings.loadBalancerEnabled:
        switch, effect = "loadBalancerEnabled", "nothing is moved or split"
    if getattr(settings, switch):
        return None
    return Skip("", "SwitchedOff", f"{switch} is false: {effect}")


def stock_case(case: BalanceCase, source: str = "case") -> StockCase:
    """A case for a shedder: its settings and its rounds in columns.

    Raises:
        InputError: a setting is unknown or wrong, or two brokers report one bundle.

    >>> case = stock_case(BalanceCase(rounds=[{"b1": {"cpu": [50, 100]}}]))
    >>> case.rounds[0].usage[0, 0].item()
    50.0
    """
    settings = case_settings(case.conf, source)
    loads = loads_of(case.rounds, source, case.topics, case.sessions)
    return StockCase(settings, loads, frozenset(case.recent))


def case_settings(conf: Mapping[str, Any], source: str) -> StockSettings:
    """Settings of a case.

    Raises:
        InputError: which setting of which case is unknown or wrong.
    """
    try:
        return stock_settings(conf)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
