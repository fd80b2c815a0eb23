"""Plans of the balancer on the wire: an executor acts on them, so all of a plan is checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.planning.decisions import Decisions, Move, Skip, Split
from quotabalance.wire.balance_plans import MAX_PLAN_BYTES, PlanMessage, decode_plan, encode_plan
from quotabalance.wire.pb.balance_pb2 import BalancePlan
from quotaplane.errors import InputError
from quotaplane.wire.limits import decode_limits, encode_limits
from quotaplane.wire.signatures import SigningKeys
from tests.unit.balance.load_report_cases import bundle_of
from tests.unit.wire.wire_cases import damaged, with_fields

MOVES = (
    Move(bundle_of(1), "b1:8080", "b2:8080", 1e6, "Overloaded", "b1 is 1.5 times the mean"),
    Move(bundle_of(2), "b1:8080", "", 2.5, "Drain", ""),
)
SPLITS = (Split(bundle_of(3), "b3:8080", (0x3100_0000, 0x3200_0000), "TooBig", "why"),)
DECISIONS = Decisions(MOVES, (Split(bundle_of(4), "b3:8080", (), "TooBig", ""),))
GOOD = encode_plan(DECISIONS, epoch=5, seq=6, decided_at_ms=7, mode="propose")


def test_a_plan_is_read_as_it_was_written() -> None:
    assert decode_plan(GOOD) == PlanMessage(5, 6, 7, "propose", DECISIONS.plan_hash(7), DECISIONS)


def test_skips_are_not_on_the_wire() -> None:
    skips = [Skip("", "Balanced", "nothing to do")]
    value = encode_plan(Decisions((), (), skips), epoch=1, seq=1, decided_at_ms=1, mode="auto")
    assert decode_plan(value) == PlanMessage(1, 1, 1, "auto", "", Decisions())


def _changed(**fields: Any) -> bytes:
    return with_fields(BalancePlan.FromString(GOOD), fields)


def _encoded(*moves: Move, splits: tuple[Split, ...] = ()) -> bytes:
    return encode_plan(Decisions(moves, splits), epoch=1, seq=1, decided_at_ms=1, mode="auto")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "not a BalancePlan: begins with nothing"),
        (b"\x0dQPL1", "not a BalancePlan: begins with 0d 51 50 4c 31"),
        (GOOD[:-1], "not a BalancePlan, or truncated"),
        (b"x" * (MAX_PLAN_BYTES + 1), "at most 1048576"),
        (_changed(mode="now"), "mode is 'now'; expected propose or auto"),
        (_changed(epoch=2**63), "epoch is 9223372036854775808"),
        (_changed(plan_hash="x"), "plan_hash is 'x'"),
        (_changed(plan_hash="0" * 16), "plan_hash is '0000000000000000'"),
        (_changed(plan_hash="0" * 64), "but that of its contents is"),
        (_changed(targets=["b3:8080", ""]), "but that of its contents is"),
        (_changed(bytes_per_s=[1.0, 2.5]), "but that of its contents is"),
        (_changed(labels=["Drain", "Drain"]), "but that of its contents is"),
        (_changed(reasons=["b1 is 9 times the mean", ""]), "but that of its contents is"),
        (_changed(decided_at_ms=8), "but that of its contents is"),
        (_changed(targets=["b3:8080"]), "targets has 1 values for 2 moves"),
        (_changed(bytes_per_s=[1.0, float("nan")]), "bytes_per_s is below zero or not finite"),
        (_changed(bytes_per_s=[1.0]), "bytes_per_s has 1 values for 2 moves"),
        (_encoded(MOVES[0], MOVES[0]), "is in it twice"),
        (_encoded(MOVES[0]._replace(target="b1:8080")), "source and target are 'b1:8080'"),
        (_encoded(MOVES[0]._replace(source="")), "the broker's name is empty"),
        (_encoded(MOVES[0]._replace(bundle="acme")), "'acme' is not a bundle"),
        (
            _encoded(MOVES[0], MOVES[0]._replace(bundle=MOVES[0].bundle.replace("x02", "x0B"))),
            "is not as Pulsar writes it",
        ),
        (_encoded(MOVES[0]._replace(bundle=f"a/../{bundle_of(1)}")), "is not a bundle of Pulsar"),
        (_encoded(MOVES[0]._replace(bundle=f"a?b#/{bundle_of(1)}")), "is not a bundle of Pulsar"),
        (
            _encoded(MOVES[0]._replace(bundle=f"\x1b[2J/{bundle_of(1)}")),
            "is not a bundle of Pulsar",
        ),
        (
            _encoded(MOVES[0]._replace(bundle="a" * 1024 + bundle_of(1))),
            "more than 1024 characters",
        ),
        (_encoded(MOVES[0]._replace(reason="\x1b[2J")), "the label or reason is not printable"),
        (_encoded(MOVES[0]._replace(label="a\nb")), "the label or reason is not printable"),
        (
            _encoded(splits=(SPLITS[0]._replace(reason="\x00", boundaries=()),)),
            "the label or reason is not printable",
        ),
        (_encoded(splits=(DECISIONS.splits[0],) * 2), "is in it twice"),
        (
            _encoded(MOVES[0], splits=(SPLITS[0]._replace(bundle=MOVES[0].bundle, boundaries=()),)),
            "is in it twice",
        ),
        (_encoded(splits=(SPLITS[0],)), "boundaries are not ascending, or outside of it"),
        (
            _encoded(splits=(SPLITS[0]._replace(boundaries=(0x0380_0000, 0x0370_0000)),)),
            "boundaries are not ascending, or outside of it",
        ),
    ],
)
def test_a_plan_that_is_not_sound_is_refused(value: bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        decode_plan(value)
    assert message in str(error.value)


def test_a_hash_is_of_all_that_is_approved_and_too_long_for_a_colliding_pair() -> None:
    move, split = MOVES[0], DECISIONS.splits[0]
    others = [move._replace(**{name: "x"}) for name in ("bundle", "source", "target", "label")]
    others += [move._replace(reason="x"), move._replace(bytes_per_s=1e6 + 1)]
    plans = [(Decisions([each]), 7) for each in (move, *others)]
    plans += [(Decisions([move]), 8), (Decisions([move], [split]), 7), (Decisions([], [split]), 7)]
    plans += [(Decisions([], [split._replace(boundaries=(0x0480_0000,))]), 7)]
    plans += [(Decisions(MOVES), 7), (Decisions(MOVES[::-1]), 7)]
    hashes = {plan.plan_hash(at_ms) for plan, at_ms in plans}
    assert len(hashes) == len(plans)
    assert {len(each) for each in hashes} == {64}  # 256 bits: a pair needs 2^128 tries
    assert Decisions().plan_hash(7) == ""


@given(damaged(st.just(GOOD)))
def test_a_damaged_plan_orders_nothing_else(value: bytes) -> None:
    """Content that the hash covers is as it was, or the plan is refused."""
    try:
        plan = decode_plan(value)
    except InputError:
        return
    assert plan.plan_hash == plan.decisions.plan_hash(plan.decided_at_ms)


SECRET = "0123456789abcdef0123456789abcdef"
KEYS = SigningKeys({"a": SECRET}, sign_with="a")
SIGNED = KEYS.sign(GOOD)


def test_a_signed_plan_is_read_with_and_without_keys() -> None:
    assert decode_plan(SIGNED, KEYS) == decode_plan(SIGNED) == decode_plan(GOOD)


def test_with_keys_every_bit_of_a_plan_counts() -> None:
    for at in range(len(SIGNED)):
        value = bytearray(SIGNED)
        value[at] ^= 1 << at % 8
        with pytest.raises(InputError):
            decode_plan(bytes(value), KEYS)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (GOOD, "not signed at its end"),
        (SIGNED + BalancePlan(mode="auto").SerializeToString(), "not signed at its end"),
        (SigningKeys({"a": SECRET[::-1]}, sign_with="a").sign(GOOD), "not by the key a"),
        (KEYS.sign(SIGNED), "signed more than once"),
    ],
)
def test_with_keys_only_signed_plans_are_used(value: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        decode_plan(value, KEYS)


def test_what_is_signed_as_limits_is_no_plan() -> None:
    limits = encode_limits(
        broker="b",
        shard=0,
        epoch=9,
        seq=9,
        issued_at_ms=0,
        lease_ms=1,
        limits=np.ones((0, 1)),
        groups=[],
    )
    with pytest.raises(InputError, match="not a BalancePlan"):
        decode_plan(KEYS.sign(limits), KEYS)
    with pytest.raises(InputError, match="not a LimitsUpdate"):
        decode_limits(SIGNED, KEYS)
