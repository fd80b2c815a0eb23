"""Keeps our table of quotas as a cluster's resource groups are, while the quota job runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.cluster.groups import GROUPS, group_path, rates_of
from quotaplane.cluster.plan import absent, created_by, puts, unfit
from quotaplane.cluster.reading import READS_PER_S, InTurn, read_names
from quotaplane.cluster.rest import Rest
from quotaplane.cluster.tenants import Tenants
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.history.groups import delete_groups, group_changes, list_groups, put_groups
from quotaplane.model import BASIC
from quotaplane.settings import Cluster, Settings

Say = Callable[[str], None]


class Follower:
    """What is known of one cluster from one poll to the next.

    ``by`` is who writes into the table: the same name again after a restart. ``say`` is given
    lines that somebody should read.
    """

    def __init__(self, cluster: Cluster, settings: Settings, by: str, say: Say) -> None:
        most = max(1, int(READS_PER_S * cluster.poll_interval_s))
        self._history = settings.history
        self._take_over = settings.enforce.take_over
        self._by = by
        self._say = say
        self._rates = InTurn(group_path, rates_of, most)
        self._tenants = Tenants(cluster.tenants, most)
        self._others = pa.array([], pa.string())
        self._told: frozenset[str] = frozenset()

    async def sync(self, rest: Rest) -> list[QuotaplaneError]:
        """Make the table what the cluster says, and attach what is to be attached.

        Returns what could not be done, or not read: it is left as it is, and tried again by the
        next call.

        Raises:
            ClusterError: the cluster does not say what groups there are; nothing was done.
        """
        listed = await read_names(rest, GROUPS)
        problems = unfit(listed)
        fit = [group for group in listed if group not in problems]
        read = await self._rates.read(rest, fit)
        failures: list[QuotaplaneError] = [*self._rates.failing.values()]
        try:
            self._apply(fit, read)
        except QuotaplaneError as error:
            self._rates.again(read)
            failures.append(error)
        try:
            await self._tenants.attach(rest, listed)
            failures += self._tenants.failing
        except ClusterError as error:
            failures.append(error)
        self._tell_once([*problems.values(), *self._tenants.waiting.values()])
        return failures

    def _apply(self, listed: Sequence[str], read: Mapping[str, Sequence[float]]) -> None:
        rows = list_groups(self._history)
        rates = np.array(list(read.values()), np.float64).reshape(-1, BASIC)
        put = puts(list(read), rates, rows, take_over=self._take_over)
        if put.groups:
            put_groups(self._history, put.groups, put.quotas, self._by, warn=self._say)
        # Others' groups are asked about once, until the cluster has them, too.
        known = pc.is_in(self._others, value_set=pa.array(listed, pa.string()))
        self._others = self._others.filter(pc.invert(known))
        gone = absent(listed, rows, self._others)
        if gone:
            ours = created_by(self._by, gone, rows, group_changes(self._history))
            if ours:
                delete_groups(self._history, ours, self._by)
            others = pa.array(sorted(set(gone).difference(ours)), pa.string())
            self._others = pa.concat_arrays([self._others, others])

    def _tell_once(self, lines: Iterable[str]) -> None:
        now = frozenset(lines)
        for line in sorted(now - self._told):
            self._say(line)
        self._told = now
