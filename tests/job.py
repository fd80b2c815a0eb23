"""The quota job as its users run it: through the launcher, in a process group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from deltalake import DeltaTable

from quotaplane.history.store import ensure_tables, table_uri
from quotaplane.history.tables import ROUNDS
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import DIMENSIONS, Round
from quotaplane.registry.table import put_groups
from quotaplane.settings import History, Settings, load_settings
from quotaplane.streams.spark_log import log_places
from quotaplane.wire.report_own import encode_report
from tests.spark.fixtures import JVM_OPTIONS
from tests.waiting import wait_until

ROOT = Path(__file__).parents[1]


def environment(**more: str) -> dict[str, str]:
    """The environment of a Python process of this repository."""
    paths = os.pathsep.join([str(ROOT / "pipelines"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": paths, **more}


def write_conf(folder: Path, transport: dict[str, Any] | None = None, **more: Any) -> Path:
    """A settings file for a job that keeps everything below ``folder``, by default topics, too."""
    conf = {
        "transport": transport or {"kind": "delta", "path": str(folder / "topics")},
        "history": {"path": str(folder / "history")},
        "checkpoint": str(folder / "checkpoint"),
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "conf.yaml"
    path.write_text(yaml.safe_dump(conf), encoding="utf-8")
    return path


def settings_in(folder: Path, transport: dict[str, Any] | None = None, **more: Any) -> Settings:
    """Settings of a job that keeps everything below ``folder``, by default topics, too."""
    return load_settings(write_conf(folder, transport, **more))


def put_quotas(settings: Settings, **quotas: float) -> None:
    """Quotas on published messages; the other dimensions are unlimited."""
    ensure_tables(settings.history)
    rates = np.full((len(quotas), len(DIMENSIONS)), np.inf)
    rates[:, 0] = list(quotas.values())
    put_groups(settings.history, list(quotas), rates, by="test")


def report_of(
    broker: str,
    messages_per_s: float,
    *,
    group: str = "g",
    sequence: int = 1,
    started_at_ms: int = 1,
    window_ms: int = 1000,
) -> bytes:
    """A broker's report of one group: published messages, and 1 in each other dimension."""
    return encode_report(
        broker=broker,
        started_at_ms=started_at_ms,
        sequence=sequence,
        window_ms=window_ms,
        groups=[group],
        usage=np.array([[messages_per_s, 1.0, 1.0, 1.0]]),
    )


def write_round(history: History, epoch: int) -> None:
    """A round that a job of this epoch wrote; the tables are there."""
    counts = {field.name: [0] for field in ROUNDS.schema if field.type == "int64"}
    row = pa.table({"positions": ["{}"], **counts}).drop(["epoch", "seq"])
    writer = HistoryWriter(history, app_id=uuid.uuid4().hex)
    writer.append_round(Round(epoch, 1, 1_790_000_000_000), {"rounds": row})


def begin_history(conf: Path) -> Settings:
    """The settings in a file, whose history has the tables and a round of epoch 1."""
    settings = load_settings(conf)
    ensure_tables(settings.history)
    write_round(settings.history, epoch=1)
    return settings


def history_table(settings: Settings, name: str) -> pa.Table:
    return DeltaTable(table_uri(settings.history, name)).to_pyarrow_table()


@contextmanager
def stopped_when(done: Callable[[], object], within_s: float = 300.0) -> Iterator[None]:
    """SIGTERM to this process, where a job runs within this, as soon as ``done()``."""
    ended = threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + within_s
        while not ended.wait(0.05):
            if time.monotonic() > deadline or done():
                os.kill(os.getpid(), signal.SIGTERM)
                return

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        for number, handler in before.items():
            signal.signal(number, handler)


class RunningJob:
    """A quota job that a launcher starts; whatever happens, nothing of it is left behind."""

    def __init__(
        self,
        conf: Path,
        *options: str,
        variables: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (str(ROOT / "spark-submit.sh"),),
    ) -> None:
        self.settings = load_settings(conf)
        self.log = conf.with_suffix(".log")
        self.spark_log = log_places("quota", self.settings.checkpoint)[0]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *launcher,
                    "quota",
                    *("--driver-java-options", JVM_OPTIONS),
                    *("--conf", str(conf)),
                    *options,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(variables or {})},
                start_new_session=True,
            )

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the job, its JVM and its workers: as if the machine lost power."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ended(self, code: int = 0, within_s: float = 300.0) -> None:
        """Wait until it ends; it must be with this exit code."""
        assert self.process.wait(within_s) == code, self.last_words()

    def stop(self, number: signal.Signals = signal.SIGTERM, code: int = 0) -> None:
        """Send the job a signal, and wait until it ends; it must be with this exit code."""
        self.process.send_signal(number)
        self.ended(code)

    def wait_until(self, done: Callable[[], object], within_s: float = 300.0) -> None:
        """Poll until ``done()``; the job's log is in the message if it ends or takes too long."""
        wait_until(done, within_s, process=self.process, said=self.last_words)

    def last_words(self) -> str:
        """The end of what it printed, and of Spark's log."""
        files = [file for file in (self.log, self.spark_log) if file.exists()]
        ends = [file.read_text(encoding="utf-8", errors="replace")[-4000:] for file in files]
        return "the end of its output and of Spark's log:\n" + "\n---\n".join(ends)

    def printed(self) -> list[str]:
        """The lines on stdout and stderr so far."""
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    def rounds(self) -> int:
        """How many rounds are in the history."""
        return int(history_table(self.settings, "rounds").num_rows)
