"""Runs the parts of a program that repeat until it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

_SHORTEST_PAUSE_S: Final = 0.02
_CANCEL_AGAIN_S: Final = 0.2


class Periodic(NamedTuple):
    """Work that is repeated."""

    name: str
    every_s: float
    """From begin to begin; after work that takes longer there is a short pause."""
    work: Callable[[], Awaitable[object]]
    news: asyncio.Event | None = None
    """Ends the pause."""


async def run_parts(
    parts: Iterable[Periodic], stop: asyncio.Event, note: Callable[[str, Exception | None], None]
) -> None:
    """Run all parts until ``stop`` is set. ``note`` gets each one's name and its failure, if any;
    the part goes on.
    """
    tasks = {asyncio.create_task(_repeat(part, stop, note)) for part in parts}
    await stop.wait()
    while tasks:
        # Repeated: Python before 3.12 may lose a cancellation that coincides with a result.
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_S)


async def _repeat(
    part: Periodic, stop: asyncio.Event, note: Callable[[str, Exception | None], None]
) -> None:
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        begun_s = loop.time()
        failed: Exception | None = None
        try:
            await part.work()
        except Exception as error:
            # Any exception: a bug in one part must not end the program.
            failed = error
        note(part.name, failed)
        wait_s = max(begun_s + part.every_s - loop.time(), _SHORTEST_PAUSE_S)
        await waited(part.news or stop, wait_s)


async def waited(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but not longer; whether it is set."""
    try:
        return await asyncio.wait_for(event.wait(), seconds)
    except asyncio.TimeoutError:
        return False
