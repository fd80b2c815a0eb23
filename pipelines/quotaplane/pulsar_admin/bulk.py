"""Many things read over REST: several at once, and no more in a while than a cluster likes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Generic, TypeVar

from quotaplane.agents.pace import at_once
from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.rest import RefusedError, Rest

_AT_ONCE: Final = 8
READS_PER_S: Final = 50
"""Half of what a broker allows a client that limits requests at all (httpRequestsMaxPerSecond), and
measured to take about 2 ms of a core each."""


async def ask_each(rest: Rest, method: str, paths: Sequence[str]) -> list[Any]:
    """The answers in order; a ``RefusedError`` in place of one that was refused.

    Raises:
        ClusterError: one was not answered; the others are not waited for.
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
    """A list of names.

    Raises:
        ClusterError: it was not answered, or by something else.
    """
    names = await rest.get(path)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ClusterError(f"Pulsar's REST API at {rest.url}: GET {path}: answers no list of names")
    return names


Read = TypeVar("Read")


class InTurn(Generic[Read]):
    """Reads one thing of each name: at first all, then so many a time, in turn.

    What is new has its turn at once. ``parse`` makes something of an answer, or raises
    ClusterError.
    """

    def __init__(self, path: Callable[[str], str], parse: Callable[[Any], Read], most: int) -> None:
        self._path = path
        self._parse = parse
        self._most = most
        self._last: dict[str, int] = {}
        self._times = 0
        self.failing: dict[str, ClusterError] = {}
        """What could not be read when it last had its turn, and is still there."""

    async def read(self, rest: Rest, names: Collection[str]) -> dict[str, Read]:
        """What was read now; a name that is not there (404) is left out.

        Raises:
            ClusterError: there was no answer; nobody lost a turn.
        """
        due = sorted(names, key=lambda name: self._last.get(name, -1))
        if self._times:
            due = due[: self._most]
        answers = await ask_each(rest, "GET", [self._path(name) for name in due])
        self._last = {name: self._last[name] for name in names if name in self._last}
        self._last |= dict.fromkeys(due, self._times)
        self._times += 1
        done = set(due)
        failing = {n: e for n, e in self.failing.items() if n in self._last and n not in done}
        found = {}
        for name, answer in zip(due, answers, strict=True):
            try:
                if isinstance(answer, RefusedError):
                    raise answer
                found[name] = self._parse(answer)
            except ClusterError as error:
                if not (isinstance(error, RefusedError) and error.status == 404):
                    failing[name] = error
        self.failing = failing
        return found

    def again(self, names: Collection[str]) -> None:
        """These have their turn next: what was read of them came to nothing."""
        for name in names:
            self._last.pop(name, None)
