"""The balance job: reads load reports and writes plans."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from quotabalance.balancer_conditions import ACTIONS
from quotabalance.job.plan_finisher import COUNTERS, GAUGES, BalanceFinisher
from quotabalance.job.program import NOT_MADE, BalanceProgram, balance_program
from quotabalance.job.reports_held import BalanceJobState
from quotabalance.planning.bundle_orders import not_made_of, not_made_text
from quotabalance.record.orders_not_made import OrdersNotMade
from quotabalance.record.tables import BALANCE_DECISIONS, BALANCE_ROUNDS, LOAD
from quotabalance.settings import BalanceSettings
from quotabalance.strategy_settings import notices_of
from quotabalance.wire.load_batch import LoadBounds, decode_load_reports, pack_loads
from quotaplane.arrow import pack
from quotaplane.history.tables import REJECTED_REPORTS
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.job import JobSpec
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.job_output import transport_in_words
from quotaplane.streams.letters import letters_of_input_left_out
from quotaplane.streams.listed_brokers import NewestList, before_batch, listed_by
from quotaplane.streams.noted_input import NotedInput
from quotaplane.streams.sender_checks import SenderChecks
from quotaplane.streams.shard_program import Batch, Output
from quotaplane.streams.skipped_batches import SkippedInput
from quotaplane.streams.sources import Decoder, Undecoded, decoded_events
from quotaplane.streams.status import JobStatus
from quotaplane.transport import open_transport
from quotaplane.transport.base import Topics, Transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load_bounds(settings: BalanceSettings, gone_after_s: float) -> LoadBounds:
    """Which load reports are used; ``gone_after_s``: older ones are not."""
    return LoadBounds(
        max_report_bytes=settings.reports.max_report_bytes,
        max_clock_skew_s=settings.reports.max_clock_skew_s,
        gone_after_s=gone_after_s,
    )


def load_decoder(bounds: LoadBounds) -> Decoder:
    """Load reports as payloads for the only shard of Spark's operator."""

    def decoder(messages: Undecoded) -> tuple[list[tuple[int, bytes]], pa.Table, int]:
        decoded = decode_load_reports(**messages._asdict(), bounds=bounds)
        reports = decoded.loads.reports.num_rows
        payloads = [(0, pack_loads(decoded.loads))] if reports else []
        return payloads, decoded.rejected, decoded.loads.bundles.num_rows

    return decoder


class BalanceSpec(JobSpec):
    """The balance job's declarations: see ``JobSpec``. A cluster has one state."""

    name = "balance"
    query_name = "quotaplane-balance"
    inputs_noun = "load reports"
    settings: BalanceSettings
    tables = (LOAD, BALANCE_DECISIONS, REJECTED_REPORTS, BALANCE_ROUNDS)
    last_table = BALANCE_ROUNDS

    def __init__(self, settings: BalanceSettings) -> None:
        super().__init__(settings.model_copy(update={"shards": 1}))
        self.checkpoint = f"{settings.checkpoint.rstrip('/')}-balance"
        """A folder beside the quota job's checkpoint."""
        self._listed: NewestList | None = None
        self._not_made: OrdersNotMade | None = None
        most_brokers = settings.reports.max_brokers
        self._program = balance_program(settings.balance, 0, most_brokers)
        self._gone_after_s = self.oldest_s = self._program.options.gone_after_s
        self.most_per_batch = getattr(settings.transport, "max_reports_per_trigger", None)
        self.max_message_bytes = settings.reports.max_report_bytes

    def open_transport(self) -> Transport:
        """Open the topics of load reports and plans."""
        balance = self.settings.balance
        topics = Topics(balance.loads_topic, balance.plans_topic)
        return open_transport(self.settings.transport, topics)

    @contextmanager
    def beside(self, lines: JobLines) -> Iterator[None]:
        """Follow the executor's actions, and the cluster's list of brokers, if it counts."""
        note = partial(lines.conditions.note, ACTIONS, "")
        self._not_made = OrdersNotMade(self.settings.history, note, self._gone_after_s)
        allowed = self.settings.balance.allowed_brokers
        with listed_by(self.settings, allowed, lines.conditions, as_listed=True) as self._listed:
            yield

    def before_batch(
        self, folder: CheckpointFolder
    ) -> Callable[[DataFrame, int], Mapping[str, bytes]]:
        """Hand the batch the cluster's list of brokers, if it counts, and orders not made."""
        hand_list = before_batch(folder, self._listed)
        if self._not_made is None:
            return hand_list
        newest = self._not_made.newest
        noted = NotedInput(folder, "orders_not_made.json", newest, not_made_text, not_made_of)

        def inputs(batch: DataFrame, seq: int) -> Mapping[str, bytes]:
            orders = not_made_text(noted.of_batch(seq)).encode()
            return {NOT_MADE: orders, **hand_list(batch, seq)}

        return inputs

    def program(self, epoch: int) -> BalanceProgram:
        """The program that decides."""
        return replace(self._program, epoch=epoch)

    def inputs(self, spark: SparkSession, arriving: DataFrame) -> DataFrame:
        """Decoded load reports."""
        bounds = load_bounds(self.settings, self._gone_after_s)
        return decoded_events(
            arriving,
            load_decoder(bounds),
            "loads",
            most_bytes=bounds.max_report_bytes,
            oldest_s=bounds.gone_after_s,
            old=f"published more than {bounds.gone_after_s:g} s ago",
            shards=1,
            senders=SenderChecks.of(self.settings.balance),
        )

    def finisher(self, folder: CheckpointFolder) -> BalanceFinisher:
        """Rows, the plan, counts."""
        stale_after_s = self._program.options.stale_after_s
        return BalanceFinisher(self.settings.balance, stale_after_s, folder.positions)

    def letters(
        self, epoch: int, batch: Batch, left_out: Sequence[SkippedInput]
    ) -> Sequence[Output]:
        """Dead letters that stand for the input left out."""
        rows = letters_of_input_left_out(left_out)
        _, outputs = self.program(epoch).run(BalanceJobState(), {"rejected": [pack(rows)]}, batch)
        return outputs

    def status(self) -> JobStatus:
        """Counters and gauges of the status line."""
        status = JobStatus(COUNTERS, (*GAUGES, "backlog"), time.monotonic)
        status.set_gauge("stale_after_s", self._program.options.stale_after_s)
        return status

    def in_words(self) -> Sequence[str]:
        """Topics, cluster, strategy and mode."""
        balance, signing = self.settings.balance, self.settings.balance.signing
        return (
            transport_in_words(self.settings.transport, [balance.loads_topic], balance.plans_topic),
            f"balances the cluster {balance.cluster} every {balance.round_interval_s:g} s",
            f"strategy {balance.strategy}, mode {balance.mode}",
            *notices_of(balance),
            *([] if signing is None else [f"signs plans with the key {signing.sign_with}"]),
        )
