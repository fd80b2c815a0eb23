"""The balancer's record decided again: exactly by replay, otherwise by what-if."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotabalance.cli import replay_rounds, what_if
from quotabalance.job.job import BalanceSpec
from quotabalance.job.plan_finisher import BalanceFinisher
from quotabalance.job.program import NOT_MADE, balance_program
from quotabalance.job.reports_held import BalanceJobState
from quotabalance.planning.bundle_orders import NotMade, not_made_text
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import OURS, Decisions, Move, Split
from quotabalance.record.alternatives import OtherOwners, StrategyOutcome
from quotabalance.record.recorded_rounds import read_record
from quotabalance.record.strategies import OurStrategy
from quotabalance.settings import Balance
from quotabalance.stock.shedders import SHEDDERS
from quotabalance.wire.load_batch import pack_loads
from quotabalance.wire.load_reports import encode_load_report
from quotaplane.console.option_parser import OptionParser
from quotaplane.errors import ConfigError, InputError, QuotaplaneError
from quotaplane.history.store import ensure_tables
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History
from tests.unit.balance.load_report_cases import NOW_MS, bundle_of, decoded, load_of
from tests.unit.balance.test_balance_program import Run

BROKERS = ("b1", "b2", "b3", "b4")
BALANCE = Balance(options={"confirm_samples": 1, "confirm_window_samples": 2})


class Recording:
    """A job without Spark on a small cluster whose noisy bundles follow the plans."""

    def __init__(self, balance: Balance = BALANCE, epoch: int = 7) -> None:
        self.job = Run(balance, epoch=epoch)
        self.finisher = BalanceFinisher(balance, 1200.0, lambda seq: {"loads": seq})
        self.random = np.random.default_rng(epoch)
        self.loads = self.random.lognormal(13, 0.7, 40)
        self.owner = np.where(np.arange(40) < 25, 0, np.arange(40) % 4)
        self.now_ms = NOW_MS + 2_200_000  # ten minutes before a full hour
        self.not_made: list[NotMade] = []

    def run(self, writer: HistoryWriter, rounds: int) -> None:
        for _ in range(rounds):
            self._batch(writer, self.now_ms, {"loads": [self._reports(self.now_ms)]})
            self.now_ms += 60_000
            self._batch(writer, self.now_ms, {})

    def _batch(self, writer: HistoryWriter, at_ms: int, arrived: dict[str, list[bytes]]) -> None:
        stamp = Round(self.job.epoch, self.job.seq, at_ms)
        not_made = not_made_text(self.not_made).encode()
        done = self.finisher.finish(stamp, self.job.batch(at_ms, arrived | {NOT_MADE: [not_made]}))
        writer.append_round(stamp, done.tables)
        decided = done.tables.get("balance_decisions")
        for row in [] if decided is None else decided.to_pylist():
            if row["kind"] == "move" and self.random.random() < 0.3:
                self.not_made.append(NotMade(row["subject"], at_ms, True, "refused: it is full"))
            elif row["kind"] == "move":
                place = [bundle_of(n) for n in range(40)].index(row["subject"])
                self.owner[place] = BROKERS.index(row["target"])

    def _reports(self, at_ms: int) -> bytes:
        noisy = self.loads * self.random.lognormal(0, 0.2, 40)
        values = []
        for number, broker in enumerate(BROKERS):
            own = np.flatnonzero(self.owner == number)
            if self.random.random() < 0.2:  # it has nothing new to say
                continue
            report = load_of(
                broker,
                noisy[own],
                bundles=[bundle_of(n) for n in own.tolist()],
                sequence=self.job.seq + 1,
                at_ms=at_ms,
                cpu=float(noisy[own].sum() / 1e6),
            )
            values.append(encode_load_report(report))
        return pack_loads(decoded(*values, now_ms=at_ms).loads)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> History:
    """20 rounds of one run, then 6 of another one with other options."""
    history = History(path=str(tmp_path_factory.mktemp("record")))
    ensure_tables(history)
    first = Recording()
    with HistoryWriter(history, "one", BalanceSpec.tables, BalanceSpec.last_table) as writer:
        first.run(writer, 20)
    options = {**BALANCE.options, "start_above": 0.5, "stop_below": 0.4}
    second = Recording(BALANCE.model_copy(update={"options": options, "mode": "auto"}), epoch=8)
    second.now_ms = first.now_ms
    with HistoryWriter(history, "two", BalanceSpec.tables, BalanceSpec.last_table) as writer:
        second.run(writer, 6)
    return history


def options_of(module: Any, *words: str) -> argparse.Namespace:
    parser = OptionParser()
    module.configure(parser)
    return parser.parse_args(words)


def test_a_replay_gives_the_recorded_decisions(
    record: History, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = list(read_record(record))
    assert len(rounds) > 20
    assert sum(row["kind"] == "move" for each in rounds for row in each.decisions) > 5
    assert {each.epoch for each in rounds} == {7, 8}
    code = replay_rounds.run(options_of(replay_rounds, "--history", record.path, "--json"))
    told = json.loads(capsys.readouterr().out)
    assert (code, told["differences"]) == (0, []), told["differences"][:3]
    assert told == {"rounds": len(rounds), "from_the_start": True, "differences": []}


def test_a_replay_says_what_differs(
    record: History, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    decide = OurStrategy.decide

    def other(*given: Any, proposed: bool) -> Decisions:
        decisions = decide(*given, proposed=proposed)
        return decisions._replace(moves=decisions.moves[1:])

    monkeypatch.setattr(OurStrategy, "decide", other)
    args = options_of(replay_rounds, "--history", record.path, "--table")
    assert replay_rounds.run(args) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "recorded, not decided again: ('move', 'acme/orders/" in "".join(lines)


def test_a_record_that_begins_in_the_middle_says_so(
    record: History, capsys: pytest.CaptureFixture[str]
) -> None:
    since = "2023-11-14T23:00:00Z"  # an hour begins: all brokers are in the record
    words = ("--history", record.path, "--since", since, "--table")
    replay_rounds.run(options_of(replay_rounds, *words))
    assert "begins in the middle of a run" in capsys.readouterr().out


CONF = """
loadBalancerLoadSheddingStrategy=org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder
minUnloadMessageThroughput=1*1024
minUnloadMessage=10
loadBalancerSplitIntervalMinutes=5
"""
"""A ``broker.conf`` with which small clusters are balanced, too."""


def test_a_replay_gives_what_strategies_of_pulsar_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broker.conf").write_text(CONF)
    history = History(path=str(tmp_path / "history"))
    ensure_tables(history)
    now_ms = 0
    for epoch, name in enumerate(SHEDDERS, 1):
        given = {"strategy": name, "broker_conf": str(tmp_path / "broker.conf")}
        mode = "auto" if epoch % 2 else "propose"
        job = Recording(BALANCE.model_copy(update=given | {"mode": mode}), epoch)
        job.now_ms = max(job.now_ms, now_ms)
        with HistoryWriter(history, name, BalanceSpec.tables, BalanceSpec.last_table) as writer:
            job.run(writer, 8)
            if name == "ThresholdShedder":  # the job goes on with ours, which begins anew
                job.job.program = balance_program(BALANCE, epoch)
                job.run(writer, 3)
        now_ms = job.now_ms
    rounds = list(read_record(history))
    assert {each.strategy for each in rounds} == {*SHEDDERS, "quotaplane"}
    assert {each.settings.get("stock", {}).get("minUnloadMessage") for each in rounds} == {10, None}
    assert sum(row["kind"] == "move" for each in rounds for row in each.decisions) > 10
    code = replay_rounds.run(options_of(replay_rounds, "--history", history.path, "--json"))
    told = json.loads(capsys.readouterr().out)
    assert (code, told["differences"]) == (0, []), told["differences"][:3]
    assert told["rounds"] == len(rounds)


def test_what_if_takes_a_broker_conf(
    record: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(CONF)
    args = options_of(what_if, "--history", record.path, "--json", "--broker-conf", str(file))
    assert what_if.run(args) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["UniformLoadShedder"]["moves"] > 0
    assert "minUnloadMessageThroughput=1*1024 is no number for Pulsar" in told.err
    assert "without effect on UniformLoadShedder here: loadBalancerSplitInterval" in told.err
    off = ("--broker-conf", str(file), "--set", "loadBalancerSheddingEnabled=false")
    told_off = shown(capsys, record, *off)
    assert told_off["UniformLoadShedder loadBalancerSheddingEnabled=false"]["moves"] == 0


@pytest.mark.parametrize("name", [*SHEDDERS, OURS])
def test_what_if_runs_each_strategy_with_the_splitter_of_its_manager(
    name: str, record: History, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ("--set", "loadBalancerNamespaceBundleMaxTopics=2")
    assert shown(capsys, record, "--strategy", name, *few)[f"{name} {few[1]}"]["splits"] > 0
    told = shown(capsys, record, "--strategy", name)
    assert told[name]["splits"] == 0
    assert told[name]["rounds"] == told["recorded"]["rounds"]
    assert told[name]["imbalance_max"] >= told[name]["imbalance_mean"] >= 1.0


def shown(capsys: pytest.CaptureFixture[str], history: History, *words: str) -> dict[str, Any]:
    args = options_of(what_if, "--history", history.path, "--json", *words)
    assert what_if.run(args) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_what_if_shows_the_record_beside_another_setting(
    record: History, capsys: pytest.CaptureFixture[str]
) -> None:
    told = shown(capsys, record, "--set", "max_moves_per_round=0")
    other = told["quotaplane max_moves_per_round=0"]
    assert (other["moves"], other["moved_bytes_per_s"]) == (0, 0.0)
    assert told["recorded"]["moves"] > 5
    assert other["imbalance_last"] > told["recorded"]["imbalance_last"]
    assert other["rounds"] == told["recorded"]["rounds"]
    for form, title in (("--table", "bytes/s moved"), ("--csv", "\nmoved_bytes_per_s,")):
        assert what_if.run(options_of(what_if, "--history", record.path, form)) == 0
        assert title in capsys.readouterr().out


def test_a_setting_of_pulsar_changes_what_its_strategy_does(
    record: History, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--strategy", "UniformLoadShedder")
    normal = shown(capsys, record, *words)["UniformLoadShedder"]
    setting = "minUnloadMessageThroughput=2000000000"
    lazy = shown(capsys, record, *words, "--set", setting, "--set", "minUnloadMessage=2000000000")
    assert normal["moves"] > 0
    assert lazy["UniformLoadShedder with 2 changes"]["moves"] == 0


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--set", "start_above"], ConfigError, "expected KEY=VALUE"),
        (["--set", "start=1"], ConfigError, "--set start: unknown key"),
        (["--set", "start_above=x"], ConfigError, "--set start_above: Input should be"),
        (["--strategy", "Best"], InputError, "Pulsar has no shedder 'Best'"),
        (
            ["--strategy", "AvgShedder", "--set", "x=1"],
            ConfigError,
            "--set Pulsar's load balancer has no setting 'x'",
        ),
        (["--cluster", "west"], InputError, "no rounds of cluster 'west'"),
        (["--since", "yesterday"], InputError, "--since: 'yesterday' is neither a time"),
        (["--until", "2020-01-01"], InputError, "the record has no rounds in that time"),
        (["--conf", "x.yaml"], ConfigError, "--conf: not allowed with argument --history"),
    ],
)
def test_wrong_options_are_told_in_one_line(
    record: History, words: list[str], error: type[QuotaplaneError], message: str
) -> None:
    with pytest.raises(error) as raised:
        what_if.run(options_of(what_if, "--history", record.path, *words))
    assert message in str(raised.value)


def test_owners_follow_the_alternative_and_not_the_record() -> None:
    def load(owner: list[int], brokers: tuple[str, ...] = ("b1", "b2")) -> ClusterLoad:
        count = len(brokers)
        usage = np.tile([10.0, 7.0, 7.0, 4.0, 4.0], (count, 1))
        names = [bundle_of(n) for n in range(len(owner))]
        rates = np.tile([1.0, 1.0, 0.0, 0.0], (len(owner), 1))
        return ClusterLoad(brokers, usage, np.ones((count, 5)), names, np.array(owner), rates)

    owners = OtherOwners()
    assert owners.of(load([0, 0, 1])).owner.tolist() == [0, 0, 1]
    owners.move(Decisions([Move(bundle_of(0), "b1", "b2", 2.0, "", "")]))
    other = owners.of(load([0, 1, 1, 0]))  # the record moved 1 instead; 3 is new
    assert other.owner.tolist() == [1, 0, 1, 0]
    owners.move(Decisions([Move(bundle_of(3), "b1", "b2", 2.0, "", "")]))
    other = owners.of(load([0, 1, 1, 0]))
    assert other.owner.tolist() == [1, 0, 1, 1]
    # b2 carries a bundle more, a quarter of the load: so much of all use but memory
    assert other.usage[:, 0].tolist() == [5.0, 15.0]
    assert other.usage[:, 1].tolist() == [7.0, 7.0]
    gone = owners.of(load([0, 0, 0, 0], ("b1",)))
    assert gone.owner.tolist() == [0, 0, 0, 0]


def test_a_proposal_that_nobody_approves_counts_once() -> None:
    bundle, other = bundle_of(1), bundle_of(2)
    load = ClusterLoad(
        ("b1", "b2"), np.zeros((2, 5)), np.zeros((2, 5)), (bundle,), np.array([0]), np.ones((1, 4))
    )
    moved = replace(load, owner=np.array([1]))
    move = Move(bundle, "b1", "b2", 10.0, "Overloaded", "")
    plan = Decisions([move], [Split(other, "b1", (), "TooBig", "")])
    outcome, orders = StrategyOutcome(), StrategyOutcome()
    for number, seen in enumerate([load, load, moved, load]):
        outcome.add(seen, 60.0 * number, plan, proposed=True)
        orders.add(seen, 60.0 * number, plan)
    # It was proposed, made, and then proposed again, as the bundle had come back.
    assert (outcome.moves, outcome.repeat_moves, outcome.moved_bytes_per_s) == (2, 1, 20.0)
    assert (outcome.splits, orders.moves, orders.repeat_moves, orders.splits) == (1, 4, 3, 4)


def test_the_record_gives_back_the_reports(record: History) -> None:
    first = next(read_record(record))
    assert first.first
    brokers = first.loads.reports["broker"].to_pylist()
    assert brokers == sorted(brokers)
    assert pa.types.is_float32(first.loads.bundles["bytes_in_per_s"].type)
    state = BalanceJobState(latest=first.loads)
    assert BalanceJobState.from_bytes(state.to_bytes()).latest == first.loads
