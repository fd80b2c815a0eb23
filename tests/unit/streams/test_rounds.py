"""A round as bytes in, bytes out: the outputs of a shard."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import pytest

from quotaplane.arrow import pack, unpack
from quotaplane.errors import HistoryError, QuotaplaneError, TransportError
from quotaplane.history.stamped_rows import stamped
from quotaplane.history.tables import TABLES
from quotaplane.laws.explain import reason_text
from quotaplane.model import BASIC, COUNTER_COLUMNS, DIMENSIONS, RATE_COLUMNS, Round, group_id
from quotaplane.quota.state import ShardState
from quotaplane.round_counts import RoundCounts, merged
from quotaplane.streams.query_failures import known_failure
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.shard_program import Batch
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.reports import encode_stock_report
from tests.unit.history.history_cases import NOON_MS
from tests.unit.streams.shard_cases import (
    PROGRAM,
    group_changes,
    job_settings,
    packed,
    tables,
    usage_report,
)
from tests.unit.wire.wire_cases import decode_now


def test_whatever_leaves_has_its_counts_with_it() -> None:
    heartbeat = packed(usage_report(groups=()), at_ms=1_000)
    state, _ = PROGRAM.run(ShardState(), {"reports": heartbeat}, Batch(0, 1, 1_000))
    late = 1_000 + int(PROGRAM.step.stale_after_ms) + 1
    state, outputs = PROGRAM.run(state, {}, Batch(0, 2, late))
    found = tables(outputs)
    assert [row["status"] for row in found["brokers"]] == ["stale"]
    assert found["counts"][0]["brokers_stale"] == 1


def test_a_round_that_changes_nothing_leaves_nothing() -> None:
    state, outputs = PROGRAM.run(ShardState(), {}, Batch(0, 1, 1_000))
    assert (outputs, state.renewed_at_ms.max()) == ([], 1_000)


@pytest.mark.parametrize("shard", [0, 1])
def test_reports_are_late_beside_the_newest_of_their_own_broker_not_beside_a_clock(
    shard: int,
) -> None:
    """Two reports of b1 are within 30 s of its newest; b2's clock is a minute behind."""
    at_ms = {"b1": (60_000, 69_999, 70_000, 100_000), "b2": (30_000, 40_000)}
    payloads = [
        payload
        for broker, times in at_ms.items()
        for at in np.random.default_rng(1).permutation(times).tolist()
        for payload in packed(usage_report(broker, [f"{broker}-{at}"], sequence=at), at_ms=at)
    ]
    state, outputs = PROGRAM.run(ShardState(), {"reports": payloads}, Batch(shard, 1, 108_000))
    found = tables(outputs)
    assert state.brokers.sequence.tolist() == [100_000, 40_000]
    assert not state.brokers.stale.any()
    assert found["counts"][0]["reports"] == 4
    late = [row for row in found.get("not_counted", []) if row["reason"] == "stale"]
    assert sorted(row["published_at_ms"] for row in late) == ([] if shard else [60_000, 69_999])
    assert not any(row["reason"] == "stale" for row in found["rejected_reports"])


STRICT = {"transition": "strict", "lease_s": 60.0}


@pytest.mark.parametrize(
    ("behind_ms", "set_aside"),
    [
        ({"a": 0, "b": 11_000}, ["b"]),
        ({"a": 0, "b": 9_000}, []),
        ({"a": 75_000, "b": 80_000}, []),  # a backlog
    ],
)
def test_under_strict_a_report_too_old_to_issue_limits_on_decides_nothing_beside_timely_ones(
    behind_ms: dict[str, int], set_aside: list[str]
) -> None:
    """So its broker's share is free after its lease; its usage is recorded all the same. That also
    holds in a round of its own."""
    program = quota_program(job_settings(reports={"interval_s": 5.0}, limits=STRICT), epoch=1)
    state, arrived = ShardState(), {"groups": group_changes("g")}
    for seq, names in enumerate(("ab", "b")):
        now_ms = NOON_MS + 2_000 * seq
        made = [usage_report(name, sequence=seq + 1) for name in names]
        at_ms = now_ms - np.array([behind_ms[name] for name in names])
        arrived["reports"] = packed(*made, at_ms=at_ms, now_ms=now_ms)
        state, outputs = program.run(state, arrived, Batch(0, seq, now_ms))
        arrived, found = {}, tables(outputs)
        late = [(row["sender"], row["reason"]) for row in found.get("not_counted", [])]
        assert late == [(name, "stale") for name in set_aside]
        counted = {row["broker"]: row["counted"] for row in found["usage"]}
        assert counted == {name: name not in set_aside for name in names}


def test_what_a_broker_reports_right_after_a_restart_is_recorded_but_does_not_count_yet() -> None:
    def reported(at_ms: int, started_at_ms: int = 1) -> list[bytes]:
        value = usage_report(sequence=at_ms, started_at_ms=started_at_ms)
        return packed(value, at_ms=at_ms)

    arrived = {"groups": group_changes("g"), "reports": reported(10_000)}
    state, _ = PROGRAM.run(ShardState(), arrived, Batch(0, 1, 10_000))
    again = {"reports": reported(10_900) + reported(11_000, 10_950)}
    state, outputs = PROGRAM.run(state, again, Batch(0, 2, 11_000))
    found = tables(outputs)
    of = [(row["published_at_ms"], row["counted"]) for row in found["usage"]]
    assert sorted(of) == [(10_900, True), (11_000, False)]
    assert [row["reason"] for row in found["not_counted"]] == ["other_incarnation"]
    assert found["counts"][0]["rejected"] == 0
    # Of two programs that go on beside each other, only the one that counts is recorded.
    for seq in range(3, 9):
        at_ms = 9_000 + 1_000 * seq
        both = reported(at_ms) + reported(at_ms, 10_950)
        state, outputs = PROGRAM.run(state, {"reports": both}, Batch(0, seq, at_ms))
    found = tables(outputs)
    assert [row["counted"] for row in found["usage"]] == [True]
    assert [row["reason"] for row in found["rejected_reports"]] == ["two_incarnations"]


def test_refused_reports_are_counted_by_reason_however_few_letters_tell_of_them() -> None:
    payload = pack(decode_now(*[b"?"] * 150, *[b""] * 2).rejected)
    _, outputs = PROGRAM.run(ShardState(), {"rejected": [payload] * 3}, Batch(1, 1, 9))
    found = tables(outputs)
    (counts,) = found["counts"]
    assert counts["rejected_by_reason"] == {"not_protobuf": 450, "empty": 6}
    assert counts["rejected"] == 456
    assert len(found["rejected_reports"]) == 107
    other = {**counts, "rejected_by_reason": {"empty": 1, "stale": 2}}
    total = merged([RoundCounts(**counts), RoundCounts(**other)])
    assert total.rejected_by_reason == {"not_protobuf": 450, "empty": 7, "stale": 2}
    assert total.rejected == 912


def test_a_broker_with_many_groups_gets_them_in_messages_that_kafka_takes() -> None:
    groups = [f"tenant-{number:05d}/" + "x" * 150 for number in range(10_000)]
    values = usage_report("b1", groups), usage_report("b2", groups[:3])
    quotas = group_changes(*groups, dimensions=BASIC)
    arrived = {"groups": quotas, "reports": packed(*values, at_ms=1_000)}
    _, outputs = PROGRAM.run(ShardState(), arrived, Batch(0, 1, 1_000))
    messages = tables(outputs)["messages"]
    assert [row["broker"] for row in messages] == ["b1"] * 6 + ["b2"]
    values = [row["value"] for row in messages]
    assert all(isinstance(value, bytes) and len(value) < 500_000 for value in values)
    named = [group for value in values[:6] for group in decode_limits(value).groups]
    assert sorted(named) == groups


def test_what_others_wrote_into_the_table_of_groups_is_told() -> None:
    changes = group_changes(
        *("a", "b", "c", "user=a b"),
        dimensions=0,
        deleted=[False, False, True, False],
        version=[7, 8, 9, 10],
        mode=["harsh", "soft", "harsh", None],
        **{RATE_COLUMNS[0]: [5.0, -1.0, -1.0, 5.0]},
    )
    _, outputs = PROGRAM.run(ShardState(), {"groups": changes}, Batch(0, 1, 9))
    (packed,) = (output.payload for output in outputs if output.kind == "rejected_reports")
    kept = stamped(TABLES["rejected_reports"], unpack(packed)[0], Round(1, 1, 9))
    assert kept["published_at"].null_count == len(kept) == 3
    letters = tables(outputs)["rejected_reports"]
    assert {letter["reason"] for letter in letters} == {"bad_definition"}
    assert not any(letter["counts_as_bad"] for letter in letters)
    scope = "group 'user=a b': applies to no request: user: 'a b' must be written a%20b"
    assert {letter["position"]: letter["detail"] for letter in letters} == {
        "resource_groups@7": "group 'a': mode: must be one of hard, soft, shadow, not 'harsh'",
        "resource_groups@8": f"group 'b': {RATE_COLUMNS[0]}: below 0, taken for 0",
        "resource_groups@10": scope,
    }


@pytest.mark.parametrize("by_id", [False, True])
def test_a_limit_of_a_deleted_group_is_taken_back_until_it_is_gone(by_id: bool) -> None:
    """The message that said so may have been lost."""
    at_ms, ids = 1_000, [group_id("deleted long ago")]
    state, _ = PROGRAM.run(ShardState(), {}, Batch(0, 1, at_ms))
    for seq in (2, 3):
        at_ms += int(PROGRAM.step.lease_ms + PROGRAM.step.stale_after_ms) + 1
        named = {"groups": None, "group_ids": ids} if by_id else {"groups": ["deleted long ago"]}
        held = usage_report(sequence=seq, limits=np.full((1, 4), 3.0), **named)
        arrived = {"reports": packed(held, at_ms=at_ms)}
        state, outputs = PROGRAM.run(state, arrived, Batch(0, seq, at_ms))
        found = tables(outputs)
        (message,) = found["messages"]
        update = decode_limits(message["value"])
        assert list(update.removed_group_ids) == (ids if by_id else [])
        assert list(update.removed_groups) == ([] if by_id else ["deleted long ago"])
        assert "limits" not in found
        assert found["counts"][0]["rejected_by_reason"] == {"unknown_group": 1}


@pytest.mark.parametrize(("mode", "sent"), [("hard", 5.0), ("soft", np.inf), ("shadow", None)])
def test_brokers_are_told_what_their_groups_mode_says(mode: str, sent: float | None) -> None:
    quotas = group_changes("g", rate=5.0, mode=[mode])
    arrived = {"groups": quotas, "reports": packed(usage_report(), at_ms=1_000)}
    _, outputs = PROGRAM.run(ShardState(), arrived, Batch(0, 1, 1_000))
    found = tables(outputs)
    messages = [decode_limits(row["value"]) for row in found.get("messages", [])]
    expected = [[sent] * len(DIMENSIONS)]
    assert [m.limits.tolist() for m in messages] == ([] if sent is None else [expected])
    for message in messages:
        assert message.safe_limits is not None
        assert message.safe_limits.tolist() == expected
    (row,) = found["limits"]
    assert (row[RATE_COLUMNS[0]], row["enforced"]) == (5.0, mode == "hard")
    text = reason_text(
        row["publish_messages_reason_code"],
        row["publish_messages_reason_numbers"],
        *(row[f"{part}publish_messages_per_s"] for part in ("", "demand_", "quota_")),
    )
    # 3 used, and as much headroom as the quota has: it would be 3 standard deviations.
    assert text == "satisfied: has the 5 it wants"


def test_however_many_limits_change_each_has_the_numbers_of_its_reason() -> None:
    groups = [f"g{number}" for number in range(3_000)]
    used = packed(usage_report(groups=groups), at_ms=1_000)
    arrived = {"groups": group_changes(*groups, rate=5.0), "reports": used}
    _, outputs = PROGRAM.run(ShardState(), arrived, Batch(0, 1, 1_000))
    (limits,) = (unpack(one.payload)[0] for one in outputs if one.kind == "limits")
    assert len(limits) == 3_000
    columns = ("publish_bytes_reason_code", "publish_bytes_reason_numbers", "publish_bytes_per_s")
    rates = ("demand_publish_bytes_per_s", "quota_publish_bytes_per_s")
    rows = zip(*(limits[name].to_pylist() for name in (*columns, *rates)), strict=True)
    assert {reason_text(*row) for row in rows} == {"satisfied: has the 5 it wants"}


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "[STREAM_FAILED] ...\nTraceback\n  File ...\n"
            "quotaplane.errors.HistoryError: checkpoint: shard state has format 0\n SQLSTATE",
            HistoryError,
            "checkpoint: shard state has format 0",
        ),
        (
            "[PYTHON_DATA_SOURCE_ERROR] latestOffset: Traceback\n  File x\n"
            "quotaplane.errors.TransportError: topic 'a': messages may be gone\n SQLSTATE",
            TransportError,
            "topic 'a': messages may be gone",
        ),
        (
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors."
            "TimeoutException: Timed out waiting for a node assignment. Call: describeTopics\n\tat",
            TransportError,
            "reports topics: TimeoutException: Timed out waiting for a node assignment. "
            "Call: describeTopics",
        ),
        ("... set the source option failOnDataLoss to false ...", TransportError, "were deleted"),
        (
            "org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error "
            "while reading file file:/a b/topics/reports/part-1.parquet. File does not exist.",
            TransportError,
            "topic reports at /a b/topics/reports: part-1.parquet is missing or damaged; run",
        ),
        (
            "Encountered error while reading file file:///h/usage/_delta_log/0002.json.  SQLSTATE",
            HistoryError,
            "history table usage at /h/usage: 0002.json is missing or damaged; run",
        ),
    ],
    ids=["ours", "ours, of a data source", "Kafka's", "lost reports", "a lost file", "a commit"],
)
def test_a_failure_of_the_query_is_told_in_one_line(
    text: str, kind: type[QuotaplaneError], message: str
) -> None:
    known = known_failure(text)
    assert type(known) is kind
    assert message in str(known)
    assert "\n" not in str(known)


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.NullPointerException\n\tat org.apache.spark",
        # A record that can't be read: the batch's failure.
        "org.apache.kafka.common.KafkaException: Received exception when fetching the next record "
        "from reports-0. If needed, please seek past the record to continue consumption.",
    ],
    ids=["of Spark's", "a record"],
)
def test_other_failures_are_left_to_spark(text: str) -> None:
    assert known_failure(text) is None


def test_usage_has_counters_and_the_start_of_the_brokers_that_report_them() -> None:
    counters = np.array([[2.0**52, 7.0, np.nan, 0.0]])
    values = [
        usage_report("b1", started_at_ms=NOON_MS - 5_000, counters=counters),
        # The start of what observes it is not known.
        usage_report("b2", started_at_ms=0, observed=True, counters=counters),
        encode_stock_report("b3", ["g"], np.full((1, 4), 3.0)),
    ]
    quotas = group_changes("g", dimensions=0)
    arrived = {"groups": quotas, "reports": packed(*values, at_ms=NOON_MS)}
    _, outputs = PROGRAM.run(ShardState(), arrived, Batch(0, 1, NOON_MS))
    (used,) = (unpack(output.payload)[0] for output in outputs if output.kind == "usage")
    rows = {
        row["broker"]: row
        for row in stamped(TABLES["usage"], used, Round(1, 1, NOON_MS)).to_pylist()
    }
    started = datetime.fromtimestamp(NOON_MS / 1000 - 5, timezone.utc)
    assert [rows[name]["broker_started_at"] for name in ("b1", "b2", "b3")] == [started, None, None]
    assert [rows["b1"][name] for name in COUNTER_COLUMNS] == [2.0**52, 7.0, None, 0.0, None, None]
    assert [rows["b3"][name] for name in COUNTER_COLUMNS] == [None] * len(COUNTER_COLUMNS)
