"""A job whose store is away ends when the store is back, so that its next start is no failure."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quotaplane.errors import ConfigError, HistoryError
from quotaplane.settings import History
from quotaplane.streams.store_watch import outlasting

STORE = History(path="hdfs://n:8020/history")


def ended(
    read: Callable[[History], None], error: Exception, history: History = STORE
) -> tuple[list[float], list[str]]:
    """The pauses that a failure waited for, and what was said."""
    paused, said = list[float](), list[str]()
    with (
        pytest.raises(type(error)) as raised,
        outlasting(history, said.append, read=read, pause=paused.append),
    ):
        raise error
    assert raised.value is error
    return paused, said


def away(times: int, text: str = "no node has the block") -> Callable[[History], None]:
    left = iter(range(times))

    def read(history: History) -> None:
        if next(left, None) is not None:
            raise HistoryError(text)

    return read


def test_a_failure_waits_until_the_store_can_be_read() -> None:
    paused, said = ended(away(3), RuntimeError("a round failed"))
    assert paused == [2.0, 2.0, 2.0]
    assert said == ["no node has the block; this process ends when it can be read, or after 300 s"]


def test_it_waits_at_most_five_minutes() -> None:
    paused, _ = ended(away(1000), HistoryError("can't be written"))
    assert sum(paused) == 300.0


@pytest.mark.parametrize(
    ("read", "error", "history"),
    [
        (away(0), RuntimeError("not of the store"), STORE),
        (away(9), ConfigError("a wrong setting"), STORE),
        (away(9), RuntimeError("a disk"), History(path="/data/history")),
    ],
)
def test_other_failures_come_at_once(
    read: Callable[[History], None], error: Exception, history: History
) -> None:
    assert ended(read, error, history) == ([], [])


def test_refused_keys_are_no_reason_to_wait() -> None:
    refused = away(9, "403 Forbidden; the store refuses: see the keys in history.storage_options")
    assert ended(refused, HistoryError("403 Forbidden")) == ([], [])
