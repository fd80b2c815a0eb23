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
    # A broker goes on with a limit whose lease is over.
    "lease_end_ignored": Planted(
        ReceivedLimits.of,
        "self._until_ms[row, column] < min(now_ms, _NO_END)",
        "self._until_ms[row, column] < 0",
        needs=("partition",),
        first_seed=0,
    ),
    # A broker applies a limit that is older than the one it has.
    "older_limit_applied": Planted(
        ReceivedLimits._newer,
        "(message.epoch > epoch) | (",
        "(message.epoch >= 0) | (",
        needs=("late",),
        first_seed=0,
    ),
    # A restarted broker obeys messages for the process before.
    "earlier_incarnation_obeyed": Planted(
        ReceivedLimits.apply,
        "message.broker_started_at_ms not in (0, self._started_at_ms[row])",
        "False",
        needs=("strict", "broker_crash", "slow_limits"),
        first_seed=34,
    ),
    # A broker forgets the version of a removed group, so an older limit comes back.
    "removal_forgets_version": Planted(
        ReceivedLimits._remove,
        "self._stamp(row, removed, message, until_ms)",
        "self._epoch[row, removed] = self._seq[row, removed] = -1",
        needs=("late", "group_gone"),
        first_seed=55,
    ),
    # A report divides by a window that a clock set back made negative.
    "window_of_a_clock_set_back": Planted(
        BrokerClient.report,
        "if window_ms > 0:",
        "if True:",
        needs=("clock_large",),
        at_end=True,
        first_seed=19,
    ),
    # --- the step ---------------------------------------------------------------------------------
    # Strict gives the share of a silent broker away before its lease is over.
    "expired_broker_forgotten": Planted(
        LeaseTimes.forgotten_after_ms.fget,
        "if not self.strict:",
        "if True:",
        needs=("strict", "mute"),
        first_seed=7,
    ),
    # Strict allows for no difference of clocks at a lease's end.
    "lease_ends_early": Planted(
        LeaseTimes.ended_if_issued_before_ms,
        "- self.stale_after_ms",
        "+ self.stale_after_ms",
        needs=("strict", "deaf"),
        first_seed=41,
    ),
    # Strict raises a limit before the others acknowledged theirs.
    "raised_before_acknowledged": Planted(
        transition.grant,
        "np.maximum(max_in_force, lowered)",
        "lowered",
        needs=("strict",),
        first_seed=7,
    ),
    # Strict raises limits without regard to the quotas above.
    "tree_not_bounded": Planted(
        transition.grant,
        "part = least_on_path(parent, np.where(wanted > 0.0, part, 1.0))",
        "pass",
        needs=("strict", "tree"),
        first_seed=16,
    ),
    # A seq of an earlier epoch acknowledges a limit of this one.
    "acknowledged_by_another_epoch": Planted(
        reported_limits.acknowledged,
        "ours = reported.applied_epoch == epoch",
        "ours = reported.applied_epoch >= 0",
        needs=("strict", "state_lost_unheard"),
        first_seed=1218,
    ),
    # A report counts although a newer one was used.
    "older_report_counts": Planted(
        report_order._newer,
        "newer = (started > last_start) | (",
        "newer = (started >= 0) | (",
        needs=("persistent", "late"),
        first_seed=3,
    ),
    # Only the groups of the first turn are published again.
    "refresh_forgets_groups": Planted(
        issue._renewed,
        "due_turns[groups.ids % len(due_turns)]",
        "groups.ids % len(due_turns) == 0",
        needs=("lost",),
        at_end=True,
        first_seed=14,
    ),
    # Strict gives the quota of a deleted group away while brokers may still use it.
    "deleted_group_not_reserved": Planted(
        DeletedReservations.reserved,
        "if not self.names:",
        "if True:",
        needs=("strict", "tree", "deletion_missed"),
        first_seed=114,
    ),
    # Limits are rounded up to single precision, so their sum exceeds the quota.
    "sum_rounded_up": Planted(
        division.to_single,
        "bits -= single > rates",
        "bits += np.isfinite(single)",
        needs=("strict",),
        first_seed=1,
    ),
    # Of two changes of a group in one batch the older one holds.
    "older_change_wins": Planted(
        group_changes.change_groups,
        "last = len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1]",
        "last = np.unique(ids, return_index=True)[1]",
        needs=("quota_change",),
        first_seed=9,
    ),
    # Limits that brokers report from an earlier epoch are not handed back.
    "hand_back_skipped": Planted(
        reported_limits.adopt_limits,
        "if not earlier.any() or not any(name in entries.column_names for name in LIMIT_COLUMNS):",
        "if True:",
        needs=("strict", "lost_state", "plain_hand_back"),
        first_seed=503,
    ),
    # Strict hands limits back that together exceed the quota.
    "overcommitted_handed_back": Planted(
        issue._hand_back,
        "> groups.tree_quota(dimension)",
        "> np.inf",
        needs=("strict", "lost_state", "quota_change"),
        first_seed=11,
    ),
    # Strict changes a limit every round, so an acknowledgement is always of an older one.
    "hold_ignored": Planted(
        issue.issue_limits,
        "on_hold=(waiting_on | stale) if strict else waiting",
        "on_hold=np.zeros(len(leases), bool)",
        needs=("strict", "noisy", "slow"),
        at_end=True,
        first_seed=8,
    ),
    # --- state, messages, sink --------------------------------------------------------------------
    # The operator keeps the state of the batch before.
    "state_not_saved": Planted(
        ShardOperator._run,
        "self._keep(state, now_ms,",
        "self._keep(state if blob is None else program.load(blob[0]), now_ms,",
        first_seed=0,
    ),
    # A batch that runs again has another time.
    "clock_read_again": Planted(
        QuotaProgram.run,
        "round_ = Round(self.epoch, batch.seq, batch.now_ms)",
        "round_ = Round(self.epoch, batch.seq, batch.now_ms + next(ticks_))",
        needs=("repeats", "job_crash"),
        first_seed=1,
    ),
    # A batch that runs again gets a new seq.
    "seq_counted_again": Planted(
        QuotaProgram.run,
        "round_ = Round(self.epoch, batch.seq, batch.now_ms)",
        "round_ = Round(self.epoch, batch.seq + 1, batch.now_ms)",
        first_seed=0,
    ),
    # Limits are published before the history has them.
    "published_before_history": Planted(
        BatchSink._write,
        "finished = self._finisher.finish(stamp, packed)",
        "finished = self._finisher.finish(stamp, packed); "
        "self._transport.publish(finished.messages)",
        first_seed=0,
    ),
    # Limits are published without a signature.
    "not_signed": Planted(
        QuotaFinisher.finish,
        "if self._keys is not None:",
        "if False:",
        needs=("signed",),
        first_seed=6,
    ),
    # The removal of a deleted group is not published.
    "removal_not_published": Planted(
        limit_messages.limit_messages,
        'pc.equal(ended["why"], "group_deleted")',
        'pc.equal(ended["why"], "never")',
        needs=("group_gone",),
        first_seed=0,
    ),
    # Limits are published before the record of their input survives a power loss.
    "input_not_synced": Planted(
        BatchSink.__call__,
        "self._sync_input(seq)",
        "pass",
        needs=("power_loss", "repeats"),
        first_seed=20,
    ),
    # --- reports of a non-persistent topic --------------------------------------------------------
    # A batch's reports are spooled only after Spark knows that the batch exists.
    "spooled_after_its_offset": Planted(
        PulsarStreamReader.read,
        "self._spool.keep(rows, start, end)",
        "return ((self._spool.keep(rows, start, end), each)[1] for each in batches(rows)), end",
        needs=("spools", "job_crash"),
        first_seed=34,
    ),
    # The spooled reports of the batch before are removed at once.
    "spool_of_one_batch": Planted(
        Spool.keep,
        "self._remove_all_but(_name(start), _name(end))",
        "self._remove_all_but(_name(end))",
        needs=("spools", "power_loss"),
        first_seed=57,
    ),
    # --- leadership -------------------------------------------------------------------------------
    # A process that another one has deposed goes on.
    "deposed_goes_on": Planted(
        Leadership.check,
        "if leader is None or leader.claim_id != self._claim_id:",
        "if leader is None:",
        needs=("second_job",),
        first_seed=5,
    ),
    # A checkpoint of an earlier epoch starts again.
    "older_checkpoint_leads": Planted(
        Leadership._check_is_newest,
        "if leader.epoch >= epoch and",
        "if False and",
        needs=("old_checkpoint",),
        first_seed=0,
    ),
    # Two checkpoints have the same epoch.
    "epoch_tie": Planted(
        Leadership.claim_new,
        "leader.epoch + 1",
        "0",
        needs=("two_starts",),
        first_seed=89,
    ),
}
