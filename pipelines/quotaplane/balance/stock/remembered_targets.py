"""AvgShedder's ``bundleBrokerMap``: where bundles are to go, by the value of their load."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.balance.stock.interface import StockRound
from quotaplane.balance.stock.name_places import name_places

_GONE: Final = ""

_Value = tuple[bytes, int, int]


class RememberedTargets:
    """From a bundle's load to the broker it is to go to.

    Pulsar keys this map by ``BundleData``: equal loads are one key, so that new bundles all go to
    the same broker; and a key is lost when the bundle's load changes, even if only its count of
    samples does (apache/pulsar#26246).
    """

    def __init__(self) -> None:
        self._targets: dict[_Value, tuple[str, str]] = {}
        """For each load: the bundle whose object is the key, and the broker."""

    def begin(self, round_: StockRound) -> None:
        """Drop the keys of bundles whose load has changed: nothing finds them any more."""
        owners = list({key for key, _ in self._targets.values() if key != _GONE})
        if not owners:
            return
        found = name_places(owners, round_.load.bundles)
        now = {
            name: _value(round_, at) if at >= 0 else None
            for name, at in zip(owners, found.tolist(), strict=True)
        }
        kept: dict[_Value, tuple[str, str]] = {}
        for value, (key, broker) in self._targets.items():
            if key == _GONE or now[key] is None:
                # The leader has dropped the bundle; its object stays a key as it is.
                kept[value] = _GONE, broker
            elif now[key] == value:
                kept[value] = key, broker
        self._targets = kept

    def get(self, round_: StockRound, bundle: int) -> str | None:
        """The broker that a bundle is to go to, if it is remembered; ``bundle`` is its index."""
        found = self._targets.get(_value(round_, bundle))
        return found[1] if found else None

    def put(self, round_: StockRound, bundle: int, broker: str) -> None:
        """Remember a bundle's target. Java keeps the first of two equal keys."""
        value = _value(round_, bundle)
        key = self._targets.get(value, (round_.load.bundles[bundle], ""))[0]
        self._targets[value] = key, broker


def _value(round_: StockRound, bundle: int) -> _Value:
    """What ``BundleData.equals`` compares."""
    averages = np.concatenate([round_.short_term[bundle], round_.long_term[bundle]]).tobytes()
    samples = 1000 if round_.samples is None else int(round_.samples[bundle])
    topics = int(round_.load.topics[bundle]) if len(round_.load.topics) else 0
    return averages, samples, topics
