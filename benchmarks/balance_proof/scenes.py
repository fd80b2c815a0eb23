"""The scenes for all contenders: bundles, rates that their topics want, and four events.

Everything is the same for all: topics, rates, first owners, and how often brokers measure.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np

BROKERS: Final = 3
STATS_INTERVAL_S: Final = 5
MESSAGE_BYTES: Final = 1000
TENANT: Final = "proof"
BUNDLES: Final = 32
"""Bundles of the namespace ``orders``; each with one topic."""
HOT_TOPICS: Final = 8
"""Topics of the namespace ``hot``, which has one bundle."""
TOTAL_PER_S: Final = 1500.0
"""Messages per second of all topics before the hot bundle."""
HOT_SHARE: Final = 0.55
"""The hot bundle's share of the new total: more than any broker should carry."""
FIRST_SHARES: Final = (0.6, 0.3, 0.1)
"""The brokers' shares of the load at the start, which are skewed."""
HOT_BROKER: Final = 2
"""The broker that a policy leaves to the namespace ``hot`` alone at the end."""


@dataclass(frozen=True)
class Scene:
    """An event, and how long the cluster is watched after it."""

    name: str
    title: str
    watch_s: float


SKEWED: Final = Scene("skewed", "Skewed load", 180.0)
RESTARTED: Final = Scene("restarted", "A broker is restarted", 150.0)
HOT: Final = Scene("hot", "A hot bundle", 150.0)
POLICY: Final = Scene("policy", "An isolation policy is set", 150.0)
SCENES: Final = (SKEWED, RESTARTED, HOT, POLICY)


def hash_of(topic: str) -> int:
    """The hash that decides a topic's bundle."""
    return zlib.crc32(topic.encode())


def order_topics() -> list[str]:
    """One topic in each bundle of ``orders``."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < BUNDLES:
        topic = f"persistent://{TENANT}/orders/topic-{number}"
        found.setdefault(hash_of(topic) * BUNDLES >> 32, topic)
        number += 1
    return [found[place] for place in range(BUNDLES)]


def hot_topics() -> list[str]:
    """The topics of the hot bundle."""
    return [f"persistent://{TENANT}/hot/topic-{number}" for number in range(HOT_TOPICS)]


def first_rates() -> dict[str, float]:
    """Messages per second of each topic until the hot bundle; the same in every run."""
    rates = np.random.default_rng(15).lognormal(0.0, 0.8, BUNDLES)
    rates *= TOTAL_PER_S / rates.sum()
    return dict(zip(order_topics(), rates.tolist(), strict=True)) | dict.fromkeys(hot_topics(), 1.0)


def hot_rates() -> dict[str, float]:
    """Messages per second from the third event on."""
    rates = first_rates()
    hot = TOTAL_PER_S * HOT_SHARE / (1.0 - HOT_SHARE)
    return rates | dict.fromkeys(hot_topics(), hot / HOT_TOPICS)


def rates_in(scene: Scene) -> dict[str, float]:
    """Messages per second of each topic in a scene."""
    return hot_rates() if scene in (HOT, POLICY) else first_rates()


def shares_in(scene: Scene) -> tuple[float, ...]:
    """The part of all that is wanted that each broker should carry."""
    if scene is not POLICY:
        return (1.0 / BROKERS,) * BROKERS
    others = (1.0 - HOT_SHARE) / (BROKERS - 1)
    return tuple(HOT_SHARE if broker == HOT_BROKER else others for broker in range(BROKERS))


def first_owners() -> dict[str, int]:
    """The broker of each topic at the start: the largest first, where most is missing."""
    rates = first_rates()
    missing = np.array(FIRST_SHARES) * TOTAL_PER_S
    owners = {}
    for topic in sorted(order_topics(), key=lambda topic: -rates[topic]):
        owner = int(missing.argmax())
        missing[owner] -= rates[topic]
        owners[topic] = owner
    return owners | dict.fromkeys(hot_topics(), 1)
