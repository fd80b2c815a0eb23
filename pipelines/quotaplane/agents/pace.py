"""How fast, and how many at once: a budget of requests, and work on many things."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar


class Bucket:
    """So many per second, saved up for a second; time is an argument.

    >>> bucket = Bucket(10.0)
    >>> bucket.room(0.0), bucket.take(10), bucket.room(0.25)
    (10, None, 2)
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._most = max(per_s, 1.0)
        self._left = self._most
        self._at_s: float | None = None

    def room(self, now_s: float) -> int:
        """How many may be taken now."""
        if self._at_s is not None:
            gained = max(now_s - self._at_s, 0.0) * self._per_s
            self._left = min(self._left + gained, self._most)
        self._at_s = now_s
        return max(int(self._left), 0)

    def take(self, count: int) -> None:
        """Take them."""
        self._left -= count


_Item = TypeVar("_Item")


class Pace:
    """So many requests a second."""

    def __init__(self, per_s: float) -> None:
        self._bucket = Bucket(per_s)
        self._wait_s = min(1.0 / per_s, 1.0)
        self._turn = asyncio.Lock()

    async def take(self) -> None:
        """Wait until one more may be made."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            while not self._bucket.room(loop.time()):
                await asyncio.sleep(self._wait_s)
            self._bucket.take(1)


def start(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Begin work; it is one of the tasks until it ends."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def at_once(
    most: int, work: Callable[[_Item], Awaitable[None]], items: Iterable[_Item]
) -> None:
    """Work on all items, so many at a time; where one fails, none of it goes on."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    workers = [asyncio.ensure_future(worker()) for _ in range(most)]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for each in workers:
            each.cancel()
        await asyncio.wait(workers)
        raise
