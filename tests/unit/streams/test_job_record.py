"""Rows that a round leaves in the history beside limits: leases, inputs, senders, idle rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from quotaplane.arrow import unpack
from quotaplane.history.store import ensure_tables
from quotaplane.history.table_parts import replaced_by, replacing
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.quota.lease_snapshot import LEAST_MS, lease_ends
from quotaplane.quota.state import ShardState
from quotaplane.round_counts import RoundCounts
from quotaplane.settings import History
from quotaplane.streams.quota.finisher import IDLE_ROW_MS, QuotaFinisher
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.quota.recorded_program import STATE, STATE_EVERY_MS, RecordedProgram
from quotaplane.streams.quota.report_watch import ReportWatch
from quotaplane.streams.shard_program import Batch
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.report_stock import encode_stock_report
from tests.unit.agents.condition_cases import Printed
from tests.unit.history.history_cases import NOON_MS, read
from tests.unit.streams.shard_cases import SETTINGS, group_changes, packed, usage_report
from tests.unit.wire.wire_cases import decode_now

PROGRAM = RecordedProgram(quota_program(SETTINGS, epoch=1), records=True)
QUOTA = {"groups": group_changes("g")}


def report(now_ms: int, **fields: Any) -> dict[str, list[bytes]]:
    """Broker b1 uses 4 of g in publish messages."""
    value = usage_report(usage=np.array([[4.0, 0.0, 0.0, 0.0]]), sequence=now_ms, **fields)
    return {"reports": packed(value, at_ms=now_ms)}


def outputs_of(
    state: ShardState, arrived: dict[str, list[bytes]], now_ms: int, seq: int
) -> tuple[ShardState, dict[str, pa.Table]]:
    state, outputs = PROGRAM.run(state, arrived, Batch(0, seq, now_ms))
    return state, {o.kind: unpack(o.payload)[0] for o in outputs if o.kind != "counts"}


def test_usage_has_what_was_refused_and_the_window() -> None:
    state, _ = outputs_of(ShardState(), QUOTA, NOON_MS, 0)
    state, plain = outputs_of(state, report(NOON_MS), NOON_MS, 1)
    (row,) = plain["usage"].to_pylist()
    assert (row["resource_group"], row["window_ms"]) == ("g", 1000)
    assert row["publish_messages_per_s"] == 4.0
    assert row["throttled_publish_messages_per_s"] is None
    arrived = report(NOON_MS + 1, throttled=np.array([[2.0, 0.0, 0.0, 0.0]]))
    _, refused = outputs_of(state, arrived, NOON_MS + 1, 2)
    assert refused["usage"]["throttled_publish_messages_per_s"].to_pylist() == [2.0]


def test_inputs_are_recorded_as_they_came_and_the_state_now_and_then() -> None:
    state, first = outputs_of(ShardState(), QUOTA, NOON_MS, 0)
    assert first["recording"]["kind"].to_pylist() == ["groups", STATE]
    arrived = report(NOON_MS + 1)
    state, second = outputs_of(state, arrived, NOON_MS + 1, 1)
    assert second["recording"]["payload"].to_pylist() == arrived["reports"]
    _, later = outputs_of(state, {}, NOON_MS + STATE_EVERY_MS, 2)
    assert later["recording"]["kind"].to_pylist() == ["timer", STATE]
    blob = later["recording"]["payload"].to_pylist()[1]
    assert PROGRAM.dump(PROGRAM.load(blob)) == blob == PROGRAM.dump(state)


def test_a_snapshot_has_the_leases_every_few_seconds() -> None:
    state, first = outputs_of(ShardState(), QUOTA, NOON_MS, 0)
    assert replaced_by(first["leases"]) == [0]
    assert len(first["leases"]) == 0
    state, soon = outputs_of(state, report(NOON_MS + 1), NOON_MS + 1, 1)
    assert "leases" not in soon
    state, due = outputs_of(state, report(NOON_MS + LEAST_MS), NOON_MS + LEAST_MS, 2)
    (row,) = due["leases"].to_pylist()
    assert (row["broker"], row["resource_group"], row["broker_status"]) == ("b1", "g", "live")
    assert (row["used_publish_messages_per_s"], row["has_limit"]) == (4.0, True)
    assert row["limit_publish_messages_per_s"] == 10.0
    assert row["lease_ends_at_ms"] == NOON_MS + 1 + 1000 * SETTINGS.limits.lease_s


def test_a_lease_ends_one_lease_after_its_limit_was_sent_last() -> None:
    state, _ = outputs_of(ShardState(), QUOTA, NOON_MS, 0)
    sent_ms = []
    for seq in range(1, 25):
        now_ms = NOON_MS + 1000 * seq
        state, outputs = outputs_of(state, report(now_ms), now_ms, seq)
        values = outputs["messages"]["value"].to_pylist() if "messages" in outputs else []
        if any("g" in decode_limits(value).groups for value in values):
            sent_ms.append(now_ms)
        ends_ms = lease_ends(state, 5_000.0).tolist()
        assert ends_ms == ([sent_ms[-1] + 5_000] if sent_ms else [-1])
    assert 2 <= len(sent_ms) < 20
    state.leases.notified[:] = False
    assert lease_ends(state, 5_000.0).tolist() == [-1]


def test_a_snapshot_replaces_that_of_its_shards_alone(tmp_path: Path) -> None:
    history = History(path=str(tmp_path / "history"))
    ensure_tables(history)

    def leases(*pairs: tuple[int, str], shards: list[int]) -> dict[str, pa.Table]:
        same = {"resource_group": "g", "broker_status": "live", "seen_at_ms": NOON_MS}
        same |= {"has_limit": False, "enforced": True}
        columns = {name: pa.repeat(value, len(pairs)) for name, value in same.items()}
        columns["shard"] = pa.array([shard for shard, _ in pairs], pa.int64())
        columns["broker"] = pa.array([broker for _, broker in pairs], pa.string())
        return {"leases": replacing(pa.table(columns), shards)}

    with HistoryWriter(history, "checkpoint-1") as writer:
        first = leases((0, "a"), (1, "b"), (1, "c"), shards=[0, 1])
        writer.append_round(Round(1, 0, NOON_MS), first)
        writer.append_round(Round(1, 0, NOON_MS), first)  # run again
        writer.append_round(Round(1, 1, NOON_MS), leases((1, "d"), shards=[1]))
        assert sorted(read(history, "leases")["broker"].to_pylist()) == ["a", "d"]
        writer.append_round(Round(1, 2, NOON_MS), leases(shards=[0]))
        assert read(history, "leases")["broker"].to_pylist() == ["d"]


def test_a_dead_letter_names_its_sender_where_it_can_be_read() -> None:
    own = usage_report("b1", rate=-1.0)
    stock = encode_stock_report("b2", ["g"], np.full((1, 4), 1e17))
    refused = decode_now(own, stock, b"junk", None).rejected
    senders = zip(refused["position"].to_pylist(), refused["sender"].to_pylist(), strict=True)
    assert dict(senders) == {"0": "b1", "1": "b2", "2": None, "3": None}


def test_idle_rounds_have_a_row_now_and_then() -> None:
    watch = ReportWatch(1.0, None)
    finisher = QuotaFinisher(watch, lambda seq: {"seq": seq}, law="max_min", interval_s=1.0)
    finisher.begin()
    row = finisher.idle(Round(1, 0, NOON_MS))["rounds"].to_pylist()[0]
    assert (row["positions"], row["reports"], row["law"]) == ('{"seq": 0}', 0, "max_min")
    assert row["lag_ms"] is None
    assert finisher.idle(Round(1, 1, NOON_MS + IDLE_ROW_MS - 1)) == {}
    assert finisher.idle(Round(1, 2, NOON_MS + IDLE_ROW_MS))


def test_the_job_says_what_it_waits_for_until_its_first_limits() -> None:
    finisher = QuotaFinisher(ReportWatch(5.0), lambda seq: {}, interval_s=5.0)

    def round_of(*shards: RoundCounts) -> list[tuple[str, str]]:
        finisher.begin()
        finisher.finish(Round(1, 0, NOON_MS), {"counts": [each.to_bytes() for each in shards]})
        return list(finisher.end(Printed().conditions))

    assert round_of() == [], "no shard has run: whether there are groups is not known"
    ((kind, text),) = round_of(RoundCounts())
    assert (kind, text.partition(";")[0]) == ("waiting", "for groups")
    groups = RoundCounts(groups={"hard": 2})
    ((kind, text),) = round_of(groups)
    assert (kind, text.partition(";")[0]) == ("waiting", "for the first usage reports")
    assert round_of(groups) == [], "it says so once"
    ((kind, text),) = round_of(replace(groups, reports=3))
    assert "those so far named none" in text
    ((kind, text),) = round_of(replace(groups, reports=3, entries=4))
    assert "the reported groups have no quota" in text
    assert round_of(replace(groups, reports=3, entries=4, limits_in_force=6)) == [
        ("limits", "the first ones are published")
    ]
    assert round_of(groups) == []


def test_a_job_that_goes_on_with_its_limits_waits_for_nothing() -> None:
    finisher = QuotaFinisher(ReportWatch(5.0), lambda seq: {}, interval_s=5.0)
    for counts in (RoundCounts(groups={"hard": 2}, limits_in_force=6), RoundCounts(reports=3)):
        finisher.begin()
        finisher.finish(Round(1, 0, NOON_MS), {"counts": [counts.to_bytes()]})
        assert list(finisher.end(Printed().conditions)) == []
