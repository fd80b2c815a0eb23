"""Reads ranges of messages up to a known id: for repeated micro-batches, and for batch reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

import pulsar
import pyarrow as pa

from quotaplane.errors import TransportError
from quotaplane.pulsar.client import (
    PASSING,
    as_transport_error,
    close_quietly,
    open_client,
    unreachable,
)
from quotaplane.pulsar.message import Row, batches
from quotaplane.pulsar.options import Options
from quotaplane.pulsar.outages import PATIENCE_S, RETRY_S, loss_policy
from quotaplane.pulsar.position import Id, Offset, ranges, time_of
from quotaplane.pulsar.reader import TopicReader, is_before, rows_until
from quotaplane.pulsar.spool import Spool


def read_between(
    options: Options,
    start: Offset,
    end: Offset,
    *,
    patience_s: float = PATIENCE_S,
    retry_s: float = RETRY_S,
) -> Iterator[pa.RecordBatch]:
    """The rows that ``TopicPool.read`` gave between two offsets; of live topics those spooled.

    Raises:
        TransportError: a topic is unavailable for ``patience_s``, messages may be deleted, or the
            spool lacks some.
    """
    if options.spool_folder is not None:
        yield from Spool(options.spool_folder).read(start, end)
    parts = ranges(start, end)
    if parts:
        yield from _read(options, parts, may_be_empty=False, patience_s=patience_s, retry_s=retry_s)


def read_range(options: Options, topic: str, start: str, last: Id) -> Iterator[pa.RecordBatch]:
    """The messages of one topic partition after ``start`` and up to ``last``.

    If ``start`` is a time there may be none, because the last message may be older.
    """
    return _read(options, [(topic, start, last)], may_be_empty=time_of(start) is not None)


def _read(
    options: Options,
    parts: list[tuple[str, str, Id]],
    *,
    may_be_empty: bool,
    patience_s: float = PATIENCE_S,
    retry_s: float = RETRY_S,
) -> Iterator[pa.RecordBatch]:
    client = open_client(options)
    try:
        for topic, start, last in parts:
            pieces = _pieces(client, options, topic, start, last, may_be_empty, patience_s, retry_s)
            yield from batches(chain.from_iterable(pieces))
    finally:
        close_quietly(client)


def _pieces(
    client: pulsar.Client,
    options: Options,
    topic: str,
    start: str,
    last: Id,
    may_be_empty: bool,
    patience_s: float,
    retry_s: float,
) -> Iterator[list[Row]]:
    """Rows up to ``last``; waits for an unavailable broker like a running query."""
    lost, position, answered_s = loss_policy(options), start, time.monotonic()
    while True:
        reader = None
        try:
            reader = TopicReader(client, options, topic, position, lost)
            for rows in rows_until(reader, last):
                position = reader.position
                yield rows
                answered_s = time.monotonic()
            break
        except PASSING:
            if time.monotonic() - answered_s >= patience_s:
                raise TransportError(f"{unreachable(options)}: topic {topic!r}") from None
        except pulsar.exceptions.TopicNotFound:  # a topic per broker ends with its broker
            lost(topic, position)
            return
        except pulsar.PulsarException as error:
            with as_transport_error(options, f"topic {topic!r} can't be read"):
                raise error
        finally:
            if reader is not None:
                with suppress(pulsar.PulsarException):
                    reader.close()
        time.sleep(retry_s)
    nothing_since = may_be_empty and time_of(position) is not None
    if not nothing_since and is_before(position, last):
        lost(topic, position)
