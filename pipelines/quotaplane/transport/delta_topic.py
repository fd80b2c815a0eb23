"""One table of the embedded transport: opened or created, appended to, and compacted."""

from __future__ import annotations

import fcntl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from quotaplane.deltalog.checksums import Checksums
from quotaplane.deltalog.durable import COMMIT_ONLY, Synced, checkpoint
from quotaplane.deltalog.error_text import DOCTOR, with_advice
from quotaplane.deltalog.faults import find_fault
from quotaplane.deltalog.log import local_folder
from quotaplane.deltalog.read import live_paths, refuse
from quotaplane.errors import ConfigError, TransportError
from quotaplane.settings import DeltaTransport

TOPIC_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("published_at_ms", pa.int64(), nullable=False),
        pa.field("append_id", pa.string(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
    ]
)
"""``key`` is the broker. ``append_id`` (of the send) and ``row`` (in the send) identify a message
for ever: Delta's streaming reads have no row numbers, and compaction moves rows to other files."""

COMPACT_EVERY: Final = 32
"""Appends of one writer between compactions: an append takes 4 ms at 20 files, 40 ms at 300."""

_PROPERTIES: Final[dict[str, str | None]] = {
    # Brokers read limits from the change feed, which compaction does not change.
    "delta.enableChangeDataFeed": "true",
    # Statistics of opaque bytes are useless, and would copy parts of them into the log.
    "delta.dataSkippingNumIndexedCols": "0",
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 2 days",
}


class Topic:
    """One table: opened (or created) on first use, compacted while it is written."""

    def __init__(self, settings: DeltaTransport, name: str) -> None:
        folder = local_folder(settings.path)
        if folder is None:
            raise ConfigError(
                f"transport.path: {settings.path}: the embedded transport needs a local folder"
            )
        self._root = folder
        self._lock_file = self._root / f".{name}.lock"
        self.uri = str(self._root / name)
        self._table: DeltaTable | None = None
        self._synced = Synced(self.uri)
        self._appends = 0

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the table against all other writers.

        The deltalake package does not detect conflicts between two compactions (or creations):
        without a lock both would succeed, and every row would occur twice. It does retry
        conflicting appends, but a few simultaneous writers exceed any number of retries.
        """
        with self._lock_file.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def open(self) -> DeltaTable:
        """Return the table, in the version of its last use.

        Raises:
            TransportError: it can't be created or read, or is not a topic.
        """
        if self._table is None:
            with as_transport_error(self.uri):
                self._root.mkdir(parents=True, exist_ok=True)
                table = self._create_or_open()
                columns = {field.name for field in table.schema().fields}
            if missing := [name for name in TOPIC_SCHEMA.names if name not in columns]:
                raise TransportError(
                    f"{self.uri}: is not a topic of quotaplane (column {missing[0]} is missing); "
                    "point transport.path at a folder of its own"
                )
            self._table = table
        return self._table

    def append(
        self,
        keys: list[str],
        values: list[bytes],
        published_at_ms: list[int],
        *,
        replace: bool = False,
    ) -> None:
        """Append messages in one version; ``replace``: in the place of those with the same keys.

        Raises:
            TransportError: the append failed; none of them is in the table.
        """
        if not keys:
            return
        table = self.open()
        size = len(keys)
        append_id = uuid.uuid4().hex
        columns = [keys, values, published_at_ms, [append_id] * size, list(range(size))]
        rows = pa.table(columns, schema=TOPIC_SCHEMA)
        with as_transport_error(self.uri), self.lock():
            table.update_incremental()
            before = table.version()
            how: dict[str, Any] = {"mode": "append"}
            if replace:
                listed = ", ".join("'{}'".format(key.replace("'", "''")) for key in keys)
                how = {"mode": "overwrite", "predicate": f"key IN ({listed})"}
            write_deltalake(table, rows, **how, post_commithook_properties=COMMIT_ONLY)
        # Without the lock, so that several writers can wait for the disk at the same time.
        self.keep(before)
        self._appends += 1
        if self._appends % COMPACT_EVERY == 0:
            # The rows are committed, so a failure here must not make the caller send them again.
            # The next turn compacts what this one did not.
            with suppress(*FAILURES):
                self.compact()

    def compact(self) -> None:
        """Merge small files, and write a checkpoint, from which readers then start."""
        table = self.open()
        with self.lock():
            table.update_incremental()
            before = table.version()
            self.check()
            table.optimize.compact(post_commithook_properties=COMMIT_ONLY)
            self.keep(before)
            checkpoint(table, self.uri)

    def check(self) -> None:
        """Check the bytes of all files before they are rewritten: then damage would be in the new
        ones, too.

        Raises:
            OSError: they are damaged.
        """
        refuse(Checksums(Path(self.uri)).first_fault(live_paths(self.open())))

    def keep(self, before: int) -> None:
        """Wait until commits are on the disk, and so may be acknowledged.

        ``before`` is a version from before the caller's own commits.

        Raises:
            TransportError: the disk did not accept them.
        """
        table = self.open()
        try:
            self._synced.upto(table.version(), before=before)
        except OSError as error:
            raise TransportError(
                f"{self.uri}: version {table.version()} is committed but the disk did not keep it "
                f"({error}); check the disk, then run `quotaplane doctor`"
            ) from error

    def _create_or_open(self) -> DeltaTable:
        # delta-rs and Spark silently read what a power loss left of a log, so check it first.
        fault = find_fault(self.uri)
        if fault is not None:
            raise TransportError(f"{self.uri}: {fault}; {DOCTOR}")
        with suppress(TableNotFoundError):
            return DeltaTable(self.uri)
        with self.lock():
            with suppress(TableNotFoundError):
                return DeltaTable(self.uri)
            return DeltaTable.create(self.uri, TOPIC_SCHEMA, configuration=_PROPERTIES)


FAILURES: Final = (DeltaError, OSError, pa.ArrowException)


@contextmanager
def as_transport_error(uri: str) -> Iterator[None]:
    """Turn errors of the table into those of a transport, with advice about a disk."""
    try:
        yield
    except FAILURES as error:
        raise TransportError(f"{uri}: {with_advice(error)}") from error
