"""The checkpoint folder: our note in it (id, epoch, shards), and Spark's logs of offsets.

Files are reached through Spark's Hadoop file systems, so a checkpoint may be on any of them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError

from quotaplane.deltalog.error_text import disk_failure, with_advice
from quotaplane.errors import ConfigError, DeposedError, HistoryError
from quotaplane.files import fsync
from quotaplane.parsing.folders import local_folder, location, spark_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTE: Final = "quotaplane.json"
_BACKLOG_SKIPPED: Final = "quotaplane.backlogSkipped"
"""Key in the ``conf`` of an offset log entry; Spark ignores keys that it does not know."""


_OF_A_NOTE: Final = (ValueError, TypeError, LookupError, AttributeError)
"""Exceptions of a note that is damaged."""


@dataclass(frozen=True)
class Checkpoint:
    """The identity of a checkpoint folder, fixed when it was created."""

    id: str
    """Writer id in the history tables, so that a repeated batch adds no rows."""
    epoch: int
    shards: int
    note: Mapping[str, Any]
    """Settings that the job recorded when the checkpoint was created."""


def _of_note(text: str) -> Checkpoint:
    content = json.loads(text)
    return Checkpoint(content.pop("id"), content.pop("epoch"), content.pop("shards"), content)


class Range(NamedTuple):
    """A range of messages in a source that a batch reads."""

    text: str
    size: int | None
    """Number of messages; None: not known."""


class CheckpointFolder:
    """A folder on any file system that Spark reaches."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = location(path)
        """For messages."""
        self.uri = spark_uri(path).rstrip("/")
        self._entries: dict[int, str] = {}
        jvm: Any = spark.sparkContext._jvm
        jsc: Any = spark.sparkContext._jsc
        # Py4J looks for a class of the JVM by each part of its name, among all jars.
        self._hadoop: Any = jvm.org.apache.hadoop.fs.Path
        self._utils: Any = jvm.org.apache.commons.io.IOUtils
        self._fs = self._hadoop(self.uri).getFileSystem(jsc.hadoopConfiguration())
        self._local = local_folder(path)

    def open(
        self, shards: int, new_epoch: Callable[[str], int], note: Mapping[str, Any]
    ) -> Checkpoint:
        """Read the folder's note, or create it in a new folder.

        ``new_epoch`` returns the epoch of a new checkpoint, given its id.

        Raises:
            ConfigError: the folder was started with another number of shards, or can't be used.
            DeposedError: it was a new folder, and another process started in it meanwhile.
            HistoryError: its disk is full, read-only or failing.
        """
        checkpoint = self.noted()
        if checkpoint is None:
            checkpoint_id = uuid.uuid4().hex
            checkpoint = Checkpoint(checkpoint_id, new_epoch(checkpoint_id), shards, note)
            with self.usable():
                # This process may have been frozen. A note of its older epoch would keep the other
                # process from starting ever again.
                if self.read(NOTE) is not None:
                    raise DeposedError(
                        f"checkpoint {self.path}: another process started in it while this one was "
                        "starting; it goes on, and this one ends"
                    )
                if self._local is not None:  # Java would not say why it can't make the folder
                    self._local.mkdir(parents=True, exist_ok=True)
                self.write_note(checkpoint)
        if checkpoint.shards != shards:
            raise ConfigError(
                f"shards: the checkpoint {self.path} was started with {checkpoint.shards}, not "
                f"{shards}; keep that number, or let `quotaplane reshard` make a checkpoint with "
                "another one"
            )
        return checkpoint

    def noted(self) -> Checkpoint | None:
        """The folder's note; None: no job was started in it.

        Raises:
            ConfigError: it can't be used.
            HistoryError: its disk is full, read-only or failing.
        """
        with self.usable():
            text = self.read(NOTE)
            return None if text is None else _of_note(text)

    def write_note(self, checkpoint: Checkpoint) -> None:
        """Write the folder's note, with which a job can be started in it."""
        fixed = {"id": checkpoint.id, "epoch": checkpoint.epoch, "shards": checkpoint.shards}
        self.write(NOTE, json.dumps({**fixed, **checkpoint.note}))

    @contextmanager
    def usable(self) -> Iterator[None]:
        """A folder that can't be read or written, or a damaged note, is an error of settings.

        One of the disk is not: the job may be started again when that is over.
        """
        try:
            yield
        except (Py4JJavaError, OSError, *_OF_A_NOTE) as error:
            reason = str(getattr(error, "java_exception", error)).splitlines()[0]
            disk = disk_failure(reason)
            if disk is not None:
                raise HistoryError(f"checkpoint {self.path}: {disk}") from None
            raise ConfigError(f"checkpoint {self.path}: can't be used: {reason}") from None

    def positions(self, seq: int) -> dict[str, list[Any]]:
        """The offsets where a round's input began and ended, from Spark's log."""
        begin = self._offsets(seq - 1) if seq else None
        return {"from": begin or [], "to": self._offsets(seq) or []}

    def newest_batch(self) -> int | None:
        """The last batch that was begun; None: there is none."""
        return self._newest("offsets")

    def newest_batches(self) -> tuple[int | None, int | None]:
        """The last batch that was begun, and the last one that was committed; None: none was."""
        return self.newest_batch(), self._newest("commits")

    def unfinished_batch(self) -> int | None:
        """The batch that was started but not committed; the next start runs it on the same input.

        None: the next start plans a new batch.
        """
        begun, ended = self.newest_batches()
        return None if begun == ended else begun

    def ranges(self, seq: int) -> list[Range]:
        """The ranges of the reports topics that a round reads."""
        return ranges_between(*self.reports_between(seq))

    def reports_between(self, seq: int) -> tuple[Any, Any]:
        """The offsets in the reports topics where a round's input begins (None: not known) and
        ends.
        """
        return self._reports_offset(seq - 1), self._reports_offset(seq)

    def reports_end(self) -> Any:
        """The reports' end offset of the newest batch, finished or not."""
        newest = self.newest_batch()
        return None if newest is None else self._reports_offset(newest)

    def note_skipped_backlog(self, end: Any, now_ms: int) -> int | None:
        """Write an offset log entry for a batch that skips all reports up to ``end``.

        Spark runs that batch next. The entry is a copy of the newest one with another reports
        offset and time, and a mark that the batch takes no input. None: Spark's log has an unknown
        version, and nothing was written.
        """
        last = self.newest_batch()
        version, batch, _, *others = (self.read(f"offsets/{last}") or "").splitlines()
        if last is None or version != "v1":
            return None
        metadata = json.loads(batch)
        metadata["batchTimestampMs"] = max(now_ms, metadata["batchTimestampMs"])
        metadata["conf"][_BACKLOG_SKIPPED] = "true"
        lines = version, json.dumps(metadata), json.dumps(end), *others
        self.write(f"offsets/{last + 1}", "\n".join(lines))
        return last + 1

    def skips_backlog(self, seq: int) -> bool:
        """Was the batch written by ``note_skipped_backlog``?"""
        return _BACKLOG_SKIPPED in self._metadata(seq).get("conf", {})

    def now_ms(self, seq: int) -> int:
        """A micro-batch's time, which is the same when the batch runs again."""
        return int(self._metadata(seq)["batchTimestampMs"])

    def sync(self, seq: int) -> None:
        """Wait until a batch's input and time are on a local disk, which Spark does not do.

        Otherwise, after a power loss, the batch could run again with other input although its
        limits were published. Other file systems store by themselves what was closed.

        Raises:
            HistoryError: the disk does not accept it.
        """
        if self._local is None:
            return
        folder = self._local / "offsets"
        try:
            for path in (folder / str(seq), folder / f".{seq}.crc", folder):
                if path.exists():  # Hadoop may be told to write no checksums
                    fsync(path)
        except OSError as error:
            raise HistoryError(
                f"checkpoint {self.path}: batch {seq} is not safe on the disk, so nothing of it is "
                f"published: {with_advice(error)}"
            ) from None

    def _metadata(self, seq: int) -> dict[str, Any]:
        text = self.entry(seq) or ""
        metadata: dict[str, Any] = json.loads(text.splitlines()[1])
        return metadata

    def _reports_offset(self, seq: int) -> Any:
        """A batch's end offset in the reports, which are the query's first source."""
        if seq >= 0:
            return (self._offsets(seq) or [None])[0]
        # The start of the first batch, for sources that record it (Kafka's does).
        _, _, offset = (self.read("sources/0/0") or "").partition("v1\n")
        return json.loads(offset) if offset else None

    def _newest(self, log: str) -> int | None:
        """The last batch in one of Spark's logs; None if it is empty."""
        path = self._hadoop(f"{self.uri}/{log}")
        if not self._fs.exists(path):
            return None
        names = [status.getPath().getName() for status in self._fs.listStatus(path)]
        return max((int(name) for name in names if name.isdigit()), default=None)

    def _offsets(self, seq: int) -> list[Any] | None:
        text = self.entry(seq)
        if text is None:
            return None
        # Line 1 is the log's version, line 2 the batch's metadata; then one line per source.
        return [None if line == "-" else json.loads(line) for line in text.splitlines()[2:]]

    def entry(self, seq: int) -> str | None:
        """A batch's entry in Spark's offset log; the last two entries read are cached."""
        if seq not in self._entries:
            name = f"offsets/{seq}"
            if self._local is None:
                text = self.read(name)
            else:  # each round reads one, and ten calls of the JVM take longer
                file = self._local / name
                text = file.read_text("utf-8") if file.exists() else None
            if text is None:
                return None
            self._entries = {seq: text, **dict(list(self._entries.items())[:1])}
        return self._entries[seq]

    def read(self, name: str) -> str | None:
        """A file of the folder; None if there is no such file."""
        try:
            stream = self._fs.open(self._hadoop(f"{self.uri}/{name}"))
        except Py4JJavaError as error:
            if "java.io.FileNotFoundException" in str(error.java_exception):
                return None
            raise
        try:
            return str(self._utils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def exists(self) -> bool:
        """Whether the folder is there."""
        return bool(self._fs.exists(self._hadoop(self.uri)))

    def delete(self, name: str = "") -> None:
        """Delete a file or folder in the folder, by default the folder itself, if it is there."""
        self._fs.delete(self._hadoop(f"{self.uri}/{name}"), True)

    def rename(self, name: str, new: str) -> None:
        """Give a file of the folder another name, which no file has."""
        old = self._hadoop(f"{self.uri}/{name}")
        if not self._fs.rename(old, self._hadoop(f"{self.uri}/{new}")):
            raise OSError(f"{old} can't be renamed")

    def put(self, name: str, text: str) -> None:
        """Replace a file, or write it, without waiting for the disk.

        Where files are not local, a reader may find it empty meanwhile.
        """
        if self._local is not None:
            # Hadoop would write a checksum beside it, which a reader may not find to match.
            self._local.mkdir(parents=True, exist_ok=True)
            written = self._local / f".{name}.new"
            written.write_text(text, "utf-8")
            written.replace(self._local / name)
            return
        stream = self._fs.create(self._hadoop(f"{self.uri}/{name}"), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder, or replace it. On the disk when it returns."""
        # Write and rename: a process killed in between would leave a half-written file, which
        # makes every later start fail.
        written = self._hadoop(f"{self.uri}/{name}.new")
        stream = self._fs.create(written, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if self._local is not None:
            fsync(self._local / f"{name}.new")
        self.delete(name)  # HDFS and S3 don't rename onto an existing file
        self.rename(f"{name}.new", name)
        if self._local is not None:
            fsync((self._local / name).parent)


def ranges_between(begin: Any, end: Any) -> list[Range]:
    """The ranges between two offsets of a source.

    ``begin`` is None, or lacks a partition, if nothing was read before.

    >>> ranges_between({"r": {"0": 5, "1": 7}}, {"r": {"0": 9, "1": 7}})
    [Range(text='r/0@5 to 8', size=4)]
    >>> ranges_between({"persistent://t/n/r": "1:2:-1"}, {"persistent://t/n/r": "1:9:-1"})
    [Range(text='persistent://t/n/r from 1:2:-1 to 1:9:-1', size=None)]
    >>> ranges_between(None, {"r": {"0": 3}})
    [Range(text='r/0 up to 2', size=None)]
    """
    ranges = []
    for name, after in (end or {}).items():
        before = (begin or {}).get(name)
        if isinstance(after, dict):  # Kafka's: a topic's partitions, each with its next offset
            ranges += [
                Range(f"{name}/{partition} up to {offset - 1}", None)
                if (first := (before or {}).get(partition)) is None
                else Range(f"{name}/{partition}@{first} to {offset - 1}", offset - first)
                for partition, offset in after.items()
                if (before or {}).get(partition) != offset
            ]
        elif before != after:
            since = "up" if before is None else f"from {before}"
            ranges.append(Range(f"{name} {since} to {after}", None))
    return ranges
