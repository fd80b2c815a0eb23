"""How a move or split of a plan ended: the column ``outcome`` of ``balance_actions``."""

from __future__ import annotations

from typing import Final

DONE: Final = "done"
ALREADY: Final = "already there"
MISSED: Final = "missed"
FAILED: Final = "failed"
MOVED_ON: Final = "moved on"
NOT_DONE: Final = "not done"
"""It was not tried, for a reason that does not concern it: it may be ordered again at once."""
REFUSED: Final = "refused"
"""A check, or failures before it, speak against it."""

NOT_MADE: Final = (MISSED, FAILED, MOVED_ON, NOT_DONE, REFUSED)
"""After these an order is not under way any more."""
