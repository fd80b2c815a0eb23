"""The scenario of a seed in the enforcer's world: the cluster, the settings, and the faults."""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from quotaplane.settings import Settings, parse_settings
from tests.simulation.enforcer_faults import FAULTS, LATER_FAULTS
from tests.unit.pulsar_admin.cluster_cases import IN_MEMORY

LEASE_MS: Final = 10_000
ROUND_MS: Final = 1000


class EnforcerScenario(NamedTuple):
    """Everything that is fixed for a run."""

    seed: int
    groups: tuple[str, ...]
    brokers: int
    requests_at_once: int
    settings: Settings
    faults: dict[str, float]
    """Times per second by name, only those that are enabled."""
    chaos_s: int

    def in_words(self) -> str:
        """The scenario on a few lines."""
        return f"enforcer: {self._replace(settings=self.settings.enforce)}"

    def traits(self) -> frozenset[str]:
        """Kinds of faults in this scenario, and its other traits."""
        has = {self.settings.enforce.without_limits, f"on_exit_{self.settings.enforce.on_exit}"}
        return frozenset(self.faults).union(has)


def enforcer_scenario_of(seed: int, rng: Random) -> EnforcerScenario:
    """Draw the scenario of a seed."""
    enabled = {name: span for name, span in FAULTS.items() if rng.random() < 0.45}
    hands_back = rng.random() < 0.3
    later = Random(f"{seed} later")
    added = {name: span for name, span in LATER_FAULTS.items() if later.random() < 0.25}
    return EnforcerScenario(
        seed=seed,
        groups=rng.choice([("g",), ("g", "h"), ("g", "h", "k")]),
        brokers=rng.randint(1, 3),
        requests_at_once=rng.choice([1, 4, 16]),
        settings=parse_settings(
            {
                "transport": {
                    "kind": "pulsar",
                    "service_url": "pulsar://127.0.0.1:1",
                    "admin_url": IN_MEMORY,
                    "limits_topic": "persistent://public/default/limits",
                },
                "history": {"path": "unused"},
                "checkpoint": "unused",
                "cluster": {},
                "limits": {"lease_s": LEASE_MS / 1000, "refresh_rounds": 2},
                "reports": {"interval_s": ROUND_MS / 1000},
                "enforce": {
                    "interval_s": 1.0,
                    "on_exit": rng.choice(["keep", "safe", "remove"]),
                    "without_limits": "give_back" if hands_back else "safe",
                    "give_back_after_s": 30.0,
                },
            }
        ),
        faults={name: rng.uniform(*span) for name, span in enabled.items()}
        | {name: later.uniform(*span) for name, span in added.items()},
        chaos_s=rng.choice([40, 60, 90]),
    )
