"""``quotaplane replay``: runs recorded rounds of the quota job again, exactly or changed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from quotaplane.cli.history_options import add_history_options, existing_history
from quotaplane.console.answers import (
    add_answer_options,
    json_lines,
    json_of,
    print_answer,
    table_text,
)
from quotaplane.console.terminal import one_line
from quotaplane.console.text_table import render
from quotaplane.errors import ConfigError, InputError, OutputError
from quotaplane.parsing.point_in_time import parse_since, parse_until
from quotaplane.parsing.strict_yaml import read_value
from quotaplane.registry.group_input import read_groups
from quotaplane.registry.table import groups_if_put
from quotaplane.replay.player import Changes, changed_groups
from quotaplane.replay.quota_what_if import what_if
from quotaplane.replay.verify import Verified, verify
from quotaplane.settings import History

_EPILOG: Final = """\
examples:
  quotaplane replay --from 2h --conf conf/local.yaml
  quotaplane replay --from 2h --to 1h --law proportional --conf conf/local.yaml
  quotaplane replay --from 1d --groups groups.csv --out losers.csv --conf conf/local.yaml
  quotaplane replay --from 1d --set limits.max_step=0.2 --conf conf/local.yaml

Without --groups, --law and --set the recorded limits must come out again, bit for bit. The exit
code is 1 if they don't.

With one of them, the answer has a row for each group, broker and dimension whose limit would have
been another: the mean limit before and after; how much of the recorded usage the changed limit
would not have allowed (less_units), for how long, from when to when; and how much more the broker
could have used while it was at its limit (more_units). The recorded usage stays as it was: brokers
are not made to use what they would have been given. FILE is what `quotaplane groups put --file`
takes. For an answer about one group within milliseconds, not exact, ask `quotaplane serve`: POST
/api/v1/what-if.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG
    add_history_options(parser)
    parser.add_argument(
        "--from",
        dest="since",
        metavar="TIME",
        required=True,
        help="2026-03-01T12:00:00Z, or how long ago: 30s, 15m, 2h, 7d",
    )
    parser.add_argument("--to", dest="until", metavar="TIME", help="as --from; without: now")
    parser.add_argument("--groups", metavar="FILE", help="quotas to try: .csv or .json")
    parser.add_argument("--law", metavar="NAME", help="the law to try")
    parser.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting to try, such as limits.max_step=0.2; repeat it for more",
    )
    parser.add_argument("--out", metavar="FILE", help="write the whole answer to a .csv file")
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Replay, and print the answer; the exit code is 1 if an exact replay differs.

    Raises:
        ConfigError, InputError: an option is wrong, or nothing was recorded in that time.
        HistoryError: the record can't be read.
    """
    history = existing_history(args)
    now = datetime.now(timezone.utc)
    since = parse_since(args.since, now, "--from")
    until = parse_until(args.until, now, "--to") if args.until is not None else now
    if until <= since:
        raise ConfigError("--to must be later than --from")
    changes = Changes(_settings(args), _groups(history, args.groups, since))
    if not changes:
        if args.out:
            raise ConfigError("--out goes with --groups, --law or --set")
        return _exact(history, since, until, args)
    found = what_if(history, since, until, changes)
    if args.out:
        _write(args.out, found)
    rows = found.to_pylist()
    print_answer(
        args,
        lambda: json_lines(rows),
        lambda: _greatest_losses(found, args.out),
        lambda: (found.column_names, [tuple(row.values()) for row in rows]),
    )
    return 0


def _exact(history: History, since: datetime, until: datetime, args: argparse.Namespace) -> int:
    verified = Verified()
    differences = [
        {"epoch": one.stamp.epoch, "seq": one.stamp.seq, "problem": one.problem}
        for one in verify(history, since, until, verified)
    ]
    counts = {"rounds": verified.rounds, "limits": verified.limits, "states": verified.states}
    columns = ("epoch", "seq", "problem")
    print_answer(
        args,
        lambda: json_of({**counts, "differences": differences}),
        lambda: "\n".join(_difference_lines(verified, differences)),
        lambda: (columns, [tuple(one[name] for name in columns) for one in differences]),
    )
    return 1 if differences else 0


def _difference_lines(
    verified: Verified, differences: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    yield (
        f"{verified.rounds} rounds with {verified.limits} limits and {verified.states} recorded "
        f"states: {len(differences) or 'no'} difference{'' if len(differences) == 1 else 's'}"
    )
    for one in differences[:_MOST_LINES]:
        yield one_line(f"epoch {one['epoch']} round {one['seq']}: {one['problem']}")


_MOST_LINES: Final = 20


def _greatest_losses(found: pa.Table, out: str | None) -> str:
    shown = found.slice(0, _MOST_LINES)
    rows = [tuple(row.values()) for row in shown.to_pylist()]
    table = table_text(found.column_names, rows)
    if len(found) == len(shown):
        return table
    where = f"are in {Path(out).absolute()}" if out else "are printed with --csv"
    return f"{table}\nthe {len(shown)} with the greatest loss; all {len(found)} {where}"


def _write(path: str, found: pa.Table) -> None:
    if not path.endswith(".csv"):
        raise ConfigError(f"--out {path}: must end in .csv")
    rows = [tuple(row.values()) for row in found.to_pylist()]
    try:
        Path(path).write_text(render(found.column_names, rows, "csv") + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"--out {path}: can't be written: {error.strerror}") from error


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """The settings to try.

    Raises:
        ConfigError: ``--set`` is not KEY=VALUE, or the value is not YAML.
    """
    found: dict[str, Any] = {} if args.law is None else {"law.name": args.law}
    for text in args.changes:
        key, equals, value = text.partition("=")
        if not equals or "." not in key:
            raise ConfigError(f"--set {text}: must be KEY=VALUE, such as limits.max_step=0.2")
        if key in found or not value.strip():
            raise ConfigError(f"--set {key}: {'is given twice' if value else 'has no value'}")
        try:
            found[key] = read_value(value, f"--set {key}")
        except InputError as error:
            raise ConfigError(str(error)) from None
    return found


def _groups(history: History, path: str | None, since: datetime) -> pa.Table:
    """The groups of a file as ``Changes`` takes them; none without a file."""
    if path is None:
        return changed_groups(None)
    given = read_groups(path)
    if not given.names:
        raise InputError(f"{path}: has no groups")
    return changed_groups(groups_if_put(history, given, since))
