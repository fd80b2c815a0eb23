"""Conditions that must hold on three Kafka brokers with the plugin, judged by their producers.

Brokers count some 2 percent more bytes than are judged here: those that Kafka adds to messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np

from quotaplane.model import FloatArray
from tests.outside.checks import KEPT_MS, Violation, history, kept_from, nothing_lost, unknown_ends
from tests.outside.journal import Published
from tests.outside.plugin_evidence import SLOT_MS, Disturbance, PluginEvidence, Wait

MUTE_MS: Final = 5_000
"""``quotaplane.mute.max.ms``: nobody is without an acknowledgement for longer."""
_BACK_MS: Final = 5_000
"""After a fault clients are connected again, and a plugin follows the newest limits."""
_FOLLOWS_MS: Final = 3_000
"""A plugin that nothing disturbs is there with a new limit: with a cut, too."""
_BOUND_MS: Final = 10_000
_GOES_ON_MS: Final = 17_000
"""Kafka fences a broker that died after 9 s; a client's request to it takes up to 5 s."""
_LEAST, _MOST = 0.9, 1.05
_CALM: Final = 1.3
"""Part of the quota in ``_BOUND_MS``: for a second all limits may be the higher of the old and the
new one, and for three seconds each broker where the group was idle may use its safe limit."""
_BURST_S: Final = 1.0
"""Kafka's window: what a bucket that was empty lets through at once."""
_BURST_BYTES: Final = 64_000.0
"""A request of 16 kB on each connection, which is not split."""
_FREE: Final = 0.99


def used(evidence: PluginEvidence, group: str, from_ms: int, to_ms: int) -> float:
    """Bytes per second of a group at all brokers."""
    part = slice(evidence.slot(from_ms), evidence.slot(to_ms))
    total = sum(evidence.used[group, broker][part].sum() for broker in evidence.brokers)
    return float(total) * 1000 / (to_ms - from_ms)


def wanted(evidence: PluginEvidence, group: str, from_ms: int, to_ms: int) -> float:
    """Bytes per second that a group wants of its quota, at most all of it."""
    part = slice(evidence.slot(from_ms), evidence.slot(to_ms))
    total = sum(evidence.wanted[group, broker][part].sum() for broker in evidence.brokers)
    return min(float(total) * 1000 / (to_ms - from_ms), evidence.table[group])


# --- when all is quiet ----------------------------------------------------------------------------


def recovered_ms(evidence: PluginEvidence, group: str) -> int | None:
    """ms after the last fault from which on a group used what it may, no more; None: not."""

    def part(from_ms: int, to_ms: int) -> float:
        return used(evidence, group, from_ms, to_ms) / wanted(evidence, group, from_ms, to_ms)

    return kept_from(evidence, part, _LEAST, _MOST)


def recovered(evidence: PluginEvidence) -> Iterator[Violation]:
    """Two leases after the last fault each group uses its quota, or what it wants, and no more."""
    for group in evidence.groups:
        after_ms = recovered_ms(evidence, group)
        if after_ms is None or after_ms > 2 * evidence.lease_ms:
            end_ms = evidence.end_ms
            times = range(end_ms - 6 * KEPT_MS, end_ms, KEPT_MS)
            last = [round(used(evidence, group, at, at + KEPT_MS)) for at in times]
            text = f"{group}: {last} of {evidence.table[group]}; kept from {after_ms} ms on"
            yield Violation("recovered", end_ms, text)


# --- at any time ----------------------------------------------------------------------------------


def followed_ms(evidence: PluginEvidence, broker: str, t_ms: int) -> int:
    """From when on a broker must follow what was published at a time."""
    until_ms = t_ms + _FOLLOWS_MS
    for each in evidence.of_broker(broker):
        if each.from_ms < until_ms and each.to_ms + _BACK_MS > t_ms:
            until_ms = max(until_ms, each.to_ms + _BACK_MS)
    return until_ms


def may_be_in_force(evidence: PluginEvidence, group: str, broker: str) -> FloatArray:
    """The highest limit in bytes per second that a broker may hold a group to, in each slot.

    Of each message the limit until the broker must follow the next one, or the lease end; the safe
    limit until it must follow the next one, as it holds after the lease end and while a group wakes
    up; and the fallback from the broker's start until it must have read limits.
    """
    highest = np.zeros(evidence.slot(evidence.end_ms) + 1)

    def allow(from_ms: float, to_ms: float, limit: float) -> None:
        part = slice(evidence.slot(from_ms), evidence.slot(to_ms) + 1)
        highest[part] = np.maximum(highest[part], limit)

    def end(nexts: Published | None) -> int:
        return evidence.end_ms if nexts is None else followed_ms(evidence, broker, nexts.t_ms)

    found = [e for e in evidence.published if (e.group, e.broker) == (group, broker)]
    for at, each in enumerate(found):
        over_ms = each.issued_at_ms + each.lease_ms + _FOLLOWS_MS
        allow(each.t_ms, min(over_ms, end(next(iter(found[at + 1 :]), None))), each.limit)
        if each.safe is not None:
            newer = (other for other in found[at + 1 :] if other.safe is not None)
            allow(each.t_ms, end(next(newer, None)), each.safe)
    first_ms = found[0].t_ms if found else evidence.end_ms
    allow(evidence.begun_ms, followed_ms(evidence, broker, first_ms), np.inf)
    for start in (each for each in evidence.disturbed if each.target == broker):
        read_ms = followed_ms(evidence, broker, start.to_ms) + _BACK_MS
        allow(start.from_ms, read_ms, evidence.fallback)
    return highest


def of_allowed(evidence: PluginEvidence, group: str, broker: str) -> FloatArray:
    """Used part of what a broker may let through in ``KEPT_MS``, from each slot on."""
    limits = may_be_in_force(evidence, group, broker)
    slots = KEPT_MS // SLOT_MS
    burst = round(1000 * _BURST_S) // SLOT_MS
    windows = np.lib.stride_tricks.sliding_window_view
    most = windows(limits, slots).max(axis=1) * burst * SLOT_MS / 1000
    allowed = windows(limits, slots).sum(axis=1) * SLOT_MS / 1000 + most + _BURST_BYTES
    got = windows(evidence.used[group, broker], slots).sum(axis=1)
    both = min(len(got), len(allowed))
    parts: FloatArray = got[:both] / allowed[:both]
    return parts


def obeyed(evidence: PluginEvidence) -> Iterator[Violation]:
    """No broker lets through more of a group than a limit that it may have."""
    for group in evidence.groups:
        for broker in evidence.brokers:
            parts = of_allowed(evidence, group, broker)
            at = int(parts.argmax())
            if parts[at] > 1.0:
                text = f"{group} used {parts[at]:.0%} of what {broker} may let through in 5 s"
                yield Violation("obeyed", evidence.begun_ms + at * SLOT_MS, text)


def bound(evidence: PluginEvidence, group: str, t_ms: int) -> float:
    """Bytes per second that all brokers together may let through in the ``_BOUND_MS`` from a time.

    docs/explain/laws.md (fast): limits in force add up to at most the quota, but for messages under
    way, and for unreachable brokers, which have their last limit until the lease end, and then
    their safe one; each is at most the quota. When the job is away, the first brokers may have
    their safe limits while another one has its limit: twice the quota at most.
    """
    near = _near(evidence, t_ms)
    quota = recent_quota(evidence, group, t_ms)
    if not near:
        return _CALM * quota
    away = {each.target.removeprefix("plugin of ") for each in near} & {*evidence.brokers}
    unreachable = min(max(len(away), 1), len(evidence.brokers) - 1)
    started = len({each.target for each in near} & {*evidence.brokers})
    return (1 + unreachable) * quota + started * evidence.fallback


def recent_quota(evidence: PluginEvidence, group: str, t_ms: int) -> float:
    """The highest quota that limits in force may be of, in the ``_BOUND_MS`` from a time."""
    near = _near(evidence, t_ms)
    from_ms = min([t_ms, *(each.from_ms - evidence.lease_ms for each in near)]) - _BOUND_MS
    found = [evidence.quotas[group]]
    for put in (put for put in evidence.puts if put.group == group):
        if put.acknowledged and put.ended_ms <= from_ms:
            found = []
        if put.begun_ms <= t_ms + _BOUND_MS:
            found.append(put.quota)
    return max(found)


def _near(evidence: PluginEvidence, t_ms: int) -> list[Disturbance]:
    """Disturbances whose limits may still be in force."""
    recent_ms = t_ms - evidence.lease_ms - _BOUND_MS
    end_ms = t_ms + _BOUND_MS
    return [e for e in evidence.disturbed if e.from_ms < end_ms and e.to_ms > recent_ms]


def _parts(
    evidence: PluginEvidence, group: str, of: Callable[[PluginEvidence, str, int], float]
) -> list[tuple[float, int]]:
    times = range(evidence.begun_ms, evidence.end_ms - _BOUND_MS, 1000)
    return [
        (used(evidence, group, at, at + _BOUND_MS) / of(evidence, group, at), at) for at in times
    ]


def most_of_bound(evidence: PluginEvidence, group: str) -> tuple[float, int]:
    """The largest used part of the bound, and when."""
    return max(_parts(evidence, group, bound))


def most_of_quota(evidence: PluginEvidence, group: str) -> float:
    """The largest used part of a recent quota."""
    return max(_parts(evidence, group, recent_quota))[0]


def bounded(evidence: PluginEvidence) -> Iterator[Violation]:
    """All brokers together never let through more of a group than they may."""
    for group in evidence.groups:
        part, at_ms = most_of_bound(evidence, group)
        if part > 1.0:
            text = f"{group} used {part:.0%} of {bound(evidence, group, at_ms):.0f}/s in 10 s"
            yield Violation("bounded", at_ms, text)


def served_waits(evidence: PluginEvidence) -> Iterator[Wait]:
    """Waits at brokers that were there."""
    for wait in evidence.waits:
        pieces = [(wait.from_ms, wait.to_ms)]
        for each in _gone(evidence, wait.seat[1]):
            around = (each.from_ms, each.to_ms + _BACK_MS)
            pieces = [piece for from_to in pieces for piece in _without(from_to, around)]
        yield from (wait._replace(from_ms=begun, to_ms=end) for begun, end in pieces)


def _gone(evidence: PluginEvidence, broker: str) -> Iterator[Disturbance]:
    return (each for each in evidence.disturbed if each.target == broker)


def _without(piece: tuple[int, int], gone: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The pieces of a time that are left.

    >>> [*_without((10, 20), (12, 15))], [*_without((10, 20), (5, 30))]
    ([(10, 12), (15, 20)], [])
    """
    for begun, end in ((piece[0], min(piece[1], gone[0])), (max(piece[0], gone[1]), piece[1])):
        if begun < end:
            yield begun, end


def longest_mute_ms(evidence: PluginEvidence) -> int:
    """The longest of them."""
    return max((wait.to_ms - wait.from_ms for wait in served_waits(evidence)), default=0)


def nobody_mute(evidence: PluginEvidence) -> Iterator[Violation]:
    """No message waits for long at a broker that lives."""
    for wait in served_waits(evidence):
        if wait.to_ms - wait.from_ms > MUTE_MS:
            group, broker = wait.seat
            text = f"{group} waited for {wait.to_ms - wait.from_ms} ms at {broker}"
            yield Violation("nobody mute", wait.from_ms, text)


def others_lose_nothing(evidence: PluginEvidence) -> Iterator[Violation]:
    """Clients without a quota get what they want, wherever a broker lives."""
    for (group, broker), got in evidence.used.items():
        if group in evidence.quotas:
            continue
        counts = np.ones(len(got), dtype=bool)
        for each in _gone(evidence, broker):
            around = slice(evidence.slot(each.from_ms), evidence.slot(each.to_ms + _BACK_MS) + 1)
            counts[around] = False
        wants = evidence.wanted[group, broker][counts].sum()
        if got[counts].sum() < _FREE * wants:
            text = f"{group} got {got[counts].sum() / wants:.1%} of what it wanted at {broker}"
            yield Violation("others lose nothing", evidence.end_ms, text)


def longest_pause_ms(evidence: PluginEvidence) -> tuple[int, int]:
    """The longest time in which a job that nothing disturbed published no limits; and its begin."""
    times = sorted({each.t_ms for each in evidence.published})
    away = [e for e in evidence.disturbed if e.target in ("job", "network of job")]
    pauses = [
        (end - begun, begun)
        for begun, end in pairwise([*times, max(evidence.end_ms, times[-1])])
        if not any(each.from_ms < end and each.to_ms > begun for each in away)
    ]
    return max(pauses, default=(0, evidence.begun_ms))


def job_goes_on(evidence: PluginEvidence) -> Iterator[Violation]:
    """The job decides whatever happens to one broker."""
    pause_ms, begun_ms = longest_pause_ms(evidence)
    if pause_ms > _GOES_ON_MS:
        yield Violation("job goes on", begun_ms, f"no limits were published for {pause_ms} ms")


def ends_and_history(evidence: PluginEvidence) -> Iterator[Violation]:
    """Known exit codes; an intact history."""
    yield from unknown_ends(evidence.exits)
    yield from history(evidence)


PLUGIN_CHECKS = (
    recovered,
    obeyed,
    bounded,
    nobody_mute,
    others_lose_nothing,
    job_goes_on,
    nothing_lost,
    ends_and_history,
)
