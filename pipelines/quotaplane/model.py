"""The words that every part shares: dimensions, their column names, group ids and shards."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
CodeArray = npt.NDArray[np.uint8]
Ids = TypeVar("Ids", int, IntArray)


@dataclass(frozen=True)
class Dimension:
    """One thing that a quota may limit, per second."""

    name: str
    """As in columns: what is done (publish, dispatch, or total: both), then the unit."""
    unit: str
    """What is counted, a plural; quotas written as texts name it."""
    is_basic: bool = False
    """Every broker counts it, stock ones too. Another one is there only where it is limited."""
    sum_of: tuple[str, ...] = ()
    """Of a total: the basic dimensions that it is the sum of."""


DECLARED_DIMENSIONS: Final = (
    Dimension("publish_messages", "messages", is_basic=True),
    Dimension("publish_bytes", "bytes", is_basic=True),
    Dimension("dispatch_messages", "messages", is_basic=True),
    Dimension("dispatch_bytes", "bytes", is_basic=True),
    Dimension("total_messages", "messages", sum_of=("publish_messages", "dispatch_messages")),
    Dimension("total_bytes", "bytes", sum_of=("publish_bytes", "dispatch_bytes")),
    # Partitions created or deleted, with their topics or alone.
    Dimension("controller_mutations", "mutations"),
)
"""Every dimension, the basic ones first.

To add one: declare it at the end (states have the others by their places), and give both messages
of ``schemas/quotaplane.proto`` its columns. Then run ``make proto`` and
``python -m quotaplane.history.ddl schemas/tables``.
"""

DIMENSIONS: Final = tuple(dimension.name for dimension in DECLARED_DIMENSIONS)
"""What a quota may limit; arrays of shape (n, dimensions) have their columns in this order."""

BASIC: Final = sum(dimension.is_basic for dimension in DECLARED_DIMENSIONS)
"""So many of them, the first, every broker counts, stock ones too, and everything has. The others
are there only where somebody reports or limits them, and cost nothing elsewhere."""

PUBLISH: Final = slice(0, 2)
"""The dimensions of publishing, which stock Pulsar limits by group."""

PARTS: Final = {
    place: tuple(map(DIMENSIONS.index, dimension.sum_of))
    for place, dimension in enumerate(DECLARED_DIMENSIONS)
    if dimension.sum_of
}
"""Of each total, by index, the dimensions that it is the sum of."""

RATE_COLUMNS: Final = tuple(f"{dimension}_per_s" for dimension in DIMENSIONS)
"""The column of each dimension in tables, messages and files: always a rate per second."""

THROTTLED_COLUMNS: Final = tuple(f"throttled_{dimension}_per_s" for dimension in DIMENSIONS)
"""What a broker refused or delayed, per dimension and second; only our own report format has it."""

LIMIT_COLUMNS: Final = tuple(f"limit_{name}" for name in RATE_COLUMNS)
"""The limit that a broker reports to have in force; only our own report format has it."""

SAFE_COLUMNS: Final = tuple(f"safe_{name}" for name in RATE_COLUMNS)
"""What a broker falls back to when its lease ran out."""

IN_FORCE_COLUMNS: Final = ("applied_seq", *LIMIT_COLUMNS)
"""What a broker says of the limits it has: which round's they are, and what they are."""

MAX_RATE: Final = 1e18
"""The highest quota, floor or ceiling per second; nothing real comes near it."""

MAX_GROUP_CHARS: Final = 1024
"""Of a group's name; it must be printable, too."""

MAX_BROKER_CHARS: Final = 512
"""Of a broker's name; it must be printable, too."""

SEPARATOR: Final = "::"
"""Between the parts of a group's name: ``acme::orders`` is a child of ``acme``."""

TREE_BITS: Final = 40
"""How many of an id's 63 bits are the group's own; those above are the same in all of its tree."""

_OWN: Final = (1 << TREE_BITS) - 1

UNLIMITED: Final = float("inf")
"""An absent quota, and the limit of a broker that nobody limits."""


class Transition(str, Enum):
    """How limits come into force: all of a round at once, or raises only when there is room."""

    FAST = "fast"
    STRICT = "strict"


class BrokerStatus(str, Enum):
    """How sure the control plane is that a broker still runs."""

    LIVE = "live"
    STALE = "stale"
    GONE = "gone"


class Mode(IntEnum):
    """What becomes of a group's limits; the codes are kept in the state, so never renumber.

    HARD: brokers are limited. SOFT: limits are computed and recorded, brokers are told that they
    are unlimited, and use above the limit is a warning. SHADOW: computed and recorded only.
    """

    HARD = 0
    SOFT = 1
    SHADOW = 2


MODES: Final = tuple(mode.name.lower() for mode in Mode)
"""By code."""


@dataclass(frozen=True)
class Round:
    """Which round it is, and what time it has: the micro-batch's, never the wall clock's.

    ``epoch`` is bumped for each new checkpoint, ``seq`` is the id of the micro-batch.
    """

    epoch: int
    seq: int
    now_ms: int


def group_id(group: str) -> int:
    """The 63-bit id of a resource group, from the SHA-256 of its UTF-8 name.

    It is the first 8 bytes of the digest, shifted right by one. A name with ``SEPARATOR`` in it
    takes its upper 23 bits from the id of its root (what is before the first separator), so that
    a whole tree shares them, and with them its shard.

    An id stands for a name on the wire (PIP-82 asks for ids to make reports smaller). Being a
    digest of the name it needs no table that brokers and the control plane would have to agree on.

    >>> group_id("tenant-a/orders")
    3895966954609217153
    >>> group_id("acme::orders") >> 40 == group_id("acme") >> 40
    True
    """
    own = _digest(group)
    root, separator, _ = group.partition(SEPARATOR)
    return _digest(root) & ~_OWN | own & _OWN if separator else own


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def shard_of(group: Ids, shards: int) -> Ids:
    """The shard of a group id, or of an array of them: the key of the stateful operator.

    >>> shard_of(group_id("tenant-a/orders"), 2)
    1
    >>> shard_of(np.array([5 << 40, 7 << 40]), 4).tolist()
    [1, 3]
    """
    return (group >> TREE_BITS) % shards
