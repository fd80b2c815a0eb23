"""Makes many REST requests: several at once, at a rate that the cluster can bear."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Generic, TypeVar

from quotaplane.agents.pace import at_once
from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.rest import NotFoundError, RefusedError, Rest

_AT_ONCE: Final = 8
READS_PER_S: Final = 50
"""Half of what brokers allow a client if they limit requests (httpRequestsMaxPerSecond). A request
takes about 2 ms of a broker's core (measured)."""


async def ask_each(rest: Rest, method: str, paths: Sequence[str]) -> list[Any]:
    """Make the requests; returns the answers in order, a ``RefusedError`` for a refused one.

    Raises:
        ClusterError: a request got no answer; the others are cancelled.
    """
    answers: list[Any] = [None] * len(paths)

    async def ask(place: int) -> None:
        try:
            answers[place] = await rest.ask(method, paths[place])
        except RefusedError as error:
            answers[place] = error

    await at_once(_AT_ONCE, ask, range(len(paths)))
    return answers


async def read_names(rest: Rest, path: str) -> list[str]:
    """Read a list of names.

    Raises:
        ClusterError: no answer, or the answer is something else.
    """
    names = await rest.get(path)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise rest.failure(f"GET {path}: the answer is not a list of names")
    return names


Read = TypeVar("Read")


class InTurn(Generic[Read]):
    """Reads one resource per name: the first call all of them, each later call ``most``, in turn.

    New names go first. ``parse`` converts an answer, or raises ClusterError.
    """

    def __init__(self, path: Callable[[str], str], parse: Callable[[Any], Read], most: int) -> None:
        self._path = path
        self._parse = parse
        self._most = most
        self._last_call: dict[str, int] = {}
        """Number of the call that read a name last."""
        self._calls = 0
        self.failing: dict[str, ClusterError] = {}
        """Names whose last read failed, and how; without deleted ones (404)."""

    async def read(self, rest: Rest, names: Collection[str]) -> dict[str, Read]:
        """Read the names that are due; names that don't exist (404) are left out of the result.

        Raises:
            ClusterError: no answer; the next call reads the same names.
        """
        due = sorted(names, key=lambda name: self._last_call.get(name, -1))
        if self._calls:
            due = due[: self._most]
        answers = await ask_each(rest, "GET", [self._path(name) for name in due])
        last_call = {name: self._last_call[name] for name in names if name in self._last_call}
        self._last_call = last_call | dict.fromkeys(due, self._calls)
        self._calls += 1
        done = set(due)
        failing = {n: e for n, e in self.failing.items() if n in self._last_call and n not in done}
        results = {}
        for name, answer in zip(due, answers, strict=True):
            try:
                if isinstance(answer, RefusedError):
                    raise answer
                results[name] = self._parse(answer)
            except ClusterError as error:
                if not isinstance(error, NotFoundError):
                    failing[name] = error
        self.failing = failing
        return results

    def again(self, names: Collection[str]) -> None:
        """Make these names due for the next call, as the caller could not use their results."""
        for name in names:
            self._last_call.pop(name, None)
