"""OverloadShedder: brokers above a fixed usage lose bundles."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotabalance.planning.decisions import Decisions, Skip
from quotabalance.stock.bundle_ranking import (
    MB,
    Ranking,
    SelectedBundles,
    first_until,
    max_usage,
    short_term_bytes,
    traffic_of,
)
from quotabalance.stock.interface import StockRound
from quotabalance.stock.leader_maps import LeaderMaps
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import IntArray

MARGIN: Final = 0.05
"""``ADDITIONAL_THRESHOLD_PERCENT_MARGIN``: this much more than needed is moved."""


class OverloadShedder:
    """Sheds from brokers with usage >= threshold: the biggest bundles, until their sum reaches
    throughput * (usage - threshold + 0.05). It keeps no state but the order of maps.
    """

    def __init__(self, settings: StockSettings) -> None:
        self._settings = settings
        self._maps = LeaderMaps()
        self._selected = SelectedBundles()

    def shed(self, round_: StockRound) -> Decisions:
        """See ``Shedder``."""
        load, maps = round_.load, self._maps
        maps.begin(load)
        threshold = self._settings.loadBalancerBrokerOverloadedThresholdPercentage / 100.0
        usage, traffic = max_usage(load, self._settings), traffic_of(load)
        overloaded = usage >= threshold
        with np.errstate(invalid="ignore", over="ignore"):
            amount = traffic.bytes_per_s * (usage - threshold + MARGIN)
        size = short_term_bytes(round_)
        ranking = Ranking(round_, maps, overloaded & (traffic.bundles > 1), size)
        skips: list[Skip] = []
        chosen: dict[int, tuple[IntArray, str, str]] = {}
        listed = maps.brokers()
        for broker in listed[overloaded[listed]].tolist():
            name = load.brokers[broker]
            able, stay = ranking.leaving(broker, int(traffic.bundles[broker]))
            skips.extend(stay)
            if not len(able):
                continue
            reason = (
                f"{name} uses {usage[broker]:.1%}, threshold {threshold:.1%}:"
                f" at least {amount[broker] / MB:.4g} MB/s leave it"
            )
            taken = able[: first_until(size[able], float(amount[broker]))]
            chosen[broker] = taken, "Overloaded", reason
        calm = len(load.brokers) - int(overloaded.sum())
        if calm:
            reason = f"{calm} of {len(load.brokers)} brokers use less than {threshold:.1%}"
            skips.append(Skip("", "Balanced", reason, 0))
        return Decisions(self._selected.moves(round_, maps, chosen), (), skips)
