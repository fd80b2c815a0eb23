"""Bugs that are planted into the enforcer and the sync of groups; see ``planting``."""

from __future__ import annotations

from typing import Final

from quotaplane.enforce import custody, topic_division
from quotaplane.enforce.agent.enforcer import Enforcer
from quotaplane.enforce.agent.leader_election import LeaderElection, LeaderRest
from quotaplane.enforce.agent.rate_writer import RateWriter
from tests.simulation.planting import Planted

ENFORCER_PLANTED: Final[dict[str, Planted]] = {
    # An enforcer that took the lead from a silent one writes before that one's time is over.
    "follower_writes_at_once": Planted(
        LeaderElection._try_to_lead,
        "now_s if self._may_follow_at_once else now_s + HOLD_S",
        "now_s",
        needs=("leader_cut_off", "use_changes"),
        first_seed=10,
    ),
    # Requests that change something are sent although this enforcer does not lead any more.
    "requests_without_the_lead": Planted(
        LeaderRest.check_may_send,
        'if method != "GET" and self.election is not None and not self.election.leads():',
        "if False:",
        needs=("cluster_slow", "election_cut_off"),
        first_seed=448,
    ),
    # A quota is hidden although the cluster has no copy of it.
    "taken_over_without_a_copy": Planted(
        custody.act,
        "if (takes or hidden.any()) and not np.array_equal(seen.copy, row.publish):",
        "if False:",
        first_seed=0,
    ),
    # A lost table gets no quotas from the copies in the cluster.
    "copies_not_used": Planted(
        custody.quota,
        "hidden = np.where(np.isnan(table), copy, table)",
        "hidden = table",
        needs=("table_deleted",),
        at_end=True,
        first_seed=6,
    ),
    # Rates are removed before the cluster has its quotas back.
    "rates_removed_first": Planted(
        topic_division.divide,
        "frozenset(layout.groups).difference(readings.limited_by_cluster)",
        "frozenset()",
        needs=("give_back", "outage"),
        first_seed=53,
    ),
    # Namespaces get no default rates, so a new topic is unlimited.
    "no_default_rates": Planted(
        Enforcer._do,
        "parts.defaults.begin(layout, division.memory.default_rates, now_s)",
        "pass",
        needs=("new_topic",),
        first_seed=0,
    ),
    # A quota is hidden although no limits that follow it are in force.
    "taken_over_unlimited": Planted(
        custody.act,
        "bool((decided_ms > row.updated_at_ms)[numbers].all())",
        "True",
        needs=("quota_change",),
        first_seed=12,
    ),
    # A topic gets a higher rate than an administrator set.
    "no_ceilings": Planted(
        topic_division._ceilings,
        "return np.where(own, readings.own_rates, readings.other_rates)",
        "return np.full(own.shape, np.inf)",
        needs=("administrator",),
        first_seed=20,
    ),
    # A rate counts as written although the cluster refused it.
    "failed_write_counts": Planted(
        RateWriter._write,
        "if not await self._tried(topic, kind, work(), wrote=True):",
        "if not await self._tried(topic, kind, work(), wrote=True) and False:",
        needs=("cluster_fails",),
        first_seed=3,
    ),
}
