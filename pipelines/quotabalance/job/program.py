"""The balance job's program: newest reports in, a decision at each interval. One state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from quotabalance.job.reports_held import BalanceJobState
from quotabalance.job.round_rows import decision_rows, load_rows, round_row
from quotabalance.planning.bundle_orders import NotMade, not_made_of, not_made_text
from quotabalance.planning.decisions import Decisions
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.planner import BalanceRound, fitting
from quotabalance.planning.report_choice import MOST_BUNDLES, NOT_NEWER, TOO_MANY_BUNDLES, choose
from quotabalance.planning.reported_loads import ReportedLoads
from quotabalance.planning.reports_intake import RoundOfReports, gone_skip, round_of
from quotabalance.record.strategies import StrategyInForce
from quotabalance.settings import Balance
from quotabalance.strategy_settings import strategy_in_force
from quotabalance.wire.balance_plans import encode_plan
from quotabalance.wire.load_batch import unpack_loads
from quotaplane.errors import ConfigError
from quotaplane.model import Round
from quotaplane.streams.letters import letters_of, letters_of_senders, refused_reports
from quotaplane.streams.new_brokers import beyond_max_brokers
from quotaplane.streams.shard_program import Arrived, Batch, Output
from quotaplane.wire.reasons import TOO_MANY_BROKERS

NOT_MADE: Final = "not_made"
"""The kind of input with the orders that the executor has not carried out."""
_HOUR_MS: Final = 3_600_000
_DETAILS: Final = {
    NOT_NEWER: "its broker has sent this report, or a newer one, before",
    TOO_MANY_BUNDLES: f"more than {MOST_BUNDLES:,} bundles of all brokers",
}


@dataclass(frozen=True)
class BalanceProgram:
    """Keeps each broker's newest report and decides once per ``round_interval_s``.

    Inputs: packed ``loads`` and dead letters ``rejected``. Outputs, by history table: packed rows;
    ``plan``: the bytes of a plan; ``counts``: JSON.
    """

    epoch: int
    balance: Balance
    strategy: StrategyInForce
    max_brokers: int | None = None
    name: str = "balance"
    has_timer: bool = True

    @property
    def options(self) -> BalanceOptions:
        """Options of the job and of quotaplane's strategy."""
        return self.strategy.options

    def load(self, blob: bytes | None) -> BalanceJobState:
        """Decode a state."""
        return BalanceJobState() if blob is None else BalanceJobState.from_bytes(blob)

    def dump(self, state: BalanceJobState) -> bytes:
        """Encode a state."""
        return state.to_bytes()

    def due_ms(self, state: BalanceJobState) -> int | None:
        """The next round."""
        return state.next_round_ms

    def run(
        self, state: BalanceJobState, arrived: Arrived, batch: Batch
    ) -> tuple[BalanceJobState, Sequence[Output]]:
        """Take in the reports, then decide if the time has come."""
        loads = unpack_loads(arrived.get("loads", ()))
        stamp = Round(self.epoch, batch.seq, batch.now_ms)
        loads, letters = self._of_known_brokers(state, loads, stamp)
        state, not_chosen, counts = self._taken_in(state, loads, batch.now_ms)
        letters += [] if not_chosen is None else [not_chosen]
        refused = arrived.get("rejected", ())
        outputs = []
        if refused or letters:
            table = refused_reports(refused, letters)
            outputs.append(Output("rejected_reports", table))
        next_ms = batch.now_ms + self._interval_ms
        waits_ms = state.next_round_ms
        # Later than that: the clock was set back.
        if state.latest.reports.num_rows and (waits_ms is None or waits_ms > next_ms):
            state = replace(state, next_round_ms=next_ms)
        if state.next_round_ms is not None and state.next_round_ms <= batch.now_ms:
            not_made = [order for text in arrived.get(NOT_MADE, ()) for order in not_made_of(text)]
            state, more, seen = self._round(state, batch, not_made)
            outputs += more
            counts |= seen
        outputs.append(Output("counts", json.dumps(counts).encode()))
        return state, outputs

    @property
    def _interval_ms(self) -> int:
        return max(round(self.balance.round_interval_s * 1000), 1)

    def _of_known_brokers(
        self, state: BalanceJobState, loads: ReportedLoads, stamp: Round
    ) -> tuple[ReportedLoads, list[pa.Table]]:
        """The reports of brokers within ``max_brokers``, and dead letters of the others."""
        known, most = state.latest.reports["broker"].to_pylist(), self.max_brokers
        refused, beyond = beyond_max_brokers(known, loads.reports["broker"], most, stamp)
        if not refused.any():
            return loads, []
        rows, detail = loads.reports.filter(pa.array(refused)), f"reports.max_brokers is {most}"
        letters = letters_of_senders(rows, TOO_MANY_BROKERS, f"{beyond}; {detail}")
        return loads.take(np.flatnonzero(~refused)), [letters]

    def _taken_in(
        self, state: BalanceJobState, loads: ReportedLoads, now_ms: int
    ) -> tuple[BalanceJobState, pa.Table | None, dict[str, float]]:
        chosen = choose(state.latest, loads, now_ms, self.options.gone_after_s)
        gone = {*state.gone, *chosen.gone}
        fresh = (state.fresh | chosen.fresh) - gone
        gone -= {*chosen.latest.reports["broker"].to_pylist()}
        counts: dict[str, float] = {"reports": chosen.used, "superseded": chosen.superseded}
        if loads.reports.num_rows:
            newest_ms = int(loads.reports["published_at_ms"].to_numpy().max())
            counts["newest_ms"] = newest_ms
        state = replace(
            state, latest=chosen.latest, fresh=frozenset(fresh), gone=tuple(sorted(gone))
        )
        if not chosen.refused:
            return state, None, counts
        rows = loads.reports.take(pa.array([row for row, _ in chosen.refused]))
        why = [reason for _, reason in chosen.refused]
        letters = letters_of(
            len(why),
            reason=pa.array(why),
            detail=pa.array([_DETAILS[reason] for reason in why]),
            position=rows["position"],
            published_at_ms=rows["published_at_ms"],
        )
        return state, letters, counts

    def _round(
        self, state: BalanceJobState, batch: Batch, not_made: Sequence[NotMade]
    ) -> tuple[BalanceJobState, list[Output], dict[str, Any]]:
        seen = round_of(state.latest, batch.now_ms, not_made)
        after, decisions = self._decided(state, seen)
        hour = batch.now_ms // _HOUR_MS
        every = state.rounds == 0 or hour != state.full_hour
        tables = self._rows(state, batch, seen.round, decisions, every_broker=every)
        outputs = [Output(name, table) for name, table in tables.items() if len(table)]
        if decisions.moves or decisions.splits:
            plan = encode_plan(
                decisions,
                epoch=self.epoch,
                seq=batch.seq,
                decided_at_ms=batch.now_ms,
                mode=self.balance.mode,
            )
            outputs.append(Output("plan", plan))
        state = replace(
            state,
            fresh=frozenset(),
            gone=(),
            next_round_ms=batch.now_ms + self._interval_ms,
            full_hour=hour if every else state.full_hour,
            rounds=state.rounds + 1,
            strategy=after,
            strategy_name=self.strategy.name,
        )
        return state, outputs, self._seen(seen.round.age_s, decisions, tables["balance_rounds"])

    def _decided(self, state: BalanceJobState, seen: RoundOfReports) -> tuple[bytes, Decisions]:
        """The strategy's new memory, and its decisions with the job's skips."""
        memory = state.strategy if state.strategy_name == self.strategy.name else None
        strategy = self.strategy.run(memory)
        decided = strategy.decide(seen.round, proposed=self.balance.mode == "propose")
        forgotten = [gone_skip(name, self.options.gone_after_s) for name in state.gone]
        skips = (*decided.skips, *seen.skips, *forgotten)
        return strategy.to_bytes(), fitting(decided._replace(skips=skips))

    def _rows(
        self,
        state: BalanceJobState,
        batch: Batch,
        round_: BalanceRound,
        decisions: Decisions,
        *,
        every_broker: bool,
    ) -> dict[str, pa.Table]:
        """The round as rows of each history table."""
        balance = self.balance
        brokers = state.latest.reports["broker"].to_pylist()
        rows = [place for place, name in enumerate(brokers) if every_broker or name in state.fresh]
        plan_hash, enforced = decisions.plan_hash(batch.now_ms), balance.mode == "auto"
        return {
            "load": load_rows(state.latest.take(rows), balance.cluster),
            "balance_decisions": decision_rows(
                decisions, balance.cluster, plan_hash=plan_hash, enforced=enforced
            ),
            "balance_rounds": round_row(
                round_.load,
                decisions,
                cluster=balance.cluster,
                strategy=self.strategy.name,
                settings=self.strategy.settings_text(),
                first=state.rounds == 0,
                every_broker=every_broker,
                oldest_s=float(round_.age_s.max(initial=0.0)),
                not_made=not_made_text(round_.not_made),
                plan_hash=plan_hash,
                mode=balance.mode,
            ),
        }

    def _seen(self, age_s: Any, decisions: Decisions, row: pa.Table) -> dict[str, Any]:
        silent = int(np.count_nonzero(age_s > self.options.stale_after_s))
        return {
            "decisions": {
                "move": Counter(move.label for move in decisions.moves),
                "split": Counter(split.label for split in decisions.splits),
                "skip": Counter(skip.label for skip in decisions.skips),
            },
            "decided": 1,
            "moves": len(decisions.moves),
            "splits": len(decisions.splits),
            "skips": len(decisions.skips),
            "brokers_live": len(age_s) - silent,
            "brokers_silent": silent,
            "bundles": row["bundles"][0].as_py(),
            "imbalance_pct": round(100 * (row["max_mean"][0].as_py() - 1)),
        }


def balance_program(balance: Balance, epoch: int, max_brokers: int | None = None) -> BalanceProgram:
    """The program of the settings.

    Raises:
        ConfigError: the strategy, or one of its options, policies or settings, is unknown or wrong.
    """
    strategy = strategy_in_force(balance)
    gone_after_s = strategy.options.gone_after_s
    if gone_after_s <= balance.round_interval_s:
        raise ConfigError(
            f"balance.round_interval_s: {balance.round_interval_s:g} s is too long: numbers that "
            f"are {gone_after_s:g} s old (3 x balance.options.stale_after_s) do not count any more"
        )
    # The program goes to Spark's executors; the driver signs.
    unsigned = balance.model_copy(update={"signing": None})
    return BalanceProgram(epoch, unsigned, strategy, max_brokers)
