"""The numbers of the enforcer's metrics, from its status and the limits that it received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quotaplane.enforce.limits_received import ClusterLimits
from quotaplane.metrics.readings import Readings

_WRITES: Final = ("written", "removed", "given_back", "vanished", "failed")


def enforcer_readings(
    status: Mapping[str, Any],
    received: ClusterLimits,
    failures: Mapping[str, int],
    *,
    now_ms: float,
    wall_ms: float,
    takes_over: bool,
) -> Readings:
    """The numbers at ``now_ms`` of the clock by which leases end; ``wall_ms``: the wall clock then.

    ``status``: see ``Enforcer.status``; ``failures``: by part of the enforcer.
    """
    ends_ms = received.lease_ends_ms()
    running = ends_ms[ends_ms >= now_ms]
    numbers: dict[str, float] = {
        **{name: value for name, value in status.items() if isinstance(value, int)},
        "alive": wall_ms / 1000,
        "take_over": takes_over,
        "limits_in_force": len(running),
        "leases_over": len(ends_ms) - len(running),
    }
    if received.issued_at_ms:
        numbers["newest_limits"] = received.issued_at_ms / 1000
    if len(running):
        numbers["least_lease_end"] = (int(running.min()) - now_ms + wall_ms) / 1000
    if status["limits_on_arrival_s"] is not None:
        numbers["limits_on_arrival_s"] = status["limits_on_arrival_s"]
    return Readings(
        {
            **{name: {(): number} for name, number in numbers.items()},
            "writes": {(result,): status[result] for result in _WRITES},
            "conditions": {(name,): len(items) for name, items in status["conditions"].items()},
            "failures": {(part,): count for part, count in failures.items()},
        }
    )
