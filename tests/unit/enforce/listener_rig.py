"""A listener of a limits topic in memory, with clocks that a test sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.limits_listener import LimitsListener
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.settings import parse_settings
from quotaplane.transport.base import Polled, Portion
from quotaplane.wire.limits import encode_limits
from tests.unit.enforce.enforce_cluster import EPOCH, history_in

T0 = 1_790_000_000_000
LEASE_S = 120


def message(broker: str = "b", limit: float = 10.0, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "shard": 0,
        "epoch": EPOCH,
        "seq": 1,
        "issued_at_ms": T0,
        "lease_ms": LEASE_S * 1000,
        "groups": ["g"],
        "limits": np.array([[limit]]),
    }
    return encode_limits(broker=broker, **{**fields, **changes})


class ListenerRig:
    """A listener whose topic holds what is put into it, in portions of so many messages.

    Real time begins at ``T0``; the wall clock is off by ``off_s``.
    """

    def __init__(self, folder: Path, portion: int = 10_000, off_s: float = 0.0) -> None:
        self.history = history_in(folder)
        self.real_s, self.off_s = 0.0, off_s
        self.lines: list[str] = []
        self.waiting: list[bytes] = []
        self.portion, self.opened_with, self.handed_out = portion, 0, 0
        settings = parse_settings(
            {
                "transport": {"kind": "delta", "path": "x"},
                "history": {"path": self.history.path},
                "checkpoint": "c",
            }
        )
        self.table = QuotaTable(self.history, Conditions(self.lines.append))
        link: Any = self
        self.listener = LimitsListener(
            *(link, self.table, settings, Conditions(self.lines.append)),
            lambda: T0 + (self.real_s + self.off_s) * 1000.0,
            lambda: self.real_s * 1000.0,
        )
        self.received = self.listener.received
        self.received.expect(["b", *(f"b{n}" for n in range(1_000))], ["g"])

    def poll_limits(self) -> Portion:
        took, self.waiting = self.waiting[: self.portion], self.waiting[self.portion :]
        first = self.handed_out
        self.handed_out += len(took)
        polled = [Polled("b", value, f"limits@{first + at}") for at, value in enumerate(took)]
        return Portion(polled, bool(self.waiting), self.handed_out >= self.opened_with)

    async def hears(self, *values: bytes) -> None:
        self.waiting += values
        await self.listener.listen()

    def limit(self, broker: str = "b") -> float:
        one, now_ms = np.zeros(1, np.int64), self.real_s * 1000.0
        return float(self.received.in_force((broker,), ("g",), one, one, now_ms)[0, 0])
