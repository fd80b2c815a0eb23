"""A job's lines: what is in them, when they are printed, and that nothing holds them up."""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from quotaplane.console.terminal import write_line
from quotaplane.errors import ConfigError, QuotaplaneError
from quotaplane.settings import DeltaTransport, KafkaTransport, PulsarTransport
from quotaplane.streams.job_lines import STATUS_EVERY_S, JobLines
from quotaplane.streams.job_output import (
    end_at_once_on_signals,
    own_signal_handlers,
    speaking,
    transport_in_words,
)
from quotaplane.streams.status import JobStatus, StatusUpdate

NOON = datetime(2026, 3, 1, 12, 0, 0, 999_999, tzinfo=timezone.utc)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def status(clock: Clock) -> JobStatus:
    return JobStatus(["reports", "limits"], ["brokers_live", "lag_s", "backlog"], clock)


@pytest.fixture
def printed() -> list[str]:
    return []


@pytest.fixture
def lines(status: JobStatus, clock: Clock, printed: list[str]) -> JobLines:
    return JobLines(status, write=printed.append, now=lambda: NOON, clock=clock)


def counted(reports: int = 0, **rejected: int) -> StatusUpdate:
    gauges = {"brokers_live": 3, "lag_s": 0.84}
    total = reports + sum(rejected.values())
    return StatusUpdate({"reports": reports, "limits": 2}, rejected, gauges, total)


def test_the_status_has_the_period_and_the_end_has_all(status: JobStatus, clock: Clock) -> None:
    clock.now_s += 4
    assert status.period() == "starting_s=4.0 waits_for=-"
    status.waits_for("spark")
    assert status.period() == "starting_s=4.0 waits_for=spark"
    status.stands_by(True)
    assert status.period() == "starting_s=4.0 waits_for=leader"
    assert "round_ended" not in status.readings().numbers, "there are no rounds to stand still"
    status.stands_by(False)
    assert status.readings().numbers["standby"] == {(): 0}
    assert "round_ended" in status.readings().numbers
    for seq in range(2):
        status.round_began(seq)
        clock.now_s += 0.25
        status.add(counted(3, stale=1, not_protobuf=2))
        status.round_ended()
    status.set_gauge("backlog", 7)
    clock.now_s += 5
    assert status.period() == (
        "rounds=2 reports=6 limits=4 rejected=6 (not_protobuf=4 stale=2) conditions=0 "
        "brokers_live=3 lag_s=0.8 backlog=7 last_round_s=0.2 running_s=- idle_s=5.0"
    )
    status.round_began(2)  # reads nothing
    status.round_ended()
    assert status.period() == (
        "rounds=1 reports=0 limits=0 rejected=0 conditions=0 brokers_live=3 lag_s=0.8 backlog=7 "
        "last_round_s=0.0 running_s=- idle_s=5.0"
    )
    assert status.total() == (
        "up_s=10 rounds=3 reports=6 limits=4 rejected=6 (not_protobuf=4 stale=2)"
    )


def test_the_status_comes_every_ten_seconds(
    lines: JobLines, clock: Clock, status: JobStatus, printed: list[str]
) -> None:
    lines.start()
    status.round_began(0)
    status.round_ended()
    due = lines.take_due()
    for _ in range(401):
        clock.now_s += 0.1
        due += lines.take_due()
    clock.now_s += 1000  # a laptop that slept
    for _ in range(3):
        due += lines.take_due()
    lines.end("done")
    # Some may have been printed by the thread already.
    found = sorted([*due, *printed])
    assert [line.split(": ")[1] for line in found] == ["ended", *["status"] * 5]
    assert sum(": status: rounds=1 " in line for line in found) == 1


def test_what_is_said_is_one_printable_line_of_bounded_length(
    lines: JobLines, printed: list[str]
) -> None:
    lines.warn("a\nb\x1b[2J\u202e\u009b" + "x" * 100_000)
    (line,) = printed
    assert line.isprintable()
    assert line.startswith(r"2026-03-01T12:00:00Z quotaplane: warning: a\nb\x1b[2J\u202e\x9bxxx")
    assert len(line) < 2100


def test_lines_are_printed_while_a_batch_hangs(status: JobStatus, clock: Clock) -> None:
    found = threading.Event()

    def write(line: str) -> None:
        if line.endswith("running_s=10.0 idle_s=10.0 running_round=5"):
            found.set()

    lines = JobLines(status, write=write, clock=clock)
    status.round_began(5)  # and never ends
    clock.now_s += STATUS_EVERY_S
    lines.start()
    assert found.wait(30)
    lines.end("done")


def test_a_terminal_that_takes_nothing_holds_up_nobody(status: JobStatus) -> None:
    stuck, go_on = threading.Event(), threading.Event()

    def write(line: str) -> None:
        stuck.set()
        go_on.wait(60)

    lines = JobLines(status, write=write, end_patience_s=0.01)
    lines.start()
    lines.warn("first")
    assert stuck.wait(30)
    for number in range(1000):
        lines.warn(str(number))
    assert len(lines.take_due()) == 100
    lines.end("done")
    go_on.set()


def test_nobody_reads_stderr_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr("quotaplane.console.terminal._STDERR", write)
    write_line("nobody reads this")
    os.close(write)
    write_line("nor this")


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch):
    """The process's own, put back; and its stderr."""
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("raised", "comes_out", "says"),
    [
        (ConfigError("shards: no"), ConfigError, "failed with exit code 2, Spark's log "),
        (KeyboardInterrupt(), KeyboardInterrupt, "Ctrl-C before the first round; up_s="),
        (SystemExit(0), SystemExit, "SIGTERM before the first round; up_s="),
        (KeyError("g"), QuotaplaneError, "failed with exit code 1, Spark's log "),
    ],
)
@pytest.mark.usefixtures("handlers")
def test_the_last_line_says_why_a_job_ended(
    lines: JobLines,
    printed: list[str],
    tmp_path: Path,
    raised: BaseException,
    comes_out: type[BaseException],
    says: str,
) -> None:
    def run() -> None:
        with speaking("quota", f"{tmp_path}/checkpoint", lines):
            raise raised

    with pytest.raises(comes_out) as found:
        run()
    assert [line.split(": ")[1] for line in printed] == ["starting", "ended"]
    assert says in printed[-1]
    log = tmp_path / "checkpoint-logs" / "quota-spark.log"
    assert f"Spark's log {log}" in printed[0]
    if comes_out is QuotaplaneError:  # a bug of ours: one line here, all of it there
        assert str(found.value) == f"KeyError: 'g' (Spark's log {log})"
        assert "Traceback (most recent call last)" in log.read_text()


@pytest.mark.usefixtures("handlers")
def test_what_is_printed_late_goes_to_the_log(
    lines: JobLines, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError), speaking("quota", f"{tmp_path}/checkpoint", lines):
        raise ConfigError("shards: no")
    print("Traceback of one of PySpark's threads", file=sys.stderr)
    assert capfd.readouterr().err == ""
    log = tmp_path / "checkpoint-logs" / "quota-spark.log"
    assert log.read_text().endswith("Traceback of one of PySpark's threads\n")


@pytest.mark.usefixtures("handlers")
def test_signals_end_a_job_that_only_starts() -> None:
    end_at_once_on_signals()
    for number, raised in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)):
        with pytest.raises(raised):
            signal.raise_signal(number)


@pytest.mark.usefixtures("handlers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("spark_fails", [False, True], ids=["it goes on", "Spark fails"])
@pytest.mark.parametrize(
    ("number", "raised", "says"),
    [(signal.SIGINT, KeyboardInterrupt, "Ctrl-C"), (signal.SIGTERM, SystemExit, "SIGTERM")],
)
def test_a_signal_that_came_in_a_destructor_ends_the_job_all_the_same(
    lines: JobLines,
    printed: list[str],
    tmp_path: Path,
    spark_fails: bool,
    number: signal.Signals,
    raised: type[BaseException],
    says: str,
) -> None:
    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def run() -> None:
        with speaking("quota", f"{tmp_path}/checkpoint", lines) as (_, end_if_asked):
            end_if_asked()
            Interrupted()  # Python drops what is raised here
            if spark_fails:
                raise QuotaplaneError("Spark did not start")
            end_if_asked()

    with pytest.raises(raised):
        run()
    assert f": ended: {says} before the first round" in printed[-1]


@pytest.mark.usefixtures("handlers")
def test_while_spark_starts_the_handler_for_ctrl_c_stays_ours() -> None:
    end_at_once_on_signals()
    ours = signal.getsignal(signal.SIGINT)

    def of_spark(number: int, frame: object) -> None:
        """Talks to the JVM."""

    with own_signal_handlers():
        signal.signal(signal.SIGINT, of_spark)
        assert signal.getsignal(signal.SIGINT) is ours
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the process that becomes the JVM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, of_spark)
    assert signal.getsignal(signal.SIGINT) is of_spark


KAFKA = {"bootstrap_servers": "one:9092", "report_topics": ("r",), "limits_topic": "l"}
PULSAR = {"service_url": "pulsar://one:6650", "limits_topic": "persistent://a/b/l"}


@pytest.mark.parametrize(
    ("transport", "place"),
    [
        (DeltaTransport(kind="delta", path="/data/topics"), "/data/topics"),
        (KafkaTransport(kind="kafka", **KAFKA), "Kafka at one:9092"),
        (PulsarTransport(kind="pulsar", **PULSAR), "Pulsar at pulsar://one:6650"),
    ],
)
def test_the_ready_line_says_what_is_read_and_written(transport: Any, place: str) -> None:
    words = transport_in_words(transport, ["r"], "l")
    assert words == f"reads r and writes l ({place})"
