"""Which brokers a group's limits are enforced on: its mode, and its roll-out in percent."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from quotaplane.model import BoolArray, Mode
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


def enforced(groups: Groups, brokers: Brokers, rows: Leases) -> BoolArray:
    """Whether each of the n rows is limited, or its limit is only reckoned and recorded.

    Only ``hard`` groups are. Of their brokers it is ``enforcement_percent``: those whose hash with
    the group's id is low. So other groups begin with other brokers, and raising the percentage only
    ever adds some.
    """
    hard = groups.mode == Mode.HARD
    if hard.all() and (groups.enforcement_percent >= 100.0).all():
        return np.ones(len(rows), np.bool_)
    digests = (hashlib.sha256(name.encode()).digest()[:8] for name in brokers.names)
    broker = np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64)
    mixed = groups.ids.astype(np.uint64)[rows.group] * _ODD ^ broker[rows.broker]
    mixed = (mixed ^ (mixed >> np.uint64(31))) * _ODD
    percent = (mixed >> np.uint64(11)) * (100.0 / 2**53)
    chosen: BoolArray = hard[rows.group] & (percent < groups.enforcement_percent[rows.group])
    return chosen
