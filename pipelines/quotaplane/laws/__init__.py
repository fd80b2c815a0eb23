"""Division laws: pure functions of quota, usage, demand to brokers' limits (docs/explain/laws.md).

>>> law = get_law("max_min")
>>> law(one_group(100, demand=[40, 80, 10])).limits
array([40., 50., 10.])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from quotaplane.errors import ConfigError
from quotaplane.laws.explain import explain
from quotaplane.laws.max_min import max_min
from quotaplane.laws.pip82 import pip82
from quotaplane.laws.problem import Allocation, Law, Problem
from quotaplane.laws.reason import REASON_TEXTS, Reason
from quotaplane.laws.simple import proportional, static
from quotaplane.laws.tree import effective_quota

__all__ = [
    "DEFAULT_LAW",
    "LAWS",
    "REASON_TEXTS",
    "Allocation",
    "Law",
    "LawInfo",
    "Problem",
    "Reason",
    "effective_quota",
    "explain",
    "get_law",
    "one_group",
]

DEFAULT_LAW: Final = "max_min"


@dataclass(frozen=True, slots=True)
class LawInfo:
    """A law's description."""

    function: Callable[..., Allocation]
    summary: str
    conserving: bool
    """Whether the limits of a group never exceed its quota together, not even briefly."""
    uses_usage: bool
    """Whether the limits depend on usage or demand."""
    options: Mapping[str, tuple[Any, ...]]
    """Allowed values of each option, the default first."""


LAWS: Final[Mapping[str, LawInfo]] = {
    "max_min": LawInfo(
        max_min,
        "exact weighted max-min with floors, ceilings and priorities; spare quota as headroom",
        True,
        True,
        {},
    ),
    "static": LawInfo(static, "the quota divided evenly, by weight", True, False, {}),
    "pip82": LawInfo(
        pip82,
        "PIP-82 as it is worded: residual, reduction, stealing",
        False,
        True,
        {
            "residual": ("each", "proportional"),
            "reduction": ("proportional", "dominant"),
            "steal": (True, False),
        },
    ),
    "proportional": LawInfo(
        proportional, "what stock Pulsar computes: in proportion to usage", False, True, {}
    ),
}
"""All laws by name."""


def get_law(name: str, options: Mapping[str, Any] | None = None) -> Law:
    """Return a law with its options set.

    Raises:
        ConfigError: there is no such law or option, or the option does not allow that value.

    >>> get_law("pip82", {"residual": "proportional"})(one_group(100, usage=[10, 30])).limits
    array([25., 75.])
    >>> get_law("max_min", {"steal": True})
    Traceback (most recent call last):
    quotaplane.errors.ConfigError: options.steal: unknown option of law max_min (it has none)
    """
    if name not in LAWS:
        raise ConfigError(f"law: unknown law {name!r} (there are: {', '.join(LAWS)})")
    known = LAWS[name].options
    chosen = {option: values[0] for option, values in known.items()}
    for option, value in (options or {}).items():
        if option not in known:
            has = f"has: {', '.join(known)}" if known else "it has none"
            raise ConfigError(f"options.{option}: unknown option of law {name} ({has})")
        # Compare types, too: 1 == True, but an option that allows true does not allow 1.
        if not any(type(value) is type(allowed) and value == allowed for allowed in known[option]):
            words = " or ".join(str(allowed).lower() for allowed in known[option])
            raise ConfigError(f"options.{option}: must be {words}, not {value!r}")
        chosen[option] = value
    return partial(LAWS[name].function, **chosen) if chosen else LAWS[name].function


def one_group(
    quota: float,
    *,
    demand: Sequence[float] | None = None,
    usage: Sequence[float] | None = None,
    limit: Sequence[float] | None = None,
    weight: Sequence[float] | None = None,
    floor: Sequence[float] | None = None,
    ceiling: Sequence[float] | None = None,
    priority: Sequence[int] | None = None,
) -> Problem:
    """A problem with one group, for tests, docs and trying out a law.

    Defaults: demand = usage and vice versa, limit inf, weight 1, floor 0, no ceiling, one priority
    for all.

    >>> one_group(100, usage=[80, 20]).demand
    array([80., 20.])
    """
    known = [values for values in (demand, usage, limit, weight, floor) if values is not None]
    count = len(known[0]) if known else 0

    def array(values: Sequence[float] | None, default: Sequence[float]) -> Any:
        return np.array(default if values is None else values, dtype=np.float64)

    nothing = [0.0] * count
    return Problem(
        starts=np.array([0, count]),
        quota=np.array([quota], dtype=np.float64),
        usage=array(usage, nothing if demand is None else demand),
        limit=array(limit, [np.inf] * count),
        demand=array(demand, nothing if usage is None else usage),
        weight=array(weight, [1.0] * count),
        floor=array(floor, nothing),
        ceiling=None if ceiling is None else array(ceiling, ()),
        priority=None if priority is None else np.array(priority, dtype=np.int64),
    )
