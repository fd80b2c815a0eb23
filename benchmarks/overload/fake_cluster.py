"""A Pulsar cluster's REST API in a process of its own, whose topics come and go by thousands."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, Final

from tests.unit.enforce.enforce_cluster import NAMESPACE, FakePulsar, full
from tests.unit.pulsar_admin.cluster_cases import Answer

OTHER: Final = "other/space"
"""A namespace of another group, whose topics nobody floods."""
OTHERS: Final = tuple(f"topic-{number:02d}" for number in range(20))
_KEPT: Final = 2000
"""Requests whose bodies are remembered: enough for those that are being answered."""


class FloodedPulsar(FakePulsar):
    """Counts requests by second, and knows when each topic got its first rate."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Any = deque(maxlen=_KEPT)
        self.namespaces[OTHER] = "h"
        self.owned["127.0.0.1:0"].append(f"{OTHER}/0x00000000_0xffffffff")
        self.topics |= {full(topic, OTHER) for topic in OTHERS}
        self.reads: Counter[int] = Counter()
        """Requests for rates by second."""
        self.writes_at: Counter[int] = Counter()
        self.rated_at: dict[str, float] = {}

    def _rate(self, method: str, topic: str, kind: str) -> Answer:
        counted = self.reads if method == "GET" else self.writes_at
        counted[int(time.time())] += 1
        answer = super()._rate(method, topic, kind)
        if method == "POST" and answer.status == 204:
            self.rated_at.setdefault(topic, time.time())
        return answer

    def _stats(self) -> Answer:
        # The other group's topics use all that they may.
        for topic in OTHERS:
            rate = self.rates.get((full(topic, OTHER), "publishRate"), {})
            self.used[full(topic, OTHER)] = float(rate.get("publishThrottlingRateInMsg", 1000))
        return super()._stats()

    # The benchmark's questions, over the pipe.

    def come(self, names: Sequence[str]) -> None:
        """New topics, each with some use."""
        self.add(*names, used=5.0)

    def go(self, names: Sequence[str]) -> None:
        """Topics are deleted, with their rates."""
        gone = {*map(full, names)}
        self.topics = self.topics - gone
        self.used = {topic: used for topic, used in self.used.items() if topic not in gone}
        self.rates = {key: rate for key, rate in self.rates.copy().items() if key[0] not in gone}
        for topic in gone:
            self.rated_at.pop(topic, None)

    def others_rate(self) -> float:
        """The rates of the other group's topics together, in messages."""
        rates = [self.rates.get((full(topic, OTHER), "publishRate"), {}) for topic in OTHERS]
        return float(sum(rate.get("publishThrottlingRateInMsg", 1e9) for rate in rates))

    def flooded_rated(self) -> dict[str, float]:
        """When each of the flooding topics got its first rate, by its short name."""
        begin = full("", NAMESPACE)
        rated = self.rated_at.copy()
        return {t.removeprefix(begin): at for t, at in rated.items() if t.startswith(begin)}

    def requests(self) -> tuple[dict[int, int], dict[int, int]]:
        """Reads and writes of rates by second."""
        return dict(self.reads), dict(self.writes_at)


def main(pipe: Connection) -> None:
    """Answer until the pipe ends; the first message is the URL."""
    with FloodedPulsar() as cluster:
        pipe.send(cluster.url)
        while True:
            try:
                what, *arguments = pipe.recv()
            except EOFError:
                return
            pipe.send(getattr(cluster, what)(*arguments))
