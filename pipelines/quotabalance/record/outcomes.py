"""How a move or split of a plan ended: the column ``outcome`` of ``balance_actions``."""

from __future__ import annotations

from typing import Final

DONE: Final = "done"
ALREADY: Final = "already there"
MISSED: Final = "missed"
FAILED: Final = "failed"
MOVED_ON: Final = "moved on"
NOT_DONE: Final = "not done"
REFUSED: Final = "refused"

NOT_MADE: Final = (MISSED, FAILED, MOVED_ON, NOT_DONE, REFUSED)
"""After these an order is not under way any more."""
