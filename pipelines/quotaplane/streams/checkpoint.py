"""The checkpoint folder's own note: which epoch it is, and what its rounds read.

Files are reached through Spark's Hadoop file systems, so a checkpoint may be on any of them.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from quotaplane.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTE = "quotaplane.json"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint folder was started with.

    ``id`` names its writes in the history tables, so that a batch that runs again adds nothing.
    ``strict_lease_s``: how long limits last that were told under ``transition: strict``; None
    under ``fast``.
    """

    id: str
    epoch: int
    shards: int
    strict_lease_s: float | None = None


def _told(checkpoint: Checkpoint) -> str:
    lease_s = checkpoint.strict_lease_s
    return "transition fast" if lease_s is None else f"transition strict and lease_s {lease_s:g}"


class CheckpointFolder:
    """A folder on any file system that Spark reaches."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._path = path.rstrip("/")
        self._jvm: Any = spark.sparkContext._jvm
        jsc: Any = spark.sparkContext._jsc
        self._fs = self._hadoop(path).getFileSystem(jsc.hadoopConfiguration())

    def _hadoop(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def open(self, shards: int, next_epoch: int, strict_lease_s: float | None) -> Checkpoint:
        """Read the folder's note, or write it where the folder is new.

        Raises:
            ConfigError: the folder was started with another number of shards, or can't vouch for
                limits told before; or it can't be used.
        """
        try:
            note = self._read(_NOTE)
            if note is not None:
                found = Checkpoint(**json.loads(note))
            else:
                found = Checkpoint(uuid.uuid4().hex, next_epoch, shards, strict_lease_s)
                self._write(_NOTE, json.dumps(asdict(found)))
        except (Py4JJavaError, ValueError, TypeError) as error:
            reason = str(getattr(error, "java_exception", error)).splitlines()[0]
            raise ConfigError(f"checkpoint {self._path}: can't be used: {reason}") from None
        if found.shards != shards:
            raise ConfigError(
                f"shards: the checkpoint {self._path} was started with {found.shards}, not "
                f"{shards}; keep that number or start a new checkpoint folder"
            )
        if found.strict_lease_s != strict_lease_s:
            raise ConfigError(
                f"limits: the checkpoint {self._path} was started with {_told(found)}, not "
                f"{_told(replace(found, strict_lease_s=strict_lease_s))}; strict can only vouch "
                "for limits told under one lease: keep that, or start a new checkpoint folder, "
                "which first hands back what brokers have"
            )
        return found

    def positions(self, seq: int) -> dict[str, list[Any]]:
        """Where a round's input began and ended, as Spark's sources wrote it down."""
        begin = self._offsets(seq - 1) if seq else None
        return {"from": begin or [], "to": self._offsets(seq) or []}

    def now_ms(self, seq: int) -> int:
        """The time that a micro-batch has, also when it is run again."""
        text = self._read(f"offsets/{seq}") or ""
        return int(json.loads(text.splitlines()[1])["batchTimestampMs"])

    def _offsets(self, seq: int) -> list[Any] | None:
        text = self._read(f"offsets/{seq}")
        if text is None:
            return None
        # Line 1 is the log's version, line 2 the batch's metadata; then one line per source.
        return [None if line == "-" else json.loads(line) for line in text.splitlines()[2:]]

    def _read(self, name: str) -> str | None:
        path = self._hadoop(f"{self._path}/{name}")
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            utils = self._jvm.org.apache.commons.io.IOUtils
            return str(utils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _write(self, name: str, text: str) -> None:
        # Under another name first: killed in between, an empty note would bar every later start.
        written = self._hadoop(f"{self._path}/{name}.new")
        stream = self._fs.create(written, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._fs.rename(written, self._hadoop(f"{self._path}/{name}"))
