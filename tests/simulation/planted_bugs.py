"""Bugs that are planted into the job and the client library; see ``planting``.

``python -m tests.simulation.run --bug NAME --seeds 0:1000`` looks for one.
"""

from __future__ import annotations

from typing import Final

from quotaplane.client.agent import BrokerClient
from quotaplane.client.receiver import ReceivedLimits
from quotaplane.history.leadership import Leadership
from quotaplane.pulsar.source import PulsarStreamReader
from quotaplane.pulsar.spool import Spool
from quotaplane.quota import (
    division,
    group_changes,
    issue,
    report_order,
    reported_limits,
    state_codec,
    transition,
)
from quotaplane.quota.deleted_groups import DeletedReservations
from quotaplane.quota.lease_times import LeaseTimes
from quotaplane.streams.operator import ShardOperator
from quotaplane.streams.quota import limit_messages
from quotaplane.streams.quota.finisher import QuotaFinisher
from quotaplane.streams.quota.program import QuotaProgram
from quotaplane.streams.sink import BatchSink
from tests.simulation.planting import Planted

PLANTED: Final[dict[str, Planted]] = {
    # --- the broker's side ------------------------------------------------------------------------
    "lease_end_ignored": Planted(
        "a broker goes on with a limit whose lease is over",
        ReceivedLimits.of,
        "self._until_ms[row, column] < min(now_ms, _NO_END)",
        "self._until_ms[row, column] < 0",
        needs=("partition",),
        first_seed=0,
    ),
    "older_limit_applied": Planted(
        "a broker applies a limit that is older than the one it has",
        ReceivedLimits._newer,
        "(message.epoch > epoch) | (",
        "(message.epoch >= 0) | (",
        needs=("late",),
        first_seed=0,
    ),
    "earlier_incarnation_obeyed": Planted(
        "a restarted broker obeys messages for the process before",
        ReceivedLimits.apply,
        "message.broker_started_at_ms not in (0, self._started_at_ms[row])",
        "False",
        needs=("strict", "broker_crash", "slow_limits"),
        first_seed=34,
    ),
    "removal_forgets_version": Planted(
        "a broker forgets the version of a removed group, so an older limit comes back",
        ReceivedLimits._remove,
        "self._stamp(row, removed, message, until_ms)",
        "self._epoch[row, removed] = self._seq[row, removed] = -1",
        needs=("late", "group_gone"),
        first_seed=55,
    ),
    "window_of_a_clock_set_back": Planted(
        "a report divides by a window that a clock set back made negative",
        BrokerClient.report,
        "if window_ms > 0:",
        "if True:",
        needs=("clock_large",),
        at_end=True,
        first_seed=19,
    ),
    # --- the step ---------------------------------------------------------------------------------
    "expired_broker_forgotten": Planted(
        "strict gives the share of a silent broker away before its lease is over",
        LeaseTimes.forgotten_after_ms.fget,
        "if not self.strict:",
        "if True:",
        needs=("strict", "mute"),
        first_seed=7,
    ),
    "lease_ends_early": Planted(
        "strict allows for no difference of clocks at a lease's end",
        LeaseTimes.ended_if_issued_before_ms,
        "- self.stale_after_ms",
        "+ self.stale_after_ms",
        needs=("strict", "deaf"),
        first_seed=41,
    ),
    "raised_before_acknowledged": Planted(
        "strict raises a limit before the others acknowledged theirs",
        transition.grant,
        "np.maximum(max_in_force, lowered)",
        "lowered",
        needs=("strict",),
        first_seed=7,
    ),
    "tree_not_bounded": Planted(
        "strict raises limits without regard to the quotas above",
        transition.grant,
        "part = least_on_path(parent, np.where(wanted > 0.0, part, 1.0))",
        "pass",
        needs=("strict", "tree"),
        first_seed=16,
    ),
    "acknowledged_by_another_epoch": Planted(
        "a seq of an earlier epoch acknowledges a limit of this one",
        reported_limits.acknowledged,
        "ours = reported.applied_epoch == epoch",
        "ours = reported.applied_epoch >= 0",
        needs=("strict", "state_lost_unheard"),
        first_seed=1218,
    ),
    "older_report_counts": Planted(
        "a report counts although a newer one was used",
        report_order._newer,
        "newer = (started > last_start) | (",
        "newer = (started >= 0) | (",
        needs=("persistent", "late"),
        first_seed=3,
    ),
    "refresh_forgets_groups": Planted(
        "only the groups of the first turn are published again",
        issue._renewed,
        "due_turns[groups.ids % len(due_turns)]",
        "groups.ids % len(due_turns) == 0",
        needs=("lost",),
        at_end=True,
        first_seed=14,
    ),
    "deleted_group_not_reserved": Planted(
        "strict gives the quota of a deleted group away while brokers may still use it",
        DeletedReservations.reserved,
        "if not self.names:",
        "if True:",
        needs=("strict", "tree", "deletion_missed"),
        first_seed=114,
    ),
    "sum_rounded_up": Planted(
        "limits are rounded up to single precision, so their sum exceeds the quota",
        division.to_single,
        "down = np.nextafter(single, np.float32(-np.inf))",
        "return np.nextafter(single, np.float32(np.inf)).astype(np.float64)",
        needs=("strict",),
        first_seed=1,
    ),
    "older_change_wins": Planted(
        "of two changes of a group in one batch the older one holds",
        group_changes.change_groups,
        "last = len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1]",
        "last = np.unique(ids, return_index=True)[1]",
        needs=("quota_change",),
        first_seed=9,
    ),
    "hand_back_skipped": Planted(
        "limits that brokers report from an earlier epoch are not handed back",
        reported_limits.adopt_limits,
        "if not earlier.any() or not any(name in entries.column_names for name in LIMIT_COLUMNS):",
        "if True:",
        needs=("strict", "lost_state", "plain_hand_back"),
        first_seed=503,
    ),
    "overcommitted_handed_back": Planted(
        "strict hands limits back that together exceed the quota",
        issue._hand_back,
        "> groups.tree_quota(dimension)",
        "> np.inf",
        needs=("strict", "lost_state", "quota_change"),
        first_seed=11,
    ),
    "hold_ignored": Planted(
        "strict changes a limit every round, so an acknowledgement is always of an older one",
        issue.issue_limits,
        "on_hold=(waiting_on | stale) if strict else waiting",
        "on_hold=np.zeros(len(leases), bool)",
        needs=("strict", "noisy", "slow"),
        at_end=True,
        first_seed=8,
    ),
    # --- state, messages, sink --------------------------------------------------------------------
    "max_in_force_not_stored": Planted(
        "the stored state has the issued limits only, not the higher ones still in force",
        state_codec.load,
        "leases=_leases(tables, meta, groups),",
        "leases=(lambda found: replace_(found, max_in_force=found.limit))("
        "_leases(tables, meta, groups)),",
        needs=("strict",),
        first_seed=7,
    ),
    "state_not_saved": Planted(
        "the operator keeps the state of the batch before",
        ShardOperator._run,
        "elements = [(program.dump(state),)]",
        "elements = [(program.dump(state) if blob is None else blob[0],)]",
        first_seed=0,
    ),
    "clock_read_again": Planted(
        "a batch that runs again has another time",
        QuotaProgram.run,
        "round_ = Round(self.epoch, batch.seq, batch.now_ms)",
        "round_ = Round(self.epoch, batch.seq, batch.now_ms + next(ticks_))",
        needs=("repeats", "job_crash"),
        first_seed=1,
    ),
    "published_before_history": Planted(
        "limits are published before the history has them",
        BatchSink._write,
        "finished = self._finisher.finish(stamp, packed)",
        "finished = self._finisher.finish(stamp, packed); "
        "self._transport.publish(finished.messages)",
        first_seed=0,
    ),
    "not_signed": Planted(
        "limits are published without a signature",
        QuotaFinisher.finish,
        "if self._keys is not None:",
        "if False:",
        needs=("signed",),
        first_seed=6,
    ),
    "removal_not_published": Planted(
        "the removal of a deleted group is not published",
        limit_messages.limit_messages,
        'pc.equal(ended["why"], "group_deleted")',
        'pc.equal(ended["why"], "never")',
        needs=("group_gone",),
        first_seed=0,
    ),
    "input_not_synced": Planted(
        "limits are published before the record of their input survives a power loss",
        BatchSink.__call__,
        "self._sync_input(seq)",
        "pass",
        needs=("power_loss", "repeats"),
        first_seed=20,
    ),
    # --- reports of a non-persistent topic --------------------------------------------------------
    "spooled_after_its_offset": Planted(
        "a batch's reports are spooled only after Spark knows that the batch exists",
        PulsarStreamReader.read,
        "self._spool.keep(rows, start, end)",
        "return ((self._spool.keep(rows, start, end), each)[1] for each in batches(rows)), end",
        needs=("spools", "job_crash"),
        first_seed=34,
    ),
    "spool_of_one_batch": Planted(
        "the spooled reports of the batch before are removed at once",
        Spool.keep,
        "self._remove_all_but(_name(start), _name(end))",
        "self._remove_all_but(_name(end))",
        needs=("spools", "power_loss"),
        first_seed=57,
    ),
    # --- leadership -------------------------------------------------------------------------------
    "deposed_goes_on": Planted(
        "a process that another one has deposed goes on",
        Leadership.check,
        "if leader is None or leader.claim_id != self._claim_id:",
        "if leader is None:",
        needs=("second_job",),
        first_seed=5,
    ),
    "older_checkpoint_leads": Planted(
        "a checkpoint of an earlier epoch starts again",
        Leadership._check_is_newest,
        "if leader.epoch >= epoch and",
        "if False and",
        needs=("old_checkpoint",),
        first_seed=0,
    ),
    "epoch_tie": Planted(
        "two checkpoints have the same epoch",
        Leadership.claim_new,
        "leader.epoch + 1",
        "0",
        needs=("two_starts",),
        first_seed=89,
    ),
}
