"""The limits a broker must obey by docs/reference/wire.md, from the messages that reached it.

It is written a second time here, plainly, so that the client library is compared with something.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quotaplane.model import DIMENSIONS, FloatArray
from quotaplane.wire.limits import LimitsMessage


def groups_of(message: LimitsMessage, name_of_id: dict[int, str]) -> tuple[list[str], list[str]]:
    """The groups that have a limit in a message, in its order, and those that are removed."""
    limited, removed = (
        [name_of_id[each] for each in ids.tolist()]
        for ids in (message.group_ids, message.removed_group_ids)
    )
    return [*(message.groups or limited)], [*message.removed_groups, *removed]


class _Obeyed(NamedTuple):
    """The newest message about one group."""

    version: tuple[int, int]
    """(epoch, seq)."""
    limit: FloatArray
    """(dimensions,) until ``until_ms``."""
    safe: FloatArray
    """(dimensions,) after it."""
    until_ms: float
    """By the clock that measures leases."""
    is_removed: bool


class ObeyedLimits:
    """One process of a broker.

    Args:
        name_of_id: the groups by id.
        started_at_ms: messages for other processes are ignored.
        unset: the limit before any message, and after a removal.
    """

    def __init__(self, name_of_id: dict[int, str], started_at_ms: int, unset: float) -> None:
        self._name_of_id, self._started_at_ms = name_of_id, started_at_ms
        self._unset: FloatArray = np.full(len(DIMENSIONS), unset)
        self._newest: dict[str, _Obeyed] = {}

    def apply(self, message: LimitsMessage, wall_ms: int, steady_ms: int) -> None:
        """A message arrives, when the broker's clock for times of day and the one for durations
        show this.
        """
        if message.broker_started_at_ms not in (0, self._started_at_ms):
            return
        version = message.epoch, message.seq
        waited_ms = max(wall_ms - message.issued_at_ms, 0)
        until_ms = steady_ms - waited_ms + message.lease_ms
        limited, removed = groups_of(message, self._name_of_id)
        for at, name in enumerate(limited):
            before = self._newest.get(name)
            if before is not None and before.version >= version:
                continue
            if message.safe_limits is not None:
                safe = message.safe_limits[at]
            else:
                safe = self._unset if before is None or before.is_removed else before.safe
            self._newest[name] = _Obeyed(version, message.limits[at], safe, until_ms, False)
        for name in removed:
            before = self._newest.get(name)
            if before is None or before.version < version:
                self._newest[name] = _Obeyed(version, self._unset, self._unset, np.inf, True)

    def forget(self, group: str, ended_before_ms: float) -> None:
        """The broker forgets a group without topics there, long after the group's lease."""
        newest = self._newest.pop(group, None)
        assert newest is None or newest.is_removed or newest.until_ms < ended_before_ms, (
            f"{group} is forgotten too early"
        )

    def epoch_of(self, group: str) -> int:
        """Epoch of a group's limit; -1: there was no message about it."""
        return self._newest[group].version[0] if group in self._newest else -1

    def in_force(self, groups: tuple[str, ...], steady_ms: int) -> FloatArray:
        """(groups, dimensions) what the broker may use."""
        rates: FloatArray = np.tile(self._unset, (len(groups), 1))
        for at, group in enumerate(groups):
            newest = self._newest.get(group)
            if newest is not None:
                rates[at] = newest.safe if newest.until_ms < steady_ms else newest.limit
        return rates
