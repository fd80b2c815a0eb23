"""The words that every part shares: dimensions, their column names, group ids and shards."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

DIMENSIONS: Final = ("publish_messages", "publish_bytes", "dispatch_messages", "dispatch_bytes")
"""What a quota may limit; arrays of shape (n, 4) have their columns in this order."""

RATE_COLUMNS: Final = tuple(f"{dimension}_per_s" for dimension in DIMENSIONS)
"""The column of each dimension in tables, messages and files: always a rate per second."""

THROTTLED_COLUMNS: Final = tuple(f"throttled_{dimension}_per_s" for dimension in DIMENSIONS)
"""What a broker refused or delayed, per dimension and second; only our own report format has it."""

MAX_GROUP_CHARS: Final = 1024
"""Of a group's name; it must be printable, too."""

UNLIMITED: Final = float("inf")
"""An absent quota, and the limit of a broker that nobody limits."""


class BrokerStatus(str, Enum):
    """How sure the control plane is that a broker still runs."""

    LIVE = "live"
    STALE = "stale"
    GONE = "gone"


@dataclass(frozen=True)
class Round:
    """Which round it is, and what time it has: the micro-batch's, never the wall clock's.

    ``epoch`` is bumped for each new checkpoint, ``seq`` is the id of the micro-batch.
    """

    epoch: int
    seq: int
    now_ms: int


def group_id(group: str) -> int:
    """The 63-bit id of a resource group: the first 8 bytes of SHA-256 of its UTF-8 name.

    An id stands for a name on the wire (PIP-82 asks for ids to make reports smaller). Being a
    digest of the name it needs no table that brokers and the control plane would have to agree on.

    >>> group_id("tenant-a/orders")
    3895966954609217153
    """
    digest = hashlib.sha256(group.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def shard_of(group: int, shards: int) -> int:
    """The shard of a group id: the key of the stateful operator.

    >>> shard_of(group_id("tenant-a/orders"), 2)
    1
    """
    return group % shards
