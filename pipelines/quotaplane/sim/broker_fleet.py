"""Simulated brokers: they obey the newest limits they were sent, and report what they used.

All brokers are kept in arrays of shape (brokers, groups, dimensions), so that a thousand cost a
few array operations an interval; only a report is made broker by broker, as in a real cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.client.receiver import ReceivedLimits
from quotaplane.client.reporter import Reporter
from quotaplane.errors import InputError
from quotaplane.groups.ids import ids_of
from quotaplane.model import (
    BASIC,
    COUNTED,
    DIMENSIONS,
    PARTS,
    UNLIMITED,
    BoolArray,
    FloatArray,
    IntArray,
)
from quotaplane.sim.broker_throttle import BY_DEFAULT, BrokerThrottles
from quotaplane.sim.demand_schedule import added_up
from quotaplane.throttle.terms import ALL_DIMENSIONS, ThrottleTerms, read_throttle
from quotaplane.wire.limits import LimitsMessage, decode_limits
from quotaplane.wire.reports import encode_stock_report

STOCK_MOVE: Final = 0.05
"""A stock broker reports a class again when one of its counts moved by more than this part."""

STOCK_SUPPRESSED: Final = 5
"""... or after this many intervals in which it did not."""

_TOTALS: Final = list(PARTS)
_PLAIN: Final = list(COUNTED)

_CLASSES: Final = (
    slice(0, 2),
    slice(2, 4),
)  # dimensions that stock Pulsar reports, or suppresses, together


@dataclass(frozen=True)
class BrokerSpec:
    """A broker: its name, and which of the report formats it speaks.

    ``throttled``: it reports what it refused, too; ``uses_ids``: ids in place of group names;
    ``totals``: also totals, which otherwise follow from their parts.
    """

    name: str
    format: Literal["own", "stock"] = "own"
    throttled: bool = False
    uses_ids: bool = False
    totals: bool = False


class Report(NamedTuple):
    """What ``transport.BrokerLink.send_reports`` takes."""

    broker: str
    value: bytes
    published_at_ms: int


class BrokerFleet:
    """The cluster's brokers. ``alive`` has shape (brokers,), ``attached`` (brokers, groups).

    A broker limits nothing before it is told to. When a lease ran out it falls back to the safe
    limit that it was told or, until then, to ``safe_limit`` (default: unlimited). Where strict
    limits are promised it must use nothing before it is told to: ``strict`` sees to it.
    ``throttle`` is how it holds to limits where it is told no terms of a group.
    """

    def __init__(
        self,
        specs: tuple[BrokerSpec, ...],
        groups: tuple[str, ...],
        *,
        interval_s: float = 1.0,
        started_at_ms: int = 1,
        safe_limit: float = UNLIMITED,
        strict: bool = False,
        throttle: ThrottleTerms = BY_DEFAULT,
    ) -> None:
        if len({spec.name for spec in specs}) != len(specs):
            raise InputError("brokers: two of them have the same name")
        self.specs, self.groups = specs, groups
        self.names = tuple(spec.name for spec in specs)
        shape = len(specs), len(groups)
        self.refused = 0
        """So many limits messages could not be decoded."""
        self.alive: BoolArray = np.ones(len(specs), dtype=bool)
        self.attached: BoolArray = np.ones(shape, dtype=bool)
        unset = 0.0 if strict else UNLIMITED
        self.received = ReceivedLimits(
            self.names,
            groups,
            started_at_ms=started_at_ms,
            unset=unset,
            unset_safe=0.0 if strict else safe_limit,
            removed=unset,
        )
        """The limits of all brokers; rows and columns are as in ``names`` and ``groups``."""
        self._reporters = [Reporter(name, started_at_ms) for name in self.names]
        self._interval_s = interval_s
        self._counters = np.zeros((*shape, len(COUNTED)))  # used since each broker's start
        # By entity: (broker, group, dimension), the last counting fastest.
        self._entity = np.arange(np.prod((*shape, len(DIMENSIONS)))).reshape(*shape, -1)
        self._enforcers = BrokerThrottles(self._entity.size, throttle, interval_s=interval_s)
        self._told = np.full((*shape, BASIC), np.nan)  # counts a stock broker sent last
        self._uncounted = np.zeros((*shape, BASIC))  # parts of messages, for the next count
        self._suppressed = np.zeros((*shape, len(_CLASSES)), np.int64)
        self._names: pa.StringArray = pa.array(groups, pa.string())
        self._ids = ids_of(groups)

    def limits(self, now_ms: int) -> FloatArray:
        """The limits in force, shape (brokers, groups, dimensions); inf is unlimited."""
        return self.received.all(now_ms)

    def use(self, demand: FloatArray, now_ms: int, broker: int | None = None) -> FloatArray:
        """What gets through of the demand in the interval that ends now, under the limits of now.

        A dead broker and a detached group use nothing. What both parts of a total are let through
        is asked of the total's limit then, and both are cut by as much. The totals of ``demand`` do
        not matter: they are what their parts add up to. ``broker``: whose interval it is, by index;
        the others use nothing. None: everybody's.
        """
        whose: slice | int = slice(None) if broker is None else broker
        there = (self.alive[:, None] & self.attached)[..., None]
        wants, limits = np.where(there, demand, 0.0)[whose], self.limits(now_ms)[whose]
        used, entity = np.zeros(wants.shape), self._entity[whose]
        used[..., _PLAIN] = self._let(wants, limits, entity, _PLAIN)
        let = self._let(added_up(used), limits, entity, _TOTALS)
        for place, total in enumerate(_TOTALS):
            part, both = let[..., place], used[..., total]
            fits = np.divide(part, both, out=np.ones_like(both), where=both > 0.0)
            used[..., PARTS[total]] *= fits[..., None]
        usage = np.zeros(self._entity.shape)
        usage[whose] = added_up(used)
        return usage

    def _let(
        self, wants: FloatArray, limits: FloatArray, entity: IntArray, dimensions: list[int]
    ) -> FloatArray:
        """What gets through in some dimensions, (..., dimensions), each by itself."""
        wants, limits = wants[..., dimensions], limits[..., dimensions]
        of = entity[..., dimensions].ravel()
        return self._enforcers.use(wants.ravel(), limits.ravel(), of).reshape(wants.shape)

    def receive(self, values: Iterable[bytes]) -> int:
        """Apply LimitsUpdate messages; returns how many (broker, group) limits they changed.

        Limits that are not newer than those in force, or of a dead or unknown broker, are not
        applied: whatever order messages come in, and however often, the newest are in force. A
        message that can't be decoded is skipped and counted in ``refused``.
        """
        changed = 0
        for value in values:
            try:
                message = decode_limits(value)
            except InputError:
                self.refused += 1
            else:
                changed += self._apply(message)
        return changed

    def _apply(self, message: LimitsMessage) -> int:
        broker = self.received.row(message.broker)
        if broker < 0 or not self.alive[broker]:
            return 0
        applied = self.received.apply(message)
        self._hold(broker, applied.new_terms)
        return applied.changed

    def _hold(self, broker: int, groups: IntArray) -> None:
        """Hold groups to limits on the terms told; what these don't tell is the broker's own."""
        throttles = self.received.throttles(broker, groups)
        for text in set(throttles):
            told = read_throttle(text or None)
            those = groups[[one == text for one in throttles]]
            for dimension, name in enumerate(DIMENSIONS):
                terms = told.get(name) or told.get(ALL_DIMENSIONS)
                self._enforcers.put(self._entity[broker, those, dimension], terms)

    def reports(self, usage: FloatArray, demand: FloatArray, now_ms: int) -> list[Report]:
        """The interval's reports, one of each living broker that has a group.

        To be called once an interval, as counters grow by it.
        """
        self._counters += usage[..., list(COUNTED)] * self._interval_s
        living = np.flatnonzero(self.alive & self.attached.any(axis=1))
        return [
            Report(self.names[b], self._report(int(b), usage[b], demand[b], now_ms), now_ms)
            for b in living
        ]

    def _report(self, broker: int, usage: FloatArray, demand: FloatArray, now_ms: int) -> bytes:
        spec, here = self.specs[broker], np.flatnonzero(self.attached[broker])
        if spec.format == "stock":
            counts = self._stock_counts(broker, here, usage[here, :BASIC] * self._interval_s)
            return encode_stock_report(spec.name, [self.groups[g] for g in here], counts)
        refused = np.maximum(demand[here] - usage[here], 0.0)
        used = usage[here].copy()
        if not spec.totals:
            used[:, list(PARTS)] = refused[:, list(PARTS)] = np.nan
        return self._reporters[broker].report(
            used,
            window_ms=round(self._interval_s * 1000),
            groups=None if spec.uses_ids else self._names.take(pa.array(here)),
            group_ids=self._ids[here] if spec.uses_ids else None,
            throttled=refused if spec.throttled else None,
            received=self.received,
            columns=here,
            now_ms=now_ms,
            counters=self._counters[broker, here],
        )

    def _stock_counts(self, broker: int, here: IntArray, counts: FloatArray) -> FloatArray:
        """Counts of the period, NaN where stock Pulsar suppresses a class as unchanged."""
        exact = counts + self._uncounted[broker, here]
        counts = np.rint(exact)
        self._uncounted[broker, here] = exact - counts
        told, suppressed = self._told[broker], self._suppressed[broker]
        answer = np.full_like(counts, np.nan)
        for number, columns in enumerate(_CLASSES):
            now, last = counts[:, columns], told[here][:, columns]
            with np.errstate(invalid="ignore"):
                still = (np.abs(now - last) <= STOCK_MOVE * last).all(axis=1)
            still &= suppressed[here, number] < STOCK_SUPPRESSED
            suppressed[here, number] = np.where(still, suppressed[here, number] + 1, 0)
            rows = np.flatnonzero(~still)
            answer[rows, columns] = now[rows]
            told[here[rows], columns] = now[rows]
        return answer

    def die(self, broker: str) -> None:
        """From now on the broker neither serves, nor reports, nor listens."""
        self.alive[self._index(broker)] = False

    def join(self, broker: str, now_ms: int) -> None:
        """Start a broker, or start it again: it knows no limits and counts its reports from 1."""
        at = self._index(broker)
        self.alive[at] = True
        self.received.restart(at, now_ms)
        self._reporters[at].restart(now_ms)
        self._hold(at, np.arange(len(self.groups)))
        self._enforcers.forget(self._entity[at].ravel())
        self._counters[at] = 0.0
        self._told[at] = np.nan
        self._suppressed[at] = 0

    def _index(self, broker: str) -> int:
        at = self.received.row(broker)
        if at < 0:
            raise InputError(f"brokers: there is no {broker!r}")
        return at
