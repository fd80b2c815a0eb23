"""Keeps the messages of non-persistent topics on the disk until their micro-batch is committed.

Such a topic stores nothing, so without the spool a batch that runs again after a crash would read
fewer messages than the first time. A batch's messages are on the disk (synced) before Spark knows
that the batch exists, in one file named for the offset at its end.

Files are on the driver's disk: programs on other machines can't read them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from quotaplane.arrow import pack, unpack
from quotaplane.errors import TransportError
from quotaplane.files import fsync
from quotaplane.pulsar.message import Row, batches
from quotaplane.pulsar.position import Offset, Received
from quotaplane.settings.transports import is_live

_SUFFIX: Final = ".spool"
_NEW: Final = ".new"
_DIGEST_BYTES: Final = 32


class Spool:
    """A folder with the messages of at most two batches: the newest, and the one before it.

    One process at a time stores batches there. It finds the files of the process before, and no
    new ones of any other: those are of a process that was started in its place.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._known: set[str] = set()
        self._unlisted: OSError | None = None
        """``keep`` reports it: which files were there first is not known."""
        try:
            self._known.update(path.name for path in self._files())
        except OSError as error:
            self._unlisted = error

    def keep(self, rows: Sequence[Row], start: Offset, end: Offset) -> None:
        """Store the messages of non-persistent topics that a batch read; on the disk afterwards.

        Spark asks for a batch that begins at ``start`` only after the batch that ends there. So
        the files of all earlier batches, and of batches that Spark never logged, are removed.

        Raises:
            TransportError: the disk is full or broken, or another process was started in place of
                this one; the batch must not run.
        """
        live = [row for row in rows if is_live(row.topic)]
        if not live:
            return
        try:
            self._make_folder()
            self._check_is_alone()
            self._remove_all_but(_name(start), _name(end))
            self._write(self._folder / _name(end), _encoded(live, end))
        except OSError as error:
            raise TransportError(
                f"reports of non-persistent topics can't be stored in {self._folder}: "
                f"{error.strerror or error}; limits.transition: strict publishes no limits "
                "without them: make room, or repair the disk, and restart the job"
            ) from None

    def read(self, start: Offset, end: Offset) -> list[pa.RecordBatch]:
        """The stored messages between two offsets; none if nothing was received between them.

        Raises:
            TransportError: the file is missing, damaged, or of another batch.
        """
        expected = _received(start, end)
        if not expected:
            return []
        path = self._folder / _name(end)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _lost(path, f"can't be read: {error.strerror}") from None
        body = memoryview(content)[_DIGEST_BYTES:]
        if content[:_DIGEST_BYTES] != _digest(end, body):
            raise _lost(path, "is damaged: its checksum does not match")
        (table,) = unpack(bytes(body))
        found = Counter(table["topic"].to_pylist())
        if found != expected:
            raise _lost(path, f"has {found.total()} messages, not {expected.total()}")
        return list(table.to_batches())

    def _make_folder(self) -> None:
        if self._folder.is_dir():
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in self._folder.absolute().parents:
            with suppress(PermissionError):  # an existing folder of another user
                fsync(folder)

    def _files(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return [path for path in self._folder.iterdir() if path.suffix in (_SUFFIX, _NEW)]

    def _check_is_alone(self) -> None:
        """Refuse to touch the files of a process that was started in place of this one.

        This one may have been frozen, and learns only at the end of a batch that it does not lead.
        The other one needs its files if it is killed, and may have planned a batch with this end.
        """
        if self._unlisted is not None:
            raise self._unlisted
        if any(path.name not in self._known for path in self._files()):
            raise TransportError(
                f"{self._folder}: another process stores reports there by now, as it was started "
                "in place of this one, which ends"
            )

    def _remove_all_but(self, *names: str) -> None:
        for path in self._files():
            if path.name not in names:
                path.unlink(missing_ok=True)

    def _write(self, path: Path, parts: Sequence[bytes]) -> None:
        new = path.with_suffix(_NEW)
        self._known |= {path.name, new.name}
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(handle, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        fsync(self._folder)


def _live_text(offset: Mapping[str, str]) -> bytes:
    """The positions in non-persistent topics; equal ones are equal texts."""
    live = {topic: position for topic, position in offset.items() if is_live(topic)}
    return json.dumps(live, sort_keys=True).encode()


def _name(offset: Mapping[str, str]) -> str:
    return hashlib.sha256(_live_text(offset)).hexdigest()[:32] + _SUFFIX


def _digest(end: Offset, body: bytes | memoryview) -> bytes:
    """Checksum of a file, which also proves that the file is the one of this offset."""
    digest = hashlib.sha256(_live_text(end))
    digest.update(body)
    return digest.digest()


def _encoded(rows: Sequence[Row], end: Offset) -> tuple[bytes, bytes]:
    body = pack(pa.Table.from_batches(list(batches(rows))))
    return _digest(end, body), body


def _received(start: Offset, end: Offset) -> Counter[str]:
    """The number of messages by topic that a query received between two offsets.

    A query's first batch has another start when it runs again, as nothing records the first one.

    >>> live = "non-persistent://t/n/live"
    >>> _received({live: "17#2"}, {live: "17#5"}), _received({live: "19#0"}, {live: "17#5"})
    (Counter({'non-persistent://t/n/live': 3}), Counter({'non-persistent://t/n/live': 5}))
    """
    counts: Counter[str] = Counter()
    for topic, position in end.items():
        if not is_live(topic):
            continue
        after = Received.parse(position)
        before = Received.parse(start[topic]) if topic in start else after._replace(seen=0)
        seen_before = before.seen if before.since_ms == after.since_ms else 0
        if after.seen != seen_before:
            counts[topic] = after.seen - seen_before
    return counts


def _lost(path: Path, why: str) -> TransportError:
    return TransportError(
        f"{path} {why}; a batch that runs again needs its reports of non-persistent topics: skip "
        "the batch with --skip-batch or, where that is refused, start a new checkpoint folder "
        "(docs/operate/runbook/reports-cant-be-spooled.md)"
    )
