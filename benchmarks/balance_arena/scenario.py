"""A scenario of the arena: a cluster and its story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.balance_arena.world import World
from quotabalance.planning.policies import Policies
from quotaplane.model import FloatArray


class Event(NamedTuple):
    """Something happens to a broker."""

    minute: int
    what: str
    """``dies``, ``stops`` (its bundles are unloaded first) or ``starts``; ``isolated unloads``: all
    namespaces with an isolation policy are unloaded, as Pulsar does when one is set."""
    broker: int = -1


Factors = Callable[[int], FloatArray]
"""From the minute to the factor of each topic's true rates; shape (T,)."""
Made = tuple[World, Factors | None]


@dataclass(frozen=True)
class Scenario:
    """A cluster and its story."""

    name: str
    make: Callable[[np.random.Generator], Made]
    minutes: int = 180
    sigma: float = 0.1
    events: tuple[Event, ...] = ()
    judged_from: int = 0
    """Rounds are counted from this minute on."""
    seeds: int = 3
    bound: bool = False
    """Whether the exact minimum of bytes is worked out, for the load of the beginning and the last
    policies."""
    balanced: bool = False
    """It begins balanced and stays so: every move and every split is one too many."""
    changes: tuple[int, ...] = ()
    """Minutes in which true rates jump."""
    policies: tuple[tuple[int, Policies], ...] = ()
    """Policies, each with the minute from which they are in force."""

    def policies_at(self, minute: int) -> Policies:
        """The policies in force."""
        past = [policies for begin, policies in self.policies if begin <= minute]
        return past[-1] if past else Policies()
