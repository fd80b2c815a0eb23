"""A strategy's decisions: moves, splits, and skips, which say why something was not done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final, NamedTuple

OURS: Final = "quotaplane"
"""The name of quotaplane's own strategy, beside those of Pulsar's classes."""

PULSARS: Final = (
    *("OverloadShedder", "ThresholdShedder", "UniformLoadShedder", "AvgShedder"),
    "TransferShedder",
)
"""Pulsar's strategies, by the names of their classes. (``DeviationShedder`` is abstract: no broker
can run it.)"""

LABELS: Final = {
    # Pulsar's own labels (UnloadDecision.Reason), in its meaning
    "Overloaded": "the broker carries too much, so a bundle leaves it",
    "Underloaded": "the broker carries too little, so a bundle of another one is given to it",
    "HitCount": "the condition holds, but not yet in enough consecutive rounds",
    "NoBundles": "no bundle can be moved: none is on the broker, or all are excluded",
    "CoolDown": "a bundle was moved a short time ago; its effect is not visible yet",
    "OutDatedData": "the broker's load report is too old",
    "NoLoadData": "there is no load report of the broker",
    "NoBrokers": "there are fewer than two brokers that bundles can be on",
    "Balanced": "nothing needs to be moved",
    "Unknown": "Pulsar does not say why",
    # why Pulsar splits a bundle (SplitDecision.Reason), in its meaning
    "Topics": "the bundle has more topics than a bundle may have",
    "Sessions": "the bundle has more producers and consumers than a bundle may have",
    "MsgRate": "the bundle has more messages per second than a bundle may have",
    "Bandwidth": "the bundle has more bytes per second than a bundle may have",
    # skips of Pulsar's classes that have no label there
    "TooManyBundles": "the namespace has as many bundles as a namespace may have",
    "Splitting": "the bundle, or its parent, is being split",
    "Boundaries": "the split algorithm gives not exactly one boundary",
    "SwitchedOff": "a setting of Pulsar's switches it off",
    "BelowMinimum": "less would be moved than the smallest amount that is worth an unload",
    # of quotaplane's strategy
    "Swap": "two bundles change places or one makes room for the other, as no single move fits",
    "Drain": "the broker is taken out, so its bundles leave",
    "TooBig": "the bundle is too big for any broker, or for the room that there is",
    "Policy": "a policy does not allow it",
    "Grace": "the bundle was moved less than the grace period ago",
    "Budget": "the round has reached its moves or bytes",
    "InFlight": "an order for the bundle is not settled yet",
    "Missed": "an order was not carried out as it was given",
    "Noise": "the overload is not larger than the noise of its measurement",
    "NoTarget": "no other broker has room for the bundle",
    # of the balance job
    "BrokerGone": "the broker's numbers are too old to count, so it is forgotten",
    "ReportedTwice": "two brokers report the bundle; the newer measurement counts",
    "PlanTooLarge": "the plan would not fit into a message; later rounds decide again",
}
"""Each label with its meaning."""


class Move(NamedTuple):
    """A bundle leaves one broker for another."""

    bundle: str
    source: str
    target: str
    """The broker that is to get it; "" = the cluster's placement chooses."""
    bytes_per_s: float
    """The bundle's load as the strategy saw it, in and out together."""
    label: str
    reason: str
    """One sentence for an administrator, with the numbers that decided."""


class Split(NamedTuple):
    """A bundle is divided at boundaries, each the first hash of a new bundle."""

    bundle: str
    owner: str
    boundaries: tuple[int, ...]
    """Ascending, strictly inside the bundle's range; () = in the middle of the range."""
    label: str
    reason: str


class Skip(NamedTuple):
    """The reason why something was not done."""

    subject: str
    """Name of a broker or bundle; "" = the whole cluster."""
    label: str
    reason: str
    bundles: int = 1
    """How many bundles it is about."""


class Decisions(NamedTuple):
    """All that one round decided."""

    moves: Sequence[Move] = ()
    splits: Sequence[Split] = ()
    skips: Sequence[Skip] = ()

    def plan_hash(self, decided_at_ms: int) -> str:
        """The SHA-256 of all that an administrator approves: every field of the moves and splits,
        their order, and when they were decided. 64 hexadecimal digits; "" = nothing would be done.

        >>> move = Move("acme/orders/0x00000000_0xffffffff", "b1", "b2", 1e6, "Overloaded", "")
        >>> Decisions([move]).plan_hash(1_700_000_000_000)[:16]
        '1e9eee78f4099667'
        """
        if not (self.moves or self.splits):
            return ""
        splits = [
            split._replace(boundaries=tuple(map(int, split.boundaries))) for split in self.splits
        ]
        approved = json.dumps([int(decided_at_ms), list(self.moves), splits])
        return hashlib.sha256(approved.encode()).hexdigest()
