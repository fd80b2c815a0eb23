"""Finds brokers whose clocks differ noticeably from this host's. Pure.

Most brokers may be fine meanwhile, so neither the share of refused reports nor silence shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import WRONG_CLOCKS
from quotaplane.texts import first_few

_MOST: Final = 1000
"""Brokers that are watched; anybody may invent names."""
_LEAST_ROUNDS: Final = 3
_STEADY_INTERVALS: Final = 1.5
"""A broker's newest report is between 0 and 1 intervals older when it is read than its clock makes
it. Ages that differ more are of reports that wait."""


@dataclass
class _Broker:
    since_s: float
    last_s: float
    first_age_s: float
    age_s: float
    """The least one: waiting only adds to the difference of the clocks."""
    rounds: int = 1


class BrokerClocks:
    """The brokers whose reports are of another time, and stay so much older or younger.

    Args:
        interval_s: of reports.
        patience_s: how long that must last before it is a clock.
    """

    def __init__(self, interval_s: float, patience_s: float) -> None:
        self._interval_s, self._patience_s = interval_s, patience_s
        self._brokers: dict[str, _Broker] = {}

    def note(self, now_s: float, ages_s: Mapping[str, float]) -> None:
        """Add a round: the age of a report of each broker whose clock may be wrong."""
        steady_s = _STEADY_INTERVALS * self._interval_s
        for name, age_s in ages_s.items():
            known = self._brokers.get(name)
            if known is None or abs(age_s - known.first_age_s) > steady_s:
                if known is None and len(self._brokers) >= _MOST:
                    continue
                self._brokers[name] = _Broker(now_s, now_s, age_s, age_s)
            else:
                known.last_s, known.age_s = now_s, min(age_s, known.age_s, key=abs)
                known.rounds += 1

    def wrong(self) -> dict[str, float]:
        """Ages of the reports of brokers with wrong clocks, by name, the worst first."""
        found = {
            name: broker.age_s
            for name, broker in self._brokers.items()
            if broker.rounds >= _LEAST_ROUNDS
            and broker.last_s - broker.since_s >= self._patience_s - self._interval_s
        }
        return dict(sorted(found.items(), key=lambda item: (-abs(item[1]), item[0])))

    def after(self, now_s: float, conditions: Conditions, *, quiet: bool) -> None:
        """State whose clocks are wrong after a round; ``quiet``: no report was used, as another
        condition says.
        """
        for name, broker in [*self._brokers.items()]:
            if now_s - broker.last_s > self._patience_s:
                del self._brokers[name]
        wrong = self.wrong()
        if not (quiet and wrong):
            conditions.set(WRONG_CLOCKS, wrong, self._text(wrong))

    def _text(self, wrong: Mapping[str, float]) -> str:
        off = [f"{name} is {_off(age_s)}" for name, age_s in wrong.items()]
        return (
            f"the clock of {first_few(off)} this host's. Reports more than limits.lease_s behind, "
            "or reports.max_clock_skew_s ahead, are not used: such a broker expires. Compare "
            "`date -u` on both hosts, and check that NTP runs. If a broker's clock is right, its "
            "reports wait before they are sent, or it started with a wrong clock: restart it"
        )


def _off(age_s: float) -> str:
    return f"{abs(age_s):.0f} s {'behind' if age_s > 0 else 'ahead of'}"
