"""How queries handle outages: brokers that don't answer for a while, and deleted messages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pulsar

from quotaplane.errors import TransportError
from quotaplane.pulsar.client import PASSING, as_transport_error, unreachable
from quotaplane.pulsar.options import Options

PATIENCE_S: Final = 120.0
"""How long a topic partition may be unavailable, because its broker restarts or it moves."""

RETRY_S: Final = 1.0

_log = logging.getLogger(__name__)


def loss_policy(options: Options) -> Callable[[str, str], None]:
    """The action if messages after a position may be deleted: raise an error, or log a warning."""

    def lost(topic: str, position: str) -> None:
        what = (
            f"topic {topic!r}: messages after {position} may be gone (deleted by retention, or "
            "with a topic that was deleted or created again)"
        )
        if options.fail_on_data_loss:
            raise TransportError(f"{what}; to continue without them set fail_on_data_loss to false")
        _log.warning("%s; continuing with the remaining ones", what)

    return lost


class Patience:
    """Tracks since when topic partitions don't answer, and when that is too long."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._since_s: dict[str, float] = {}
        self.doubted = False
        """A topic that matches a pattern stopped answering; it may have been deleted."""

    def is_silent(self, topic: str) -> bool:
        """Did its last request fail?"""
        return topic in self._since_s

    def keep_only(self, topics: list[str]) -> None:
        """Forget all other topics."""
        self._since_s = {topic: self._since_s[topic] for topic in topics if topic in self._since_s}

    @contextmanager
    def with_topic(self, topic: str, failed: Callable[[str], None]) -> Iterator[None]:
        """Tolerate temporary errors for ``PATIENCE_S``; ``failed`` is called for each.

        Raises:
            TransportError: the outage lasts too long, or the error is not temporary.
        """
        options = self._options
        try:
            yield
        except pulsar.PulsarException as error:
            by_pattern = options.topics_pattern is not None
            gone = by_pattern and isinstance(error, pulsar.exceptions.TopicNotFound)
            if not gone and not isinstance(error, PASSING):
                with as_transport_error(options, f"topic {topic!r} can't be read"):
                    raise
            failed(topic)
            now_s = time.monotonic()
            if gone or (by_pattern and topic not in self._since_s):
                self.doubted = True
            if now_s - self._since_s.setdefault(topic, now_s) >= PATIENCE_S:
                raise TransportError(f"{unreachable(options)}: topic {topic!r}") from None
        else:
            self._since_s.pop(topic, None)
