"""The operator's inputs: reports and quota changes as packed events, by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.errors import AnalysisException

from quotaplane.arrow_ipc import pack
from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.history.store import table_uri
from quotaplane.history.tables import LEFT_OUT
from quotaplane.model import RATE_COLUMNS, BoolArray, IntArray, group_id
from quotaplane.settings import History, Reports, Settings
from quotaplane.streams.operator import EVENT_SCHEMA
from quotaplane.streams.partition import keys_of_shards
from quotaplane.streams.query_failures import lost_table, names_lost_table
from quotaplane.streams.sender_checks import NO_CHECKS, SenderChecks
from quotaplane.transport.base import is_stored
from quotaplane.wire.batch_caps import BYTES_PER_ENTRY
from quotaplane.wire.reasons import STALE, TOO_LARGE, TOO_MANY_REPORTS, TOO_MUCH
from quotaplane.wire.report_heads import HEAD_BYTES
from quotaplane.wire.report_heads import senders as report_senders
from quotaplane.wire.reports import REJECTED, decode
from quotaplane.wire.sender_rules import AllowedBrokers, SenderRules
from quotaplane.wire.shard_inputs import pack_groups, pack_reports
from quotaplane.wire.surplus_reports import surplus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterable[pa.RecordBatch]
Mapper = Callable[[Batches], Iterator[pa.RecordBatch]]

TASK_BYTES: Final = 64 << 20
"""Bytes of reports that one task (a topic partition) decodes per micro-batch; it refuses the rest.
An entry counts as at least ``BYTES_PER_ENTRY``.

Kafka's source limits the number of reports in a micro-batch, not their bytes: 5000 reports of 8 MB
are 40 GB, and the operator has all decoded reports of a micro-batch in memory at once.
"""

_KEPT_BYTES: Final = 4096
"""Of a report that is too large, only so many bytes go to Python and into the dead letter."""

_GROUP_COLUMNS = ("resource_group", *RATE_COLUMNS, *POLICY_COLUMNS)


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


class Decoder(Protocol):
    """Decodes the messages of a batch."""

    def __call__(
        self,
        values: Sequence[bytes | None],
        published_at_ms: IntArray,
        positions: Sequence[str],
        now_ms: int,
        senders: SenderRules,
    ) -> tuple[list[tuple[int, bytes]], pa.Table, int]:
        """Payloads by shard, dead letters (``REJECTED``), and the number of entries."""


def _to_report_events(
    reports: Reports, shards: int, oldest_s: float, senders: SenderChecks = NO_CHECKS
) -> Mapper:
    def decoder(
        values: Sequence[bytes | None],
        published_at_ms: IntArray,
        positions: Sequence[str],
        now_ms: int,
        senders: SenderRules,
    ) -> tuple[list[tuple[int, bytes]], pa.Table, int]:
        decoded = decode(
            values,
            published_at_ms,
            positions,
            now_ms=now_ms,
            reports=reports,
            senders=senders,
            oldest_s=oldest_s,
        )
        return pack_reports(decoded, shards), decoded.rejected, decoded.entries.num_rows

    return _to_decoded(
        decoder,
        "reports",
        reports.max_report_bytes,
        oldest_s,
        shards,
        senders,
        newest_first=True,
    )


class _Arrived:
    """A batch of messages, and which of them are worth decoding."""

    def __init__(self, batch: pa.RecordBatch, most_bytes: int, oldest_s: float) -> None:
        self.batch = batch
        self.now_ms: int = batch["now_ms"][0].as_py()
        self.size: IntArray = batch["size"].to_numpy()
        self.published_at_ms: IntArray = batch["published_at_ms"].to_numpy(zero_copy_only=False)
        self.large: BoolArray = self.size > most_bytes
        self.late: BoolArray = self.now_ms - self.published_at_ms > oldest_s * 1000.0
        self.wanted: BoolArray = ~self.large & ~self.late
        self.surplus: BoolArray = np.zeros(len(self.size), bool)
        self.repeats: BoolArray = np.zeros(len(self.size), bool)
        """Those of the surplus that repeat another report."""
        self.named: pa.BinaryArray | None = None
        """The broker that each message's key or topic names; None: it does not matter."""

    @cached_property
    def shortened(self) -> BoolArray:
        """(n,) late messages that can be read again later."""
        return self.late & ~self.large & self.stored if self.late.any() else self.late

    @property
    def stored(self) -> BoolArray:
        """(n,) messages that can be read again later."""
        places = self.batch["position"].to_pylist()
        return np.fromiter(map(is_stored, places), bool, len(places))

    def with_short_values(self) -> _Arrived:
        """The same, with only the beginnings of reports that are not decoded in this round.

        Late ones cost nothing of what a task may decode, so it holds any number of them.
        """
        if self.shortened.any():
            whole = self.batch["value"]
            beginnings = pc.binary_slice(whole, 0, _KEPT_BYTES)
            cut = pc.if_else(pa.array(self.shortened), beginnings, whole)
            place = self.batch.schema.get_field_index("value")
            self.batch = self.batch.set_column(place, "value", cut)
        return self

    def named_by(self, senders: SenderChecks) -> _Arrived:
        """The same, with what key or topic say."""
        self.named = senders.named(self.batch)
        return self

    def heads(self) -> list[bytes]:
        """The beginnings of the wanted ones."""
        wanted = self.batch["value"].filter(pa.array(self.wanted))
        found: list[bytes] = pc.binary_slice(wanted, 0, HEAD_BYTES).to_pylist()
        return found


def _newest_first(arrived: Iterable[_Arrived]) -> Iterator[_Arrived]:
    """The batches, read ahead as far as a task may decode; marks reports that are not to be read.

    Batches have few reports, so whether a broker sent newer ones is in the others.
    """
    ahead: list[_Arrived] = []
    ahead_bytes = 0
    for one in arrived:
        ahead.append(one.with_short_values())
        ahead_bytes += int(one.size[one.wanted].sum())
        if ahead_bytes >= TASK_BYTES:
            yield from _marked(ahead)
            ahead, ahead_bytes = [], 0
    yield from _marked(ahead)


def _marked(ahead: list[_Arrived]) -> list[_Arrived]:
    if ahead:
        left_out, repeats = surplus(
            [head for one in ahead for head in one.heads()],
            np.concatenate([one.published_at_ms[one.wanted] for one in ahead]),
            np.concatenate([one.size[one.wanted] for one in ahead]),
            _named(ahead),
        )
        ends = np.cumsum([np.count_nonzero(one.wanted) for one in ahead])
        parts = (np.split(flags, ends[:-1]) for flags in (left_out, repeats))
        for one, is_surplus, repeated in zip(ahead, *parts, strict=True):
            one.surplus[one.wanted], one.repeats[one.wanted] = is_surplus, repeated
    return ahead


def _named(ahead: list[_Arrived]) -> pa.Array | None:
    """The brokers that keys or topics of the wanted ones name; None: they don't matter."""
    named = [one.named.filter(pa.array(one.wanted)) for one in ahead if one.named is not None]
    return pa.concat_arrays(named) if named else None


def _to_decoded(
    decoder: Decoder,
    kind: str,
    most_bytes: int,
    oldest_s: float,
    shards: int,
    senders: SenderChecks,
    *,
    newest_first: bool = False,
) -> Mapper:
    keys = keys_of_shards(shards)

    def to_events(batches: Batches) -> Iterator[pa.RecordBatch]:
        bytes_left = TASK_BYTES
        allowed = senders.allowed()
        arrived = (
            _Arrived(each, most_bytes, oldest_s).named_by(senders)
            for each in batches
            if each.num_rows
        )
        for one in _newest_first(arrived) if newest_first else arrived:
            batch, now_ms, size = one.batch, one.now_ms, one.size
            wanted = one.wanted & ~one.surplus
            over = wanted & (bytes_left <= 0)
            bytes_left -= int(size[wanted].sum())
            used_bytes = int(size[wanted & ~over].sum())
            letters, named = [], one.named
            refused = one.large | over | one.surplus
            left_out = REJECTED.empty_table()
            stale: BoolArray = np.zeros(len(size), bool)
            if newest_first and (refused | one.late).any():
                later, left_out = _left_out(one, over, oldest_s, allowed)
                over, one.surplus = over & ~later, one.surplus & ~later
                stale = one.shortened & ~later
                refused = refused | later | stale
            if refused.any():
                letters = [
                    _late(batch, stale, oldest_s),
                    _too_large(batch, one.large, most_bytes),
                    _too_much(batch, over),
                    _superseded(batch, one.surplus),
                ]
                batch = batch.filter(pa.array(~refused))
                named = None if named is None else named.filter(pa.array(~refused))
            payloads, rejected, entries = decoder(
                batch["value"].to_pylist(),
                one.published_at_ms[~refused],
                batch["position"].to_pylist(),
                now_ms,
                SenderRules(named, senders.source, allowed),
            )
            # Small entries take more memory decoded than encoded.
            bytes_left -= max(entries * BYTES_PER_ENTRY - used_bytes, 0)
            yield packed_events(kind, payloads, keys)
            rejected = pa.concat_tables([rejected, *letters])
            # Any shard will do; the tasks of this stage take different ones.
            shard = _partition_id() % shards
            for of_kind, table in (("rejected", rejected), (LEFT_OUT.name, left_out)):
                if table.num_rows:
                    yield packed_events(of_kind, [(shard, pack(table))], keys)

    return to_events


def _left_out(
    one: _Arrived, over: BoolArray, oldest_s: float, allowed: AllowedBrokers | None
) -> tuple[BoolArray, pa.Table]:
    """(n,) the messages that are recorded later, and rows (``REJECTED``) about them.

    Late ones that name no broker that may have a name like that are no reports: they would take the
    place of others (``finisher.MOST_NOTED``).
    """
    late = one.shortened.copy()
    names = pa.array(
        report_senders(one.batch["value"].filter(pa.array(late)).to_pylist()), pa.string()
    )
    is_name = names.is_valid().to_numpy(zero_copy_only=False)
    if allowed is not None and allowed.patterns:
        is_name &= allowed.of(names.fill_null(""))
    late[late] = is_name
    later = (over | one.surplus | late) & ~one.large & ~one.repeats & one.stored
    rows = [
        _too_much(one.batch, over & later),
        _superseded(one.batch, one.surplus & later),
        _late(one.batch, late, oldest_s),
    ]
    return later, pa.concat_tables(rows)


def _too_large(batch: pa.RecordBatch, large: BoolArray, most: int) -> pa.Table:
    """Dead letters of reports of which only the beginning was read."""
    rows = batch.filter(pa.array(large))
    details = [
        f"{size} bytes; reports.max_report_bytes is {most}; raw is its beginning"
        for size in rows["size"].to_pylist()
    ]
    raw = rows["value"].to_pylist()
    return _letters(rows, TOO_LARGE, details, counts_as_bad=True, raw=raw)


def _too_much(batch: pa.RecordBatch, over: BoolArray) -> pa.Table:
    """Rows (``REJECTED``) about reports that exceed the task's budget; they may be well-formed."""
    rows = batch.filter(pa.array(over))
    most = f"{TASK_BYTES >> 20} MB of reports, or {TASK_BYTES // BYTES_PER_ENTRY} entries"
    detail = f"its task had decoded {most}, in this micro-batch"
    details, no_bytes = [detail] * len(rows), [b""] * len(rows)
    return _letters(rows, TOO_MUCH, details, counts_as_bad=False, raw=no_bytes)


def _superseded(batch: pa.RecordBatch, left_out: BoolArray) -> pa.Table:
    """Rows (``REJECTED``) about reports that are not read, as their brokers sent newer ones."""
    rows = batch.filter(pa.array(left_out))
    detail = "more reports arrived than a round can read: newer ones of this broker were read"
    details, no_bytes = [detail] * len(rows), [b""] * len(rows)
    return _letters(rows, TOO_MANY_REPORTS, details, counts_as_bad=False, raw=no_bytes)


def _late(batch: pa.RecordBatch, late: BoolArray, oldest_s: float) -> pa.Table:
    """Rows (``REJECTED``) about reports that are too old to be of use."""
    rows = batch.filter(pa.array(late))
    detail = f"published more than {oldest_s:g} s ago (limits.lease_s)"
    details, no_bytes = [detail] * len(rows), [b""] * len(rows)
    return _letters(rows, STALE, details, counts_as_bad=False, raw=no_bytes)


def _letters(
    rows: pa.RecordBatch, reason: str, details: list[str], *, counts_as_bad: bool, raw: list[bytes]
) -> pa.Table:
    columns = {
        "reason": [reason] * len(rows),
        "detail": details,
        "position": rows["position"].to_pylist(),
        "published_at_ms": rows["published_at_ms"].to_pylist(),
        "counts_as_bad": [counts_as_bad] * len(rows),
        "reports": [1] * len(rows),
        "raw": raw,
        "sender": report_senders([value or b"" for value in rows["value"].to_pylist()]),
    }
    return pa.table(columns, schema=REJECTED)


def _partition_id() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _to_group_events(shards: int) -> Mapper:
    keys = keys_of_shards(shards)

    def to_events(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            names = batch["resource_group"].to_pylist()
            change = np.asarray(batch["_change_type"].to_pylist(), dtype=object)
            columns = {name: batch[name] for name in _GROUP_COLUMNS[1:]}
            columns["group"] = batch["resource_group"]
            columns["group_id"] = pa.array(map(group_id, names), pa.int64())
            columns["deleted"] = pa.array(change == "delete", pa.bool_())
            columns["version"] = batch["_commit_version"]
            yield packed_events("groups", pack_groups(pa.table(columns), shards), keys)

    return to_events


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
    shards: int,
    senders: SenderChecks = NO_CHECKS,
) -> DataFrame:
    """Decode messages into events of a kind, and their dead letters, as ``report_events`` does.

    Args:
        messages: ``transport.base.COLUMNS``.
        decoder: called with some of the messages at a time.
        kind: of the events.
        most_bytes: a larger message is not read.
        oldest_s: an older message is cheap to decode, so it does not count as much.
        shards: number of shards.
        senders: which names of brokers are used.
    """
    mapper = _to_decoded(decoder, kind, most_bytes, oldest_s, shards, senders)
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


def group_events(spark: SparkSession, history: History, shards: int) -> DataFrame:
    """Read the change feed of ``resource_groups``: all existing rows first, then each change.

    Raises:
        HistoryError: the table is gone, which was there when the job began to start.
    """
    place = table_uri(history, "resource_groups")
    feed = spark.readStream.format("delta").option("readChangeFeed", "true")
    try:
        changes = feed.load(place)
    except AnalysisException as error:
        if names_lost_table(str(error)):
            raise lost_table(place) from None
        raise
    return (
        changes.where("_change_type <> 'update_preimage'")
        .select(*_GROUP_COLUMNS, "_change_type", "_commit_version")
        .mapInArrow(_to_group_events(shards), EVENT_SCHEMA)
    )
