"""Notices that no enforcer leads any more, and gives the cluster its quotas back.

Quotas that were taken over would otherwise be limited by rates that nobody changes. Beats of the
leader are read over the REST API: the counter of messages of the election's topic grows with each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.agents.pace import at_once
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.model import PUBLISH, RATE_COLUMNS, FloatArray
from quotaplane.pulsar_admin.publish_quotas import PublishQuotas
from quotaplane.pulsar_admin.rest import RefusedError, Rest

_AT_ONCE: Final = 8
_NOT_FOUND: Final = 404


class EnforcerWatch:
    """Kept from one poll of the cluster to the next.

    Args:
        topic: of the election, its full name.
        after_s: without a beat for so long, the enforcers are gone; None: they never are.
        clock: seconds.
    """

    def __init__(
        self, topic: str, after_s: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._topic, self._after_s, self._clock = topic, after_s, clock
        self._beats: object = None
        self._beat_at_s = clock()

    async def gone(self, rest: Rest) -> bool:
        """Whether enforcers have been there once, and none has led for ``after_s``.

        Raises:
            ClusterError: the topic can't be looked at, which is no sign that they are gone.
        """
        if self._after_s is None:
            return False
        domain, _, name = self._topic.partition("://")
        try:
            stats: Any = await rest.get(rest.path(domain, name, "stats"))
        except ClusterError as error:
            self._beat_at_s = self._clock()
            if isinstance(error, RefusedError) and error.status == _NOT_FOUND:
                # No enforcer that could lead was ever there.
                return False
            raise
        beats = stats.get("msgInCounter") if isinstance(stats, dict) else None
        if beats != self._beats:
            self._beats, self._beat_at_s = beats, self._clock()
        return self._clock() - self._beat_at_s >= self._after_s


async def hand_back(rest: Rest, groups: Sequence[str], rows: pa.Table) -> list[QuotaplaneError]:
    """Write the publish quotas of these groups to the cluster where it has none.

    Args:
        rest: the cluster.
        groups: groups of the table.
        rows: the table, as ``registry.table.list_groups`` returns it.

    Returns:
        the failures.
    """
    found = rows.filter(pc.is_in(rows["group"], value_set=pa.array(groups, pa.string())))
    columns = [found[name].fill_null(np.inf).to_numpy() for name in RATE_COLUMNS[PUBLISH]]
    recorded = zip(found["group"].to_pylist(), np.column_stack(columns), strict=True)
    failures: list[QuotaplaneError] = []
    quotas = PublishQuotas(rest)

    async def give(pair: tuple[str, FloatArray]) -> None:
        try:
            await quotas.give_back(*pair)
        except ClusterError as error:
            failures.append(error)

    await at_once(_AT_ONCE, give, recorded)
    return failures
