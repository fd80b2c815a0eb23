"""Fakes of the parts of pulsar-client that our readers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import MagicMock

import pulsar

from quotaplane.pulsar.options import parse_options

URL = {"service_url": "pulsar://host:6650"}
OPTIONS = parse_options({**URL, "topic": "t"})
TOPIC = "persistent://public/default/t"
LIVE = "non-persistent://public/default/t"
DISCONNECTED = pulsar.exceptions.NotConnected


class FakeMessage:
    """A message published at ``entry`` milliseconds."""

    def __init__(self, entry: int) -> None:
        self._entry = entry

    def message_id(self) -> Any:
        return self

    def ledger_id(self) -> int:
        return 1

    def entry_id(self) -> int:
        return self._entry

    def batch_index(self) -> int:
        return -1

    def partition_key(self) -> str:
        return "k"

    def has_null_value(self) -> bool:
        return False

    def data(self) -> bytes:
        return b"%d" % self._entry

    def publish_timestamp(self) -> int:
        return self._entry

    def event_timestamp(self) -> int:
        return 0

    def properties(self) -> dict[str, str]:
        return {}


class FakeCluster:
    """One topic partition; ``script`` are the results of reads in turn: entries or errors."""

    def __init__(self, script: Sequence[Any], is_there: bool = False) -> None:
        self.script = list(script)
        self.is_there = is_there
        self.asked = 0
        self.opened: list[Any] = []
        self._reader = self

    def create_reader(self, topic: str, start: Any, **_: Any) -> FakeCluster:
        self.opened.append(start)
        return self

    def seek(self, since_ms: int) -> None: ...

    def close(self) -> None: ...

    def is_connected(self) -> bool:
        return True

    def has_message_available(self) -> bool:
        return self.is_there

    def has_message_available_async(self, keep: Callable[[Any, bool], None]) -> None:
        self.asked += 1
        keep(pulsar.Result.Ok, self.is_there)

    def read_next(self, timeout_ms: int) -> FakeMessage:
        step = self.script.pop(0) if self.script else pulsar.Timeout
        if isinstance(step, int):
            return FakeMessage(step)
        if isinstance(step, FakeMessage):
            return step
        raise step


class Mute(FakeCluster):
    """A topic whose broker never answers."""

    def has_message_available_async(self, keep: Callable[[Any, bool], None]) -> None: ...


class FakeSession:
    """As much of a Spark session as registering and configuring the source takes."""

    def __init__(self, redacted: str = "", master: str = "local") -> None:
        self.told: dict[str, str] = {"spark.sql.redaction.options.regex": redacted}
        self.master = master
        self.conf = self.dataSource = self.sparkContext = self

    def register(self, source: type) -> None: ...

    def get(self, name: str) -> str:
        return self.told[name]

    def set(self, name: str, value: str) -> None:
        self.told[name] = value

    @property
    def readStream(self) -> MagicMock:  # noqa: N802 (Spark's name)
        return MagicMock()
