"""``quotaplane balance what-if``: recorded rounds of the balancer by another strategy."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from quotabalance.cli.record_options import add_record_options, recorded_rounds
from quotabalance.planning.decisions import OURS, Decisions, Move, Split
from quotabalance.planning.options import read_options, with_our_names
from quotabalance.planning.planner import BalanceRound
from quotabalance.planning.reports_intake import round_of
from quotabalance.record.alternatives import StrategyOutcome, run_alternative
from quotabalance.record.recorded_rounds import RecordedRound
from quotabalance.record.strategies import StrategyInForce
from quotabalance.stock.stock_settings import stock_setting_of_text
from quotabalance.strategy_settings import alternative_to_ours, limits_in
from quotaplane.console.answers import print_answer
from quotaplane.console.terminal import inform
from quotaplane.errors import ConfigError, InputError
from quotaplane.parsing.strict_yaml import read_value

_TITLES: Final = {
    "rounds": "rounds",
    "moves": "moves",
    "moved_bytes_per_s": "bytes/s moved",
    "repeat_moves": "repeat moves",
    "splits": "splits",
    "imbalance_mean": "max/mean: mean",
    "imbalance_p95": "p95",
    "imbalance_max": "max",
    "imbalance_last": "last",
}
_WIDEST: Final = 60
"""Characters of a column's heading."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``quotaplane balance what-if``."""
    add_record_options(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="an option of quotaplane's strategy, or with --strategy one of Pulsar's settings",
    )
    parser.add_argument(
        "--strategy",
        metavar="S",
        help=f"{OURS} (default) or a shedder of Pulsar's, for example AvgShedder",
    )
    parser.add_argument(
        "--broker-conf",
        metavar="FILE",
        help="Pulsar's settings, as the brokers have them; the default strategy is then theirs",
    )


def run(args: argparse.Namespace) -> int:
    """Print the recorded decisions beside those of the alternative.

    Raises:
        InputError, ConfigError: an option is wrong, or the record has no rounds in that time.
        HistoryError: the record can't be read.
    """
    recorded = recorded_rounds(args)
    name, in_force = _alternative(args, recorded[0])
    rounds = {(each.epoch, each.seq): round_of(each.loads, each.now_ms).round for each in recorded}
    columns: dict[str, Any] = {
        "recorded": _recorded(recorded, rounds).figures(),
        _title(name, args.changes): run_alternative(rounds, in_force.run()).figures(),
    }
    span = {"since_ms": recorded[0].now_ms, "until_ms": recorded[-1].now_ms}
    print_answer(
        args,
        lambda: json.dumps({**span, **columns}),
        lambda: (
            ["", *columns],
            [
                (title, *(_shown(figures[name]) for figures in columns.values()))
                for name, title in _TITLES.items()
            ],
        ),
        lambda: (
            ["figure", *columns],
            [(name, *(figures[name] for figures in columns.values())) for name in _TITLES],
        ),
    )
    return 0


def _recorded(
    recorded: Sequence[RecordedRound], rounds: Mapping[tuple[int, int], BalanceRound]
) -> StrategyOutcome:
    outcome = StrategyOutcome()
    for each in recorded:
        moves = [
            Move(row["subject"], row["source"], row["target"], row["bytes_per_s"], row["label"], "")
            for row in each.decisions
            if row["kind"] == "move"
        ]
        splits = [
            Split(row["subject"], row["source"], (), row["label"], "")
            for row in each.decisions
            if row["kind"] == "split"
        ]
        load = rounds[each.epoch, each.seq].load
        now_s, proposed = each.now_ms / 1000.0, each.mode == "propose"
        outcome.add(load, now_s, Decisions(moves, splits), proposed=proposed)
    return outcome


def _alternative(args: argparse.Namespace, first: RecordedRound) -> tuple[str, StrategyInForce]:
    name, conf, lines = alternative_to_ours(args.broker_conf, args.strategy)
    for line in lines:
        inform(line)
    recorded = StrategyInForce.of_record(first.strategy, first.settings)
    pairs = _pairs(args.changes)
    if name != OURS:
        try:
            changes: dict[str, Any] = {
                key: stock_setting_of_text(key, text) for key, text in pairs.items()
            }
        except InputError as error:
            raise ConfigError(f"--set {str(error).removeprefix('conf: ')}") from None
        stock = replace(conf.settings if args.broker_conf else recorded.stock, **changes)
        return name, replace(recorded, name=name, stock=stock)
    try:
        given = with_our_names({key: read_value(text, key) for key, text in pairs.items()})
        options = read_options(recorded.options.model_dump() | limits_in(conf.given) | given)
    except InputError as error:
        raise ConfigError(f"--set {error}") from None
    return name, replace(recorded, name=name, options=options)


def _pairs(changes: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for key, text in map(_pair, changes):
        if key in pairs or not text.strip():
            raise ConfigError(f"--set {key}: {'is given twice' if text else 'has no value'}")
        pairs[key] = text
    return pairs


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"--set {text}: expected KEY=VALUE")
    return key.strip(), value


def _title(name: str, changes: Sequence[str]) -> str:
    """The heading of the alternative's column, as wide as a column may be.

    >>> _title("stock", ["a=1"]), _title("stock", ["a=1"] * 500)
    ('stock a=1', 'stock with 500 changes')
    """
    title = " ".join([name, *changes])
    return title if len(title) <= _WIDEST else f"{name} with {len(changes)} changes"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 10 else f"{value:.4g}"
