"""Moves and splits that were ordered: under way, seen, or missed and to be tried again."""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Skip
from quotabalance.planning.options import BalanceOptions
from quotaplane.model import FloatArray

UNDER_WAY: Final = "under way"
SEEN: Final = "seen"
MISSED: Final = "missed"
PROPOSED: Final = "proposed"
"""Decided, but it needs an administrator's approval: it is not under way."""


TIMEOUT_S: Final = 180.0
"""A move that is not seen after this time was missed; each order under way adds a second."""

RETRY_AFTER_S: Final = 300.0
"""A missed bundle is tried again after this, then after twice this, up to ``grace_s``."""

SECONDS_A_MOVE: Final = 1.0
"""Moves are made one after the other: the time that each one under way gives to all others."""


class Order(NamedTuple):
    """A move (or split) that was ordered."""

    bundle: str
    source: str
    target: str
    """"" = a split."""
    ordered_at_s: float
    rates: tuple[float, float, float]
    """Bytes per second in and out, and messages per second, when it was ordered."""
    status: str = UNDER_WAY
    attempts: int = 1
    missed_at_s: float = 0.0

    def rests_until_s(self, options: BalanceOptions) -> float:
        """When the bundle may be ordered again."""
        if self.status == PROPOSED:
            return -math.inf
        if self.status != MISSED:
            return self.ordered_at_s + options.grace_s
        wait = RETRY_AFTER_S * 2.0 ** (min(self.attempts, 40) - 1)
        return self.missed_at_s + min(wait, max(options.grace_s, RETRY_AFTER_S))


class NotMade(NamedTuple):
    """An order that the executor has not carried out: its row of ``balance_actions``."""

    bundle: str
    ordered_at_ms: int
    tried: bool
    """False: it was not even begun, for a reason that does not concern it."""
    why: str
    """The outcome, and the executor's reason."""


def not_made_text(orders: Sequence[NotMade]) -> str:
    """Orders as JSON.

    >>> name = "acme/a/0x00000000_0xffffffff"
    >>> order = NotMade(name, 1_700_000_000_000, True, "refused: it is gone")
    >>> not_made_of(not_made_text([order])) == (order,)
    True
    """
    return json.dumps([list(order) for order in orders])


def not_made_of(text: str | bytes) -> tuple[NotMade, ...]:
    """Orders from JSON."""
    rows = json.loads(text)
    return tuple(
        NotMade(str(name), int(at), bool(tried), str(why)) for name, at, tried, why in rows
    )


class Settled(NamedTuple):
    """The state of all orders after a look at the cluster."""

    orders: Mapping[str, Order]
    """By bundle."""
    skips: Sequence[Skip]


def find(names: Sequence[str], name: str) -> int:
    """The place of a name among sorted ones; -1 = not there.

    >>> find(("a", "c"), "c"), find(("a", "c"), "b")
    (1, -1)
    """
    place = bisect_left(names, name)
    return place if place < len(names) and names[place] == name else -1


def settle(
    orders: Mapping[str, Order],
    load: ClusterLoad,
    measured_at_s: FloatArray,
    open_brokers: frozenset[str],
    now_s: float,
    options: BalanceOptions,
    not_made: Sequence[NotMade] = (),
) -> Settled:
    """Compare the orders with what the brokers report; names in ``load`` are sorted.

    A move counts as under way until its bundle is seen on another broker, or the executor has not
    made it, or its source still reports it ``TIMEOUT_S`` later (and a second more for each order),
    or nobody says anything for ``stale_after_s``. An order that was not even tried is forgotten.
    """
    unmade = {(one.bundle, one.ordered_at_ms): one for one in not_made}
    queued = sum(order.status == UNDER_WAY for order in orders.values())
    patience_s = TIMEOUT_S + SECONDS_A_MOVE * queued
    kept: dict[str, Order] = {}
    skips: list[Skip] = []
    for name in sorted(orders):
        order = orders[name]
        if order.status == PROPOSED:
            seen = _approved(order, load, now_s, options)
            kept |= {order.bundle: seen} if seen else {}
            continue
        if order.status == UNDER_WAY:
            answer = unmade.get((name, round(order.ordered_at_s * 1000)))
            order, skip = _look(
                order, load, measured_at_s, open_brokers, now_s, (patience_s, options)
            )
            if answer is not None and order.status == UNDER_WAY:
                order, skip = _miss(order, f"the executor says: {answer.why}", now_s)
                if not answer.tried:
                    skips.append(skip)
                    continue
            skips += [skip] if skip else []
        forget_s = order.rests_until_s(options)
        if order.status == MISSED:
            forget_s += max(options.grace_s, RETRY_AFTER_S)
        if order.status == UNDER_WAY or now_s < forget_s:
            kept[order.bundle] = order
    return Settled(kept, skips)


def _approved(
    order: Order, load: ClusterLoad, now_s: float, options: BalanceOptions
) -> Order | None:
    """A proposal as it is now: carried out, still possible, or None: void."""
    place = find(load.bundles, order.bundle)
    owner = load.brokers[int(load.owner[place])] if place >= 0 else None
    if order.target and owner == order.target:
        return order._replace(status=SEEN, ordered_at_s=now_s)
    is_void = owner is not None and owner != order.source
    is_split = owner is None and not order.target
    if is_void or is_split or now_s - order.ordered_at_s >= options.grace_s:
        return None
    return order


def _look(
    order: Order,
    load: ClusterLoad,
    measured_at_s: FloatArray,
    open_brokers: frozenset[str],
    now_s: float,
    patience: tuple[float, BalanceOptions],
) -> tuple[Order, Skip | None]:
    patience_s, options = patience
    place = find(load.bundles, order.bundle)
    waited = now_s - order.ordered_at_s
    if place < 0:
        if not order.target:
            return order._replace(status=SEEN), None
        return _not_reported(order, open_brokers, waited, now_s, options)
    owner = int(load.owner[place])
    name = load.brokers[owner]
    if order.target and name == order.target:
        return order._replace(status=SEEN), None
    if order.target and name != order.source:
        text = f"{order.bundle} went to {name} instead of {order.target}"
        return order._replace(status=SEEN), Skip(order.bundle, "Missed", text)
    if order.target and order.target not in open_brokers:
        return _miss(order, f"{order.target} takes no bundles any more", now_s)
    reported = float(measured_at_s[owner]) - order.ordered_at_s
    if reported >= patience_s or waited >= max(patience_s, options.stale_after_s):
        return _miss(order, f"it is still on {name} after {waited:.0f} s", now_s)
    return order, None


def _not_reported(
    order: Order, open_brokers: frozenset[str], waited: float, now_s: float, options: BalanceOptions
) -> tuple[Order, Skip | None]:
    if order.target not in open_brokers:
        return _miss(order, f"{order.target} takes no bundles any more", now_s)
    if waited >= options.stale_after_s:
        return _miss(order, f"no broker reports it for {waited:.0f} s", now_s)
    return order, None


def _miss(order: Order, why: str, now_s: float) -> tuple[Order, Skip]:
    what = f"move to {order.target}" if order.target else "split"
    text = f"the {what} ordered {now_s - order.ordered_at_s:.0f} s ago was missed: {why}"
    missed = order._replace(status=MISSED, missed_at_s=now_s)
    return missed, Skip(order.bundle, "Missed", f"{text}; attempt {order.attempts}")
