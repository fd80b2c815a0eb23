"""Commands that write, the folder that they begin with, and what a reader finds afterwards."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from quotaplane.cli.main import main
from quotaplane.console.command_output import exit_code_of
from quotaplane.console.terminal import print_to_stderr
from quotaplane.deltalog.faults import find_fault
from quotaplane.deltalog.log import list_log
from quotaplane.deltalog.read import read_rows
from quotaplane.errors import QuotaplaneError
from quotaplane.history import maintenance, writer
from quotaplane.history.leadership import Leadership
from quotaplane.history.store import ensure_tables, not_written, open_table
from quotaplane.history.tables import TABLES
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.registry.table import list_groups
from quotaplane.settings import DeltaTransport, History
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.shard_program import Batch, Output
from quotaplane.streams.sink import BatchSink, Finished, Finisher, Packed
from quotaplane.streams.status import JobStatus, StatusUpdate
from quotaplane.streams.task_files import TaskFiles
from quotaplane.transport import delta_topic, open_broker_link, open_transport
from quotaplane.transport.base import Message
from tests.unit.history.history_cases import DAY_MS, limits, rounds, usage

_Result = TypeVar("_Result")
KINDS: Final = ("usage", "rounds", "leases", "attachments", "resource_groups", "usage_daily")
ROUND_TABLES: Final = ("usage", "limits", "rounds")
NOW_MS: Final = int(datetime.now(timezone.utc).timestamp() * 1000)


class DataFolder(NamedTuple):
    """A data folder: the history, and the embedded transport's topics."""

    root: Path

    @property
    def history(self) -> History:
        return History(path=str(self.root / "history"))

    @property
    def transport(self) -> DeltaTransport:
        return DeltaTransport(kind="delta", path=str(self.root / "topics"))

    def conf(self) -> Path:
        """A settings file beside the folder."""
        file = self.root.with_name(f"{self.root.name}.yaml")
        file.write_text(
            f"transport: {{kind: delta, path: {self.transport.path}}}\n"
            f"history: {{path: {self.history.path}, reserve_mb: 0}}\n"
            f"checkpoint: {self.root.with_name('no-checkpoint')}\n"
        )
        return file


Work = Callable[[DataFolder], int]


def in_child(work: Callable[[], _Result]) -> _Result:
    """A function's result, from a child process: a process that has used deltalake can't fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            try:
                answer: tuple[bool, Any] = True, work()
            except BaseException as error:
                answer = False, f"{type(error).__name__}: {error}"
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        raw = pipe.read()
    os.waitpid(child, 0)
    succeeded, value = pickle.loads(raw)  # of our own child
    if not succeeded:
        raise AssertionError(value)
    result: _Result = value
    return result


def begin(place: DataFolder) -> None:
    """Two groups, rounds of 40 days ago and of now, reports and limits, a leader."""
    ensure_tables(place.history)
    for group, quota in (("g", "1"), ("h", "5")):
        put = ["groups", "put", group, "--publish-messages-per-s", quota]
        assert main([*put, "--history", place.history.path]) == 0
    Leadership(place.history, "quota", "/c").claim_new("checkpoint-1", 7)
    for seq in range(3):
        _write_round(place, seq)
    open_transport(place.transport)
    for number in range(3):
        open_broker_link(place.transport).send_reports([("b", b"%d" % number, number)])
    open_transport(place.transport).publish([Message("b", b"0")])


def found(place: DataFolder) -> dict[str, Any]:
    """All that a reader finds: quotas, rows of rounds, messages, the leader."""
    groups = list_groups(place.history)
    state: dict[str, Any] = {
        "quotas": dict(
            zip(
                groups["group"].to_pylist(),
                groups["publish_messages_per_s"].to_pylist(),
                strict=True,
            )
        )
    }
    for table in ROUND_TABLES:
        rows = read_rows(open_table(place.history, table), ["seq"])
        state[table] = dict(Counter(rows["seq"].to_pylist()))
    leaders = read_rows(open_table(place.history, "leaders"), ["epoch"])
    state["leaders"] = leaders["epoch"].to_pylist()
    for topic in ("reports", "limits_topic"):
        folder = place.root / "topics" / topic
        fault = find_fault(str(folder))
        assert fault is None, f"{topic}: {fault}"
        rows = read_rows(DeltaTable(folder), ["value"])
        state[topic] = dict(Counter(rows["value"].to_pylist()))
    return state


def doctor(place: DataFolder) -> int:
    """The exit code of ``quotaplane doctor``."""
    return main(["doctor", "--conf", str(place.conf())])


def mend(place: DataFolder) -> int:
    """The exit code of ``quotaplane doctor --mend``."""
    return main(["doctor", "--mend", "--conf", str(place.conf())])


def _write_round(place: DataFolder, seq: int) -> None:
    at_ms = NOW_MS - (40 * DAY_MS if seq == 0 else 60_000 - seq)
    with HistoryWriter(place.history, "checkpoint-1") as history:
        history.append_round(Round(1, seq, at_ms), _round_rows(at_ms))


def _round_rows(at_ms: int) -> dict[str, pa.Table]:
    rows = [("b", "g", 1.0), ("c", "g", 2.0)]
    return {"usage": usage(rows, at_ms), "limits": limits(rows), "rounds": rounds()}


def _command(*words: str) -> Work:
    return lambda place: main([*words, "--history", place.history.path])


def _delete(place: DataFolder) -> int:
    # A second deletion is an error, and what a repetition finds deleted is done.
    with suppress(QuotaplaneError):
        if "h" not in list_groups(place.history)["group"].to_pylist():
            return 0
    return main(["groups", "delete", "h", "--history", place.history.path])


def _as_job(work: Callable[[DataFolder], object]) -> Work:
    def run(place: DataFolder) -> int:
        return exit_code_of(lambda: (work(place), 0)[1], print_to_stderr)

    return run


def _three_rounds(place: DataFolder) -> int:
    """Write the outputs of three batches as the job does, with a checkpoint of the log once."""
    writer.CHECKPOINT_INTERVAL = 2  # type: ignore[misc]
    transport = open_transport(place.transport)
    with HistoryWriter(place.history, "checkpoint-1") as history:
        lines = JobLines.silent(JobStatus([], [], time.monotonic))
        sink = BatchSink(_Rounds(), history, transport, lambda seq: NOW_MS + seq, 1, lines)
        for seq in (3, 4, 5):
            sink(_Outputs(place, seq), seq)  # type: ignore[arg-type]
    return 0


class _Outputs:
    """Stands in for a batch's DataFrame, whose one task writes the rows of ``usage``."""

    def __init__(self, place: DataFolder, seq: int) -> None:
        self._files = TaskFiles(place.history, 1, ["usage"], 0)
        self._batch = Batch(0, seq, NOW_MS + seq)

    def toArrow(self) -> pa.Table:  # noqa: N802 (Spark's name)
        rows = Output("usage", _round_rows(self._batch.now_ms)["usage"])
        outputs = [Output("rows", b""), *self._files.without_written([rows], self._batch)]
        kinds, payloads = zip(*((each.kind, each.payload) for each in outputs), strict=True)
        return pa.table({"kind": kinds, "payload": pa.array(payloads, pa.binary())})


class _Rounds(Finisher):
    def finish(self, stamp: Round, packed: Packed) -> Finished:
        messages = [Message("b", b"round %d" % stamp.seq)]
        rows = _round_rows(stamp.now_ms)
        if "usage" not in packed:  # else the task could not write them
            del rows["usage"]
        return Finished(rows, messages, StatusUpdate({}, {}, {}, arrived=1))


def _maintain(place: DataFolder) -> int:
    """Tables of each kind: the others would only repeat the same calls."""
    maintenance.TABLES = {name: TABLES[name] for name in KINDS}  # type: ignore[misc]
    return main(["maintain", "--conf", str(place.conf())])


def _mend_broken(place: DataFolder) -> int:
    code = mend(place)
    return 0 if code == 11 else code


def break_tables(place: DataFolder) -> None:
    """Damage tables as a power loss and a bad disk do: empty commits, a file that no commit names,
    one that is gone."""
    history = Path(place.history.path)
    for table in (history / "usage", history / "resource_groups", place.root / "topics/reports"):
        log = list_log(table)
        log.commit(log.newest + 1).touch()
        (table / "part-0.parquet").write_bytes(b"PAR1")
    next((history / "limits").glob("date=*/*.parquet")).unlink()


def _claim(place: DataFolder) -> None:
    # Once it succeeded it is not repeated: a second checkpoint would have another epoch.
    opened = open_table(place.history, "leaders")
    try:
        leaders = read_rows(opened, ["checkpoint_id"])
    except (DeltaError, OSError, ValueError) as error:
        raise not_written(place.history, "leaders", error) from None
    if leaders["checkpoint_id"].to_pylist() != ["checkpoint-2"]:
        Leadership(place.history, "quota", "/c2").claim_new("checkpoint-2", 9)


def _send(place: DataFolder) -> None:
    open_broker_link(place.transport).send_reports([("b", b"new", 9)])


def _publish(place: DataFolder) -> None:
    open_transport(place.transport).publish([Message("b", b"new")])


def _publish_and_compact(place: DataFolder) -> None:
    delta_topic.COMPACT_EVERY = 1  # type: ignore[misc]
    _publish(place)


CASES: Final[dict[str, Work]] = {
    "groups put": _command("groups", "put", "g", "--publish-messages-per-s", "2"),
    "groups lower": _command("groups", "put", "h", "--publish-messages-per-s", "0.5"),
    "groups delete": _delete,
    "maintain": _maintain,
    "claim": _as_job(_claim),
    "round": _as_job(lambda place: _write_round(place, 3)),
    "three rounds": _as_job(_three_rounds),
    "reports": _as_job(_send),
    "limits": _as_job(_publish),
    "compacted limits": _as_job(_publish_and_compact),
    "doctor": doctor,
    "doctor --mend": _mend_broken,
}
"""Cases to try: a command line, or an action of a job or broker, with its exit code."""

AT_LEAST_ONCE: Final = {
    "reports": "reports",
    "limits": "limits_topic",
    "compacted limits": "limits_topic",
    "three rounds": "limits_topic",
}
"""Case and topic: a sender that got an error sends again, and its message may be there twice; it
has a position in time, or a number, by which readers drop the second one."""
JOBS: Final = ("claim", "round", "three rounds", "reports", "limits", "compacted limits")
"""Cases that are not a command."""
STEPS: Final = ("three rounds",)
"""Cases of several steps: any number of them may be done."""
BROKEN: Final = ("doctor --mend",)
"""Cases that begin with broken tables (``break_tables``)."""
