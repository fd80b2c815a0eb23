"""Reports that a cluster begins to refuse requests for lack of rights, while a program runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from quotaplane.agents.failures import Say

_REFUSALS: Final = (401, 403)
_FORGET_AFTER_S: Final = 600.0
"""A request that is not repeated for this long no longer counts; its topic may be gone."""
_MOST: Final = 10_000
"""Refused requests that are remembered."""


class AccessWatch:
    """Prints a line when requests are first refused with 401 or 403, and one when none is any more.

    A refusal at the start ends a program with an error. So only refusals after a request that the
    cluster admitted count: a token has expired, or a right was taken away or never given.

    >>> watch = AccessWatch("http://b:8080", print)
    >>> watch.note("GET", "/brokers", 200)
    >>> watch.note("POST", "/t?x=1", 403)
    ... # doctest: +ELLIPSIS
    ACCESS REFUSED: Pulsar's REST API at http://b:8080: POST /t: 403; ...
    >>> watch.refused
    1
    >>> watch.note("POST", "/t", 204)
    access restored: Pulsar's REST API at http://b:8080 admits all requests again (refused: 1)
    """

    def __init__(self, url: str, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._url, self._say, self._clock = url, say, clock
        self._admitted = False
        self._alarmed = False
        self._refusals = 0
        self._refused_at_s: dict[tuple[str, str], float] = {}

    @property
    def refused(self) -> int:
        """The number of different requests that are refused at present."""
        self._forget_old()
        return len(self._refused_at_s)

    def note(self, method: str, path: str, status: int) -> None:
        """Record the status of the cluster's answer to a request."""
        request = method, path.partition("?")[0]
        if status not in _REFUSALS:
            self._admitted = True
            self._refused_at_s.pop(request, None)
            self._forget_old()
            return
        if not self._admitted:
            return
        self._refusals += 1
        # Deleted first: the oldest must be the first, and those are forgotten.
        self._refused_at_s.pop(request, None)
        if len(self._refused_at_s) < _MOST:
            self._refused_at_s[request] = self._clock()
        if not self._alarmed:
            self._alarmed = True
            self._say(
                f"ACCESS REFUSED: Pulsar's REST API at {self._url}: {method} {request[1]}: "
                f"{status}; the token has expired or a right is missing; requests are repeated, "
                "and nothing changes until they are admitted (docs/runbook.md, Access is refused)"
            )

    def _forget_old(self) -> None:
        before_s = self._clock() - _FORGET_AFTER_S
        while self._refused_at_s:
            oldest = next(iter(self._refused_at_s))
            if self._refused_at_s[oldest] > before_s:
                break
            del self._refused_at_s[oldest]
        if self._alarmed and not self._refused_at_s:
            self._alarmed = False
            self._say(
                f"access restored: Pulsar's REST API at {self._url} admits all requests again "
                f"(refused: {self._refusals})"
            )
            self._refusals = 0
