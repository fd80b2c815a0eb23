"""Clients of one scenario, as a process of their own: its handle, its counts, and its clock.

Demand is open-loop: what a client's bounded queue does not take is dropped, as at a service whose
users do not wait. For each place (what a scenario has on one broker) a file has a line for each
tenth of a second: its beginning on the wall clock, the messages that were wanted, and those that
were acknowledged, or received.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from benchmarks.program import ROOT
from benchmarks.quota_proof.record import SLOTS_PER_S
from quotaplane.model import FloatArray, IntArray

SLOT_S: Final = 1.0 / SLOTS_PER_S
_ON_OFF_S: Final = 0.25
"""How long an on-off producer sends on average, and then pauses."""

Arrivals: TypeAlias = Literal["even", "poisson", "on_off"]
"""``poisson``: at random. ``on_off``: at twice the rate for 0.25 s and then not at all for 0.25 s,
on average."""


class Load:
    """The process of a scenario's clients, seen from outside.

    Args:
        module: Run with ``service``, the plan's path and ``folder`` as its words. It reads lines
            on stdin, what each place wants from now on, and ends with stdin.
        service: Where the cluster listens.
        places: Dataclasses, written to the plan as JSON.
        folder: Of its own.
    """

    def __init__(self, module: str, service: str, places: Sequence[Any], folder: Path) -> None:
        self.counts = [counts_of(folder, number) for number in range(len(places))]
        plan = folder / "plan.json"
        plan.write_text(json.dumps([asdict(place) for place in places]))
        self._log = folder / "load.log"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, service, str(plan), str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            text=True,
            stderr=self._log.open("w"),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def connected(self) -> bool:
        """Whether all clients are connected.

        Raises:
            RuntimeError: the process ended; has the end of its log.
        """
        if self._process.poll() is not None:
            raise RuntimeError(f"clients ended:\n{self._log.read_text()[-1000:]}")
        return all(path.exists() and path.stat().st_size > 0 for path in self.counts)

    def want(self, rates: Sequence[float]) -> None:
        """From now on the places want so many messages a second."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(list(rates))}\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End it; a second call does nothing."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def counts_of(folder: Path, place: int) -> Path:
    """The file of a place."""
    return folder / f"counts-{place}.csv"


def rates(path: Path, from_s: float, slots: int) -> FloatArray:
    """Messages per second in each slot, from the lines that a client wrote.

    Args:
        path: Lines of a slot's beginning, messages wanted, and messages done.
        from_s: Beginning of the first slot, on the wall clock.
        slots: Their number.

    Returns:
        Shape (slots, 2): wanted and done.
    """
    counts = np.zeros((slots, 2))
    for line in path.read_text().splitlines():
        when, wanted, done = line.split(",")
        slot = round((float(when) - from_s) * SLOTS_PER_S)
        if 0 <= slot < slots:
            counts[slot] += int(wanted), int(done)
    return counts * SLOTS_PER_S


class Counter:
    """Counts per slot of the wall clock; threads may share it."""

    def __init__(self, path: Path) -> None:
        self._out = path.open("w")
        self._lock = threading.Lock()
        self._slot = int(time.time() / SLOT_S)
        self._wanted = self._done = 0

    def add(self, wanted: int = 0, done: int = 0) -> None:
        slot = int(time.time() / SLOT_S)
        with self._lock:
            if slot != self._slot:
                self._out.write(f"{self._slot * SLOT_S:.1f},{self._wanted},{self._done}\n")
                self._out.flush()
                self._slot, self._wanted, self._done = slot, 0, 0
            self._wanted += wanted
            self._done += done


class Arriving:
    """How many messages are due at each topic of a place.

    Args:
        kind: of arrivals.
        topics: their number; the n-th wants 1/sqrt(n) of what the first one wants.
        random: makes the noise.
    """

    def __init__(self, kind: Arrivals, topics: int, random: np.random.Generator) -> None:
        self._kind, self._random = kind, random
        weights = 1.0 / np.sqrt(np.arange(1, topics + 1))
        self._parts = weights / weights.sum()
        # Not all at the same moment.
        self._due = random.random(topics)
        self._on = random.random(topics) < 0.5

    def take(self, rate: float, passed_s: float) -> IntArray:
        """Messages that have become due in the last ``passed_s`` seconds, (topics,)."""
        expected: FloatArray = rate * passed_s * self._parts
        if self._kind == "poisson":
            return self._random.poisson(expected)
        if self._kind == "on_off":
            changes = self._random.random(len(expected)) < passed_s / _ON_OFF_S
            self._on ^= changes
            expected = 2.0 * expected * self._on
        self._due += expected
        due = self._due.astype(np.int64)
        self._due -= due
        return due


def send_until_stdin_ends(
    arrivals: Sequence[Arriving],
    send: Callable[[int, IntArray], None],
    tick_s: float,
    tick: Callable[[], None],
) -> None:
    """Send what lines on stdin ask for, for ever.

    Args:
        arrivals: One a place.
        send: Gets a place and the messages due at each of its topics.
        tick_s: Pause between two looks.
        tick: Called at each of them.
    """
    wanted = [0.0] * len(arrivals)

    def listen() -> None:
        for line in sys.stdin:
            wanted[:] = json.loads(line)
        os._exit(0)  # not the clients' own end: that waits for messages which nobody lets through

    threading.Thread(target=listen, daemon=True).start()
    last = time.monotonic()
    while True:
        time.sleep(tick_s)
        now = time.monotonic()
        tick()
        for place, (due, rate) in enumerate(zip(arrivals, wanted, strict=True)):
            messages = due.take(rate, now - last)
            if messages.any():
                send(place, messages)
        last = now
