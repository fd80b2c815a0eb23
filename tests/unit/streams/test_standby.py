"""A standby decides when the leader is dead, from what it reads and by its own clock."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from quotaplane.errors import ConfigError, DeposedError
from quotaplane.streams import standby
from quotaplane.streams.standby import PATIENCE_S, POLL_S, beating, wait_for_leadership
from tests.waiting import wait_until

NAME = "heartbeat.json"


class Store:
    """A checkpoint folder, and a clock that only the standby's pauses and slow reads let go on."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.now_s = 100.0
        self.read_s = 0.0
        self.away: Exception | None = None
        self.said: list[str] = []
        self.rehearsed: list[float] = []

    def read(self, name: str) -> str | None:
        if self.away is not None:
            raise self.away
        found = self.files.get(name)
        self.now_s += self.read_s
        return found

    def put(self, name: str, text: str) -> None:
        if self.away is not None:
            raise self.away
        self.files[name] = text

    def stands_by(self, happens: Callable[[float], Any] = lambda now_s: None) -> float:
        """Stand by; ``happens`` is called after each poll. Returns how long that took."""
        began_s = self.now_s

        def pause(seconds: float) -> None:
            self.now_s += seconds
            happens(self.now_s - began_s)

        wait_for_leadership(
            self,
            pause=pause,
            say=self.said.append,
            meanwhile=lambda: self.rehearsed.append(self.now_s),
            clock=lambda: self.now_s,
        )
        return self.now_s - began_s


@pytest.fixture
def store() -> Store:
    return Store()


def test_without_a_leader_it_leads_at_once(store: Store) -> None:
    assert store.stands_by() == 0.0
    assert (store.said, store.rehearsed) == ([], [])


def test_after_a_leader_that_ended_in_order_it_leads_at_once(store: Store) -> None:
    with beating(store):
        wait_until(lambda: NAME in store.files)
    assert store.stands_by() == 0.0


def test_what_a_dead_leader_left_is_waited_for_only_once(store: Store) -> None:
    store.files[NAME] = "beat 7"
    assert store.stands_by() == PATIENCE_S
    assert store.said == ["another process leads; this one waits until it is dead"]
    assert store.rehearsed == [100.0]


def test_a_leader_that_lives_is_waited_for_and_then_only_from_its_last_sign_on(
    store: Store,
) -> None:
    def beats(at_s: float) -> None:
        if at_s <= 60.0:
            store.files[NAME] = f"beat {at_s // 2.0}"

    beats(0.0)
    took_s = store.stands_by(beats)
    assert 60.0 + PATIENCE_S <= took_s <= 60.0 + PATIENCE_S + POLL_S


def test_a_leader_that_writes_rarely_is_no_dead_one(store: Store) -> None:
    def beats(at_s: float) -> None:
        if at_s <= 60.0:
            store.files[NAME] = f"beat {at_s // (PATIENCE_S - POLL_S)}"

    beats(0.0)
    assert store.stands_by(beats) > 60.0


def test_on_a_slow_store_two_processes_do_not_depose_each_other_in_turn(store: Store) -> None:
    """Each write takes 20 s, so the file changes every 22 s."""

    def beats(at_s: float) -> None:
        if at_s <= 300.0:
            store.files[NAME] = json.dumps({"beat": at_s // 22.0, "write_s": 20.0})

    beats(0.0)
    assert 300.0 + PATIENCE_S < store.stands_by(beats) < 350.0


def test_while_the_store_is_away_nobody_takes_over(store: Store) -> None:
    """Neither the leader nor the standby reaches it, and a takeover would write there."""
    store.files[NAME] = "beat 7"

    def happens(at_s: float) -> None:
        store.away = OSError("no route to host") if 2.0 < at_s < 40.0 else None

    assert 40.0 + PATIENCE_S <= store.stands_by(happens) <= 41.0 + PATIENCE_S
    assert store.said == [
        "another process leads; this one waits until it is dead",
        "the leader's heartbeat.json can't be read, so its standby can't help: no route to host",
        "another process leads; this one waits until it is dead",
    ]


def test_a_file_that_is_found_empty_says_nothing(store: Store) -> None:
    """On some stores it is so while it is written."""
    store.files[NAME] = "beat 7"

    def happens(at_s: float) -> None:
        store.files[NAME] = "" if at_s == 4.0 else "beat 7"

    assert store.stands_by(happens) > PATIENCE_S


def test_reads_that_take_long_count_as_what_was_there_when_they_began(store: Store) -> None:
    store.files[NAME], store.read_s = "beat 7", 20.0
    assert store.stands_by() == 2 * store.read_s + POLL_S + store.read_s + POLL_S


def test_a_standby_that_was_held_up_itself_begins_to_wait_anew(store: Store) -> None:
    """The leader may have been, too: all of a machine was frozen."""
    store.files[NAME] = "beat 7"
    frozen = iter([60.0])

    def happens(at_s: float) -> None:
        if at_s > 3.0:
            store.now_s += next(frozen, 0.0)

    assert store.stands_by(happens) > 60.0 + PATIENCE_S


def test_a_standby_whose_jvm_died_ends(store: Store) -> None:
    store.files[NAME], store.away = "beat 7", Py4JNetworkError("gone")
    with pytest.raises(Py4JNetworkError):
        store.stands_by()


def test_a_leader_changes_its_file_until_it_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "BEAT_S", 0.001)
    written: list[str] = []
    put = store.put
    monkeypatch.setattr(store, "put", lambda name, text: (written.append(text), put(name, text)))
    with beating(store):
        wait_until(lambda: len(written) > 5)
        store.away = OSError("no route to host")  # it goes on
        before = len(written)
        wait_until(lambda: len(written) > before + 3)
        store.away = None
    assert len({json.loads(each)["beat"] for each in written[:5]}) == 5
    assert written[-1] == store.files[NAME] == '{"leader": null}'
    assert not [each for each in threading.enumerate() if each.name == "heartbeat"]


@pytest.mark.parametrize("error", [ConfigError("wrong"), SystemExit(0)])
def test_a_leader_that_fails_does_not_let_its_standby_wait(
    store: Store, error: BaseException
) -> None:
    def leads() -> None:
        with beating(store):
            wait_until(lambda: NAME in store.files)
            raise error

    with pytest.raises(type(error)):
        leads()
    assert store.stands_by() == 0.0


def test_one_that_was_deposed_leaves_the_file_to_the_leader(store: Store) -> None:
    def leads() -> None:
        with beating(store):
            wait_until(lambda: NAME in store.files)
            store.files[NAME] = "of another"
            raise DeposedError("deposed")

    with pytest.raises(DeposedError):
        leads()
    assert store.files[NAME] == "of another"


def test_one_that_ends_before_it_knows_that_it_was_deposed_does_so_too(store: Store) -> None:
    with beating(store):
        wait_until(lambda: NAME in store.files)
        store.files[NAME] = "of another"
    assert store.files[NAME] == "of another"
