"""After a start without any state: what an earlier control plane gave may still be in force.

Dividing at once would reset every broker by what happens to be in use. So limits that brokers
report to have are handed back until each of them was either renewed by this control plane or is
over, which takes one lease. Then the promise of ``transition: strict`` begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quotaplane.model import Round, Transition
from quotaplane.quota.config import StepConfig

DONE: Final = -1


@dataclass(frozen=True)
class Learning:
    """Whether a shard learns.

    ``until_ms``: when it has been there for a lease (clocks may disagree); 0 = it has not begun,
    ``DONE`` = it has. ``on``: until then limits are only handed back.
    """

    until_ms: int = 0
    on: bool = False

    def next(self, foreign: bool, round_: Round, config: StepConfig) -> tuple[Learning, bool]:
        """Where that stands in this round, and whether learning ends with it.

        ``foreign``: a report names limits of an earlier epoch. Who promises never to exceed the
        quota takes no report's silence for an answer, and learns whatever it hears.
        """
        if self.until_ms == DONE or not config.learns:
            return Learning(DONE), False
        if 0 < self.until_ms <= round_.now_ms:
            return Learning(DONE), self.on
        until_ms = self.until_ms or config.lease.learning_until_ms(
            round_.now_ms, config.earlier_until_ms
        )
        on = self.on or foreign or config.transition is Transition.STRICT
        return Learning(until_ms, on), False
