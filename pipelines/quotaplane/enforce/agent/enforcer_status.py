"""The enforcer's status, as its status line and its metrics have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from quotaplane.enforce.agent.enforcer_parts import EnforcerParts
from quotaplane.metrics.readings import Readings

_WRITES: Final = ("written", "removed", "given_back", "vanished", "failed")


class EnforcerStatus(NamedTuple):
    """The state now, and counts since the start; the keys of the status line, in its order."""

    leads: bool  # this enforcer writes, and not another one
    waits_for: str | None  # the input that rates can't be written without; None: all are there
    brokers: int  # of the cluster
    groups: int  # with attached namespaces
    topics: int  # in these
    administrators_rates: int  # of topics and namespaces, in force or recorded
    limited: int  # topics with a rate
    waiting: int  # rates that are to be written, and are not yet
    written: int  # rates of topics, since the start
    removed: int  # rates of topics that were removed, since the start
    given_back: int  # rates of topics that became the administrators' again, since the start
    read: int  # rates of topics, since the start
    vanished: int  # topics that were gone when they were to be written, since the start
    failed: int  # writes of topics' rates, since the start
    taken_over: int  # publish quotas of groups, hidden in the cluster, since the start
    quotas_given_back: int  # publish quotas of groups, since the start
    closed_connections: int  # of muted producers, since the start
    namespaces: int  # writes of namespaces' rates, since the start
    refused_messages: int  # limits messages that were not used, since the start
    cut_groups: int  # limits exceed their quotas, now
    crowded_groups: int  # have more topics than units in their limits, now
    usage_reports: int  # sent, since the start
    observed_every_s: float | None  # longest window of the last usage reports; None: there are none
    errors: int  # failures of any kind, since the start
    conditions: Mapping[str, list[str]]  # what is wrong now: items by the condition's name
    clock_steps: int  # times that the host's clock was set, since the start
    limits_on_arrival_s: float | None  # age of limits that arrive, the least of 10 s
    newest_limits_s: float | None  # age of the newest limits message; None: there was none


class GivenBack(NamedTuple):
    """The figures of ``quotaplane enforce --remove``, as it prints them."""

    removed: int  # rates of topics
    given_back: int  # rates of topics, in whose place administrators' ones are in force again
    failed: int  # writes
    namespaces: int  # writes of namespaces' rates
    quotas_given_back: int  # publish quotas of groups
    left: int  # rates and quotas that could not be given back


def enforcer_readings(status: EnforcerStatus, parts: EnforcerParts) -> Readings:
    """The numbers of the metrics."""
    by_name, received = status._asdict(), parts.listener.received
    now_ms, wall_ms = parts.steady_ms(), parts.now_ms()
    ends_ms = received.lease_ends_ms()
    running = ends_ms[ends_ms >= now_ms]
    numbers: dict[str, float] = {
        **{name: value for name, value in by_name.items() if isinstance(value, int)},
        "alive": wall_ms / 1000,
        "take_over": parts.settings.take_over,
        "limits_in_force": len(running),
        "leases_over": len(ends_ms) - len(running),
    }
    if received.issued_at_ms:
        numbers["newest_limits"] = received.issued_at_ms / 1000
    if len(running):
        numbers["least_lease_end"] = (int(running.min()) - now_ms + wall_ms) / 1000
    if status.limits_on_arrival_s is not None:
        numbers["limits_on_arrival_s"] = status.limits_on_arrival_s
    return Readings(
        {
            **{name: {(): number} for name, number in numbers.items()},
            "writes": {(result,): by_name[result] for result in _WRITES},
            "conditions": {(name,): len(items) for name, items in status.conditions.items()},
            "failures": {(part,): count for part, count in parts.conditions.failures.items()},
        }
    )
