"""Reports of a broker are of one incarnation at a time: of the one that counts, while it reports.

A broker that restarts ends first and then reports as another incarnation. If both go on to report,
two programs use one name: by mistake, or because one writes in the other's name. A start time
proves nothing, as anybody may claim a later one. So neither start nor format decides which of the
two counts, but who counted before, until its own reports stay away.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.arrow import indices_of
from quotaplane.model import BoolArray, IntArray
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import StepConfig

_ABSENT_INTERVALS: Final = 1.5
"""Without a report of the incarnation that counts for this long, another one may be a restart: the
next report would be its second missing one."""
_DISPUTED_MS: Final = 600_000
"""Time after its last report when another incarnation is forgotten."""


class OneIncarnation(NamedTuple):
    """Which of a round's r reports are not of the incarnation that counts."""

    brokers: Brokers
    held: BoolArray
    """(r,) another incarnation reports, as after a quick restart: it does not count yet."""
    disputed: BoolArray
    """(r,) another incarnation reports, and the one that counts goes on beside it."""
    recorded: BoolArray
    """(r,) those held with a later start: no report of theirs was read before, so their usage is
    recorded all the same."""


def one_incarnation(
    brokers: Brokers, headers: pa.Table, observed: BoolArray, now_ms: int, config: StepConfig
) -> OneIncarnation:
    """Find the reports that do not count because another incarnation of their broker does.

    An incarnation takes over once the one that counted was absent. If a round has reports of both,
    as after a time without rounds, their publish times decide. ``observed`` (r,): the enforcer made
    the report; it is of whatever incarnation runs. Reports that were sent again are left to
    ``order_reports``: they are older than the newest one that counted.
    """
    broker = indices_of(headers["broker"].combine_chunks(), pa.array(brokers.names, pa.string()))
    known = np.flatnonzero((broker >= 0) & ~observed)
    b = broker[known]
    # A start in the future was wrong: see ``order_reports``.
    plausible = brokers.started_at_ms <= now_ms + config.max_clock_skew_ms
    counting = (brokers.reported_at_ms >= 0) & plausible
    started, sequence, published_ms = (
        headers[name].to_numpy()[known] for name in ("started_at_ms", "sequence", "published_at_ms")
    )
    published_ms = np.minimum(published_ms, now_ms)
    same = started == brokers.started_at_ms[b]
    other = counting[b] & ~same
    if not other.any():
        return OneIncarnation(brokers, *np.zeros((3, len(headers)), bool))
    disputed = _disputed(brokers, now_ms, config)
    absent_ms = np.where(disputed, config.expire_after_ms, _absent_ms(config))
    absent = now_ms - brokers.reported_at_ms > absent_ms
    last_ms = np.full(len(brokers), -1, np.int64)
    goes_on = same & (sequence > brokers.sequence[b])
    np.maximum.at(last_ms, b[goes_on], published_ms[goes_on])

    later = started > brokers.started_at_ms[b]
    newest = published_ms > brokers.seen_at_ms[b]
    follows = (last_ms[b] < 0) | (published_ms > (last_ms + absent_ms)[b])
    replaced, returned = np.zeros((2, len(brokers)), bool)
    replaced[b[other & later & absent[b] & follows]] = True
    # One with an earlier start is not a restart, so it also has to be alone.
    returns = other & ~later & newest & (absent & ~replaced & (last_ms < 0))[b]
    returned[b[returns]] = True
    refused = other & np.where(later, ~replaced[b], newest & ~returned[b])
    held, recorded = np.zeros((2, len(headers)), bool)
    held[known[refused]] = True
    recorded[known[refused & later]] = True
    first_ms = np.full(len(brokers), now_ms)
    np.minimum.at(first_ms, b[refused], published_ms[refused])
    is_refused = np.zeros(len(brokers), bool)
    is_refused[b[refused]] = True
    brokers = _after(brokers, is_refused, first_ms, disputed, now_ms, config)
    brokers = _replaced(brokers, replaced, returned)
    is_disputed = np.append(disputed, False)[broker]
    return OneIncarnation(brokers, held & ~is_disputed, held & is_disputed, recorded & ~is_disputed)


def _absent_ms(config: StepConfig) -> float:
    return min(_ABSENT_INTERVALS * config.round_ms, config.stale_after_ms)


def _disputed(brokers: Brokers, now_ms: int, config: StepConfig) -> BoolArray:
    """(b,) brokers of which one incarnation went on to report after another one had begun to.

    Late reports of one that ended may still be read, but were published before the other began.
    """
    since_ms = brokers.disputed_at_ms
    disputed: BoolArray = (since_ms >= 0) & (now_ms - since_ms <= _DISPUTED_MS)
    disputed &= _went_on_ms(brokers) > since_ms + _absent_ms(config)
    return disputed


def _went_on_ms(brokers: Brokers) -> IntArray:
    """(b,) until when the one that counts went on: its reports were read, and published, by then.

    The enforcer's observations, which are of any incarnation, were published but are not its own.
    """
    return np.minimum(brokers.reported_at_ms, brokers.seen_at_ms)


def _after(
    brokers: Brokers,
    refused: BoolArray,
    first_ms: IntArray,
    disputed: BoolArray,
    now_ms: int,
    config: StepConfig,
) -> Brokers:
    """The brokers, with since when another incarnation is refused; ``first_ms`` (b,): published."""
    forgotten = now_ms - brokers.disputed_at_ms > _DISPUTED_MS
    since_ms = np.where(forgotten, -1, brokers.disputed_at_ms)
    # A clock that was set back with a restart must not make the reports before it later.
    begun_ms = np.maximum(first_ms, brokers.seen_at_ms)
    since_ms = np.where(refused & (since_ms < 0), begun_ms, since_ms)
    # A dispute lasts from the last refusal on.
    latest_ms = _went_on_ms(brokers) - int(_absent_ms(config)) - 1
    since_ms = np.where(refused & disputed, np.maximum(since_ms, latest_ms), since_ms)
    return replace(brokers, disputed_at_ms=since_ms)


def _replaced(brokers: Brokers, replaced: BoolArray, returned: BoolArray) -> Brokers:
    """The brokers, ready for another incarnation."""
    return replace(
        brokers,
        # Any report is newer than the least number.
        started_at_ms=np.where(returned, 0, brokers.started_at_ms),
        sequence=np.where(returned, -1, brokers.sequence),
        disputed_at_ms=np.where(replaced | returned, -1, brokers.disputed_at_ms),
    )
