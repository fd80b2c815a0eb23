"""A history that the page can show: skewed brokers, a changed quota, a silent broker, garbage."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from quotaplane.settings import History
from tests.unit.sim.recorded_history import Recording, garbage_at

ORDERS: Final = "acme/orders"
HOSTILE: Final = '<img src=x onerror="document.title=1">'
HOSTILE_BROKER: Final = '"><script>document.title=1</script>'
"""Names that would be markup."""
BROKERS: Final = ("broker-1", "broker-2", "broker-3", "broker-4")


def steady(*rates: float) -> dict[str, list[tuple[float, float]]]:
    """Demand of each broker, the same all the time."""
    return {broker: [(0, rate)] for broker, rate in zip(BROKERS, rates, strict=False) if rate}


def record(history: History, *, seconds: int, ended_s_ago: int = 2) -> None:
    """Record a story of so many seconds; the last round was ``ended_s_ago``."""
    third = seconds // 3
    wants = {
        ORDERS: {
            "broker-1": [(0, 700), (third, 900), (2 * third, 500)],
            "broker-2": [(0, 200), (2 * third, 420)],
            "broker-3": [(0, 120)],
            "broker-4": [(0, 0), (third, 350)],
        },
        "acme/payments": steady(120, 130, 110, 90),
        "globex/clicks": steady(2400, 300, 900, 0),
        "globex": steady(10, 10, 10, 10),
        "globex::batch": steady(400, 380, 0, 300),
        "globex::reports": steady(90, 20, 60, 10),
        "initech/logs": steady(60, 55, 0, 70),
        HOSTILE: {**steady(30, 10, 5, 1), HOSTILE_BROKER: [(0, 70)]},
        **{f"tenant-{n:02}/events": steady(8 + n, 14, 2 * n, 5) for n in range(1, 31)},
    }
    begin_ms = int((time.time() - ended_s_ago - seconds) * 1000)
    story = Recording(
        history,
        wants,
        begin_ms=begin_ms,
        loop={"mangle": garbage_at(seconds // 2)},
        limits={"lease_s": 30.0},
    )
    story.put(ORDERS, 1500.0, by="ann").put("acme/payments", 800.0).put("globex/clicks", 2500.0)
    story.put("globex", 900.0).put("globex::batch", 700.0, weight=2.0).put("globex::reports", 300.0)
    story.put("initech/logs", 100.0, mode="soft").put(HOSTILE, 100.0)
    for n in range(1, 31):
        story.put(f"tenant-{n:02}/events", 40.0 + 3 * n)
    story.run(third)
    story.put(ORDERS, 1200.0, by="bob")
    story.run(third)
    story.alive("broker-4", alive=False)
    story.run(seconds - 2 * third).write()


def story_history(folder: Path, *, seconds: int = 60, ended_s_ago: int = 2) -> History:
    """A history in a folder with the story."""
    history = History(path=str(folder / "history"))
    record(history, seconds=seconds, ended_s_ago=ended_s_ago)
    return history
