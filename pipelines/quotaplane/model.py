"""Terms that all rooms share: dimensions, their column names, group ids and shards."""

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
    """Noun for the counted things, in the plural; quotas written as texts contain it."""
    is_basic: bool = False
    """Every broker counts it, stock ones too. Another one is there only where it is limited."""
    sum_of: tuple[str, ...] = ()
    """The basic dimensions that a total is the sum of; empty for other dimensions."""
    carried_by: str = ""
    """The dimension of the messages that carry these bytes; empty for other dimensions."""


DECLARED_DIMENSIONS: Final = (
    Dimension("publish_messages", "messages", is_basic=True),
    Dimension("publish_bytes", "bytes", is_basic=True, carried_by="publish_messages"),
    Dimension("dispatch_messages", "messages", is_basic=True),
    Dimension("dispatch_bytes", "bytes", is_basic=True, carried_by="dispatch_messages"),
    Dimension("total_messages", "messages", sum_of=("publish_messages", "dispatch_messages")),
    Dimension("total_bytes", "bytes", sum_of=("publish_bytes", "dispatch_bytes")),
    # Partitions created or deleted, with their topics or alone.
    Dimension("controller_mutations", "mutations"),
    # Time that request threads were busy; 10 a second are 1 percent of Kafka's request_percentage.
    Dimension("request_ms", "milliseconds"),
)
"""Every dimension, the basic ones first.

To add one: declare it at the end (states have the others by their places), and give both messages
of ``schemas/quotaplane.proto`` its columns. Then run ``make proto`` and
``python -m quotaplane.history.ddl schemas/tables``.
"""

DIMENSIONS: Final = tuple(dimension.name for dimension in DECLARED_DIMENSIONS)
"""Names of the dimensions; arrays of shape (n, dimensions) have their columns in this order."""

BASIC: Final = sum(dimension.is_basic for dimension in DECLARED_DIMENSIONS)
"""Number of the first dimensions, which are always present: every broker, also a stock one, counts
them. The others are stored only if they are reported or limited."""

PUBLISH: Final = slice(0, 2)
"""The dimensions of publishing; stock Pulsar limits only these by group."""

PARTS: Final = {
    place: tuple(map(DIMENSIONS.index, dimension.sum_of))
    for place, dimension in enumerate(DECLARED_DIMENSIONS)
    if dimension.sum_of
}
"""The parts of each total, all as indexes of dimensions."""

EVENTS: Final = {
    place: (parts, tuple(DIMENSIONS.index(DECLARED_DIMENSIONS[part].carried_by) for part in parts))
    for place, parts in ((place, PARTS.get(place, (place,))) for place in range(len(DIMENSIONS)))
    if all(DECLARED_DIMENSIONS[part].carried_by for part in parts)
}
"""For each dimension in bytes: its parts (itself, if it is no total), and the dimensions of the
messages that carry them; all as indexes."""

RATE_COLUMNS: Final = tuple(f"{dimension}_per_s" for dimension in DIMENSIONS)
"""Each dimension's column in tables, messages and files: always a rate per second."""

THROTTLED_COLUMNS: Final = tuple(f"throttled_{dimension}_per_s" for dimension in DIMENSIONS)
"""Requests that a broker refused or delayed, per second; only in our own report format."""

COUNTED: Final = tuple(place for place in range(len(DIMENSIONS)) if place not in PARTS)
"""Indexes of the dimensions that have counters; totals follow from the counters of their parts."""

COUNTER_COLUMNS: Final = tuple(f"counter_{DIMENSIONS[place]}" for place in COUNTED)
"""Amounts since the broker's start, not rates; only in our own report format, and in ``usage``.
Arrays of counters have their columns in this order."""

DEMAND_COLUMNS: Final = tuple(f"demand_{name}" for name in RATE_COLUMNS)
"""The demand that a law was given."""

QUOTA_COLUMNS: Final = tuple(f"quota_{name}" for name in RATE_COLUMNS)
"""The quota that a law divided: a group's own or, in a tree, its share."""

USED_COLUMNS: Final = tuple(f"used_{name}" for name in RATE_COLUMNS)
"""The usage of a lease, where a table has its limit and demand, too."""

LIMIT_COLUMNS: Final = tuple(f"limit_{name}" for name in RATE_COLUMNS)
"""The limit that a broker has in force: in our own report format, and of a lease."""

SAFE_COLUMNS: Final = tuple(f"safe_{name}" for name in RATE_COLUMNS)
"""The limit that a broker falls back to when its lease has ended."""

IN_FORCE_COLUMNS: Final = ("applied_seq", *LIMIT_COLUMNS)
"""A broker's report of its limits in force: the round that they came from, and their values."""

MAX_RATE: Final = 1e18
"""The highest quota, floor or ceiling per second; real ones are much lower."""

MAX_GROUP_CHARS: Final = 1024
"""Maximum length of a group's name; it must also be printable."""

MAX_BROKER_CHARS: Final = 512
"""Maximum length of a broker's name; it must also be printable."""

SEPARATOR: Final = "::"
"""Separates the parts of a group's name: ``acme::orders`` is a child of ``acme``."""

TREE_BITS: Final = 40
"""The lower 40 of an id's 63 bits are the group's own; the upper ones are equal in a whole tree."""

_OWN: Final = (1 << TREE_BITS) - 1

UNLIMITED: Final = float("inf")
"""A missing quota, and the limit of an unlimited broker."""


class Transition(str, Enum):
    """How limits come into force: all of a round at once, or increases only when there is room."""

    FAST = "fast"
    STRICT = "strict"


class BrokerStatus(str, Enum):
    """Whether a broker still reports."""

    LIVE = "live"
    STALE = "stale"
    GONE = "gone"


class Mode(IntEnum):
    """How a group's limits are applied; the codes are stored in the state, so never renumber them.

    HARD: brokers are limited. SOFT: limits are computed and recorded, brokers get "unlimited", and
    usage above the limit is a warning. SHADOW: limits are only computed and recorded.
    """

    HARD = 0
    SOFT = 1
    SHADOW = 2


MODES: Final = tuple(mode.name.lower() for mode in Mode)
"""Names of the modes, by code."""


@dataclass(frozen=True)
class Round:
    """A round's identity and time."""

    epoch: int
    """Increases with each new checkpoint."""
    seq: int
    """Id of the micro-batch."""
    now_ms: int
    """Time of the micro-batch, not of the wall clock."""


def group_id(group: str) -> int:
    """The 63-bit id of a resource group, from the SHA-256 of its UTF-8 name.

    The id is the first 8 bytes of the digest, shifted right by one. A name with ``SEPARATOR`` takes
    its upper 23 bits from the id of its root (the part before the first separator), so that a whole
    tree has the same upper bits, and therefore the same shard.

    Ids replace names on the wire to make reports smaller, as PIP-82 asks. Because an id is a digest
    of the name, brokers and the control plane need no common table of ids.

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
    """The shard of a group id, or of an array of ids: the key of Spark's stateful operator.

    >>> shard_of(group_id("tenant-a/orders"), 2)
    1
    >>> shard_of(np.array([5 << 40, 7 << 40]), 4).tolist()
    [1, 3]
    """
    return (group >> TREE_BITS) % shards
