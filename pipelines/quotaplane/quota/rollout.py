"""Enforcement: a group's mode and roll-out percentage select the brokers that must obey limits."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from quotaplane.model import BoolArray, Mode
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases

_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio, odd: multiplying by it mixes bits (Fibonacci hashing)."""


def enforced(groups: Groups, brokers: Brokers, leases: Leases) -> BoolArray:
    """(n,) whether each limit is enforced; else it is only computed and recorded.

    Limits of ``hard`` groups are enforced, on ``enforcement_percent`` of the brokers: those with
    the lowest hashes of group and broker. So each group starts with other brokers, and raising the
    percentage only adds brokers.
    """
    hard = groups.mode == Mode.HARD
    if hard.all() and (groups.enforcement_percent >= 100.0).all():
        return np.ones(len(leases), np.bool_)
    digests = (hashlib.sha256(name.encode()).digest()[:8] for name in brokers.names)
    broker = np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64)
    mixed = groups.ids.astype(np.uint64)[leases.group] * _MIXER ^ broker[leases.broker]
    mixed = (mixed ^ (mixed >> np.uint64(31))) * _MIXER
    percent = (mixed >> np.uint64(11)) * (100.0 / 2**53)
    chosen: BoolArray = hard[leases.group] & (percent < groups.enforcement_percent[leases.group])
    return chosen
