"""A job whose store is away waits for it, starts its query again, and gives up in the end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from quotaplane.errors import ConfigError, DeposedError, HistoryError
from quotaplane.settings import History
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.job_places import JobPlaces
from quotaplane.streams.lifecycle import RunningQuery, run_until_stopped
from quotaplane.streams.skipped_batches import SingleBatch
from quotaplane.streams.status import JobStatus
from tests.unit.streams.test_attempts import Folder, Job


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """This process's own handlers of signals are back afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


STORE = History(path="hdfs://n:8020/history")
AWAY = "no node has the block"
REFUSED = "403 Forbidden; the store refuses: see the keys in history.storage_options"
WRITE = HistoryError("history table usage: Generic HdfsObjectStore error: no node takes it")
BUG = RuntimeError("a batch that nobody can run")
Answer = str | Callable[[], object] | None


class Store:
    """A job's places whose store gives these answers to reads, then works; with its lines."""

    def __init__(self, *answers: Answer, path: str = STORE.path) -> None:
        self._answers = iter(answers)
        self.paused: list[float] = []
        self.pause: Callable[[float], object] = self.paused.append
        self.ask: Callable[[History], object] = self._read
        self.said: list[str] = []
        self.lines = JobLines(JobStatus((), (), time.monotonic), write=self.said.append)
        self.places = JobPlaces(
            History(path=path),
            "hdfs://n:8020/checkpoint",
            self.lines,
            read=self._read,
            ask=lambda history: self.ask(history),
            pause=lambda seconds: self.pause(seconds),
            clock=lambda: sum(self.paused),
        )

    def _read(self, _: History) -> None:
        answer = next(self._answers, None)
        if callable(answer):
            answer()
        elif answer is not None:
            raise HistoryError(answer)

    def texts(self) -> list[str]:
        """Its lines without the times."""
        return [line.partition(" quotaplane: ")[2] for line in self.said]


def test_a_start_waits_until_the_store_can_be_read() -> None:
    store = Store(*[AWAY] * 3)
    assert store.places.wait()
    assert store.paused == [1.0, 1.0, 1.0]
    assert store.texts()[0] == f"warning: store: {AWAY}; retrying"
    assert store.texts()[1].startswith("recovered: store: over after")
    assert not store.lines.conditions.active()


def test_a_failing_start_fails_when_the_store_is_back() -> None:
    store = Store(*[AWAY] * 3)
    with pytest.raises(RuntimeError, match="nobody"), store.places.outlasting():
        raise BUG
    assert len(store.paused) == 3


def test_nothing_waits_for_longer_than_five_minutes() -> None:
    store = Store(*[AWAY] * 1000)
    with pytest.raises(HistoryError, match=AWAY):
        store.places.wait()
    assert sum(store.paused) == 300.0
    assert list(store.lines.conditions.active()) == ["store"]
    for error in (WRITE, BUG):  # and it is not waited for twice
        with pytest.raises(type(error)) as raised:
            store.places.outlast(error)
        assert raised.value is error
        with pytest.raises(type(error)), store.places.outlasting():
            raise error
    assert sum(store.paused) == 300.0


@pytest.mark.parametrize("error", [ConfigError("a wrong setting"), DeposedError("another leads")])
def test_wrong_settings_and_a_deposed_process_end_at_once(error: Exception) -> None:
    store = Store(*[AWAY] * 9)
    with pytest.raises(type(error)), store.places.outlasting():
        raise error
    assert store.paused == []


def test_refused_keys_are_no_reason_to_wait() -> None:
    store = Store(*[REFUSED] * 9)
    assert not store.places.wait()
    assert not store.places.outlast(HistoryError(f"Generic S3 error: {REFUSED}"))
    assert store.paused == []


def test_a_local_disk_is_neither_asked_nor_waited_for(tmp_path: Path) -> None:
    store = Store(*[AWAY] * 9, path=str(tmp_path))
    threads = threading.active_count()
    with store.places.watched():
        assert threading.active_count() == threads
    assert not store.places.wait()
    assert not store.places.outlast(WRITE)
    assert store.paused == []


def test_a_signal_ends_the_wait_for_a_store_that_is_silent() -> None:
    silence, asked = threading.Event(), threading.Event()
    store = Store(lambda: (asked.set(), silence.wait()))
    assert not store.places.wait(asked.is_set)
    silence.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_question_is_no_reason_to_wait() -> None:
    assert not Store(lambda: 1 / 0).places.wait()


def test_a_job_says_that_its_store_is_away_and_is_back() -> None:
    done = threading.Event()
    store = Store("Connection refused", "Connection refused", None, done.set)
    with store.places.watched(every_s=0.001):
        assert done.wait(30)
    assert store.texts()[0] == "warning: store: Connection refused; retrying"
    assert store.texts()[1].startswith("recovered: store: over after")
    assert store.lines.conditions.failures["store"] == 2


def test_a_store_that_answers_and_can_not_be_read_is_away() -> None:
    store, asked = Store(*[AWAY] * 3), threading.Semaphore(0)
    store.ask = lambda _: asked.release()

    def pause(_: float) -> None:
        for _ in range(9):  # the store was asked before and after, and answered
            assert asked.acquire(timeout=30)
        assert list(store.lines.conditions.active()) == ["store"]

    store.pause = pause
    with store.places.watched(every_s=0.001):
        assert store.places.wait()
    assert len(store.said) == 2


class Started:
    """Starts jobs on one checkpoint, each with its script, or fails to."""

    def __init__(self, store: Store, *scripts: Sequence[Exception | None] | Exception) -> None:
        self.store, self.folder, self.count = store, Folder(), 0
        self._scripts = iter(scripts)
        self.alone: SingleBatch | None = None

    def start(self, _: int | None) -> RunningQuery:
        """One start."""
        self.count += 1
        self.folder.away = False
        script = next(self._scripts)
        if isinstance(script, Exception):
            raise script
        job = Job(self.folder, *script)
        job.alone, job.lines = self.alone, self.store.lines
        return job

    def run(self) -> str:
        """How it ended."""
        try:
            return run_until_stopped(self.start, None, self.store.places.outlast)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


ENDED = "Spark ended the query"


@pytest.mark.parametrize("error", [WRITE, BUG])
def test_a_query_starts_again_when_its_store_is_back(error: Exception) -> None:
    started = Started(Store(AWAY, AWAY), [None, error], [None, None])
    assert started.run() == ENDED
    assert started.count == 2
    assert started.store.texts()[-1] == f"warning: {error}; the query starts again"
    assert '"failures": 1,' in started.folder.files["attempts.json"]  # the one that ran


def test_however_often_the_store_is_away_the_batch_is_not_blamed() -> None:
    store = Store(*[AWAY, None] * 9)
    assert Started(store, *[[BUG]] * 9, [None]).run() == ENDED


def test_a_failure_that_comes_when_the_store_is_back_already() -> None:
    started = Started(Store(), [WRITE], [None])
    assert started.run() == ENDED
    assert started.store.paused == [1.0]


def test_a_batch_that_fails_counts_although_the_store_was_away_before() -> None:
    scripts = [[BUG]] * 4
    started = Started(Store(AWAY), *scripts)
    ends = [started.run() for _ in range(3)]
    assert ends[:2] == ["RuntimeError: a batch that nobody can run"] * 2
    assert ends[2].startswith("FailedBatchError")


def test_a_query_that_can_not_be_started_again_waits_as_well() -> None:
    wrong = ConfigError("checkpoint hdfs://n:8020/checkpoint: can't be used: no node")
    started = Started(Store(AWAY, None, AWAY), [WRITE], wrong, [None])
    assert started.run() == ENDED
    started = Started(Store(AWAY), [WRITE], wrong)
    assert started.run() == f"ConfigError: {wrong}"
    started = Started(Store(AWAY, None, AWAY), [WRITE], DeposedError("another leads"))
    assert started.run() == "DeposedError: another leads"


def test_a_deposed_job_does_not_start_again() -> None:
    started = Started(Store(AWAY), [BUG], [None])
    start = started.start

    def deposed(skip: int | None) -> RunningQuery:
        job = start(skip)
        job.still_leads = depose
        return job

    def depose() -> None:
        raise DeposedError("another leads")

    started.start = deposed  # type: ignore[method-assign]
    assert started.run() == "DeposedError: another leads"
    assert "attempts.json" not in started.folder.files


def test_a_job_without_a_jvm_ends_at_once() -> None:
    started = Started(Store(*[AWAY] * 9), [Py4JNetworkError("Answer from Java side is empty")])
    assert started.run().startswith("QuotaplaneError: Spark's JVM is gone")
    assert started.store.paused == []


def test_a_batch_that_runs_alone_is_left_to_a_new_process() -> None:
    started = Started(Store(AWAY), [WRITE], [None])
    started.alone = SingleBatch(0)
    assert started.run() == f"HistoryError: {WRITE}"
    assert len(started.store.paused) == 1


def test_a_job_that_does_no_round_for_five_minutes_ends() -> None:
    store = Store()
    started = Started(store, *[[WRITE]] * 1000)
    assert started.run() == f"HistoryError: {WRITE}"
    assert sum(store.paused) == 300.0
    assert started.count == 301
    store.lines.status.round_began(1)
    store.lines.status.round_ended()
    assert store.places.outlast(WRITE)


def test_a_job_that_is_stopped_while_its_store_is_away_ends_in_order() -> None:
    store = Store(*[AWAY] * 9)
    store.pause = lambda _: signal.raise_signal(signal.SIGTERM)
    started = Started(store, [BUG])
    assert started.run() == "stopped by SIGTERM"
    assert started.folder.files == {}  # nothing can be written there
    assert "recovered" not in "".join(store.said)


def test_a_job_is_stopped_while_its_query_waits_to_be_started_again() -> None:
    store = Store(AWAY, None, AWAY)
    started = Started(store, [WRITE], WRITE)
    pauses = iter([lambda: None, lambda: signal.raise_signal(signal.SIGTERM)])
    store.pause = lambda _: next(pauses)()
    assert started.run() == "stopped by SIGTERM"
    assert started.count == 2
