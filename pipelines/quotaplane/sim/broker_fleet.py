"""Simulated brokers: they obey the newest limits they were sent, and report what they used.

All brokers are kept in arrays of shape (brokers, groups, 7), so that a thousand of them cost a
few array operations an interval; only a report is made broker by broker, as in a real cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import BASIC, DIMENSIONS, PARTS, BoolArray, FloatArray, IntArray, group_id
from quotaplane.sim.broker_throttle import BY_DEFAULT, BrokerThrottles
from quotaplane.sim.demand_schedule import added_up
from quotaplane.throttle.terms import ALL_DIMENSIONS, ThrottleTerms, read_throttle
from quotaplane.wire.limits import LimitsMessage, decode_limits
from quotaplane.wire.reports import encode_report, encode_stock_report

STOCK_MOVE: Final = 0.05
"""A stock broker reports a class again when one of its counts moved by more than this part."""

STOCK_SUPPRESSED: Final = 5
"""... or after this many intervals in which it did not."""

_TOTALS: Final = list(PARTS)
_PLAIN: Final = [d for d in range(len(DIMENSIONS)) if d not in PARTS]

LIMITS_EVERY: Final = 10
"""In the first of so many reports a broker says which limits it has in force."""

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
    limit that it was told or, until then, to ``safe_limit`` (default: unlimited; anything that
    broadcasts to (brokers, groups, 7)). Where strict limits are promised it must use nothing before
    it is told to: ``strict`` sees to it. ``throttle`` is how it holds to limits
    where it is told no terms of a group.
    """

    def __init__(
        self,
        specs: tuple[BrokerSpec, ...],
        groups: tuple[str, ...],
        *,
        interval_s: float = 1.0,
        started_at_ms: int = 1,
        safe_limit: FloatArray | float = np.inf,
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
        self._interval_s = interval_s
        self._first = 0.0 if strict else np.inf
        safe = np.asarray(self._first if strict else safe_limit, float)
        self._safe = np.broadcast_to(safe, (*shape, len(DIMENSIONS))).copy()
        self._started_at_ms = np.full(len(specs), started_at_ms, np.int64)
        self._sequence = np.zeros(len(specs), np.int64)
        self._limit = np.full((*shape, len(DIMENSIONS)), self._first)
        # By entity: (broker, group, dimension), the last counting fastest.
        self._entity = np.arange(self._limit.size).reshape(self._limit.shape)
        self._enforcers = BrokerThrottles(self._limit.size, throttle, interval_s=interval_s)
        self._until_ms = np.full(shape, np.iinfo(np.int64).max)
        self._version = np.full((*shape, 2), -1, np.int64)  # (epoch, seq) that _limit came with
        self._told = np.full((*shape, BASIC), np.nan)  # counts a stock broker sent last
        self._suppressed = np.zeros((*shape, len(_CLASSES)), np.int64)
        self._broker_index = {name: i for i, name in enumerate(self.names)}
        self._group_index = {name: i for i, name in enumerate(groups)}
        self._id_index = {group_id(name): i for i, name in enumerate(groups)}

    def limits(self, now_ms: int) -> FloatArray:
        """The limits in force, shape (brokers, groups, 7); inf is unlimited."""
        return np.where((self._until_ms < now_ms)[..., None], self._safe, self._limit)

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
        usage = np.zeros(self._limit.shape)
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
        broker = self._broker_index.get(message.broker)
        if broker is None or not self.alive[broker]:
            return 0
        if message.broker_started_at_ms not in (0, self._started_at_ms[broker]):
            return 0
        version = np.array([message.epoch, message.seq])
        place = self._places(message.groups, message.group_ids)
        known = np.flatnonzero(place >= 0)
        known = known[_newer(version, self._version[broker, place[known]])]
        at, limits = place[known], message.limits[known]
        before = self._limit[broker, at]
        self._limit[broker, at] = limits
        self._until_ms[broker, at] = message.issued_at_ms + message.lease_ms
        self._version[broker, at] = version
        if message.safe_limits is not None:
            self._safe[broker, at] = message.safe_limits[known]
        if message.throttles is not None:
            self._hold(broker, at, [message.throttles[index] for index in known])

        removed = self._places(message.removed_groups, message.removed_group_ids)
        removed = removed[removed >= 0]
        removed = removed[_newer(version, self._version[broker, removed])]
        self._limit[broker, removed] = self._first
        self._until_ms[broker, removed] = np.iinfo(np.int64).max
        self._version[broker, removed] = version
        self._hold(broker, removed, [""] * len(removed))
        return int((before != limits).any(axis=1).sum()) + len(removed)

    def _hold(self, broker: int, groups: IntArray, throttles: list[str]) -> None:
        """Hold groups to their limits on other terms; what these don't tell is the broker's own."""
        for text in set(throttles):
            told = read_throttle(text or None)
            those = groups[[one == text for one in throttles]]
            for dimension, name in enumerate(DIMENSIONS):
                terms = told.get(name) or told.get(ALL_DIMENSIONS)
                self._enforcers.put(self._entity[broker, those, dimension], terms)

    def _places(self, names: Iterable[str], ids: Iterable[int]) -> IntArray:
        places = [self._group_index.get(name, -1) for name in names]
        places += [self._id_index.get(int(number), -1) for number in ids]
        return np.array(places, dtype=np.int64)

    def reports(self, usage: FloatArray, demand: FloatArray, now_ms: int) -> list[Report]:
        """The interval's reports, one of each living broker that has a group."""
        living = np.flatnonzero(self.alive & self.attached.any(axis=1))
        self._sequence[living] += 1
        return [
            Report(self.names[b], self._report(int(b), usage[b], demand[b], now_ms), now_ms)
            for b in living
        ]

    def _report(self, broker: int, usage: FloatArray, demand: FloatArray, now_ms: int) -> bytes:
        spec, here = self.specs[broker], np.flatnonzero(self.attached[broker])
        names = [self.groups[g] for g in here]
        if spec.format == "stock":
            counts = self._stock_counts(broker, here, usage[here, :BASIC] * self._interval_s)
            return encode_stock_report(spec.name, names, counts)
        refused = np.maximum(demand[here] - usage[here], 0.0)
        used = usage[here].copy()
        if not spec.totals:
            used[:, list(PARTS)] = refused[:, list(PARTS)] = np.nan
        version = self._version[broker]
        in_force = self.limits(now_ms)[broker, here]
        newest = max(map(tuple, version.tolist()), default=(-1, -1))
        sequence = int(self._sequence[broker])
        return encode_report(
            broker=spec.name,
            started_at_ms=int(self._started_at_ms[broker]),
            sequence=sequence,
            window_ms=round(self._interval_s * 1000),
            applied=None if newest[0] < 0 else (int(newest[0]), int(newest[1])),
            groups=None if spec.uses_ids else names,
            group_ids=[group_id(name) for name in names] if spec.uses_ids else None,
            usage=used,
            throttled=refused if spec.throttled else None,
            applied_seqs=np.where(version[here, 0] == newest[0], version[here, 1], -1),
            limits=in_force if sequence % LIMITS_EVERY == 1 else None,
        )

    def _stock_counts(self, broker: int, here: IntArray, counts: FloatArray) -> FloatArray:
        """Counts of the period, NaN where stock Pulsar suppresses a class as unchanged."""
        counts = np.rint(counts)
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
        self._started_at_ms[at] = now_ms
        self._sequence[at] = 0
        self._limit[at] = self._first
        self._until_ms[at] = np.iinfo(np.int64).max
        self._version[at] = -1
        self._hold(at, np.arange(len(self.groups)), [""] * len(self.groups))
        self._enforcers.forget(self._entity[at].ravel())
        self._told[at] = np.nan
        self._suppressed[at] = 0

    def _index(self, broker: str) -> int:
        if broker not in self._broker_index:
            raise InputError(f"brokers: there is no {broker!r}")
        return self._broker_index[broker]


def _newer(version: IntArray, than: IntArray) -> BoolArray:
    """Which (epoch, seq) rows of ``than`` are older than ``version``; never the equal ones."""
    newer: BoolArray = (version[0] > than[:, 0]) | (
        (version[0] == than[:, 0]) & (version[1] > than[:, 1])
    )
    return newer
