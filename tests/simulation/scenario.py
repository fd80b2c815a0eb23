"""Scenario of a seed: the cluster's size, the settings, and which faults occur how often.

Each seed enables a random part of all faults ("swarm testing": Groce et al., ISSTA 2012). A run in
which everything breaks at once gets nowhere near the states behind a single kind of fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from quotaplane.model import DIMENSIONS, Transition
from quotaplane.settings import Settings, parse_settings

INTERVAL_MS: Final = 1000
STALE_INTERVALS: Final = 2
STALE_MS: Final = STALE_INTERVALS * INTERVAL_MS

_TREES: Final = (
    ("g",),
    ("g", "h"),
    ("t", "t::a"),
    ("t", "t::a", "t::b"),
    ("g", "t", "t::a", "t::b"),
    ("t", "t::a", "t::a::x", "g"),
)

FAULTS: Final = {
    "job_crash": (0.05, 0.3),
    "job_frozen": (0.02, 0.1),
    "second_job": (0.01, 0.05),
    "lost_state": (0.01, 0.05),
    "old_checkpoint": (0.01, 0.05),
    "two_starts": (0.005, 0.03),
    "lost_history": (0.005, 0.03),
    "broker_crash": (0.02, 0.15),
    "broker_frozen": (0.02, 0.1),
    "partition": (0.02, 0.15),
    "deaf": (0.02, 0.15),
    "mute": (0.02, 0.15),
    "clock_small": (0.02, 0.2),
    "clock_large": (0.005, 0.03),
    "quota_change": (0.02, 0.2),
    "group_gone": (0.01, 0.1),
    "topics_move": (0.02, 0.2),
    "demand": (0.1, 0.5),
}
"""Faults, and how often they happen at least and at most, per second."""


LATER_FAULTS: Final = {
    "slow_limits": (0.02, 0.1),
    "deletion_missed": (0.02, 0.1),
    "power_loss": (0.02, 0.15),
}
"""Faults that were added later. Another generator chooses them, so that seeds without them stay as
they were."""

LATEST_FAULTS: Final = {"state_lost_unheard": (0.01, 0.05)}
"""As ``LATER_FAULTS``, by yet another generator."""

_LATER: Final = "later 2540"
"""Seeds of those generators: with these, most first seeds of planted bugs stayed."""
_LATEST: Final = "latest 30"
_AFTER_FAST: Final = "after fast 14"

_UNPLAIN: Final = frozenset(
    {
        "clock_small",
        "clock_large",
        "group_gone",
        "broker_crash",
        "deletion_missed",
        "state_lost_unheard",
    }
)


@dataclass(frozen=True)
class Network:
    """Delivery of messages: loss, repetition and delay; chances from 0 to 1."""

    loss: float
    twice: float
    late: float
    """Chance of a delay of up to ``most_delay_ms``, else it is short."""
    most_delay_ms: int
    least_delay_ms: int
    """Every message takes at least so long, also at the end."""


@dataclass(frozen=True)
class Scenario:
    """Everything that is fixed for a run."""

    seed: int
    settings: Settings = field(repr=False)
    strict: bool
    brokers: int
    groups: tuple[str, ...]
    dimensions: tuple[int, ...]
    """Limited dimensions, as indexes."""
    persistent: bool
    """The reports topic keeps its messages."""
    network: Network
    faults: dict[str, float]
    """Times per second by name, only those that are enabled."""
    demand_noise: float
    """The demand of a broker differs from report to report by up to this share."""
    after_fast: bool
    """Strict, but the first checkpoint runs under fast, and its state is lost early."""
    chaos_rounds: int

    def settings_of(self, *, fast: bool) -> Settings:
        """Settings of a job, perhaps of the one before that runs under fast."""
        if not fast:
            return self.settings
        limits = self.settings.limits.model_copy(update={"transition": Transition.FAST})
        return self.settings.model_copy(update={"limits": limits})

    @property
    def lease_ms(self) -> int:
        """How long limits hold."""
        return int(self.settings.limits.lease_s * 1000)

    @property
    def spools(self) -> bool:
        """Reports of a non-persistent topic are kept on the disk until their batch is committed."""
        return self.strict and not self.persistent

    @property
    def repeats(self) -> bool:
        """A batch that runs again reads the same reports."""
        return self.persistent or self.spools

    @property
    def has_plain_hand_back(self) -> bool:
        """Nothing happens that would make it hard to say which limits must be handed back."""
        return not _UNPLAIN.intersection(self.faults)

    def in_words(self) -> str:
        """The scenario on a few lines."""
        limits, names = self.settings.limits, [DIMENSIONS[at] for at in self.dimensions]
        return f"{self}\nlimits of {names}: {limits}, {self.settings.shards} shards"

    def traits(self) -> frozenset[str]:
        """Kinds of faults in this scenario, and its other traits."""
        has = {
            "strict": self.strict,
            "tree": any("::" in group for group in self.groups),
            "signed": self.settings.limits.signing is not None,
            "persistent": self.persistent,
            "spools": self.spools,
            "repeats": self.repeats,
            "lost": self.network.loss > 0,
            "late": self.network.most_delay_ms > 1000,
            "slow": self.network.least_delay_ms > 0,
            "noisy": self.demand_noise > 0.0,
            "after_fast": self.after_fast,
            "plain_hand_back": self.has_plain_hand_back,
        }
        return frozenset(self.faults).union(name for name, there in has.items() if there)

    @property
    def settled_after_ms(self) -> int:
        """After the last fault, everybody is served after so long.

        A state may have been lost with the last fault: its learning mode lasts a lease from the end
        of the last one, and brokers that are gone count for one more, with the clocks' difference.
        """
        rounds = 3 * self.settings.limits.refresh_rounds + 12
        return 2 * (self.lease_ms + 2 * STALE_MS) + rounds * INTERVAL_MS


def scenario_of(seed: int, rng: Random, *, chaos_rounds: int | None = None) -> Scenario:
    """Draw the scenario of a seed."""
    strict = rng.random() < 0.6
    refresh = rng.choice([2, 3])
    limits: dict[str, Any] = {
        "transition": Transition.STRICT.value if strict else Transition.FAST.value,
        "refresh_rounds": refresh,
        "lease_s": float(rng.choice([2 * refresh, 2 * refresh + 3, 12])),
        "max_step": rng.choice([None, None, None, 0.2]),
    }
    if rng.random() < 0.3:
        secret = "0123456789abcdef0123456789abcdef"
        limits["signing"] = {"keys": {"a": secret}, "sign_with": "a"}
    enabled = {name: span for name, span in FAULTS.items() if rng.random() < 0.45}
    others = [3, 0, 1, 2, 4, 6]
    dimensions = {rng.choice([0, 0, 0, *others])}
    if rng.random() < 0.25:
        dimensions.add(rng.choice(others))
    wild = rng.random() < 0.6
    later = Random(f"{seed} {_LATER}")
    spools = strict and later.random() < 0.25
    added = {name: span for name, span in LATER_FAULTS.items() if later.random() < 0.25}
    latest = Random(f"{seed} {_LATEST}")
    newest = {
        n: latest.uniform(*span) for n, span in LATEST_FAULTS.items() if latest.random() < 0.1
    }
    after_fast = strict and not spools and Random(f"{seed} {_AFTER_FAST}").random() < 0.1
    return Scenario(
        seed=seed,
        settings=parse_settings(
            {
                "transport": {"kind": "delta", "path": "unused"},
                "history": {"path": "unused", "recording_days": 0},
                "checkpoint": "unused",
                "shards": rng.choice([1, 1, 1, 2, 3]),
                "reports": {"interval_s": INTERVAL_MS / 1000},
                "brokers": {"stale_after_intervals": STALE_INTERVALS, "expire_after_intervals": 3},
                "limits": limits,
            }
        ),
        strict=strict,
        brokers=rng.randint(2, 5),
        groups=rng.choice(_TREES),
        dimensions=tuple(sorted(dimensions)),
        persistent=(strict or rng.random() < 0.6) and not spools,
        network=Network(
            loss=rng.choice([0.0, 0.05, 0.3]) if wild else 0.0,
            twice=rng.choice([0.0, 0.1]) if wild else 0.0,
            late=rng.choice([0.1, 1.0]),
            most_delay_ms=rng.choice([50, 800, 4000, 12_000]) if wild else 50,
            least_delay_ms=rng.choice([0, 0, 0, 600]),
        ),
        faults={name: rng.uniform(*span) for name, span in enabled.items()}
        | {name: later.uniform(*span) for name, span in added.items()}
        | newest,
        demand_noise=rng.choice([0.0, 0.0, 0.0, 0.3]),
        after_fast=after_fast,
        chaos_rounds=chaos_rounds or rng.choice([30, 50, 80]),
    )
