"""``BalancePlan`` messages, which carry what a round of the balancer decided."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from quotabalance.planning.decisions import Decisions, Move, Split
from quotabalance.wire.broker_loads import SIGNED_LIMIT
from quotabalance.wire.bundle_checks import check_name
from quotabalance.wire.pb.balance_pb2 import BalancePlan, BundleSplit
from quotaplane.errors import InputError
from quotaplane.topics.bundle_names import BundleName
from quotaplane.wire.reasons import check_broker, shown
from quotaplane.wire.report_own import FAMILY
from quotaplane.wire.signatures import SigningKeys

PLAN_HEAD: Final = FAMILY + b"M1"
MAX_PLAN_BYTES: Final = 1 << 20
"""A longer message is refused unread."""
MODES: Final = ("propose", "auto")
"""Whether an executor needs an approval."""
_MAGIC: Final = int.from_bytes(PLAN_HEAD[1:], "little")
_COLUMNS: Final = ("bundles", "sources", "targets", "labels", "reasons")
_HASH: Final = re.compile("[0-9a-f]{64}|")


@dataclass(frozen=True)
class PlanMessage:
    """A decoded ``BalancePlan``."""

    epoch: int
    seq: int
    decided_at_ms: int
    mode: str
    """One of ``MODES``."""
    plan_hash: str
    """``Decisions.plan_hash`` of the moves, splits and time; "" = nothing is to be done."""
    decisions: Decisions
    """Moves and splits; skips are in the history only."""


def encode_plan(
    decisions: Decisions, *, epoch: int, seq: int, decided_at_ms: int, mode: str
) -> bytes:
    """Encode the moves and splits of a round.

    >>> move = Move("acme/orders/0x00000000_0xffffffff", "b1", "b2", 1e6, "Overloaded", "why")
    >>> value = encode_plan(Decisions([move]), epoch=1, seq=2, decided_at_ms=3, mode="propose")
    >>> decode_plan(value).decisions.moves == (move,)
    True
    """
    message: Any = BalancePlan(
        magic=_MAGIC,
        epoch=epoch,
        seq=seq,
        decided_at_ms=decided_at_ms,
        plan_hash=decisions.plan_hash(decided_at_ms),
        mode=mode,
        bundles=[move.bundle for move in decisions.moves],
        sources=[move.source for move in decisions.moves],
        targets=[move.target for move in decisions.moves],
        bytes_per_s=[move.bytes_per_s for move in decisions.moves],
        labels=[move.label for move in decisions.moves],
        reasons=[move.reason for move in decisions.moves],
        splits=[
            BundleSplit(
                bundle=split.bundle,
                owner=split.owner,
                boundaries=split.boundaries,
                label=split.label,
                reason=split.reason,
            )
            for split in decisions.splits
        ],
    )
    return message.SerializeToString()  # type: ignore[no-any-return]


def decode_plan(value: bytes, keys: SigningKeys | None = None) -> PlanMessage:
    """Decode a plan and check all of it: an executor acts on it.

    ``keys``: the plan must be signed with one of them, which is verified before it is parsed. None:
    a signature is not looked at.

    Raises:
        InputError: the bytes are not a ``BalancePlan``, a value is invalid, the signature is
            missing or wrong, or the hash is not that of its contents.
    """
    if len(value) > MAX_PLAN_BYTES:
        raise InputError(f"BalancePlan of {len(value)} bytes (at most {MAX_PLAN_BYTES})")
    if not value.startswith(PLAN_HEAD):
        raise InputError(f"not a BalancePlan: begins with {value[:5].hex(' ') or 'nothing'}")
    if keys is not None:
        value = keys.verify(value)
    try:
        message: Any = BalancePlan.FromString(value)
    except DecodeError:
        raise InputError(f"not a BalancePlan, or truncated: {len(value)} bytes") from None
    if keys is not None and message.signature:
        raise InputError("signed more than once")
    for name in ("epoch", "seq", "decided_at_ms"):
        if getattr(message, name) >= SIGNED_LIMIT:
            raise InputError(f"BalancePlan: {name} is {getattr(message, name)}")
    if message.mode not in MODES:
        raise InputError(f"BalancePlan: mode is {shown(message.mode)}; expected propose or auto")
    if not _HASH.fullmatch(message.plan_hash):
        raise InputError(f"BalancePlan: plan_hash is {shown(message.plan_hash)}")
    decisions = Decisions(_moves(message), tuple(map(_split, message.splits)))
    _check_together(decisions)
    expected = decisions.plan_hash(message.decided_at_ms)
    if expected != message.plan_hash:
        raise InputError(
            f"BalancePlan: plan_hash is {message.plan_hash!r}, but that of its contents is "
            f"{expected!r}"
        )
    return PlanMessage(
        message.epoch,
        message.seq,
        message.decided_at_ms,
        message.mode,
        message.plan_hash,
        decisions,
    )


def _moves(message: Any) -> tuple[Move, ...]:
    count = len(message.bundles)
    columns = [list(getattr(message, name)) for name in _COLUMNS]
    loads = np.array(message.bytes_per_s, np.float64)
    lengths = dict(zip(_COLUMNS, map(len, columns), strict=True)) | {"bytes_per_s": len(loads)}
    for name, length in lengths.items():
        if length != count:
            raise InputError(f"BalancePlan: {name} has {length} values for {count} moves")
    if not (np.isfinite(loads) & (loads >= 0)).all():
        raise InputError("BalancePlan: bytes_per_s is below zero or not finite")
    bundles, sources, targets, labels, reasons = columns
    for bundle, source, target in zip(bundles, sources, targets, strict=True):
        _bundle(bundle)
        check_broker(source)
        if target:
            check_broker(target)
        if source == target:
            raise InputError(f"BalancePlan: {bundle}: source and target are {source!r}")
    return tuple(map(Move, bundles, sources, targets, loads.tolist(), labels, reasons))


def _bundle(name: str) -> BundleName:
    bundle = check_name(name)
    if str(bundle) != name:
        raise InputError(f"BalancePlan: {shown(name, 100)} is not as Pulsar writes it")
    return bundle


def _check_together(decisions: Decisions) -> None:
    """Check that a bundle has one decision, and that all texts can be printed."""
    both: list[Move | Split] = [*decisions.moves, *decisions.splits]
    seen: set[str] = set()
    for each in both:
        if each.bundle in seen:
            raise InputError(f"BalancePlan: {each.bundle} is in it twice")
        seen.add(each.bundle)
        if not (each.label + each.reason).isprintable():
            raise InputError(f"BalancePlan: {each.bundle}: the label or reason is not printable")


def _split(message: Any) -> Split:
    bundle, boundaries = _bundle(message.bundle), tuple(message.boundaries)
    check_broker(message.owner)
    edges = (bundle.low, *boundaries, bundle.high)
    if any(low >= high for low, high in pairwise(edges)):
        raise InputError(
            f"BalancePlan: {message.bundle}: boundaries are not ascending, or outside of it"
        )
    return Split(message.bundle, message.owner, boundaries, message.label, message.reason)
