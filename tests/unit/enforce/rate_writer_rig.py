"""A rate writer with its topic_rates, whose requests go nowhere."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.pace import Pace
from quotaplane.enforce.agent.administrator_rates import AdministratorRates
from quotaplane.enforce.agent.rate_writer import RateWriter
from quotaplane.enforce.rate_writes import Moves
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.settings import Enforce, History
from tests.unit.enforce.enforce_cases import layout_of


class Stub:
    """In place of ``Rest``: notes what is asked, and answers nothing, or fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: Exception | None = None
        self.rate: dict[str, Any] | None = None
        """Rate that each topic has."""
        self.answers = asyncio.Event()
        self.answers.set()

    async def ask(self, method: str, path: str, _: object = None) -> None:
        self.asked.append(f"{method} {path}")
        await self.answers.wait()
        if self.error is not None:
            raise self.error

    async def get(self, path: str) -> dict[str, Any] | None:
        await self.ask("GET", path)
        return self.rate


class Rig:
    """A writer of so many topics of one broker."""

    def __init__(self, topics: int, **enforce: Any) -> None:
        self.rest, self.topic_rates, self.lines = Stub(), RatesInForce(), list[str]()
        self.trouble = Conditions(self.lines.append)
        settings = Enforce(**enforce)
        reads = Pace(settings.max_reads_per_s)
        rest: Any = self.rest
        record = self.record = AdministratorRates(
            History(path="none"), self.topic_rates, self.trouble, self.lines.append, lambda: 0.0
        )
        record.only_in_memory()
        given = (rest, self.topic_rates, record, reads, settings, self.trouble)
        self.writer = RateWriter(*given, lambda _: None)
        self.names = [f"t{i:04}" for i in range(topics)]
        self.has(*self.names)

    def has(self, *names: str) -> None:
        """These topics are there."""
        self.topic_rates.carry(layout_of(dict.fromkeys(names, "b"), "g"))
        self.writer.forget_deleted()

    def settled(self, rate: float = np.inf) -> None:
        """On all of them this is in force."""
        for name in self.names:
            self.topic_rates.confirmed(name, 0, np.array([rate, np.inf]), wrote=True)

    def moves(self, rate: float, first: int = 0, count: int | None = None) -> Moves:
        """A write of publish on each topic, or on so many."""
        topics = len(self.topic_rates.layout.topics)
        count = topics if count is None else count
        rates = np.tile([rate, np.inf], (count, 1))
        unread = np.zeros((topics, 2), np.bool_)
        return Moves(np.arange(first, first + count), np.zeros(count, np.int64), rates, unread)

    async def write(self, rate: float = 5.0, now_s: float = 0.0) -> None:
        """Write this rate on each topic, until nothing is under way."""
        self.writer.begin(self.moves(rate), now_s)
        await self.writer.idle(5.0)

    def unread(self) -> Moves:
        """The publish rate of all topics must be read."""
        unread = np.zeros((len(self.topic_rates.layout.topics), 2), np.bool_)
        unread[:, 0] = True
        none = np.zeros(0, np.int64)
        return Moves(none, none, np.zeros((0, 2)), unread)
