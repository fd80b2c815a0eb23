"""A cluster's list of brokers, as programs use it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class ClusterList(NamedTuple):
    """The brokers of a cluster's list."""

    names: frozenset[str]
    """Those that are in the list, or were until lately."""
    left_at_ms: Mapping[str, int]
    """Those of them that are not in it any more, and when the first list without them was read."""


NO_BROKERS: Final = ClusterList(frozenset(), {})
