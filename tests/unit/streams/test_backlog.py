"""Which reports a start passes over: those that are too old to be used, where there are many."""

from __future__ import annotations

import time
from typing import Any

import pytest

from quotaplane.streams.skipped_batches import SingleBatch, skip_backlog

Offset = dict[str, dict[str, int]]


class Folder:
    """A checkpoint folder, as far as this is concerned."""

    def __init__(self, end: Offset | None, unfinished: int | None = None) -> None:
        self.end, self.unfinished = end, unfinished
        self.noted: Offset | None = None

    def unfinished_batch(self) -> int | None:
        return self.unfinished

    def skips_backlog(self, seq: int) -> bool:
        return self.noted is not None

    def reports_end(self) -> Offset | None:
        return self.end

    def note_skipped_backlog(self, end: Offset, now_ms: int) -> int:
        self.noted = end
        return 8


class Topics:
    """A transport whose reports of ten seconds ago begin somewhere."""

    def __init__(self, since: Offset | None) -> None:
        self._since = since
        self.asked_ms = 0

    def offset_since(self, since_ms: int) -> Offset | None:
        self.asked_ms = since_ms
        return self._since


def passed(folder: Folder, topics: Topics, most: int | None = 5000) -> SingleBatch | None:
    any_folder: Any = folder
    any_topics: Any = topics
    return skip_backlog(any_folder, any_topics, oldest_s=10.0, most=most)


def test_what_is_too_old_is_passed_over_and_nothing_else() -> None:
    folder = Folder({"r": {"0": 100, "1": 9}})
    topics = Topics({"r": {"0": 9000, "1": 7, "2": 50_000}})
    assert passed(folder, topics) == SingleBatch(8)
    assert folder.noted == {"r": {"0": 9000, "1": 9}}  # the third partition is new: read from 0
    assert topics.asked_ms == pytest.approx(time.time() * 1000 - 10_000, abs=60_000)


@pytest.mark.parametrize(
    ("end", "since", "most"),
    [
        ({"r": {"0": 100}}, {"r": {"0": 5100}}, 5000),  # one micro-batch reads them all
        ({"r": {"0": 100}}, {"r": {"0": 900_000}}, None),  # any does
        ({"r": {"0": 100}}, None, 5000),  # the transport can't tell
        (None, {"r": {"0": 900_000}}, 5000),  # a new checkpoint begins where its settings say
        ({"r": {"0": 100}}, {"r": {"0": 3}}, 5000),  # a topic made anew: Spark tells of it
    ],
)
def test_else_nothing_is_passed_over(
    end: Offset | None, since: Offset | None, most: int | None
) -> None:
    folder = Folder(end)
    assert passed(folder, Topics(since), most) is None
    assert folder.noted is None


def test_what_was_begun_is_run_first() -> None:
    folder = Folder({"r": {"0": 100}}, unfinished=7)
    assert passed(folder, Topics({"r": {"0": 9000}})) == SingleBatch(7, without_input=False)
    assert folder.noted is None


def test_what_was_noted_and_cut_off_is_run_again_as_it_is() -> None:
    folder = Folder({"r": {"0": 100}}, unfinished=8)
    folder.noted = {"r": {"0": 9000}}
    assert passed(folder, Topics({"r": {"0": 20_000}})) == SingleBatch(8)
    assert folder.noted == {"r": {"0": 9000}}
