"""``quotaplane balance replay``: decides every recorded round of the balancer again."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from quotabalance.cli.record_options import add_record_options, recorded_rounds
from quotabalance.planning.decisions import Decisions
from quotabalance.planning.planner import fitting
from quotabalance.planning.reports_intake import GONE, round_of
from quotabalance.record.recorded_rounds import RecordedRound
from quotabalance.record.strategies import StrategyInForce
from quotaplane.console.answers import print_answer
from quotaplane.console.terminal import one_line
from quotaplane.history.damage import round_of_record

_MOST_DIFFERENCES: Final = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``quotaplane balance replay``."""
    add_record_options(parser)


def run(args: argparse.Namespace) -> int:
    """Decide every recorded round again; the exit code is 1 if any decision differs.

    Raises:
        InputError, ConfigError, HistoryError: an option is wrong, or the record can't be read.
    """
    recorded = recorded_rounds(args)
    differences = list(differences_of(recorded))
    exact = all(each.first for each in _starts(recorded))
    answer = {"rounds": len(recorded), "from_the_start": exact, "differences": differences}
    columns = ("epoch", "round", "what")
    print_answer(
        args,
        lambda: json.dumps(answer),
        lambda: "\n".join(_lines(len(recorded), differences, exact=exact)),
        lambda: (columns, [tuple(each[name] for name in columns) for each in differences]),
    )
    return 1 if differences else 0


def _lines(rounds: int, differences: Sequence[Mapping[str, Any]], *, exact: bool) -> Iterator[str]:
    yield f"{rounds} rounds, {len({each['round'] for each in differences})} differ"
    if not exact:
        yield "the record begins in the middle of a run: memories were empty here, not there"
    for each in differences[:_MOST_DIFFERENCES]:
        yield one_line(f"epoch {each['epoch']} round {each['round']}: {each['what']}")


def differences_of(recorded: Sequence[RecordedRound]) -> list[dict[str, Any]]:
    """The rounds that a replay decides differently from the record, with the differences."""
    found = []
    memory, run = None, None
    for each in recorded:
        if (each.epoch, each.strategy) != run:
            memory, run = None, (each.epoch, each.strategy)
        with round_of_record("balance_rounds", each.epoch, each.seq):
            in_force = StrategyInForce.of_record(each.strategy, each.settings)
            seen = round_of(each.loads, each.now_ms, each.not_made)
            # The job stores its memory as bytes after each round.
            strategy = in_force.run(memory)
            decided = strategy.decide(seen.round, proposed=each.mode == "propose")
            memory = strategy.to_bytes()
            decisions = fitting(decided._replace(skips=(*decided.skips, *seen.skips)))
            differences = _differences(each, decisions)
        for what in differences:
            found.append({"epoch": each.epoch, "round": each.seq, "what": what})
    return found


def _differences(each: RecordedRound, decisions: Decisions) -> list[str]:
    """Differences of a round. A forgotten broker is recorded once, and not in a replay."""
    now = [tuple(row) for row in _rows(decisions) if row[-1] != GONE]
    then = [
        (row["kind"], row["subject"], row["source"], row["target"], row["reason"], row["label"])
        for row in each.decisions
        if row["label"] != GONE
    ]
    texts = [f"recorded, not decided again: {row}" for row in then if row not in now]
    texts += [f"decided now, not recorded: {row}" for row in now if row not in then]
    if not texts and now != then:
        texts.append("the same decisions in another order")
    plan_hash = decisions.plan_hash(each.now_ms)
    if plan_hash != each.plan_hash:
        texts.append(f"plan {plan_hash or '-'}, recorded {each.plan_hash or '-'}")
    return texts


def _rows(decisions: Decisions) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    rows += [("move", m.bundle, m.source, m.target, m.reason, m.label) for m in decisions.moves]
    rows += [("split", s.bundle, s.owner, "", s.reason, s.label) for s in decisions.splits]
    return rows + [("skip", s.subject, "", "", s.reason, s.label) for s in decisions.skips]


def _starts(recorded: Sequence[RecordedRound]) -> list[RecordedRound]:
    """The first recorded round of each epoch."""
    first: dict[int, RecordedRound] = {}
    for each in recorded:
        first.setdefault(each.epoch, each)
    return list(first.values())
