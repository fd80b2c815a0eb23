"""Makes the groups that ``quotaplane groups import pulsar`` proposes, and attaches the namespaces.

First the table gets all groups in one commit, with the author and the reason; then the cluster gets
them one by one. A run that fails in between is continued by the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quotaplane.console.terminal import inform, warn
from quotaplane.errors import ClusterError
from quotaplane.history.store import require_history
from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.pulsar_admin.quota_proposals import Proposal, State
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.registry.group_input import GivenGroups
from quotaplane.registry.table import change_groups
from quotaplane.server.cluster_groups import ClusterGroups, rates_to_set
from quotaplane.settings import History


async def make_groups(
    rest: Rest, history: History, proposals: Sequence[Proposal], by: str, why: str | None
) -> list[Proposal]:
    """Carry out proposals; returns all of them in their new state.

    Raises:
        InputError, HistoryError: the table was not changed, nor was the cluster.
    """
    chosen = [one for one in proposals if one.state is State.PROPOSED]
    if chosen:
        quotas = np.full((len(chosen), len(DIMENSIONS)), np.nan)
        quotas[:, :BASIC] = [one.quotas for one in chosen]
        names = [str(one.group) for one in chosen]
        given = GivenGroups(names, quotas, None, None)
        change_groups(history, given, by, why=why, ready=require_history, warn=warn)
    cluster = ClusterGroups(rest, {})
    after, gone = [], ""
    for one in proposals:
        if one.state is State.PROPOSED and gone:
            one = one.becomes(State.FAILED, gone)
        elif one.state is State.PROPOSED:
            try:
                one = await _attached(cluster, one)
            except RefusedError as error:
                one = one.becomes(State.FAILED, str(error))
            except ClusterError as error:
                one = one.becomes(State.FAILED, str(error))
                gone = "not begun, as the cluster did not answer"
        after.append(one)
    return after


async def _attached(cluster: ClusterGroups, proposal: Proposal) -> Proposal:
    """Make one group in the cluster, unless it is there already, and attach its namespace."""
    name, group = proposal.namespace.name, str(proposal.group)
    # Another program may have attached it since it was read.
    other = await cluster.group_of(name)
    if other is not None:
        return proposal.becomes(State.ATTACHED, f"meanwhile to {other}")
    if await cluster.read(group) is None:
        unlimited = np.full(BASIC, np.inf)
        rates = rates_to_set(proposal.quotas, unlimited, None)
        await cluster.put(group, rates)
    await cluster.attach(name, group)
    inform(f"{name}: attached to the group {group}")
    return proposal.becomes(State.DONE)
