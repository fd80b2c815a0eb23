"""The balance job without Spark: program, rows, messages, lines; invented load reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from quotabalance.job.job import BalanceSpec
from quotabalance.job.plan_finisher import BalanceFinisher
from quotabalance.job.program import BalanceProgram, balance_program
from quotabalance.job.reports_held import BalanceJobState
from quotabalance.planning.decisions import LABELS, Decisions, Move, Split
from quotabalance.planning.planner import fitting
from quotabalance.settings import Balance
from quotabalance.wire.balance_plans import decode_plan, encode_plan
from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.load_batch import pack_loads
from quotabalance.wire.load_reports import encode_load_report
from quotaplane.arrow import pack, unpack
from quotaplane.deltalog.read import read_rows
from quotaplane.errors import ConfigError
from quotaplane.history.store import ensure_tables, open_table
from quotaplane.history.tables import TABLES
from quotaplane.history.writer import HistoryWriter
from quotaplane.metrics.exposition import registry_of
from quotaplane.model import Round
from quotaplane.settings import History, load_settings
from quotaplane.streams.shard_program import Batch, Output
from quotaplane.wire.reasons import TOO_MANY_BROKERS
from tests.unit.agents.condition_cases import Printed
from tests.unit.balance.load_report_cases import NOW_MS, bundle_of, decoded, load_of
from tests.unit.metrics.metrics_cases import scraped
from tests.unit.repo.pages import ROOT

BALANCE = Balance(options={"confirm_samples": 1, "confirm_window_samples": 1, "noise_z": 0.0})
EPOCH = 7


def payload(*reports: BrokerLoad, now_ms: int = NOW_MS) -> dict[str, list[bytes]]:
    return {"loads": [pack_loads(decoded(*map(encode_load_report, reports), now_ms=now_ms).loads)]}


class Run:
    """A program fed by hand; its state goes through bytes after every batch."""

    def __init__(
        self, balance: Balance = BALANCE, max_brokers: int | None = None, epoch: int = EPOCH
    ) -> None:
        self.program: BalanceProgram = balance_program(balance, epoch, max_brokers)
        self.epoch = epoch
        self.blob: bytes | None = None
        self.seq = 0

    @property
    def due_ms(self) -> int | None:
        return self.program.due_ms(self.program.load(self.blob))

    def batch(self, now_ms: int, arrived: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
        state, outputs = self.program.run(
            self.program.load(self.blob), arrived, Batch(0, self.seq, now_ms)
        )
        self.blob = self.program.dump(state)
        self.seq += 1
        found: dict[str, list[bytes]] = {}
        for output in outputs:
            found.setdefault(output.kind, []).append(output.payload)
        return found


def counts_of(outputs: dict[str, list[bytes]]) -> dict[str, float]:
    found: dict[str, float] = json.loads(outputs["counts"][0])
    return found


def rows_of(outputs: dict[str, list[bytes]], table: str) -> list[dict[str, Any]]:
    return [row for each in outputs.get(table, ()) for row in unpack(each)[0].to_pylist()]


def skewed(sequence: int, at_ms: int) -> tuple[BrokerLoad, ...]:
    """b1 has ten bundles, b2 and b3 nothing."""
    return (
        load_of("b1", (1e6,) * 10, sequence=sequence, at_ms=at_ms, cpu=50.0),
        load_of("b2", (), sequence=sequence, at_ms=at_ms),
        load_of("b3", (), sequence=sequence, at_ms=at_ms),
    )


def test_the_first_round_waits_until_every_broker_could_report() -> None:
    run = Run()
    assert run.due_ms is None
    quiet = run.batch(NOW_MS, payload(*skewed(1, NOW_MS)))
    assert quiet.keys() == {"counts"}
    assert counts_of(quiet)["reports"] == 3
    assert run.due_ms == NOW_MS + 60_000
    first = run.batch(NOW_MS + 60_000, {})
    assert first.keys() == {"counts", "load", "balance_decisions", "balance_rounds", "plan"}
    assert run.due_ms == NOW_MS + 120_000
    (row,) = rows_of(first, "balance_rounds")
    assert (row["first"], row["every_broker"], row["bundles"]) == (True, True, 10)
    assert (row["bytes_per_s"], row["max_mean"], row["brokers"]) == (1e7, 3.0, ["b1", "b2", "b3"])
    assert row["moves"] == counts_of(first)["moves"] > 0
    decisions = rows_of(first, "balance_decisions")
    moves = [each for each in decisions if each["kind"] == "move"]
    plan = decode_plan(first["plan"][0])
    assert [(m["subject"], m["source"], m["target"]) for m in moves] == [
        move[:3] for move in plan.decisions.moves
    ]
    assert {m["plan_hash"] for m in moves} == {plan.plan_hash} == {row["plan_hash"]}
    assert (plan.epoch, plan.seq, plan.decided_at_ms, plan.mode) == (
        7,
        1,
        NOW_MS + 60_000,
        "propose",
    )
    assert {each["enforced"] for each in decisions} == {False}


def test_a_proposal_is_published_again_until_it_is_carried_out_an_order_only_once() -> None:
    for mode, plans in (("propose", 5), ("auto", 1)):
        run = Run(BALANCE.model_copy(update={"mode": mode}))
        run.batch(NOW_MS, payload(*skewed(1, NOW_MS)))
        rounds = [run.batch(NOW_MS + 60_000 * minute, {}) for minute in range(1, 6)]
        found = [decode_plan(each["plan"][0]) for each in rounds if "plan" in each]
        assert len(found) >= plans
        assert len({plan.decisions for plan in found[:plans]}) == 1
        # An approval names a time, too: each proposal is a plan of its own.
        assert len({plan.plan_hash for plan in found}) == len(found)


def test_the_record_has_new_reports_and_now_and_then_all() -> None:
    run = Run()
    hour = -NOW_MS % 3_600_000
    run.batch(NOW_MS, payload(*skewed(1, NOW_MS)))
    run.batch(NOW_MS + 60_000, {})
    run.batch(NOW_MS + 61_000, payload(load_of("b2", (3.0,), first=99, sequence=2)))
    second = run.batch(NOW_MS + 120_000, {})
    (row,) = rows_of(second, "load")
    assert (row["broker"], row["bundles"], row["topics"]) == ("b2", [bundle_of(99)], [3])
    assert row["bytes_in_per_s"] == [1.5]
    third = run.batch(NOW_MS + hour, {})
    assert [row["broker"] for row in rows_of(third, "load")] == ["b1", "b2", "b3"]
    assert rows_of(third, "balance_rounds")[0]["every_broker"]


def test_a_silent_broker_is_noticed_without_any_report_and_forgotten_later() -> None:
    run = Run(BALANCE.model_copy(update={"options": {"stale_after_s": 100.0}}))
    run.batch(NOW_MS, payload(*skewed(1, NOW_MS)))
    assert counts_of(run.batch(NOW_MS + 60_000, {}))["brokers_silent"] == 0
    assert counts_of(run.batch(NOW_MS + 120_000, {}))["brokers_silent"] == 3
    last = run.batch(NOW_MS + 301_000, {})
    skips = [row for row in rows_of(last, "balance_decisions") if row["label"] == "BrokerGone"]
    assert [row["subject"] for row in skips] == ["b1", "b2", "b3"]
    assert skips[0]["reason"] == "no numbers of b1 for 300 s: forgotten"
    assert rows_of(last, "balance_rounds")[0]["brokers"] == []
    assert not [
        row
        for row in rows_of(run.batch(NOW_MS + 361_000, {}), "balance_decisions")
        if row["label"] == "BrokerGone"
    ]


def test_refused_reports_are_dead_letters() -> None:
    run = Run()
    run.batch(NOW_MS, payload(load_of("b1")))
    junk = decoded(b"junk").rejected
    again = run.batch(NOW_MS + 1, payload(load_of("b1")) | {"rejected": [pack(junk)]})
    letters = rows_of(again, "rejected_reports")
    assert [(row["reason"], row["position"]) for row in letters] == [
        ("not_newer", "loads/0@0"),
        ("wrong_protobuf", "loads/0@0"),
    ]
    assert counts_of(again)["reports"] == 0


def test_a_batch_that_runs_again_gives_the_same_bytes() -> None:
    one, other = Run(), Run()
    for now_ms, arrived in (
        (NOW_MS, payload(*skewed(1, NOW_MS))),
        (NOW_MS + 60_000, payload(load_of("b2", (9e6,), first=50, sequence=2))),
        (NOW_MS + 120_000, {}),
    ):
        assert one.batch(now_ms, arrived) == other.batch(now_ms, arrived)
        assert one.blob == other.blob


def test_a_state_of_another_version_is_refused_by_name() -> None:
    head, *tables = unpack(BalanceJobState().to_bytes())
    at = head.column_names.index("format")
    newer = head.set_column(at, head.schema.field(at), pa.array([3]))
    with pytest.raises(ConfigError, match="in format 3, this version reads format 2"):
        BalanceJobState.from_bytes(pack(newer, *tables))


def finished(outputs: Sequence[Output] | dict[str, list[bytes]]) -> Any:
    assert isinstance(outputs, dict)
    finisher = BalanceFinisher(
        BALANCE.model_copy(update={"cluster": "east"}), 1200.0, lambda seq: {"loads": {"0": seq}}
    )
    return finisher.finish(Round(EPOCH, 1, NOW_MS), outputs)


def test_the_metrics_have_what_was_decided() -> None:
    run = Run()
    run.batch(NOW_MS, payload(*skewed(1, NOW_MS)))
    outputs = run.batch(NOW_MS + 60_000, {"rejected": [pack(decoded(b"junk").rejected)]})
    status = BalanceSpec(load_settings(ROOT / "conf" / "balance.yaml")).status()
    status.add(finished(outputs).status)
    found = scraped(registry_of("balance", status.readings))
    (row,) = unpack(outputs["balance_rounds"][0])[0].to_pylist()
    decisions = found["quotaplane_balance_decisions_total"]
    for kind in ("move", "split", "skip"):
        assert sum(n for (what, _), n in decisions.items() if what == kind) == row[f"{kind}s"]
    assert row["moves"] > 0
    assert {label for _, label in decisions} <= LABELS.keys()
    assert found["quotaplane_balance_rounds_total"] == {(): 1}
    assert found["quotaplane_balance_bundles"] == {(): row["bundles"]}
    imbalance = pytest.approx(row["max_mean"] - 1, abs=0.01)
    assert found["quotaplane_balance_imbalance_ratio"] == {(): imbalance}
    assert sum(found["quotaplane_balance_brokers"].values()) == len(row["brokers"])
    assert found["quotaplane_balance_stale_after_seconds"][()] > 0
    assert found["quotaplane_dead_letters_total"] == {(): 1}


def test_a_round_is_written_and_read_back(history: History) -> None:
    ensure_tables(history)
    run = Run(BALANCE.model_copy(update={"cluster": "east"}))
    junk = {"rejected": [pack(decoded(b"junk").rejected)]}
    run.batch(NOW_MS, payload(*skewed(1, NOW_MS)))
    done = finished(run.batch(NOW_MS + 60_000, junk))
    assert [message.key for message in done.messages] == ["east"]
    assert done.status.counts["decided"] == 1
    assert done.status.rejected == {"wrong_protobuf": 1}
    with HistoryWriter(history, "app", BalanceSpec.tables, BalanceSpec.last_table) as writer:
        writer.append_round(Round(EPOCH, 1, NOW_MS), done.tables)
        writer.append_round(Round(EPOCH, 1, NOW_MS), done.tables)
    for name in ("load", "balance_decisions", "balance_rounds", "rejected_reports"):
        rows = read_rows(open_table(history, name))
        assert len(rows) == len(done.tables[name])
        assert set(rows.column_names) == set(TABLES[name].schema.names)
    load = {row["broker"]: row for row in read_rows(open_table(history, "load")).to_pylist()}
    assert load["b1"]["bytes_in_per_s"] == [5e5] * 10
    assert load["b2"]["bundles"] == []


def test_a_plan_that_is_too_large_loses_its_last_moves() -> None:
    moves = [Move(bundle_of(n), "b1", "b2", 1.0, "Overloaded", "x" * 100) for n in range(100)]
    splits = [Split(bundle_of(200), "b1", (5,), "TooBig", "")]
    whole = Decisions(moves, splits)
    assert fitting(whole) is whole
    cut = fitting(whole, 5_000)
    assert 0 < len(cut.moves) < 100
    assert not cut.splits
    assert cut.skips[0].bundles == 101 - len(cut.moves)
    assert len(encode_plan(cut, epoch=1, seq=1, decided_at_ms=1, mode="auto")) <= 5_000


def test_a_clock_that_was_set_back_delays_no_round() -> None:
    run = Run()
    run.batch(
        NOW_MS + 3_600_000, payload(*skewed(1, NOW_MS + 3_600_000), now_ms=NOW_MS + 3_600_000)
    )
    interval_ms = round(BALANCE.round_interval_s * 1000)
    assert run.due_ms == NOW_MS + 3_600_000 + interval_ms
    run.batch(NOW_MS, payload(*skewed(2, NOW_MS)))
    assert run.due_ms == NOW_MS + interval_ms


def test_load_reports_that_stay_away_and_come_again_are_told() -> None:
    heard = Printed()
    finisher = BalanceFinisher(
        Balance(loads_topic="loads"), 1200.0, lambda _: {}, clock=lambda: heard.now_s
    )

    def lines(after_s: float, reports: int) -> list[tuple[str, str]]:
        heard.now_s += after_s
        finisher.begin()
        counts = json.dumps({"reports": reports}).encode()
        finisher.finish(Round(1, 1, 1_790_000_000_000), {"counts": [counts]})
        assert not finisher.end(heard.conditions)
        return heard.lines()

    assert lines(0, reports=3) == []
    assert lines(590, reports=0) == []
    ((kind, text),) = lines(10, reports=0)
    assert kind == "warning"
    assert text == (
        "no load reports: none for 600 s; brokers are left out once their numbers are 1200 s old, "
        "and then nothing moves. Check that the collector, or the brokers, run and publish to loads"
    )
    assert lines(60, reports=0) == []
    assert lines(60, reports=3) == [("recovered", "no load reports: over after 120 s")]


def test_a_batch_that_was_never_finished_counts_as_empty() -> None:
    heard = Printed()
    finisher = BalanceFinisher(Balance(), 1200.0, lambda _: {}, clock=lambda: heard.now_s)
    for after_s in (0.0, 700.0):
        heard.now_s += after_s
        finisher.begin()
        finisher.end(heard.conditions)
    said = heard.lines()
    assert [kind for kind, _ in said] == ["warning"]
    assert "since the start 700 s ago" in said[0][1]


GHOSTS = 1000


def ghosts(at_ms: int) -> list[Any]:
    """Brokers that carry next to nothing, so that all bundles seem to belong to them."""
    return [
        load_of(f"a-ghost-{n}", (), at_ms=at_ms, sequence=at_ms, cpu=0.0) for n in range(GHOSTS)
    ]


def decided(max_brokers: int | None, *, attacked: bool) -> tuple[Any, list[str], bytes | None]:
    """The decisions of the second round, the letters' reasons, and the state."""
    run = Run(BALANCE, max_brokers)
    run.batch(NOW_MS, payload(*skewed(1, NOW_MS)))
    reasons: list[str] = []
    outputs: dict[str, list[bytes]] = {}
    for seconds in (30, 60):
        at_ms = NOW_MS + 1000 * seconds
        reports = [*skewed(seconds, at_ms), *(ghosts(at_ms) if attacked else ())]
        outputs = run.batch(at_ms, payload(*reports, now_ms=at_ms))
        for row in rows_of(outputs, "rejected_reports"):
            reasons += [row["reason"]] * row["reports"]
    return rows_of(outputs, "balance_decisions"), reasons, run.blob


def test_beyond_max_brokers_decisions_are_as_without_the_invented_ones() -> None:
    alone, none, state = decided(3, attacked=False)
    assert none == []
    assert {row["kind"] for row in alone} >= {"move"}
    attacked, reasons, same = decided(3, attacked=True)
    assert attacked == alone
    assert same == state
    assert reasons == [TOO_MANY_BROKERS] * 2 * GHOSTS
    unbounded, _, _ = decided(None, attacked=True)
    assert unbounded != alone


@pytest.mark.parametrize("reason", [TOO_MANY_BROKERS, "other_broker", "broker_not_allowed"])
def test_the_balance_job_prints_it_once(reason: str) -> None:
    finisher, heard = BalanceFinisher(Balance(), 1200.0, lambda _: {}), Printed()
    finisher.begin()
    finisher._arrived, finisher._rejected = 5, {reason: 5}
    finisher.end(heard.conditions)
    finisher.end(heard.conditions)
    ((kind, text),) = heard.lines()
    assert (kind, text.endswith(f"Dead letters: {reason}")) == ("warning", True)
