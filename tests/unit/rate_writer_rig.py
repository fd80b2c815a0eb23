"""A rate writer with its ledger, whose requests go nowhere."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from quotaplane.agents.failures import FailureLog
from quotaplane.agents.pace import Pace
from quotaplane.enforce.agent.rate_writer import RateWriter
from quotaplane.enforce.rate_writes import Moves
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.settings import Enforce
from tests.unit.enforce_cases import layout_of


class Stub:
    """In place of ``Rest``: notes what is asked, and answers nothing, or fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def ask(self, method: str, path: str, _: object = None) -> None:
        self.asked.append(f"{method} {path}")
        await self.answers.wait()
        if self.error is not None:
            raise self.error

    async def get(self, path: str) -> None:
        await self.ask("GET", path)


class Rig:
    """A writer of so many topics of one broker."""

    def __init__(self, topics: int, **enforce: Any) -> None:
        self.rest, self.ledger, self.lines = Stub(), RatesInForce(), list[str]()
        self.trouble = FailureLog(self.lines.append)
        settings = Enforce(**enforce)
        reads = Pace(settings.max_reads_per_s)
        rest: Any = self.rest
        self.writer = RateWriter(rest, self.ledger, reads, settings, self.trouble, lambda _: None)
        self.names = [f"t{i:04}" for i in range(topics)]
        self.has(*self.names)

    def has(self, *names: str) -> None:
        """These topics are there."""
        self.ledger.carry(layout_of(dict.fromkeys(names, "b"), "g"))
        self.writer.forget_deleted()

    def settled(self, rate: float = np.inf) -> None:
        """On all of them this is in force."""
        for name in self.names:
            self.ledger.confirmed(name, 0, np.array([rate, np.inf]), wrote=True)

    def moves(self, rate: float) -> Moves:
        """A write of publish on each topic."""
        count = len(self.ledger.layout.topics)
        rates = np.tile([rate, np.inf], (count, 1))
        unread = np.zeros((count, 2), np.bool_)
        return Moves(np.arange(count), np.zeros(count, np.int64), rates, unread)

    def unread(self) -> Moves:
        """The publish rate of all topics must be read."""
        unread = np.zeros((len(self.ledger.layout.topics), 2), np.bool_)
        unread[:, 0] = True
        none = np.zeros(0, np.int64)
        return Moves(none, none, np.zeros((0, 2)), unread)
