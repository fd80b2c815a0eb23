"""The quota job: reads reports and writes limits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from quotaplane.arrow import pack
from quotaplane.errors import ConfigError
from quotaplane.history.previous_run import Earlier, read_earlier
from quotaplane.history.store import table_uri
from quotaplane.history.tables import APPENDED, ROUNDS
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Transition
from quotaplane.parsing.folders import location
from quotaplane.quota.config import EarlierLimits
from quotaplane.quota.state import ShardState
from quotaplane.settings import PulsarTransport, Settings
from quotaplane.streams.checkpoint import Checkpoint, CheckpointFolder, Range
from quotaplane.streams.group_events import group_events
from quotaplane.streams.job import JobSpec
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.job_output import transport_in_words
from quotaplane.streams.letters import letters_of_input_left_out
from quotaplane.streams.listed_brokers import NewestList, before_batch, listed_by
from quotaplane.streams.quota.attachments_publisher import AttachmentsPublisher
from quotaplane.streams.quota.finisher import COUNTERS, GAUGES, QuotaFinisher
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.quota.recorded_program import RecordedProgram
from quotaplane.streams.quota.recorder import BACKLOG_SKIPPED, Recorder
from quotaplane.streams.quota.report_watch import ReportWatch
from quotaplane.streams.sender_checks import SenderChecks
from quotaplane.streams.shard_program import Batch, Output
from quotaplane.streams.skipped_batches import SkippedInput
from quotaplane.streams.sources import report_events
from quotaplane.streams.starts import Starts
from quotaplane.streams.status import JobStatus
from quotaplane.transport import open_transport
from quotaplane.transport.base import Transport
from quotaplane.wire.sender_rules import AllowedBrokers
from quotaplane.wire.shard_inputs import START, pack_start
from quotaplane.wire.signatures import SigningKeys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LEASE: Final = "strict_lease_s"
_RECORDED: Final = {"shards", "reports", "brokers", "law", "demand", "limits"}
"""Sections that the decisions depend on."""


class QuotaSpec(JobSpec):
    """The quota job's declarations: see ``JobSpec``."""

    name = "quota"
    query_name = "quotaplane"
    inputs_noun = "reports"
    tables = APPENDED
    tables_of_tasks = ("usage", "limits", "leases", "recording")
    last_table = ROUNDS

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._noted: Mapping[str, Any] = {}
        """The checkpoint's note."""
        self.oldest_s = settings.limits.lease_s
        self.most_per_batch = getattr(settings.transport, "max_reports_per_trigger", None)
        self.max_message_bytes = settings.reports.max_report_bytes
        self._listed: NewestList | None = None

    @cached_property
    def _earlier(self) -> Earlier:
        return read_earlier(self.settings.history, time.time() * 1000)

    @property
    def checkpoint_note(self) -> Mapping[str, Any]:
        """Under strict the lease, and when earlier limits end."""
        earlier = self._earlier
        left_ms = max(earlier.until_ms - int(time.time() * 1000), 0)
        # A checkpoint that begins at the end of the topics reads nothing again.
        again = self.settings.transport.starting == "earliest"
        recorded_ms = earlier.recorded_ms if again else -math.inf
        limits = EarlierLimits(earlier.until_ms, left_ms, recorded_ms)
        return {_LEASE: self._strict_lease_s, **limits.noted()}

    @property
    def _strict_lease_s(self) -> float | None:
        """Under strict, limits of before a restart may be in force for the lease they had."""
        limits = self.settings.limits
        return limits.lease_s if limits.transition is Transition.STRICT else None

    @property
    def _earlier_limits(self) -> EarlierLimits:
        """From the checkpoint's note: what the history says may differ after a restart, and a batch
        that runs again must leave the same state.
        """
        return EarlierLimits.of(self._noted)

    def check(self) -> None:
        """Check the law and its options."""
        quota_program(self.settings, epoch=0)

    def open_transport(self) -> Transport:
        """Open the topics of reports and limits."""
        settings = self.settings
        return open_transport(settings.transport, spool_folder=settings.spool_folder)

    def earliest_epoch(self) -> int:
        """Seconds since 1970, or more if the history has a later epoch.

        The history's newest epoch plus one would not be enough: a new history would start again at
        1, and brokers ignore epochs older than the newest they have seen.
        """
        return max(int(time.time()), 1 + self._earlier.epoch)

    def accept(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint that is not the newest, or was started with another transition or,
        under strict, lease; and go by its note.
        """
        if checkpoint.epoch < self._earlier.epoch:
            raise ConfigError(
                f"checkpoint {self.checkpoint}: its epoch {checkpoint.epoch} is over, as the "
                f"history has rounds of epoch {self._earlier.epoch}; brokers ignore limits of an "
                "earlier epoch. Start with the newest checkpoint, or with a new folder"
            )
        noted, wanted = checkpoint.note.get(_LEASE), self._strict_lease_s
        if noted != wanted:
            raise ConfigError(
                f"limits: the checkpoint {self.checkpoint} was started with "
                f"{_transition_in_words(noted)}, not {_transition_in_words(wanted)}; strict needs "
                "all limits to have the same lease: keep that setting, or start a new checkpoint "
                "folder, which first hands back the limits that brokers have"
            )
        self._noted = checkpoint.note

    def program(self, epoch: int) -> RecordedProgram:
        """The program for one round of one shard."""
        program = quota_program(self.settings, epoch, self._earlier_limits)
        return RecordedProgram(program, self.settings.history.recording_days > 0)

    def rehearsal_program(self) -> RecordedProgram:
        """The program as if no limits of earlier control planes were in force."""
        return RecordedProgram(quota_program(self.settings, epoch=0), records=True)

    def inputs(self, spark: SparkSession, arriving: DataFrame) -> DataFrame:
        """Reports, and changes of the table ``resource_groups``."""
        reports = report_events(arriving, self.settings)
        return reports.unionByName(group_events(spark, self.settings.history, self.settings.shards))

    def finisher(self, folder: CheckpointFolder) -> QuotaFinisher:
        """Rows, messages and counts of a round, and a watch on its reports."""
        reports = self.settings.reports
        watch = ReportWatch(
            reports.interval_s, reports.stop_when_unusable_intervals, reports.broker_from
        )
        recorded = {
            "settings": recorded_settings(self.settings),
            **self._earlier_limits.noted(),
        }
        records = self.settings.history.recording_days > 0
        settings, law = recorded if records else None, self.settings.law.name
        keys = SigningKeys.of(self.settings.limits.signing)

        def attachments_of(history: HistoryWriter, transport: Transport) -> AttachmentsPublisher:
            tables, still_leads = self.settings.history, self.leadership.check
            return AttachmentsPublisher(tables, history, transport, keys, still_leads)

        published = self.settings.transport.attachments_topic is not None
        return QuotaFinisher(
            watch,
            folder.positions,
            settings,
            law,
            interval_s=reports.interval_s,
            lease_s=self.settings.limits.lease_s,
            most_per_batch=self.most_per_batch,
            keys=keys,
            between=folder.reports_between,
            recorder_of=lambda history, transport: Recorder(
                history, transport, self.settings, self._allowed
            ),
            recorded_ms=self._earlier_limits.recorded_ms,
            attachments_of=attachments_of if published else None,
        )

    def _allowed(self) -> AllowedBrokers | None:
        """The brokers whose reports are recorded; None: all."""
        listed = None if self._listed is None else self._listed().names
        return SenderChecks.of(self.settings.reports).allowed(listed)

    def letters(
        self, epoch: int, batch: Batch, left_out: Sequence[SkippedInput]
    ) -> Sequence[Output]:
        """The outputs of a shard that got nothing but dead letters."""
        rows = letters_of_input_left_out(left_out)
        arrived = {"rejected": [pack(rows)]}
        # Without a record: the state is not that of a shard.
        program = quota_program(self.settings, epoch)
        _, outputs = program.run(ShardState(), arrived, batch)
        return outputs

    def skipped_backlog(
        self, epoch: int, batch: Batch, ranges: Sequence[Range]
    ) -> tuple[Sequence[Output], str]:
        """The backlog is recorded later, so there are no dead letters."""
        reports = sum(part.size or 0 for part in ranges)
        said = (
            f"{reports} reports were published more than {self.oldest_s:g} s before the job was "
            "started: no limits are decided with them; they are recorded in usage beside the rounds"
        )
        return [Output(BACKLOG_SKIPPED, b"")], said

    def status(self) -> JobStatus:
        """Counters and gauges of the status line."""
        status = JobStatus(COUNTERS, (*GAUGES, "backlog"), time.monotonic)
        status.set_gauge("lease_s", self.settings.limits.lease_s)
        status.set_gauge("interval_s", self.settings.reports.interval_s)
        return status

    def in_words(self) -> Sequence[str]:
        """Topics, the table of quotas, law and transition."""
        settings, transport = self.settings, self.settings.transport
        signing = settings.limits.signing
        quotas = location(table_uri(settings.history, "resource_groups"))
        follows = f"follows the quotas in {quotas}"
        if settings.cluster is not None and isinstance(transport, PulsarTransport):
            follows += f", which follow the resource groups of {transport.admin_url}"
        return (
            transport_in_words(transport, *settings.own_topics),
            follows,
            f"law {settings.law.name}, transition {settings.limits.transition.value}",
            *([] if signing is None else [f"signs limits with the key {signing.sign_with}"]),
        )

    @contextmanager
    def beside(self, lines: JobLines) -> Iterator[None]:
        """Keep ``resource_groups`` in sync with a Pulsar cluster, and follow its list of brokers,
        if that is configured.
        """
        allowed, conditions = self.settings.reports.allowed_brokers, lines.conditions
        follows = self.settings.cluster is not None
        with (
            listed_by(self.settings, allowed, conditions, for_departures=True) as self._listed,
            self._groups_followed(lines) if follows else nullcontext(),
        ):
            yield

    def _groups_followed(self, lines: JobLines) -> AbstractContextManager[None]:
        from quotaplane.group_sync.runner import following  # needs httpx

        assert self.settings.cluster is not None
        cluster = self.settings.cluster
        return following(cluster, self.settings, lines.conditions)

    def before_batch(
        self, folder: CheckpointFolder
    ) -> Callable[[DataFrame, int], Mapping[str, bytes]]:
        """Hand the batch the job's start, and who left the cluster's list of brokers."""
        starts, hand_list = Starts(folder), before_batch(folder, self._listed)

        def inputs(batch: DataFrame, seq: int) -> Mapping[str, bytes]:
            return {START: pack_start(starts.of_batch(seq)), **hand_list(batch, seq)}

        return inputs


def recorded_settings(settings: Settings) -> dict[str, Any]:
    """The settings that a replay needs, without secrets."""
    # The record has the reports that were let in, so what let them in is not part of a replay.
    let_in = {"broker_from", "allowed_brokers"}
    without = {"limits": {"signing"}, "reports": let_in}
    return settings.model_dump(mode="json", include=_RECORDED, exclude=without)


def _transition_in_words(strict_lease_s: float | None) -> str:
    if strict_lease_s is None:
        return "transition fast"
    return f"transition strict and lease_s {strict_lease_s:g}"
