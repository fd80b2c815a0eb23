"""Publishes what the enforcer observes of brokers' usage, as reports for the quota job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import OBSERVED_USAGE
from quotaplane.agents.periodic import waited
from quotaplane.enforce.observed_usage import encode_observation, groups_on, usage_of_groups
from quotaplane.model import IntArray
from quotaplane.pulsar.producer import Outgoing, PulsarOutbox
from quotaplane.pulsar.topics import must_be_there
from quotaplane.pulsar_admin.topic_usage import Sample
from quotaplane.settings import PulsarTransport, Settings
from quotaplane.settings.transports import is_live
from quotaplane.topics.topic_layout import Layout

_WAIT_S: Final = 1.0
"""How long ``publish`` waits for a report before it returns."""
_LEFT_MS: Final = 300_000
"""A group whose topics have left a broker is reported there for so long, with what it still uses:
nothing. Otherwise the job would keep its share until the broker's own reports show it, which takes
a stock broker up to five intervals of, by default, 60 s."""
_MOST_LONG: Final = 2
"""After this many windows in a row that are too long, it is a condition."""


class Outbox(Protocol):
    """Sends messages; see ``PulsarOutbox``."""

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send and wait until the cluster has them."""


class UsagePublisher:
    """Reports of all brokers, each with the newest window only.

    A report that could not be sent yet is replaced by the broker's next one: the job compares and
    uses rates, so a lost window is no lost usage. A window that is longer than those of the
    broker's own reports is not reported: these are newer, and would not count meanwhile.

    Args:
        topic: the reports go there.
        outbox: sends them.
        now_ms: the wall clock.
        own_every_s: how often brokers report themselves.
        conditions: says whose windows are too long.
    """

    def __init__(
        self,
        topic: str,
        outbox: Outbox,
        now_ms: Callable[[], float],
        own_every_s: float,
        conditions: Conditions,
    ) -> None:
        self._topic, self._outbox, self._now_ms = topic, outbox, now_ms
        self._own_every_s, self._conditions = own_every_s, conditions
        self._window_s: dict[str, float] = {}
        """By broker: of its last report. Those of brokers that are gone stay."""
        self._brokers: tuple[str, ...] = ()
        self._long: dict[str, int] = {}
        """By broker: its last windows that were too long, in a row."""
        self._waiting: dict[str, Outgoing] = {}
        self._arrived = asyncio.Event()
        self._newest_ms = 0
        self._places: dict[str, tuple[Layout, list[str], IntArray]] = {}
        """By broker: for this layout and these topics, the indexes of the topics' parts."""
        self._left: dict[str, tuple[Layout, dict[str, int]]] = {}
        """By broker: the layout of its last report; the groups that had topics there before, each
        with the time of the report that was the first one without."""
        self.sent = 0
        """Reports since the start."""

    @property
    def longest_window_s(self) -> float | None:
        """Longest window of the last reports of the newest layout's brokers; None: no reports."""
        windows_s = [self._window_s[name] for name in self._brokers if name in self._window_s]
        return round(max(windows_s), 1) if windows_s else None

    def note(self, layout: Layout, broker: str, sample: Sample) -> None:
        """Make a report of a broker's sample."""
        self._brokers = tuple(layout.brokers)
        if sample.growth is None or self._is_long(broker, sample.window_s):
            return
        part = self._parts(layout, broker, sample.topics)
        # Numbers must grow, also while the clock is set back a little.
        at_ms = max(int(self._now_ms()), self._newest_ms + 1)
        self._newest_ms = at_ms
        left = self._groups_left(layout, broker, at_ms)
        used = usage_of_groups(layout, broker, part, sample.growth, sample.window_s, left)
        value = encode_observation(broker, used, at_ms=at_ms, window_s=sample.window_s)
        if value is not None:
            self._waiting[broker] = Outgoing(self._topic, broker, value)
            self._arrived.set()

    def _is_long(self, broker: str, window_s: float) -> bool:
        """Whether the broker's own reports are better than this window."""
        if window_s <= self._own_every_s:
            self._long.pop(broker, None)
            self._window_s[broker] = window_s
            self._conditions.note(OBSERVED_USAGE, broker, None)
            return False
        self._long[broker] = self._long.get(broker, 0) + 1
        self._window_s.pop(broker, None)
        if self._long[broker] >= _MOST_LONG:
            text = (
                f"its metrics can be read only every {window_s:.0f} s, as they take long; so its "
                f"own reports count, every {self._own_every_s:g} s, until it has fewer topics or "
                "is faster (docs/operate/pulsar.md#observed-usage)"
            )
            self._conditions.note(OBSERVED_USAGE, broker, text)
        return True

    def _groups_left(self, layout: Layout, broker: str, at_ms: int) -> dict[str, int]:
        """The groups whose topics have left the broker; see ``_LEFT_MS``."""
        before, left = self._left.get(broker, (layout, {}))
        if before is not layout:
            gone = groups_on(before, broker) - groups_on(layout, broker)
            left = {**left, **dict.fromkeys(gone, at_ms)}
        left = {name: since_ms for name, since_ms in left.items() if at_ms < since_ms + _LEFT_MS}
        self._left[broker] = (layout, left)
        return left

    def _parts(self, layout: Layout, broker: str, topics: list[str]) -> IntArray:
        known = self._places.get(broker)
        if known is None or known[0] is not layout or known[1] != topics:
            place = layout.part_index
            part = np.fromiter((place.get(topic, -1) for topic in topics), np.int64, len(topics))
            self._places[broker] = known = (layout, topics, part)
        return known[2]

    async def publish(self) -> None:
        """Send the reports that wait; wait a moment for the first one.

        Raises:
            TransportError: they were not sent.
        """
        if not await waited(self._arrived, _WAIT_S):
            return
        self._arrived.clear()
        messages, self._waiting = [*self._waiting.values()], {}
        await asyncio.to_thread(self._outbox.send, messages)
        self.sent += len(messages)


def usage_outbox(settings: Settings) -> PulsarOutbox | None:
    """Sends the reports of these settings; None: the enforcer reports nothing.

    Raises:
        TransportError: the topic does not exist, or the REST API does not answer.
    """
    transport, topic = settings.transport, settings.enforce.report_topic
    if topic is None or not isinstance(transport, PulsarTransport):
        return None
    if not is_live(topic):
        # On most clusters its first use would create it, without retention.
        must_be_there(transport, topic)
    return PulsarOutbox(transport)
