"""``quotaplane balance CASES``: decides cases as quotaplane or a strategy of Pulsar's would."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from quotaplane.balance.cases import BalanceCase, load_of, parse_balance_case
from quotaplane.balance.cluster_load import ClusterLoad
from quotaplane.balance.decisions import Decisions
from quotaplane.balance.options import read_options
from quotaplane.balance.planner import BalanceRound, BalanceState, decide
from quotaplane.balance.policies import read_policies
from quotaplane.balance.stock.leader import Case, decide_rounds
from quotaplane.balance.stock.settings import StockSettings, stock_settings
from quotaplane.balance.stock.shedders import SHEDDERS, new_shedder
from quotaplane.errors import ConfigError, InputError
from quotaplane.strict_json import parse_json, source_name
from quotaplane.text_table import render

OURS: Final = "quotaplane"
NAMES_TARGETS: Final = (OURS, "TransferShedder")
"""Strategies that also say which broker gets a bundle."""

AS_TRUE: Final = {"confirm_samples": 1, "noise_z": 0.0}
"""quotaplane's options for a single round: there is nothing else to confirm its numbers with."""

_EPILOG: Final = """\
CASES is a JSON object, or JSON lines of many; - reads stdin. A case of two brokers, in one round:
  {"rounds": [{"b1": {"cpu": [90, 100], "bandwidthIn": [90, 100],
                      "bundles": {"acme/a/0x00000000_0x80000000": [5e7, 5e7, 1000, 1000],
                                  "acme/a/0x80000000_0xffffffff": [4e7, 4e7, 900, 900]}},
               "b2": {"cpu": [5, 100], "bandwidthIn": [5, 100]}}]}
  rounds    by broker: usage and limit of cpu, memory, directMemory, bandwidthIn, bandwidthOut, and
            its bundles: bytes per second in and out, messages per second in and out; "topics" and
            "sessions" of bundles where known. One instance of the strategy decides all rounds
  cls       the strategy, if no option names it
  conf      Pulsar's settings by their own names; for quotaplane's strategy its options
  policies  for quotaplane's strategy: isolation, anti_affinity, capacity_weights, ...
  recent    bundles that were unloaded shortly before
  interval_s  time between rounds (60)
An object without "rounds" is one round by itself. quotaplane's strategy takes the numbers of a
single round as they are; in several rounds it acts on what the rounds confirm.

Its answer, a line for each case: a list with one item for each round. A shedder of Pulsar's:
  {"b1": ["acme/a/0x00000000_0x80000000"]}: which bundles leave which broker;
TransferShedder and quotaplane: ["b1>b2 acme/a/0x00000000_0x80000000"], also "split BUNDLE at HASH".
On a terminal it is a table, unless --json is given.

See docs/balance.md and docs/balance-stock.md.
"""

Strategy = Callable[[BalanceCase, str], Iterator[tuple[ClusterLoad, Decisions]]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``quotaplane balance``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("cases", metavar="CASES", help="the file with the cases; - reads stdin")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--shed", metavar="S", help=f"which bundles leave: {OURS} (default), {', '.join(SHEDDERS)}"
    )
    chosen.add_argument(
        "--place", metavar="P", help="where bundles may go: a placement of Pulsar's"
    )
    chosen.add_argument("--split", metavar="A", help="where bundles are split: an algorithm")
    parser.add_argument("--explain", action="store_true", help="give labels and reasons")
    parser.add_argument("--json", action="store_true", help="print JSON also on a terminal")


def run(args: argparse.Namespace) -> int:
    """Print one answer for each case.

    Raises:
        InputError: a case is wrong; the answers of the cases before it are printed.
        ConfigError: an option is.
    """
    strategy = _strategy(args.shed) if args.shed else None
    as_json = args.json or not sys.stdout.isatty()
    for raw, source in read_cases(args.cases):
        case = parse_balance_case(raw, source)
        decided = list((strategy or _strategy(case.cls or OURS))(case, source))
        if as_json:
            named = (case.cls if strategy is None else args.shed) or OURS
            answer = [_answer(named, each, explain=args.explain) for _, each in decided]
            print(json.dumps(answer, allow_nan=False))
        else:
            print(_table(decided, explain=args.explain))
    return 0


def read_cases(path: str) -> Iterator[tuple[object, str]]:
    """Each JSON value of a file with one of them, or one a line, and what to call it in errors.

    Raises:
        InputError: the file can't be read, or is not such JSON.
    """
    source = source_name(path)
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not UTF-8 (byte {error.start})") from None
    except (OSError, ValueError) as error:
        detail = getattr(error, "strerror", None) or error
        raise InputError(f"{source}: can't be read: {detail}") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise InputError(f"{source}: is empty; expected a JSON object")
    if len(lines) > 1 and _is_json(lines[0][1]):
        for number, line in lines:
            yield parse_json(line, f"{source}: line {number}"), f"{source}: line {number}"
    else:
        yield parse_json(text, source), source


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _strategy(name: str) -> Strategy:
    if name == OURS:
        return _ours
    if name.rpartition(".")[2] not in SHEDDERS:
        raise ConfigError(f"unknown strategy {name!r} (there are: {', '.join([OURS, *SHEDDERS])})")

    def stock(case: BalanceCase, source: str) -> Iterator[tuple[ClusterLoad, Decisions]]:
        if case.policies:
            raise InputError(f"{source}: policies: only for quotaplane's strategy, not for {name}")
        settings = _settings(case, source)
        loads = [load for _, load in _loads(case, source)]
        rounds = Case(settings, loads, frozenset(case.recent))
        decided = decide_rounds(rounds, new_shedder(name, settings), case.interval_s)
        return ((round_.load, each) for round_, each in decided)

    return stock


def _settings(case: BalanceCase, source: str) -> StockSettings:
    try:
        return stock_settings(case.conf)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _ours(case: BalanceCase, source: str) -> Iterator[tuple[ClusterLoad, Decisions]]:
    try:
        conf = case.conf if len(case.rounds) > 1 else {**AS_TRUE, **case.conf}
        options, policies = read_options(conf), read_policies(case.policies)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    state = BalanceState.empty()
    for now_s, load in _loads(case, source):
        brokers = len(load.brokers)
        round_ = BalanceRound(load, now_s, np.zeros(brokers), np.zeros(brokers, np.bool_))
        state, decided = decide(state, round_, options, policies)
        yield load, decided


def _loads(case: BalanceCase, source: str) -> Iterator[tuple[float, ClusterLoad]]:
    for number, round_ in enumerate(case.rounds):
        yield number * case.interval_s, load_of(round_, f"{source}: rounds.{number}")


def _answer(strategy: str, decided: Decisions, *, explain: bool) -> Any:
    """One round's answer, as JSON."""
    if explain:
        return {kind: [each._asdict() for each in rows] for kind, rows in decided._asdict().items()}
    if strategy in NAMES_TARGETS:
        splits = [
            f"split {split.bundle} at {' '.join(map(hex, split.boundaries)) or 'the middle'}"
            for split in decided.splits
        ]
        return [f"{move.source}>{move.target} {move.bundle}" for move in decided.moves] + splits
    leaving: dict[str, list[str]] = {}
    for move in decided.moves:
        leaving.setdefault(move.source, []).append(move.bundle)
    return {source: sorted(bundles) for source, bundles in sorted(leaving.items())}


def _table(decided: Sequence[tuple[ClusterLoad, Decisions]], *, explain: bool) -> str:
    """All rounds of a case for a terminal."""
    rows: list[tuple[Any, ...]] = []
    for number, (_, each) in enumerate(decided, 1):
        rows += [
            (
                number,
                "move",
                move.bundle,
                move.source,
                move.target or "(placement)",
                round(move.bytes_per_s / 1e6, 3),
                move.label,
                move.reason,
            )
            for move in each.moves
        ]
        rows += [
            (
                number,
                "split",
                split.bundle,
                split.owner,
                " ".join(map(hex, split.boundaries)),
                None,
                split.label,
                split.reason,
            )
            for split in each.splits
        ]
        if explain:
            rows += [
                (number, "skip", skip.subject or "(cluster)", "", "", None, skip.label, skip.reason)
                for skip in each.skips
            ]
    columns = ("round", "action", "bundle", "from", "to", "MB/s", "label", "reason")
    return "\n".join([render(columns, rows, "table"), *_summaries(decided)])


def _summaries(decided: Sequence[tuple[ClusterLoad, Decisions]]) -> Iterator[str]:
    """A line for each round: how uneven the brokers' bytes are, and would be."""
    for number, (load, each) in enumerate(decided, 1):
        moved = sum(move.bytes_per_s for move in each.moves)
        after = predicted(load, each)
        yield (
            f"round {number}: {len(each.moves)} moves of {moved / 1e6:.1f} MB/s, "
            f"{len(each.splits)} splits; busiest broker / mean {imbalance(load):.3f}"
            + (f" -> {imbalance(after):.3f}" if after else "")
        )


def imbalance(load: ClusterLoad) -> float:
    """Bytes per second of the busiest broker, relative to the mean; 1 if there are none.

    >>> from quotaplane.balance.cases import BrokerLoadCase
    >>> busy = BrokerLoadCase(bundles={"t/n/0x00000000_0xffffffff": [1e6, 2e6, 10, 20]})
    >>> imbalance(load_of({"b1": busy, "b2": BrokerLoadCase()}, "case"))
    2.0
    """
    carried = load.throughput_of_brokers()
    return float(carried.max() / carried.mean()) if carried.any() else 1.0


def predicted(load: ClusterLoad, decided: Decisions) -> ClusterLoad | None:
    """The load once every move is made; None if a move has no target yet."""
    brokers = {name: place for place, name in enumerate(load.brokers)}
    bundles = {name: place for place, name in enumerate(load.bundles)}
    owner = load.owner.copy()
    for move in decided.moves:
        if move.target not in brokers:
            return None
        owner[bundles[move.bundle]] = brokers[move.target]
    return replace(load, owner=owner)
