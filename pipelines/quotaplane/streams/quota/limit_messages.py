"""A round's limits as messages for brokers, each small enough for a topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import one_chunk
from quotaplane.model import DIMENSIONS, FloatArray, IntArray, Round
from quotaplane.quota.outcome import Outcome
from quotaplane.wire.limits import encode_limits, encoded_names

_PORTION_BYTES: Final = 450_000
"""Bytes of limits, and of removed groups, in one message: Kafka accepts 1 MB by default."""
_BYTES_OF_LENGTHS: Final = 4
_THROTTLE: Final = "throttle"


def limit_messages(
    outcome: Outcome, shard: int, round_: Round, lease_ms: int
) -> Iterator[tuple[str, bytes]]:
    """One message per broker, with the limits to publish now and the groups that were removed.

    A broker gets several messages if one would be larger than Kafka accepts by default.
    """
    dimensions = dimensions_of(outcome.limits)
    ended = outcome.ended
    if len(ended):  # silent brokers get no message; brokers of a deleted group must get one
        ended = ended.filter(pc.equal(ended["why"], "group_deleted"))
    ended = ended.drop(["why"])
    if outcome.limited_but_deleted is not None:
        missed = outcome.limited_but_deleted.select(ended.column_names)
        ended = pa.concat_tables([ended, missed]).unify_dictionaries()
    slots = (
        *((0, "groups", *part) for part in _by_safe(outcome.limits, dimensions)),
        (1, "removed_groups", ended, False),
    )
    portions: dict[tuple[str, int, bool], list[pa.Table]] = {}
    for slot, field, table, has_safe in slots:
        for broker, number, part in _split(table, field, 16 * len(dimensions)):
            empty = [outcome.limits.slice(0, 0), ended.slice(0, 0)]
            portions.setdefault((broker, number, has_safe), empty)[slot] = part
    for (broker, _, has_safe), (limits, removed) in portions.items():
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
                groups=None if ids else _names(limits),
                group_ids=limits["group_id"].to_numpy() if ids else None,
                dimensions=dimensions,
                limits=_rates(limits, [f"{name}_per_s" for name in dimensions]),
                safe_limits=_rates(limits, [f"safe_{name}_per_s" for name in dimensions])
                if has_safe
                else None,
                throttles=_texts(limits[_THROTTLE]) if _THROTTLE in limits.column_names else None,
                removed_groups=None if ids else _names(removed),
                removed_group_ids=removed["group_id"].to_numpy() if ids else None,
            ),
        )


def _names(rows: pa.Table) -> pa.BinaryArray | tuple[str, ...]:
    """The groups of a portion (``_split``), or of an empty one."""
    return one_chunk(rows["group"]) if len(rows) else ()


def dimensions_of(limits: pa.Table) -> list[str]:
    """The dimensions with a limit for anybody."""
    return [name for name in DIMENSIONS if f"{name}_per_s" in limits.column_names]


def _by_safe(limits: pa.Table, dimensions: Sequence[str]) -> Iterator[tuple[pa.Table, bool]]:
    """The limits to publish, in the columns of messages: with and without safe limits.

    Safe limits and throttle terms rarely change, so not every limit is sent with them.
    """
    rates = [f"{name}_per_s" for name in dimensions]
    bare = ["broker", "uses_ids", "for_start_ms", "group", "group_id", "enforced", *rates]
    whole = [*bare, *(f"safe_{name}" for name in rates)]
    whole += [_THROTTLE] if _THROTTLE in limits.column_names else []
    with_safe, published = limits["with_safe_limit"], limits["published"]
    yield limits.select(whole).filter(pc.and_(published, with_safe)), True
    yield limits.select(bare).filter(pc.and_not(published, with_safe)), False


def _rates(table: pa.Table, names: Sequence[str]) -> FloatArray:
    """Columns as an array (rows, names); inf where the limit is not enforced."""
    rates = np.stack([table[name].to_numpy() for name in names])  # each stays in one piece
    enforced = table["enforced"].to_numpy()
    return (rates if enforced.all() else np.where(enforced, rates, np.inf)).T


def _split(table: pa.Table, field: str, rate_bytes: int) -> Iterator[tuple[str, int, pa.Table]]:
    """Yield (broker, number, rows): each broker's rows, in portions of ``_PORTION_BYTES``.

    The names of their groups are encoded for this field of a message. ``rate_bytes``: size of a
    row's rates.
    """
    if not len(table):
        return
    column, names = one_chunk(table["broker"]), one_chunk(table["group"])
    code = column.indices.to_numpy()
    order = np.argsort(code, kind="stable")
    code = code[order]
    encoded = encoded_names(field, names.dictionary).take(names.indices.take(pa.array(order)))
    sorted_table = table.drop(["group"]).take(pa.array(order)).append_column("group", encoded)
    row_bytes = _text_bytes(names) + _BYTES_OF_LENGTHS + rate_bytes
    if _THROTTLE in table.column_names:
        row_bytes = row_bytes + _text_bytes(one_chunk(table[_THROTTLE])) + _BYTES_OF_LENGTHS
    ends = np.cumsum(row_bytes[order])
    first = np.flatnonzero(np.r_[True, code[1:] != code[:-1]])
    before = np.r_[0, ends][first]  # bytes of the previous brokers, for each broker
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
    coded = one_chunk(column)
    return coded.dictionary.take(coded.indices)
