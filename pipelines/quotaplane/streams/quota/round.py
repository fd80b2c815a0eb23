"""One round of one shard as bytes in, bytes out: what runs inside the stateful operator.

No Spark here: the operator hands over what arrived for its shard and gets back the rows it emits.
Tests, replays and dry runs call the same function.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow_ipc import pack
from quotaplane.laws import get_law
from quotaplane.laws.reason import REASON_TEXTS
from quotaplane.model import DIMENSIONS, FloatArray, IntArray, Round
from quotaplane.quota.config import Events, StepConfig
from quotaplane.quota.outcome import Outcome
from quotaplane.quota.state import ShardState
from quotaplane.quota.step import step
from quotaplane.settings import Settings
from quotaplane.streams.quota.dead_letters import bad_definitions, dead_letters, refused_reports
from quotaplane.streams.quota.id_collisions import without_clashes
from quotaplane.wire.limits import encode_limits
from quotaplane.wire.shard_inputs import newest_reports, unpack_groups, unpack_reports

_ALWAYS = {"now_ms", "brokers_live", "brokers_stale"}
"""Counts that also a round has in which nothing happened."""

EVENT_KINDS = ("reports", "groups", "rejected")
"""What reaches the operator: packed reports, packed group changes, packed dead letters."""


_PORTION_BYTES = 450_000
"""Of a broker's limits, and of its removed groups, in one message: Kafka takes 1 MB by default."""
_INDEX = pa.int16()
"""Of texts in a table: shards' tables are joined, whether they have words or codes' texts."""
_BYTES_OF_LENGTHS = 4
_THROTTLE = "throttle"


class Output(NamedTuple):
    """A row the operator emits. ``kind`` is ``counts`` (JSON), ``messages`` (a table of broker and
    value for the limits topic) or a history table; tables are packed.
    """

    kind: str
    payload: bytes


@dataclass(frozen=True)
class RoundConfig:
    """What every round of a job has in common."""

    step: StepConfig
    epoch: int
    max_reports_per_broker: int


def round_config(settings: Settings, epoch: int, earlier_until_ms: float = 0.0) -> RoundConfig:
    """The operator's share of the settings; see ``StepConfig`` for ``earlier_until_ms``.

    Raises:
        ConfigError: there is no such law, or it has no such option.
    """
    interval_ms = settings.reports.interval_s * 1000.0
    return RoundConfig(
        step=StepConfig(
            law=get_law(settings.law.name, settings.law.options),
            stale_after_ms=settings.brokers.stale_after_intervals * interval_ms,
            expire_after_ms=settings.brokers.expire_after_intervals * interval_ms,
            headroom=settings.demand.headroom,
            saturated_from=settings.demand.saturated_from,
            probe_share=settings.demand.probe_share,
            significant_change=settings.limits.significant_change,
            refresh_rounds=settings.limits.refresh_rounds,
            lease_ms=settings.limits.lease_s * 1000.0,
            transition=settings.limits.transition,
            max_step=settings.limits.max_step,
            safe_share=settings.limits.safe_share_or_default,
            max_clock_skew_ms=settings.reports.max_clock_skew_s * 1000.0,
            earlier_until_ms=earlier_until_ms,
        ),
        epoch=epoch,
        max_reports_per_broker=settings.reports.max_reports_per_broker,
    )


def run_round(
    state: ShardState,
    arrived: Mapping[str, Sequence[bytes]],
    *,
    shard: int,
    seq: int,
    now_ms: int,
    config: RoundConfig,
) -> tuple[ShardState, list[Output]]:
    """Unpack what arrived, take one step, and pack what it decided."""
    events = Events()
    definitions = crowded_out = None
    if arrived.get("groups"):
        changes = unpack_groups(arrived["groups"])
        groups, clashes = without_clashes(changes, state.groups)
        events = replace(events, groups=groups)
        definitions = bad_definitions(changes, clashes)
    if arrived.get("reports"):
        headers, entries, crowded_out = newest_reports(
            *unpack_reports(arrived["reports"]), config.max_reports_per_broker
        )
        events = replace(events, headers=headers, entries=entries)
    round_ = Round(config.epoch, seq, now_ms)
    state, outcome = step(state, events, round_, config.step)

    lease_ms = int(config.step.lease_ms)
    messages = list(_messages(outcome, shard, round_, lease_ms))
    # Every shard hears of all reports; one of them tells which were too many.
    refused = refused_reports(arrived.get("rejected", ()), None if shard else crowded_out)
    letters, counted = dead_letters(refused, definitions, outcome)
    counts = {
        **outcome.counts,
        **counted,
        "now_ms": now_ms,
        "quota_changes": 0 if events.groups is None else len(events.groups),
        "messages_sent": len(messages),
        "brokers_live": int((~state.brokers.stale).sum()),
        "brokers_stale": int(state.brokers.stale.sum()),
        "newest_report_ms": _newest_ms(events.headers),
    }
    tables = {
        "messages": pa.table(
            {
                "broker": pa.array([broker for broker, _ in messages], pa.string()),
                "value": pa.array([value for _, value in messages], pa.binary()),
            }
        ),
        "usage": outcome.usage,
        "limits": _limit_history(outcome, lease_ms),
        "brokers": outcome.brokers,
        "rejected_reports": letters,
    }
    outputs = [
        Output(name, pack(table))
        for name, table in tables.items()
        if table is not None and len(table)
    ]
    if outputs or any(counts[name] for name in counts.keys() - _ALWAYS):
        outputs.append(Output("counts", json.dumps(counts).encode()))
    return state, outputs


def _newest_ms(headers: pa.Table | None) -> int:
    """When the newest of a round's reports was published; 0 if there are none."""
    return 0 if headers is None else int(pc.max(headers["published_at_ms"]).as_py() or 0)


def _messages(
    outcome: Outcome, shard: int, round_: Round, lease_ms: int
) -> Iterator[tuple[str, bytes]]:
    """One message per broker: its limits that go out now, and the groups it no longer has.

    Several, where one would be larger than Kafka takes by default.
    """
    going, ended = outcome.limits, outcome.ended
    if len(ended):  # a silent broker has no ears; a deleted group's brokers must hear of it
        ended = ended.filter(pc.equal(ended["why"], "group_deleted"))
    ended = ended.drop(["why"])
    if outcome.limited_but_deleted is not None:
        missed = outcome.limited_but_deleted.select(ended.column_names)
        ended = pa.concat_tables([ended, missed]).unify_dictionaries()
    # Safe limits and terms hardly ever change, so only some of the limits carry theirs along.
    safe, published = going["safe_told"], going["published"]
    bare = going.drop([_THROTTLE]) if _THROTTLE in going.column_names else going
    parts = (
        (going.filter(pc.and_(published, safe)), True),
        (bare.filter(pc.and_not(published, safe)), False),
    )
    portions: dict[tuple[str, int, bool], list[pa.Table]] = {}
    dimensions = _dimensions(going)
    for slot, table, told in (*((0, part, told) for part, told in parts), (1, ended, False)):
        for broker, number, part in _split(table, 16 * len(dimensions)):
            nothing = [going.slice(0, 0), ended.slice(0, 0)]
            portions.setdefault((broker, number, told), nothing)[slot] = part
    for (broker, _, told), (limits, removed) in portions.items():
        first = limits if len(limits) else removed
        ids = bool(first["uses_ids"][0].as_py())
        yield (
            broker,
            encode_limits(
                broker=broker,
                shard=shard,
                epoch=round_.epoch,
                seq=round_.seq,
                issued_at_ms=round_.now_ms,
                lease_ms=lease_ms,
                broker_started_at_ms=first["for_start_ms"][0].as_py(),
                groups=None if ids else _texts(limits["group"]),
                group_ids=limits["group_id"].to_numpy() if ids else None,
                dimensions=dimensions,
                limits=_rates(limits, [f"{name}_per_s" for name in dimensions]),
                safe_limits=_rates(limits, [f"safe_{name}_per_s" for name in dimensions])
                if told
                else None,
                throttles=_texts(limits[_THROTTLE]) if _THROTTLE in limits.column_names else None,
                removed_groups=None if ids else _texts(removed["group"]),
                removed_group_ids=removed["group_id"].to_numpy() if ids else None,
            ),
        )


def _dimensions(limits: pa.Table) -> list[str]:
    """Those in which anybody may be limited."""
    return [name for name in DIMENSIONS if f"{name}_per_s" in limits.column_names]


def _rates(table: pa.Table, names: Sequence[str]) -> FloatArray:
    """Columns as (rows, names), infinite where they are only what they would be."""
    rates = np.stack([table[name].to_numpy() for name in names], axis=1)
    real = table["enforced"].to_numpy()
    return rates if real.all() else np.where(real[:, None], rates, np.inf)


def _split(table: pa.Table, rate_bytes: int) -> Iterator[tuple[str, int, pa.Table]]:
    """A table's rows by broker, and those of one broker in portions of so many bytes.

    ``rate_bytes``: what a row takes beside its texts.
    """
    if not len(table):
        return
    column, names = _dictionary(table["broker"]), _dictionary(table["group"])
    code = column.indices.to_numpy()
    order = np.argsort(code, kind="stable")
    code = code[order]
    sorted_table = table.take(pa.array(order))
    row_bytes = _text_bytes(names) + _BYTES_OF_LENGTHS + rate_bytes
    if _THROTTLE in table.column_names:
        row_bytes = row_bytes + _text_bytes(_dictionary(table[_THROTTLE])) + _BYTES_OF_LENGTHS
    ends = np.cumsum(row_bytes[order])
    first = np.flatnonzero(np.r_[True, code[1:] != code[:-1]])
    before = np.r_[0, ends][first]  # bytes of the brokers before each
    number = (ends - np.repeat(before, np.diff(np.r_[first, len(code)]))) // _PORTION_BYTES
    cut = (code[1:] != code[:-1]) | (number[1:] != number[:-1])
    for begin, end in pairwise(np.flatnonzero(np.r_[True, cut, True])):
        broker = column.dictionary[int(code[begin])].as_py()
        yield broker, int(number[begin]), sorted_table.slice(begin, end - begin)


def _text_bytes(coded: pa.DictionaryArray) -> IntArray:
    by_text = pc.binary_length(coded.dictionary).to_numpy()
    by_row: IntArray = by_text[coded.indices.to_numpy()]
    return by_row


def _texts(column: pa.ChunkedArray) -> pa.StringArray:
    coded = _dictionary(column)
    return coded.dictionary.take(coded.indices)


def _dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def _limit_history(outcome: Outcome, lease_ms: int) -> pa.Table | None:
    """What changed, and what ended, as rows of the history table ``limits``."""
    changed = outcome.limits.filter(outcome.limits["changed"])
    dimensions = _dimensions(changed)
    rates = [f"{name}_per_s" for name in dimensions]
    in_words = f"{DIMENSIONS[0]}_words" in changed.column_names
    reasons = {
        f"{name}_reason": _each_once(changed[f"{name}_words"])
        if in_words
        else _words(changed[f"{name}_reason"])
        for name in dimensions
    }
    kept = changed.select(["broker", "group", *rates, "enforced"])
    table = _with_constants(kept, reasons, lease_ms, ended=False)
    if not len(outcome.ended):
        return table
    over = outcome.ended.select(["broker", "group"])
    for name in rates:
        over = over.append_column(name, pa.nulls(len(over), pa.float64()))
    over = over.append_column("enforced", pa.nulls(len(over), pa.bool_()))
    why = _each_once(outcome.ended["why"])
    ended = _with_constants(
        over, dict.fromkeys((f"{name}_reason" for name in dimensions), why), lease_ms, ended=True
    )
    return pa.concat_tables([table, ended]).unify_dictionaries()


def _with_constants(
    table: pa.Table, reasons: Mapping[str, pa.ChunkedArray], lease_ms: int, *, ended: bool
) -> pa.Table:
    for name, column in reasons.items():
        table = table.append_column(name, column)
    table = table.append_column("lease_ms", pa.repeat(pa.scalar(lease_ms, pa.int64()), len(table)))
    return table.append_column("ended", pa.repeat(pa.scalar(ended), len(table)))


def _words(codes: pa.ChunkedArray) -> pa.Array:
    """Reason codes to words, each text stored once."""
    index = pa.array(codes.to_numpy().astype(np.int16))
    return pa.DictionaryArray.from_arrays(index, pa.array(REASON_TEXTS))


def _each_once(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Plain strings in the form of ``_words``, so that both can stand in one column."""
    encoded = _dictionary(column.dictionary_encode())
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(_INDEX), encoded.dictionary)
