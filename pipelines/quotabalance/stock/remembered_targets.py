"""AvgShedder's ``bundleBrokerMap``: where bundles are to go, by the value of their load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quotabalance.stock.averages import LONG_SAMPLES, SHORT_SAMPLES
from quotabalance.stock.interface import StockRound
from quotabalance.stock.name_places import name_places, same_names

_Value = tuple[bytes, int, int]
"""Eight averages, samples, topics: what ``BundleData.equals`` compares."""


@dataclass
class _Key:
    """A ``BundleData`` that is a key of the map."""

    bundle: str
    place: int
    """Its index in the last round; -1 = the leader has dropped the bundle."""
    last: _Value | None = None
    """Its value when it was dropped, which it keeps."""


@dataclass
class _Entry:
    key: _Key
    broker: str


class RememberedTargets:
    """From a bundle's load to the broker it is to go to.

    Pulsar keys this map by ``BundleData``, whose hash changes with every sample, and which is equal
    to any other with the same numbers (apache/pulsar#26246). So new bundles with equal loads all go
    to the same broker; and a target is lost at the next sample, unless the new hash is the old one
    by chance. Entries are never removed, in Pulsar neither.
    """

    def __init__(self) -> None:
        self._entries: dict[int, list[_Entry]] = {}
        """By the hash that the key had when it was inserted."""
        self._keys: dict[str, _Key] = {}
        """Keys that are bundles of the last round."""
        self._round: StockRound | None = None

    def begin(self, round_: StockRound) -> None:
        """Take note of a round: of bundles that the leader has dropped."""
        last, names = self._round, round_.load.bundles
        if last and self._keys and not same_names(names, last.load.bundles):
            self._find_keys(last, names)
        self._round = round_

    def _find_keys(self, last: StockRound, names: Sequence[str]) -> None:
        places = name_places(list(self._keys), names).tolist()
        for key, place in zip(list(self._keys.values()), places, strict=True):
            if place < 0:
                key.last = _value(last, key.place)
                del self._keys[key.bundle]
            key.place = place

    def get(self, round_: StockRound, bundle: int) -> str | None:
        """The broker that a bundle is to go to, if it is remembered; ``bundle`` is its index."""
        self.begin(round_)
        entry = self._find(round_, bundle, _value(round_, bundle))
        return entry.broker if entry else None

    def put(self, round_: StockRound, bundle: int, broker: str) -> None:
        """Remember a bundle's target. Java keeps the first of two equal keys."""
        self.begin(round_)
        value, name = _value(round_, bundle), round_.load.bundles[bundle]
        entry = self._find(round_, bundle, value)
        if entry:
            entry.broker = broker
            return
        key = self._keys.setdefault(name, _Key(name, bundle))
        self._entries.setdefault(_java_hash(value), []).append(_Entry(key, broker))

    def _find(self, round_: StockRound, bundle: int, value: _Value) -> _Entry | None:
        for entry in self._entries.get(_java_hash(value), ()):
            key = entry.key
            if key.place == bundle or value == (key.last or _value(round_, key.place)):
                return entry
        return None


def _value(round_: StockRound, bundle: int) -> _Value:
    averages = np.concatenate([round_.short_term[bundle], round_.long_term[bundle]]).tobytes()
    samples = LONG_SAMPLES if round_.samples is None else int(round_.samples[bundle])
    topics = int(round_.load.topics[bundle]) if len(round_.load.topics) else 0
    return averages, samples, topics


def _java_hash(value: _Value) -> int:
    """``BundleData.hashCode()`` as Lombok makes it: 59 * h + field, one after the other."""
    averages, samples, topics = value
    bits = np.frombuffer(averages, np.uint64).tolist()
    short, long = (
        _folded((most, min(samples, most), *((part >> 32 ^ part) & 0xFFFFFFFF for part in four)))
        for most, four in ((SHORT_SAMPLES, bits[:4]), (LONG_SAMPLES, bits[4:]))
    )
    return _folded((topics, short, long))


def _folded(fields: Sequence[int]) -> int:
    found = 1
    for part in fields:
        found = (59 * found + part) % 2**32
    return found
