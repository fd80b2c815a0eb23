"""Work in the background of a run: a fault that could not be made must not pass unseen."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.outside.world import World


class _Empty(World):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ended = False

    def _start(self) -> None:
        self._held.callback(lambda: setattr(self, "ended", True))


def test_work_of_a_line_is_done_in_its_order_beside_other_lines(tmp_path: Path) -> None:
    done: list[str] = []
    may_go_on = threading.Event()
    with _Empty(tmp_path) as world:
        world.later("first", lambda: (may_go_on.wait(30), done.append("first")))
        world.later("second", lambda: done.append("second"))
        world.later("other", lambda: (done.append("other"), may_go_on.set()), line="server")
        world.settle()
    assert done == ["other", "first", "second"]
    assert world.ended


def test_a_failure_in_the_background_ends_the_run(tmp_path: Path) -> None:
    def fail() -> None:
        raise TypeError("no such right")

    with _Empty(tmp_path) as world:
        world.later("taking a right away", fail)
        with pytest.raises(RuntimeError, match="taking a right away: TypeError: no such right"):
            world.settle()
        with pytest.raises(RuntimeError, match="no such right"):
            world.wait(0.1)


def test_what_was_started_ends_if_a_part_does_not_start(tmp_path: Path) -> None:
    class Broken(_Empty):
        def _start(self) -> None:
            super()._start()
            raise RuntimeError("no server")

    world = Broken(tmp_path)
    with pytest.raises(RuntimeError, match="no server"), world:
        pass
    assert world.ended
