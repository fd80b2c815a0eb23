"""Codes of the reasons for a broker's limit, and their texts for administrators."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

ReasonArray = npt.NDArray[np.uint8]


class Reason(IntEnum):
    """Codes are stored in history tables: never renumber them, only append."""

    UNLIMITED = 0
    NO_QUOTA = 1
    HEADROOM = 2
    DEMAND = 3
    FAIR_SHARE = 4
    FLOOR = 5
    FLOORS_CUT = 6
    EVEN = 7
    RESIDUAL = 8
    REDUCED = 9
    STEALING = 10
    PROPORTIONAL = 11
    MINIMUM = 12
    NO_USAGE = 13
    CEILING = 14
    PRIORITY = 15
    HANDED_BACK = 16
    WAITING = 17
    STEP = 18


_TEXTS: Final = {
    Reason.UNLIMITED: "unlimited: the group has no quota here",
    Reason.NO_QUOTA: "the quota is 0",
    Reason.HEADROOM: "satisfied: demand plus a share of the spare quota",
    Reason.DEMAND: "satisfied: its demand",
    Reason.FAIR_SHARE: "saturated: fair share",
    Reason.FLOOR: "floor: guaranteed whatever its demand",
    Reason.FLOORS_CUT: "floors exceed the quota: cut in proportion",
    Reason.EVEN: "even split, whatever its demand",
    Reason.RESIDUAL: "under quota: usage plus the residual",
    Reason.REDUCED: "over quota: usage reduced in proportion",
    Reason.STEALING: "stealing: half-way to a more dominant broker",
    Reason.PROPORTIONAL: "in proportion to usage",
    Reason.MINIMUM: "usage too small: the minimum of 1 per second",
    Reason.NO_USAGE: "nobody uses anything: the whole quota",
    Reason.CEILING: "ceiling: the most it may have",
    Reason.PRIORITY: "waits for higher priority",
    Reason.HANDED_BACK: "learning: what it had before this control plane started",
    Reason.WAITING: "fair share, as far as others have come down yet",
    Reason.STEP: "on its way to its fair share, a step a round",
}

REASON_TEXTS: Final[tuple[str, ...]] = tuple(_TEXTS[reason] for reason in Reason)
"""Texts by code; ``np.array(REASON_TEXTS)[codes]`` looks up many at once. ``laws.explain`` has more
detailed ones, with numbers, but needs the problem and its allocation."""
