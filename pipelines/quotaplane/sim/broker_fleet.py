"""Simulated brokers: they enforce the newest limits that they received, and report their usage.

All brokers are in arrays of shape (brokers, groups, dimensions), so an interval of a thousand
brokers takes a few array operations. Only reports are made broker by broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.client.light_reports import LightReports
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
"""A stock broker reports a class again if one of its counts changed by more than this part."""

STOCK_SUPPRESSED: Final = 5
"""A stock broker reports a class again after this many intervals without a report."""

_TOTALS: Final = list(PARTS)
_PLAIN: Final = list(COUNTED)

_CLASSES: Final = (
    slice(0, 2),
    slice(2, 4),
)  # dimensions that stock Pulsar reports, or suppresses, together


@dataclass(frozen=True)
class BrokerSpec:
    """A broker: its name, and the format of its reports.

    ``throttled``: reports have the refused rates; ``uses_ids``: ids in place of group names;
    ``totals``: reports have totals, which otherwise follow from their parts. ``named_every``: one
    of so many reports names each group (``client.light_reports``); 0: each report names all.
    """

    name: str
    format: Literal["own", "stock"] = "own"
    throttled: bool = False
    uses_ids: bool = False
    totals: bool = False
    named_every: int = 0


class Report(NamedTuple):
    """A report, as ``transport.BrokerLink.send_reports`` takes it."""

    broker: str
    value: bytes
    published_at_ms: int


class BrokerFleet:
    """The cluster's brokers. ``alive`` has shape (brokers,), ``attached`` (brokers, groups).

    Args:
        specs: the brokers.
        groups: names of the groups.
        interval_s: time between two reports of a broker.
        started_at_ms: start of all brokers, in their reports.
        safe_limit: applies after a lease end, until a safe limit was received.
        strict: a broker without limits uses nothing; False: it is unlimited.
        throttle: terms on which brokers enforce the limits of groups without throttle terms.
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
        """Number of limits messages that could not be decoded."""
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
        """The limits of all brokers, with a row for each of ``names``, a column for each group."""
        self._reporters = [Reporter(name, started_at_ms) for name in self.names]
        self._light = [LightReports(spec.named_every, acknowledges=strict) for spec in specs]
        for light in self._light:
            light.add(len(groups))
        self._interval_s = interval_s
        self._counters = np.zeros((*shape, len(COUNTED)))  # used since each broker's start
        # Index of each entity (broker, group, dimension).
        self._entity = np.arange(np.prod((*shape, len(DIMENSIONS)))).reshape(*shape, -1)
        self._enforcers = BrokerThrottles(self._entity.size, throttle, interval_s=interval_s)
        self._sent = np.full((*shape, BASIC), np.nan)  # last counts in reports of stock brokers
        self._uncounted = np.zeros((*shape, BASIC))  # fractions of messages, for the next count
        self._suppressed = np.zeros((*shape, len(_CLASSES)), np.int64)
        self._names: pa.StringArray = pa.array(groups, pa.string())
        self._ids = ids_of(groups)

    def limits(self, now_ms: int) -> FloatArray:
        """The limits in force, shape (brokers, groups, dimensions); inf is unlimited."""
        return self.received.all(now_ms)

    def use(self, demand: FloatArray, now_ms: int, broker: int | None = None) -> FloatArray:
        """The usage in the interval that ends now, under the current limits.

        A dead broker and a detached group use nothing. The limits of the parts of a total apply
        first. Then the total's limit applies: both parts are reduced by the same fraction. The
        totals in ``demand`` are ignored, as totals are the sums of their parts. ``broker``: index
        of the only broker whose interval it is; the others use nothing. None: it is the interval
        of all brokers.
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
        """The usage in some dimensions, (..., dimensions), each limited by itself."""
        wants, limits = wants[..., dimensions], limits[..., dimensions]
        of = entity[..., dimensions].ravel()
        return self._enforcers.use(wants.ravel(), limits.ravel(), of).reshape(wants.shape)

    def receive(self, values: Iterable[bytes]) -> int:
        """Apply LimitsUpdate messages; returns how many (broker, group) limits they changed.

        Limits that are not newer than those in force, or are for a dead or unknown broker, are not
        applied; duplicate and late messages change nothing. A message that can't be decoded is
        counted in ``refused``.
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
        """Apply the received throttle terms to groups; by default the broker's own apply."""
        throttles = self.received.throttles(broker, groups)
        for text in set(throttles):
            received = read_throttle(text or None)
            those = groups[[one == text for one in throttles]]
            for dimension, name in enumerate(DIMENSIONS):
                terms = received.get(name) or received.get(ALL_DIMENSIONS)
                self._enforcers.put(self._entity[broker, those, dimension], terms)

    def reports(self, usage: FloatArray, demand: FloatArray, now_ms: int) -> list[Report]:
        """The interval's reports, one of each living broker that has a group.

        The call adds the usage to the counters, so there is one call an interval.
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
        if spec.named_every:
            here = self._named(broker, here, usage, demand, now_ms)
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
            named_every=spec.named_every,
        )

    def _named(
        self, broker: int, here: IntArray, usage: FloatArray, demand: FloatArray, now_ms: int
    ) -> IntArray:
        """The groups, of those that are ``here``, that a light report names."""
        light, all_groups = self._light[broker], np.arange(len(self.groups))
        chosen = light.chosen(
            usage,
            np.maximum(demand - usage, 0.0) if self.specs[broker].throttled else None,
            self.received.of(broker, all_groups, now_ms),
            self.received.acknowledged(broker, all_groups)[1],
            self._ids,
            self._reporters[broker].sequence + 1,
        )
        light.sent()
        return here[chosen[here]]

    def _stock_counts(self, broker: int, here: IntArray, counts: FloatArray) -> FloatArray:
        """Counts of the period, NaN where stock Pulsar suppresses a class as unchanged."""
        exact = counts + self._uncounted[broker, here]
        counts = np.rint(exact)
        self._uncounted[broker, here] = exact - counts
        sent, suppressed = self._sent[broker], self._suppressed[broker]
        answer = np.full_like(counts, np.nan)
        for number, columns in enumerate(_CLASSES):
            now, last = counts[:, columns], sent[here][:, columns]
            with np.errstate(invalid="ignore"):
                still = (np.abs(now - last) <= STOCK_MOVE * last).all(axis=1)
            still &= suppressed[here, number] < STOCK_SUPPRESSED
            suppressed[here, number] = np.where(still, suppressed[here, number] + 1, 0)
            rows = np.flatnonzero(~still)
            answer[rows, columns] = now[rows]
            sent[here[rows], columns] = now[rows]
        return answer

    def die(self, broker: str) -> None:
        """Kill a broker: from now on it neither serves, nor reports, nor receives limits."""
        self.alive[self._index(broker)] = False

    def join(self, broker: str, now_ms: int) -> None:
        """Start or restart a broker: it has no limits, and its reports are numbered from 1."""
        at = self._index(broker)
        self.alive[at] = True
        self.received.restart(at, now_ms)
        self._reporters[at].restart(now_ms)
        self._light[at].restart()
        self._hold(at, np.arange(len(self.groups)))
        self._enforcers.forget(self._entity[at].ravel())
        self._counters[at] = 0.0
        self._sent[at] = np.nan
        self._suppressed[at] = 0

    def _index(self, broker: str) -> int:
        at = self.received.row(broker)
        if at < 0:
            raise InputError(f"brokers: there is no {broker!r}")
        return at
