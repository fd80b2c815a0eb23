"""Learning mode: after a start without state, a shard hands back earlier limits for one lease.

The limits of an earlier control plane may still be in force. The new one does not know demands yet:
dividing at once would reset every broker to what it happens to use. So it issues again the limits
that brokers report (Doorman calls this learning mode). After one lease each earlier limit was
renewed or is over; then the guarantee of ``transition: strict`` begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quotaplane.model import Round, Transition
from quotaplane.quota.config import StepConfig

DONE: Final = -1


@dataclass(frozen=True)
class Learning:
    """How far a shard is with learning mode."""

    until_ms: int = 0
    """When every earlier limit is over, in ms since 1970; 0: not begun, ``DONE``: it has passed."""
    on: bool = False
    """Until then limits are only handed back."""

    def next(self, foreign: bool, round_: Round, config: StepConfig) -> tuple[Learning, bool]:
        """The state of learning mode in this round, and whether it ends with this round.

        ``foreign``: a report names limits of an earlier epoch. Under ``fast`` that turns learning
        on. ``strict`` always learns: brokers that have not reported yet may have earlier limits.
        """
        if self.until_ms == DONE or not config.learns:
            return Learning(DONE), False
        if 0 < self.until_ms <= round_.now_ms:
            return Learning(DONE), self.on
        until_ms = self.until_ms or config.learning_until_ms(round_.now_ms)
        on = self.on or foreign or config.transition is Transition.STRICT
        return Learning(until_ms, on), False
