"""What a query bears: brokers that are silent for a while, and messages that are gone."""

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
"""So long a topic partition may be out of reach: its broker restarts, or it moves to another."""

RETRY_S: Final = 1.0

_log = logging.getLogger(__name__)


def loss_policy(options: Options) -> Callable[[str, str], None]:
    """What is done when messages behind a position may be gone: stop, or tell."""

    def lost(topic: str, position: str) -> None:
        what = (
            f"topic {topic!r}: messages after {position} may be gone (deleted by retention, or "
            "with a topic that was made anew)"
        )
        if options.fail_on_data_loss:
            raise TransportError(f"{what}; set fail_on_data_loss to false to go on without them")
        _log.warning("%s; going on with what is there", what)

    return lost


class Patience:
    """Since when each topic partition is silent, and which ones may be gone."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._since_s: dict[str, float] = {}
        self.doubted = False
        """Has a topic that a pattern matched become silent? It may have been deleted."""

    def is_silent(self, topic: str) -> bool:
        """Did it fail when it was last asked?"""
        return topic in self._since_s

    def keep_only(self, topics: list[str]) -> None:
        """Forget all others."""
        self._since_s = {topic: self._since_s[topic] for topic in topics if topic in self._since_s}

    @contextmanager
    def with_topic(self, topic: str, failed: Callable[[str], None]) -> Iterator[None]:
        """Let what may pass pass, until it has lasted too long; ``failed`` is told of it.

        Raises:
            TransportError: it has, or it can't pass.
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
