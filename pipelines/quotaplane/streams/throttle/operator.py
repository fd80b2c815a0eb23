"""The stateful operator of throttling: one ledger for each shard, around ``throttle.decide``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from quotaplane.arrow_ipc import pack, unpack
from quotaplane.streams.quota.operator import by_kind
from quotaplane.throttle.entities import Ledger, begin
from quotaplane.throttle.requests import Bounds
from quotaplane.throttle.step import Decided, decide
from quotaplane.wire.shard_inputs import unpack_groups


class ThrottleOperator(StatefulProcessor):
    """Keeps one shard's ledger as one blob, read once and written once a micro-batch.

    A list, as the quota loop's (``operator.QuotaOperator``). ``definitions`` are those that hold;
    None: they come as changes.
    """

    def __init__(self, bounds: Bounds, definitions: pa.Table | None) -> None:
        self._bounds = bounds
        self._definitions = definitions

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._blob = handle.getListState("ledger", "blob binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        arrived = by_kind(rows)
        kept = next(self._blob.get(), None)
        ledger = begin() if kept is None else Ledger.from_bytes(kept[0])
        if arrived["groups"]:
            ledger = ledger.changed(unpack_groups(arrived["groups"]))
        if self._definitions is not None and not ledger.definitions.equals(self._definitions):
            ledger = ledger.defined(self._definitions)
        if arrived["requests"]:
            tables = [table for payload in arrived["requests"] for table in unpack(payload)]
            now_ms = int(tables[0].schema.metadata[b"now_ms"])
            events = pa.concat_tables(tables).replace_schema_metadata(None)
            ledger, decided = decide(ledger, events, now_ms, self._bounds)
            yield pd.DataFrame(outputs_of(decided), columns=["kind", "payload"])
        self._blob.put([(ledger.to_bytes(),)])

    def close(self) -> None:
        pass


def outputs_of(decided: Decided) -> list[dict[str, Any]]:
    """Rows for ``operator.OUTPUT_SCHEMA``: each table that is not empty, packed."""
    return [
        {"kind": kind, "payload": pack(table)}
        for kind, table in decided._asdict().items()
        if len(table)
    ]
