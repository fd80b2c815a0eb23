"""Limits the rate of requests, and runs work on many items concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any, TypeVar


class Bucket:
    """A token bucket: ``per_s`` tokens per second, saved for up to a second. Time is an argument.

    >>> bucket = Bucket(10.0)
    >>> bucket.room(0.0), bucket.take(10), bucket.room(0.25)
    (10, None, 2)
    """

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._most = max(per_s, 1.0)
        self._tokens = self._most
        self._at_s: float | None = None

    def room(self, now_s: float) -> int:
        """Number of tokens available now."""
        if self._at_s is not None:
            gained = max(now_s - self._at_s, 0.0) * self.per_s
            self._tokens = min(self._tokens + gained, self._most)
        self._at_s = now_s
        return max(int(self._tokens), 0)

    def take(self, count: int) -> None:
        """Use tokens."""
        self._tokens -= count


_Item = TypeVar("_Item")


class Pace:
    """Limits requests to ``per_s`` per second."""

    def __init__(self, per_s: float) -> None:
        self._bucket = Bucket(per_s)
        self._wait_s = min(1.0 / per_s, 1.0)
        self._turn = asyncio.Lock()

    async def take(self) -> None:
        """Wait until one more request is allowed."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            while not self._bucket.room(loop.time()):
                await asyncio.sleep(self._wait_s)
            self._bucket.take(1)


def start(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Start a coroutine as a task; ``tasks`` contains it until it ends."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def ended(tasks: Collection[asyncio.Task[None]], patience_s: float = 0.0) -> None:
    """Wait for tasks, and cancel those that take longer."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=patience_s)
        for task in late:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def at_once(
    most: int, work: Callable[[_Item], Awaitable[None]], items: Iterable[_Item]
) -> None:
    """Run ``work`` on all items, ``most`` at a time; an exception cancels the rest."""
    remaining = iter(items)

    async def worker() -> None:
        for item in remaining:
            await work(item)

    workers = [asyncio.ensure_future(worker()) for _ in range(most)]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for task in workers:
            task.cancel()
        await asyncio.wait(workers)
        raise
