"""A standby: a second process of a job that waits, warm, until no leader lives.

The leader changes a small file in the checkpoint folder every two seconds. A standby takes over
once it has not seen the file change for ``PATIENCE_S``, by its own clock: no times of two machines
are compared. That may be wrong, as a leader may be slow or cut off from the store, and it is
harmless: which process may publish is decided by ``history.leadership`` alone. Where writes take
long, it waits for two of them more.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

from py4j.protocol import Py4JJavaError

from quotaplane.errors import DeposedError

BEAT_S: Final = 2.0
"""The leader changes its file this often."""
POLL_S: Final = 0.5
"""A standby reads it this often."""
PATIENCE_S: Final = 5.0
"""A standby takes over after so much time without a change."""
_NAME: Final = "heartbeat.json"
_ENDED: Final = json.dumps({"leader": None})
"""Content of the file after its leader ended in order: nobody needs to wait."""
_UNREADABLE: Final = ""
_MOST_WRITE_S: Final = 30.0
_END_PATIENCE_S: Final = 2.0


class BeatFolder(Protocol):
    """A checkpoint folder."""

    def read(self, name: str) -> str | None:
        """The text of a file; None: there is none."""

    def put(self, name: str, text: str) -> None:
        """Replace a file, without waiting for the disk."""


class LeaderWatch:
    """Decides when a leader is dead, from what a standby reads. Pure; times are in seconds.

    >>> watch = LeaderWatch(patience_s=5.0)
    >>> [watch.is_dead("beat 1", at, at) for at in (0.0, 2.0, 4.0, 4.9, 5.0)]
    [False, False, False, False, True]
    >>> watch.is_dead("beat 2", 6.0, 6.0), watch.is_dead(None, 6.5, 6.5)
    (False, True)
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._seen: str | None = None
        self._changed_s = 0.0
        self._answered_s: float | None = None

    def is_dead(self, beat: str | None, asked_s: float, answered_s: float) -> bool:
        """Whether no leader lives.

        Args:
            beat: content of the leader's file; None: there is none, so nobody led yet; empty: it
                can't be read, so nothing is known.
            asked_s: when the standby began to read it.
            answered_s: when it had read it.
        """
        # A standby that was held up itself does not know whether the leader was, too.
        last_s, self._answered_s = self._answered_s, answered_s
        held_up = last_s is not None and asked_s - last_s >= self._patience_s
        if beat is None or beat == _ENDED:
            return True
        if beat == _UNREADABLE or beat != self._seen or held_up:
            self._seen, self._changed_s = beat, answered_s
            return False
        return asked_s - self._changed_s >= self._patience_s + 2.0 * _write_s(beat)


def _write_s(beat: str) -> float:
    """How long the leader's last write took: where the store is slow, signs of life are rarer.

    Otherwise two processes would depose each other in turn.
    """
    try:
        return min(float(json.loads(beat)["write_s"]), _MOST_WRITE_S)
    except (ValueError, TypeError, KeyError):
        return 0.0


def wait_for_leadership(
    folder: BeatFolder,
    *,
    pause: Callable[[float], Any],
    say: Callable[[str], None],
    meanwhile: Callable[[], Any] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Return when no leader lives.

    Args:
        folder: the checkpoint.
        pause: lets so many seconds pass.
        say: gets a text when the wait begins, and when reading fails or works again.
        meanwhile: called once if there is a leader.
        clock: in seconds.
    """
    watch, said = LeaderWatch(), ""
    while True:
        asked_s, wrong = clock(), ""
        try:
            beat = folder.read(_NAME)
        except (Py4JJavaError, OSError) as error:
            # Other errors of Py4J mean that the JVM is gone.
            beat = _UNREADABLE
            wrong = str(getattr(error, "java_exception", error)).splitlines()[0]
        if watch.is_dead(beat, asked_s, clock()):
            return
        said, said_before = "can't be read" if wrong else "waits", said
        if wrong and said != said_before:
            say(f"the leader's {_NAME} can't be read, so its standby can't help: {wrong}")
        elif said != said_before:
            say("another process leads; this one waits until it is dead")
        if not said_before:
            meanwhile()
        pause(POLL_S)


@contextmanager
def beating(folder: BeatFolder) -> Iterator[None]:
    """A context in which this process shows that it leads.

    A leader that can't write goes on until it is deposed. One that was deposed leaves the file to
    the process that leads now.
    """
    beats = _Beats(folder)
    try:
        yield
    except DeposedError:
        beats.end(in_order=False)
        raise
    except BaseException:
        beats.end(in_order=True)
        raise
    beats.end(in_order=True)


class _Beats:
    def __init__(self, folder: BeatFolder) -> None:
        self._folder = folder
        self._name = uuid.uuid4().hex
        self._over = threading.Event()
        self._in_order = False
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def end(self, *, in_order: bool) -> None:
        """Stop; a store that hangs is not waited for."""
        self._in_order = in_order
        self._over.set()
        self._thread.join(_END_PATIENCE_S)

    def _beat(self) -> None:
        number, write_s = 0, 0.0
        while True:
            beat, began_s = {"leader": self._name, "beat": number}, time.monotonic()
            with suppress(Exception):  # the store may be away, or the JVM gone
                self._folder.put(_NAME, json.dumps({**beat, "write_s": write_s}))
            number, write_s = number + 1, time.monotonic() - began_s
            if self._over.wait(BEAT_S):
                break
        if self._in_order:
            with suppress(Exception):
                if self._name in (self._folder.read(_NAME) or ""):
                    self._folder.put(_NAME, _ENDED)
