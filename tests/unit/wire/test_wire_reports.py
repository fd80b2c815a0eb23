"""Refused reports: the reason, what is kept of them, and that nothing else is lost with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quotaplane.settings import Reports
from quotaplane.wire.entry_checks import MOST_RATE
from quotaplane.wire.pb.pulsar_resource_usage_pb2 import ResourceUsageInfo
from quotaplane.wire.pb.quotaplane_pb2 import UsageReport
from quotaplane.wire.reasons import BATCH_REASONS, BROKER_REASONS, REASONS
from quotaplane.wire.reports import decode, encode_stock_report
from quotaplane.wire.shard_inputs import ENTRIES, HEADERS, REJECTED
from tests.unit.repo.pages import ROOT
from tests.unit.wire.wire_cases import (
    NOW_MS,
    decode_now,
    limits_message,
    own_report,
)

GOOD = encode_stock_report("good", ["g"], np.array([[5, 10, 15, 20]]))
NAN, INF = np.nan, np.inf


def _stock(**parts: Any) -> bytes:
    """A stock report, whatever of it is missing."""
    return ResourceUsageInfo(**parts).SerializePartialToString()


def _own(**fields: Any) -> bytes:
    return UsageReport(magic=0x31525051, **{"broker": "b", **fields}).SerializeToString()


def _usage(first: float, throttled: float | None = None) -> bytes:
    """A report of ours with one group."""
    one = np.array([[first, NAN, NAN, NAN]])
    more = {} if throttled is None else {"throttled": np.array([[throttled, NAN, NAN, NAN]])}
    return own_report(groups=["a"], usage=one, **more)


HALF = {"owner": "g", "publish": {"bytesPerPeriod": 1}}
NEGATIVE_LONG = encode_stock_report("b", ["g"], np.array([[2.0**64 - 2**12, 1, 1, 1]]))
WHOLE: list[tuple[str, bytes | None, str, str]] = [
    ("nothing", b"", "empty", "no value"),
    ("a tombstone", None, "empty", "no value"),
    ("cut off", GOOD[:-3], "not_protobuf", f"{len(GOOD) - 3} bytes"),
    ("ours, cut off", own_report()[:-3], "not_protobuf", "UsageReport"),
    ("bad UTF-8", b"\x0a\x02\xc0\xa1", "not_protobuf", "UTF-8"),
    ("another message", b"\x18\x05", "wrong_protobuf", "none of a report's fields"),
    ("a name and an age", b"\x0a\x03bob\x18\x2a", "wrong_protobuf", "none of a report's fields"),
    ("limits", limits_message(), "wrong_protobuf", "'QPL1' is no report"),
    ("a later version", b"\x0dQPR2\x12\x01b", "wrong_protobuf", "'QPR2' is no report"),
    ("two magics", own_report() + b"\x0d\0\0\0\0", "wrong_protobuf", "magic"),
    ("no broker field", _stock(usageMap=[{"owner": "g"}]), "missing_field", "broker"),
    ("no owner", _stock(broker="b", usageMap=[{}]), "missing_field", "usageMap[0].owner"),
    ("half a usage", _stock(broker="b", usageMap=[HALF]), "missing_field", "messagesPerPeriod"),
    ("broker empty", _stock(broker=""), "no_broker", "empty"),
    ("broker long", _stock(broker="b" * 513), "no_broker", "513"),
    ("broker unprintable", _stock(broker="b\n"), "no_broker", r"'b\n'"),
    ("ours, broker empty", own_report(broker=""), "no_broker", "empty"),
    ("short column", _own(groups=["a", "b"], publish_bytes_per_s=[1]), "length_mismatch", "1 val"),
    ("no groups", _own(publish_bytes_per_s=[1]), "length_mismatch", "1 values for 0"),
    ("names and ids", _own(groups=["a"], group_ids=[1]), "length_mismatch", "send one kind"),
    ("sequence too big", own_report(sequence=2**63), "absurd", "sequence is 9223372036854775808"),
    ("negative", _usage(-1.0), "negative", "'a': publish_messages_per_s is -1"),
    ("minus infinite", _usage(-INF), "negative", "publish_messages_per_s is -inf"),
    ("infinite", _usage(INF), "not_finite", "publish_messages_per_s is inf"),
    ("absurd", _usage(1.1e18), "absurd", "publish_messages_per_s is 1.1e+18"),
    ("throttled negative", _usage(1, -2), "negative", "throttled_publish_messages_per_s is -2"),
    ("throttled infinite", _usage(1, INF), "not_finite", "throttled_publish_messages_per_s"),
    ("negative id", own_report(groups=None, group_ids=[-5, -6]), "bad_group", "a negative id"),
    ("no group name", _own(groups=["", "x" * 1025]), "bad_group", "2 of 2 entries: '' is not a"),
    ("Java's negative long", NEGATIVE_LONG, "absurd", "publish_messages_per_s is 3.68935e+18"),
]


@pytest.mark.parametrize(
    ("value", "reason", "detail"), [c[1:] for c in WHOLE], ids=[c[0] for c in WHOLE]
)
def test_a_bad_report_is_one_dead_letter_and_takes_nothing_along(
    value: bytes | None, reason: str, detail: str
) -> None:
    found = decode_now(GOOD, value, own_report(broker="other"))
    (letter,) = found.rejected.to_pylist()
    assert letter["reason"] == reason
    assert detail in letter["detail"]
    assert letter["position"] == "1"
    assert letter["published_at_ms"] == NOW_MS
    assert letter["counts_as_bad"]
    assert letter["raw"] == (value or b"")
    assert "\n" not in letter["detail"]
    assert found.headers["broker"].to_pylist() == ["good", "other"]
    assert found.entries["report"].to_pylist().count(0) == 1
    assert found.entries["report"].to_pylist().count(1) == 2


def test_a_hole_in_throttled_is_not_finite() -> None:
    usage = np.ones((2, 4))
    throttled = np.zeros((2, 4))
    throttled[1, 2] = NAN
    found = decode_now(own_report(usage=usage, throttled=throttled))
    assert found.rejected["reason"].to_pylist() == ["not_finite"]
    assert found.rejected["detail"].to_pylist() == [
        "1 of 2 entries: 'b': throttled is NaN where usage is not"
    ]
    assert found.entries["group"].to_pylist() == ["a"]


def test_every_reason_has_a_case_here() -> None:
    elsewhere = {"too_large", "future", "stale", "too_many_entries"}
    assert {case[2] for case in WHOLE} | elsewhere == set(REASONS)


def test_every_reason_is_in_the_documentation() -> None:
    page = (ROOT / "docs/reference/wire.md").read_text(encoding="utf-8")
    for reason in REASONS | BATCH_REASONS | BROKER_REASONS:
        assert f"| `{reason}` |" in page


def test_too_large_is_not_even_parsed() -> None:
    found = decode_now(b"\xff" * 10_000_000, GOOD, b"?", reports=Reports())
    assert found.rejected["reason"].to_pylist() == ["too_large", "not_protobuf"]
    assert found.rejected["raw"].to_pylist() == [b"", b"?"]
    assert found.rejected["detail"][0].as_py().endswith("raw bytes left out, there are too many")
    assert found.headers["broker"].to_pylist() == ["good"]


@pytest.mark.parametrize(
    ("ahead_ms", "refused"), [(-3_600_000, False), (30_000, False), (30_001, True)]
)
def test_publish_time(ahead_ms: int, refused: bool) -> None:
    found = decode_now(GOOD, published_at_ms=NOW_MS + ahead_ms)
    letters = [(row["reason"], row["counts_as_bad"]) for row in found.rejected.to_pylist()]
    assert letters == ([("future", True)] if refused else [])
    assert found.headers.num_rows == (not refused)


def test_one_bad_group_of_a_stock_report_leaves_the_others() -> None:
    groups = [f"g{i}" for i in range(8)]
    counts = np.ones((8, 4))
    counts[2, 1], counts[5] = 2.0**63, 2.0**64 - 2**12
    value = encode_stock_report("b", groups, counts)
    found = decode_now(GOOD, value)
    assert found.entries["group"].to_pylist() == ["g", "g0", "g1", "g3", "g4", "g6", "g7"]
    (letter,) = found.rejected.to_pylist()
    assert letter["reason"] == "absurd"
    assert letter["detail"].startswith("2 of 8 entries: 'g2': publish_bytes_per_s is 1.84467e+18, ")
    assert not letter["counts_as_bad"]  # the report was used
    assert letter["raw"] == encode_stock_report("b", ["g2", "g5"], counts[[2, 5]])


@pytest.mark.parametrize("by_id", [False, True])
def test_one_bad_group_of_our_format_leaves_the_others(by_id: bool) -> None:
    names = [f"g{i}" for i in range(20)]
    usage = np.ones((20, 4))
    usage[3:13, 0] = -1
    keys: dict[str, Any] = {"groups": None, "group_ids": range(20)} if by_id else {"groups": names}
    found = decode_now(own_report(**keys, usage=usage, applied=(0, 0)))
    assert found.entries.num_rows == 10
    (letter,) = found.rejected.to_pylist()
    assert letter["reason"] == "negative"
    first = "id 3" if by_id else "'g3'"
    assert letter["detail"].startswith(f"10 of 20 entries: {first}: publish_messages_per_s is -1, ")
    assert letter["detail"].endswith("and 5 more")
    keys = {"groups": None, "group_ids": range(3, 13)} if by_id else {"groups": names[3:13]}
    assert letter["raw"] == own_report(**keys, usage=usage[3:13], applied=(0, 0))


def test_each_report_with_bad_groups_has_its_own_dead_letter() -> None:
    usage = np.array([[1.0, 1, 1, 1], [-1, 1, 1, 1]])
    found = decode_now(own_report(usage=usage), GOOD, own_report(usage=usage[::-1]))
    assert found.rejected["position"].to_pylist() == ["0", "2"]
    raw = found.rejected["raw"].to_pylist()
    assert raw == [own_report(groups=[name], usage=usage[1:]) for name in ("b", "a")]
    assert found.entries["group"].to_pylist() == ["g", "a", "b"]


def test_the_last_of_two_entries_for_a_group_counts() -> None:
    value = encode_stock_report("b", ["g", "h", "g"], np.array([[1] * 4, [2] * 4, [3] * 4]) * 5)
    found = decode_now(value, GOOD, value)
    assert found.entries["group"].to_pylist() == ["h", "g", "g", "h", "g"]
    assert found.entries["publish_messages_per_s"].to_pylist() == [2, 3, 1, 2, 3]
    assert found.rejected.num_rows == 0


def test_the_highest_rate_counts() -> None:
    counts = 5 * MOST_RATE, 5.01 * MOST_RATE
    at, above = (encode_stock_report("b", ["g"], np.full((1, 4), n)) for n in counts)
    assert decode_now(at, above).rejected["position"].to_pylist() == ["1"]


def test_an_empty_batch_has_the_same_columns() -> None:
    found = decode([], np.array([], np.int64), [], now_ms=0, reports=Reports())
    assert found.headers.schema == HEADERS
    assert found.entries.schema == ENTRIES
    assert found.rejected.schema == REJECTED
    assert found.headers.num_rows == found.entries.num_rows == found.rejected.num_rows == 0
