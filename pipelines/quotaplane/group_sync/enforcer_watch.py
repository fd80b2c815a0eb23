"""Notices that no enforcer leads any more, and gives the cluster its quotas back.

Rates that nobody changes would otherwise be their only limit. Beats of the leader are read over the
REST API: the counter of messages of the election's topic grows with each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.agents.pace import at_once
from quotaplane.enforce.agent.custodian import bring
from quotaplane.enforce.custody import Recorded, Wish
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.model import PUBLISH, RATE_COLUMNS
from quotaplane.pulsar_admin.resource_groups import PublishQuotas, to_cluster
from quotaplane.pulsar_admin.rest import NotFoundError, Rest

_AT_ONCE: Final = 8


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
        except NotFoundError:  # no enforcer that could lead was ever there
            self._beat_at_s = self._clock()
            return False
        except ClusterError:
            self._beat_at_s = self._clock()
            raise
        beats = stats.get("msgInCounter") if isinstance(stats, dict) else None
        if beats != self._beats:
            self._beats, self._beat_at_s = beats, self._clock()
        return self._clock() - self._beat_at_s >= self._after_s


async def give_back(rest: Rest, groups: Collection[str], rows: pa.Table) -> list[QuotaplaneError]:
    """Give publish quotas back to the cluster, as an enforcer would.

    Args:
        rest: the cluster.
        groups: whose.
        rows: the table, as ``registry.table.list_groups`` returns it.

    Returns:
        the failures.
    """
    found = rows.filter(pc.is_in(rows["group"], value_set=pa.array(groups, pa.string())))
    columns = [found[name].fill_null(np.inf).to_numpy() for name in RATE_COLUMNS[PUBLISH]]
    quotas = to_cluster(np.column_stack(columns))
    recorded = {
        group: Recorded(quota, 0.0)
        for group, quota in zip(found["group"].to_pylist(), quotas, strict=True)
    }
    failures: list[QuotaplaneError] = []

    async def give(group: str) -> None:
        try:
            await bring(PublishQuotas(rest), group, recorded.get(group), Wish.GIVE)
        except ClusterError as error:
            failures.append(error)

    await at_once(_AT_ONCE, give, groups)
    return failures
