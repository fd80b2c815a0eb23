"""The operator's inputs: reports as packed events, by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from quotaplane.arrow import pack
from quotaplane.history.tables import LEFT_OUT
from quotaplane.model import BoolArray, IntArray
from quotaplane.settings import Reports, Settings
from quotaplane.streams.operator import EVENT_SCHEMA
from quotaplane.streams.partition import keys_of_shards
from quotaplane.streams.sender_checks import NO_CHECKS, SenderChecks
from quotaplane.transport.base import is_stored
from quotaplane.wire.intake import (
    BYTES_PER_ENTRY,
    BYTES_PER_MESSAGE,
    MESSAGES_AT_ONCE,
    Intake,
)
from quotaplane.wire.reasons import STALE, TOO_LARGE, TOO_MANY_REPORTS, TOO_MUCH
from quotaplane.wire.report_heads import HEAD_BYTES
from quotaplane.wire.report_heads import senders as report_senders
from quotaplane.wire.reports import REJECTED, decode
from quotaplane.wire.sender_rules import AllowedBrokers, SenderRules
from quotaplane.wire.shard_inputs import pack_reports
from quotaplane.wire.surplus_reports import surplus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Batches = Iterable[pa.RecordBatch]
Mapper = Callable[[Batches], Iterator[pa.RecordBatch]]

_KEPT_BYTES: Final = 4096
"""Bytes of a report that is too large, or too old, that go to Python."""


def packed_events(
    kind: str, payloads: Iterable[tuple[int, bytes]], keys: IntArray
) -> pa.RecordBatch:
    """Rows for the operator, from (shard, payload) pairs; each gets its shard's key."""
    rows = list(payloads)
    return pa.record_batch(
        {
            "kind": pa.array([kind] * len(rows), pa.string()),
            "key": pa.array(keys[[shard for shard, _ in rows]], pa.int32()),
            "payload": pa.array([payload for _, payload in rows], pa.binary()),
        }
    )


class Undecoded(NamedTuple):
    """Some messages of a batch; each has an element of the sequences."""

    values: Sequence[bytes | None]
    published_at_ms: IntArray
    positions: Sequence[str]
    now_ms: int
    senders: SenderRules
    """The brokers that they may name."""


Decoder = Callable[[Undecoded], tuple[list[tuple[int, bytes]], pa.Table, int]]
"""Returns payloads by shard, dead letters (``REJECTED``), and the number of entries."""


def _to_report_events(
    reports: Reports,
    shards: int,
    oldest_s: float,
    senders: SenderChecks = NO_CHECKS,
    intake: Intake | None = None,
) -> Mapper:
    intake = intake or Intake.of(reports)

    def decoder(messages: Undecoded) -> tuple[list[tuple[int, bytes]], pa.Table, int]:
        decoded = decode(**messages._asdict(), reports=reports, intake=intake)
        return pack_reports(decoded, shards), decoded.rejected, decoded.entries.num_rows

    old = f"published more than {oldest_s:g} s ago (limits.lease_s)"
    return _to_decoded(
        decoder, "reports", intake, oldest_s, old, shards, senders, newest_first=True
    )


_READ, _LARGE, _LATE, _SURPLUS, _OVER = range(5)
_REASON_OF: Final = ("", TOO_LARGE, STALE, TOO_MANY_REPORTS, TOO_MUCH)
"""Reasons for not decoding a message, by code."""


class _Arrived:
    """A batch of n messages, and which of them are not decoded."""

    def __init__(
        self, batch: pa.RecordBatch, intake: Intake, oldest_s: float, senders: SenderChecks
    ) -> None:
        self.now_ms: int = batch["now_ms"][0].as_py()
        self.size: IntArray = batch["size"].to_numpy()
        self.published_at_ms: IntArray = batch["published_at_ms"].to_numpy(zero_copy_only=False)
        self.named = senders.named(batch)
        """The broker that each message's key or topic names; None: it does not matter."""
        self.why: IntArray = np.full(len(self.size), _READ)
        """(n,) code of the reason for not decoding a message."""
        self.why[self.now_ms - self.published_at_ms > oldest_s * 1000.0] = _LATE
        self.why[self.size > intake.message_bytes] = _LARGE
        self.repeats: BoolArray = np.zeros(len(self.size), bool)
        """(n,) surplus reports that repeat another one."""
        self.batch = batch
        if (self.why == _LATE).any():
            # Late ones take no room of those that a task may decode, so it holds any number.
            beginnings = pc.binary_slice(batch["value"], 0, _KEPT_BYTES)
            cut = pc.if_else(pa.array(self.why == _LATE), beginnings, batch["value"])
            place = batch.schema.get_field_index("value")
            self.batch = batch.set_column(place, "value", cut)

    @property
    def cost(self) -> int:
        """Bytes of the messages to decode; see ``Intake.task_bytes``."""
        return int(np.maximum(self.size, BYTES_PER_MESSAGE)[self.why == _READ].sum())

    def heads(self) -> list[bytes]:
        """The beginnings of the messages to decode."""
        values = self.batch["value"].filter(pa.array(self.why == _READ))
        found: list[bytes] = pc.binary_slice(values, 0, HEAD_BYTES).to_pylist()
        return found

    def refused(self, intake: Intake, old: str) -> pa.Table:
        """Rows (``REJECTED``) about the messages that are not decoded.

        ``old``: the detail of late ones.
        """
        which = self.why != _READ
        rows, why = self.batch.filter(pa.array(which)), self.why[which]
        values = [value or b"" for value in rows["value"].to_pylist()]
        task = f"{intake.task_bytes >> 20} MB of reports, or {intake.task_bytes // BYTES_PER_ENTRY}"
        details = {
            _LATE: old,
            _SURPLUS: "more reports arrived than a round can read: newer ones of this broker were "
            "read",
            _OVER: f"its task had decoded {task} entries, in this micro-batch",
        }
        large = (
            f"{{}} bytes; reports.max_report_bytes is {intake.message_bytes}; raw is its beginning"
        )
        columns = {
            "reason": [_REASON_OF[code] for code in why.tolist()],
            "detail": [
                details.get(code, large).format(size)
                for code, size in zip(why.tolist(), self.size[which].tolist(), strict=True)
            ],
            "position": rows["position"],
            "published_at_ms": rows["published_at_ms"],
            "counts_as_bad": pa.array(why == _LARGE),
            "reports": pa.array(np.ones(len(why), np.int64)),
            "raw": [
                value if code == _LARGE else b""
                for value, code in zip(values, why.tolist(), strict=True)
            ],
            "sender": report_senders(values),
        }
        return pa.table({name: columns[name] for name in REJECTED.names}, schema=REJECTED)


def _recorded_later(
    rows: pa.Table, repeats: BoolArray, allowed: AllowedBrokers | None
) -> BoolArray:
    """(m,) the refused reports (``REJECTED``) that are recorded in ``usage`` later.

    Their topics store them. Late ones that name no broker that may have a name like that are no
    reports: they would take the place of others (``finisher.MOST_NOTED``).
    """
    names, reason = rows["sender"], rows["reason"]
    is_name = names.is_valid().to_numpy()
    if allowed is not None and allowed.patterns:
        is_name &= allowed.of(names.fill_null("").combine_chunks())
    stored = np.fromiter(map(is_stored, rows["position"].to_pylist()), bool, len(rows))
    large = pc.equal(reason, TOO_LARGE).to_numpy()
    late = pc.equal(reason, STALE).to_numpy()
    later: BoolArray = stored & ~large & ~repeats & (is_name | ~late)
    return later


def _newest_first(arrived: Iterable[_Arrived], intake: Intake) -> Iterator[_Arrived]:
    """The batches, read ahead as far as a task may decode; marks reports that are not to be read.

    Batches have few reports, so whether a broker sent newer ones is in the others.
    """
    ahead: list[_Arrived] = []
    ahead_bytes = 0
    for one in arrived:
        ahead.append(one)
        ahead_bytes += one.cost
        if ahead_bytes >= intake.task_bytes:
            yield from _marked(ahead, intake)
            ahead, ahead_bytes = [], 0
    yield from _marked(ahead, intake)


def _marked(ahead: list[_Arrived], intake: Intake) -> list[_Arrived]:
    if ahead:
        wanted = [one.why == _READ for one in ahead]
        named = [
            one.named.filter(pa.array(which))
            for one, which in zip(ahead, wanted, strict=True)
            if one.named is not None
        ]
        left_out, repeats = surplus(
            [head for one in ahead for head in one.heads()],
            np.concatenate([one.published_at_ms[one.why == _READ] for one in ahead]),
            np.concatenate([one.size[one.why == _READ] for one in ahead]),
            intake.older_bytes,
            pa.concat_arrays(named) if named else None,
        )
        ends = np.cumsum([np.count_nonzero(which) for which in wanted])[:-1]
        parts = zip(np.split(left_out, ends), np.split(repeats, ends), strict=True)
        for one, which, (is_surplus, repeated) in zip(ahead, wanted, parts, strict=True):
            one.why[which] = np.where(is_surplus, _SURPLUS, _READ)
            one.repeats[which] = repeated
    return ahead


def _to_decoded(
    decoder: Decoder,
    kind: str,
    intake: Intake,
    oldest_s: float,
    old: str,
    shards: int,
    senders: SenderChecks,
    *,
    newest_first: bool = False,
) -> Mapper:
    """``old``: the detail of messages older than ``oldest_s``; ``newest_first``: usage reports."""
    keys = keys_of_shards(shards)

    def to_events(batches: Batches) -> Iterator[pa.RecordBatch]:
        bytes_left = intake.task_bytes
        allowed = senders.allowed()
        arrived = (
            _Arrived(each.slice(begin, MESSAGES_AT_ONCE), intake, oldest_s, senders)
            for each in batches
            for begin in range(0, each.num_rows, MESSAGES_AT_ONCE)
        )
        for one in _newest_first(arrived, intake) if newest_first else arrived:
            if bytes_left <= 0:
                one.why[one.why == _READ] = _OVER
            cost, read = one.cost, one.why == _READ
            bytes_left -= cost
            letters, left_out = REJECTED.empty_table(), REJECTED.empty_table()
            batch, named = one.batch, one.named
            if not read.all():
                rows = one.refused(intake, old)
                later: BoolArray = np.zeros(len(rows), bool)
                if newest_first:
                    later = _recorded_later(rows, one.repeats[~read], allowed)
                letters, left_out = rows.filter(pa.array(~later)), rows.filter(pa.array(later))
                batch = batch.filter(pa.array(read))
                named = None if named is None else named.filter(pa.array(read))
            messages = Undecoded(
                batch["value"].to_pylist(),
                one.published_at_ms[read],
                batch["position"].to_pylist(),
                one.now_ms,
                SenderRules(named, senders.source, allowed),
            )
            payloads, rejected, entries = decoder(messages)
            # Small entries take more memory decoded than encoded.
            bytes_left -= max(entries * BYTES_PER_ENTRY - cost, 0)
            yield packed_events(kind, payloads, keys)
            # Any shard will do; the tasks of this stage take different ones.
            shard = _partition_id() % shards
            rejected = pa.concat_tables([rejected, letters])
            for of_kind, table in (("rejected", rejected), (LEFT_OUT.name, left_out)):
                if table.num_rows:
                    yield packed_events(of_kind, [(shard, pack(table))], keys)

    return to_events


def _partition_id() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def report_events(reports: DataFrame, settings: Settings) -> DataFrame:
    """Decode reports (``transport.base.COLUMNS``) into events.

    ``now`` is the micro-batch's time, so that a repeated batch gives the same result. Of a report
    that is too large, only the beginning leaves the JVM.
    """
    reports_of = settings.reports
    senders = SenderChecks.of(reports_of, settings.own_topics[0])
    # A limit that such a report is about has ended, so it can't be useful, however late rounds are.
    oldest_s = settings.limits.lease_s
    mapper = _to_report_events(reports_of, settings.shards, oldest_s, senders)
    rows = _messages(reports, reports_of.max_report_bytes, senders)
    return rows.mapInArrow(mapper, EVENT_SCHEMA)


def decoded_events(
    messages: DataFrame,
    decoder: Decoder,
    kind: str,
    *,
    most_bytes: int,
    oldest_s: float,
    old: str,
    shards: int,
    senders: SenderChecks = NO_CHECKS,
) -> DataFrame:
    """Decode messages into events of a kind, and their dead letters, as ``report_events`` does.

    Args:
        messages: ``transport.base.COLUMNS``.
        decoder: called with some of the messages at a time.
        kind: of the events.
        most_bytes: a larger message is not read.
        oldest_s: an older message is not read.
        old: the detail of its dead letter.
        shards: number of shards.
        senders: which names of brokers are used.
    """
    intake = Intake(message_bytes=most_bytes)
    mapper = _to_decoded(decoder, kind, intake, oldest_s, old, shards, senders)
    return _messages(messages, most_bytes, senders).mapInArrow(mapper, EVENT_SCHEMA)


def _messages(reports: DataFrame, most: int, senders: SenderChecks) -> DataFrame:
    beginning = f"substring(value, 1, {_KEPT_BYTES})"
    return reports.selectExpr(
        f"CASE WHEN octet_length(value) > {most} THEN {beginning} ELSE value END AS value",
        "octet_length(value) AS size",
        "published_at_ms",
        "position",
        "unix_millis(current_timestamp()) AS now_ms",
        *senders.columns,
    )
