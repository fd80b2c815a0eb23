"""``quotaplane balance CASES``: decides cases as quotaplane or a strategy of Pulsar's would."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import numpy as np

from quotabalance.cli.answer_tables import decisions_table, placements_table, splits_table
from quotabalance.planning.bundle_orders import SEEN, Order
from quotabalance.planning.cases import BalanceCase, in_rounds, loads_of, parse_balance_case
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import OURS, Decisions
from quotabalance.planning.options import read_options, with_our_names
from quotabalance.planning.planner import BalanceRound, BalanceState, decide
from quotabalance.planning.policies import read_policies
from quotabalance.stock.broker_conf import BrokerConf
from quotabalance.stock.leader import decide_rounds, stock_case
from quotabalance.stock.place_cases import PlaceCase, answer_places
from quotabalance.stock.placements import PLACEMENTS
from quotabalance.stock.shedders import SHEDDERS, new_shedder
from quotabalance.stock.split_cases import (
    ALGORITHMS,
    TRIGGERS,
    BoundariesCase,
    TriggersCase,
    answer_splits,
)
from quotabalance.strategy_settings import alternative_to_ours, limits_in
from quotaplane.console.answers import JSON, add_answer_options, answer_form
from quotaplane.console.terminal import inform
from quotaplane.errors import ConfigError, InputError
from quotaplane.parsing.strict_json import CaseModel, parse_json, read_text, source_name

NAMES_TARGETS: Final = (OURS, "TransferShedder")
"""Strategies that also choose the broker that gets a bundle."""

AS_TRUE: Final = {"confirm_samples": 1, "noise_z": 0.0}
"""quotaplane's options for a single round, which has no other samples to confirm its numbers."""

_EPILOG: Final = """\
CASES is a JSON object, or JSON lines of many; - reads stdin. A case of two brokers, in one round:
  {"rounds": [{"b1": {"cpu": [90, 100], "bandwidthIn": [90, 100],
                      "bundles": {"acme/a/0x00000000_0x80000000": [5e7, 5e7, 1000, 1000],
                                  "acme/a/0x80000000_0xffffffff": [4e7, 4e7, 900, 900]}},
               "b2": {"cpu": [5, 100], "bandwidthIn": [5, 100]}}]}
  rounds    by broker: usage and limit of cpu, memory, directMemory, bandwidthIn, bandwidthOut, and
            its bundles: bytes per second in and out, messages per second in and out. One instance
            of the strategy decides all rounds
  topics, sessions  by bundle, where known
  cls       the strategy, if no option names it
  conf      Pulsar's settings by their own names, for its strategies; before --broker-conf
  options   of quotaplane's strategy: start_above, stop_below, ...
  policies  for quotaplane's strategy: isolation, anti_affinity, capacity_weights, ...
  recent    bundles that were unloaded shortly before
  interval_s  time between rounds (60)
An object without "rounds" is one round by itself. quotaplane's strategy takes the numbers of a
single round as they are; in several rounds it acts on what the rounds confirm.

Its answer, a line for each case: a list with one item for each round, or {"error": ...} if the case
can't be used. A shedder of Pulsar's:
  {"b1": ["acme/a/0x00000000_0x80000000"]}: which bundles leave which broker;
TransferShedder and quotaplane: ["b1>b2 acme/a/0x00000000_0x80000000"], also "split BUNDLE at HASH".
On a terminal it is a table, unless --json is given. The balance job is another command: quotaplane
run balance.

--place: "place" has the bundles to be placed after each round ("recent", if it is left out); the
  answer of a round is {bundle: [brokers that may get it]}. Also: policies as Pulsar has them,
  "lookup": true if each counts for the next ones, "draws": {bundle: the broker that was drawn}
--split with a class: the answer of a round is {bundle: [boundaries]}. "topics" has for a bundle
  their number, or {topic: [bytes in, out, messages in, out]}; also "sessions", "counts" of bundles
  by namespace, and "splitting"
--split with an algorithm: {"bundle": B, "topics": {topic: rates}, "positions": [hash]} without
  rounds; the answer is the boundaries

See docs/explain/balance.md, docs/explain/balance-stock.md and
docs/explain/balance-stock-placement.md.
"""

Read = TypeVar("Read")
Strategy = Callable[[BalanceCase, str], Iterator[tuple[ClusterLoad, Decisions]]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``quotaplane balance``."""
    parser.epilog = _EPILOG
    parser.add_argument("cases", metavar="CASES", help="the file with the cases; - reads stdin")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--shed", metavar="S", help=f"which bundles leave: {OURS} (default), {', '.join(SHEDDERS)}"
    )
    chosen.add_argument(
        "--place", metavar="P", help=f"where bundles may go: {', '.join(PLACEMENTS)}"
    )
    chosen.add_argument(
        "--split",
        metavar="A",
        help=f"where a bundle is split: {', '.join(ALGORITHMS)}; or which: {', '.join(TRIGGERS)}",
    )
    parser.add_argument(
        "--broker-conf",
        metavar="FILE",
        help="Pulsar's settings, as the brokers have them; the default strategy is then theirs",
    )
    parser.add_argument(
        "--explain", action="store_true", help="also labels and reasons; with --shed or alone"
    )
    add_answer_options(parser, csv=False)


def run(args: argparse.Namespace) -> int:
    """Print one answer for each case; for an unusable one among several, what is wrong with it.

    Raises:
        InputError: a case is wrong; the answers of all others are printed.
        ConfigError: an option is.
    """
    if args.explain and (args.place or args.split):
        other = "--place" if args.place else "--split"
        raise ConfigError(f"--explain does not go with {other}, whose answers have no reasons")
    answer_of = _answerer(args)
    as_json = answer_form(args) == JSON
    cases, wrong = list(_texts(args.cases)), list[str]()
    for text, source in cases:
        try:
            answer, table = answer_of(parse_json(text, source), source)
        except InputError as error:
            if len(cases) == 1:
                raise
            wrong.append(str(error))
            print(json.dumps({"error": wrong[-1]}) if as_json else wrong[-1])
            continue
        print(json.dumps(answer, allow_nan=False) if as_json else table())
    if wrong:
        raise InputError(f"{len(wrong)} of {len(cases)} cases can't be used; the first: {wrong[0]}")
    return 0


def _answerer(args: argparse.Namespace) -> Callable[[object, str], tuple[Any, Callable[[], str]]]:
    """The function that answers a case: as JSON, and as a table on request."""
    wanted = args.shed or args.place or args.split
    default, conf, lines = alternative_to_ours(args.broker_conf, args.shed)
    for line in lines:
        inform(line)

    def place(raw: object, source: str) -> tuple[Any, Callable[[], str]]:
        placed = answer_places(_of_class(raw, wanted, conf, PlaceCase), source)
        return placed, lambda: placements_table(placed)

    def split(raw: object, source: str) -> tuple[Any, Callable[[], str]]:
        found = answer_splits(_of_class(raw, wanted, conf, TriggersCase, BoundariesCase), source)
        return found, lambda: splits_table(found)

    def shed(raw: object, source: str) -> tuple[Any, Callable[[], str]]:
        case = parse_balance_case(raw, source)
        own = _named("options.", source, lambda: with_our_names(case.options))
        given = {"conf": {**conf.given, **case.conf}, "options": {**limits_in(conf.given), **own}}
        case = case.model_copy(update=given)
        name = (wanted or case.cls or default).rpartition(".")[2]  # without its package
        strategy = _strategy(name) if wanted else _named("cls: ", source, lambda: _strategy(name))
        decided = list(strategy(case, source))
        answer = [_answer(name, each, explain=args.explain) for _, each in decided]
        return answer, lambda: decisions_table(decided, explain=args.explain)

    return place if args.place else split if args.split else shed


def _of_class(raw: object, name: str, conf: BrokerConf, *models: type[CaseModel]) -> object:
    """A case of these models, with another strategy, and settings of a file besides its own."""
    raw = in_rounds(raw, *models)
    if not isinstance(raw, dict):
        return raw
    own = raw.get("conf", {})
    return {**raw, "cls": name, "conf": {**conf.given, **own} if isinstance(own, dict) else own}


def _texts(path: str) -> Iterator[tuple[str, str]]:
    """Each text of a file with one JSON value, or one a line, and its name in errors."""
    source, text = source_name(path), read_text(path)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise InputError(f"{source}: is empty; expected a JSON object")
    if len(lines) > 1 and _is_json(lines[0][1]):
        for number, line in lines:
            yield line, f"{source}: line {number}"
    else:
        yield text, source


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _strategy(name: str) -> Strategy:
    if name == OURS:
        return _ours
    if name not in SHEDDERS:
        raise ConfigError(
            f"unknown strategy {name[:200]!r} (there are: {', '.join([OURS, *SHEDDERS])})"
        )

    def stock(case: BalanceCase, source: str) -> Iterator[tuple[ClusterLoad, Decisions]]:
        rounds = stock_case(case, source)
        shedder = new_shedder(name, rounds.settings)
        decided = decide_rounds(rounds, shedder, case.interval_s)
        return ((round_.load, each) for round_, each in decided)

    return stock


def _ours(case: BalanceCase, source: str) -> Iterator[tuple[ClusterLoad, Decisions]]:
    values = case.options if len(case.rounds) > 1 else {**AS_TRUE, **case.options}
    options = _named("options.", source, lambda: read_options(values))
    policies = _named("policies.", source, lambda: read_policies(case.policies))
    state = BalanceState(orders={name: _unloaded(name) for name in case.recent})
    loads = loads_of(case.rounds, source, case.topics, case.sessions)
    for number, load in enumerate(loads):
        brokers, now_s = len(load.brokers), number * case.interval_s
        round_ = BalanceRound(load, now_s, np.zeros(brokers), np.zeros(brokers, np.bool_))
        state, decided = decide(state, round_, options, policies)
        yield load, decided


def _unloaded(bundle: str) -> Order:
    """A bundle that was unloaded just before the first round: it rests for the grace period."""
    return Order(bundle, "", "", 0.0, (0.0, 0.0, 0.0), SEEN)


def _named(key: str, source: str, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except (ConfigError, InputError) as error:
        raise InputError(f"{source}: {key}{error}") from None


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
