"""``quotaplane groups``: who may use how much. Put, get, list, delete, and who changed what."""

from __future__ import annotations

import argparse
import csv
import getpass
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import numpy as np

from quotaplane.admin.cases import json_type, read_json
from quotaplane.errors import ConfigError, InputError
from quotaplane.history.groups import (
    delete_groups,
    get_group,
    group_changes,
    list_groups,
    put_groups,
)
from quotaplane.model import DIMENSIONS, RATE_COLUMNS
from quotaplane.settings import History, load_settings

_MAX_RATE: Final = 1e18
_EPILOG: Final = """\
examples:
  quotaplane groups put tenant-a/orders --publish-messages-per-s 1000 --conf conf/local.yaml
  quotaplane groups put tenant-a/orders --publish-messages-per-s unlimited --conf conf/local.yaml
  quotaplane groups put --file groups.csv --conf conf/local.yaml
  quotaplane groups list --conf conf/local.yaml

put changes only the dimensions that are given; a dimension never given is unlimited. FILE is CSV
(header: group and any of the four rate columns; an empty cell keeps what is there) or JSON (a list
of {"group": ..., "publish_messages_per_s": 100}); "unlimited" takes a quota away. A file is put as
a whole or not at all. null in the answers means unlimited.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    place = argparse.ArgumentParser(add_help=False)
    where = place.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--conf", metavar="FILE", help="the job's settings; its history.path is used"
    )
    where.add_argument("--history", metavar="PATH", help="folder of the history's tables")
    author = argparse.ArgumentParser(add_help=False)
    author.add_argument("--by", metavar="NAME", help="who makes the change (the login name)")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    put = actions.add_parser("put", parents=[place, author], help="create or change groups")
    put.add_argument("group", nargs="?", metavar="GROUP")
    put.add_argument("--file", metavar="FILE", help="many groups: .csv or .json")
    for column in RATE_COLUMNS:
        put.add_argument(f"--{column.replace('_', '-')}", dest=column, metavar="N|unlimited")
    get = actions.add_parser("get", parents=[place], help="print one group")
    get.add_argument("group", metavar="GROUP")
    actions.add_parser("list", parents=[place], help="print all groups")
    delete = actions.add_parser("delete", parents=[place, author], help="delete groups")
    delete.add_argument("group", nargs="+", metavar="GROUP")
    changes = actions.add_parser("history", parents=[place], help="print who changed what, when")
    changes.add_argument("group", nargs="?", metavar="GROUP")


def run(args: argparse.Namespace) -> int:
    """Do one action and print its answer as JSON.

    Raises:
        ConfigError: the settings or the options are wrong.
        InputError: a group or a quota is wrong, or there is no such group; nothing was written.
        HistoryError: the tables can't be read or written.
    """
    history = History(path=args.history) if args.history else load_settings(args.conf).history
    if args.action == "put":
        _put(history, args)
    elif args.action == "get":
        print(_json(get_group(history, args.group)))
    elif args.action == "list":
        _print_list(list_groups(history).to_pylist())
    elif args.action == "delete":
        delete_groups(history, args.group, _author(args))
        print(_json({"deleted": list(dict.fromkeys(args.group))}))
    else:
        _print_list(group_changes(history, args.group))
    return 0


def _put(history: History, args: argparse.Namespace) -> None:
    given = {column: getattr(args, column) for column in RATE_COLUMNS}
    given = {column: text for column, text in given.items() if text is not None}
    if (args.group is None) == (args.file is None):
        raise ConfigError("put takes either GROUP or --file FILE")
    if args.file is not None:
        if given:
            raise ConfigError(f"--{next(iter(given)).replace('_', '-')} does not go with --file")
        names, quotas = read_groups(args.file)
        rows = put_groups(history, names, quotas, _author(args))
        print(_json({"groups": rows.num_rows}))
        return
    quota = [_rate(given.get(column), f"--{column.replace('_', '-')}") for column in RATE_COLUMNS]
    rows = put_groups(history, [args.group], np.array([quota]), _author(args))
    print(_json(rows.to_pylist()[0]))


def read_groups(path: str) -> tuple[list[str], np.ndarray[Any, np.dtype[np.float64]]]:
    """Names and (n, 4) quotas of a file, for ``put_groups``.

    Raises:
        InputError: names the file, the line or item, the field, and what is wrong with it.
    """
    if path.endswith(".csv"):
        records = _csv(path)
    elif path.endswith(".json"):
        records = _json_items(path)
    else:
        raise InputError(f"{path}: must end in .csv or .json")
    names: list[str] = []
    quotas: list[list[float]] = []
    for where, record in records:
        unknown = record.keys() - {"group", *RATE_COLUMNS}
        if unknown:
            raise InputError(f"{where}: {min(unknown)}: unknown key")
        group = record.get("group")
        if not isinstance(group, str) or not group:
            raise InputError(f"{where}: group: must be a name")
        names.append(group)
        quotas.append([_rate(record.get(c), f"{where}: {c}") for c in RATE_COLUMNS])
    return names, np.array(quotas, dtype=np.float64).reshape(len(names), len(DIMENSIONS))


def _csv(path: str) -> Iterable[tuple[str, Mapping[str, object]]]:
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="", strict=True)
            if "group" not in (reader.fieldnames or ()):
                raise InputError(f"{path}: line 1: there is no column group")
            for record in reader:
                where = f"{path}: line {reader.line_num}"
                if "" in record or None in record.values():
                    raise InputError(f"{where}: has not as many cells as the header")
                yield where, {key: cell or None for key, cell in record.items()}
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not CSV: {error}") from None


def _json_items(path: str) -> Iterable[tuple[str, Mapping[str, object]]]:
    items = read_json(path)
    if not isinstance(items, list):
        raise InputError(f"{path}: must be a list of groups, not {json_type(items)}")
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise InputError(f"{path}: {index}: must be an object, not {json_type(item)}")
        yield f"{path}: {index}", item


def _rate(given: object, field: str) -> float:
    """A quota: NaN if not given, +inf if unlimited."""
    if given is None:
        return math.nan
    if given == "unlimited":
        return math.inf
    try:
        # A bool is a number to Python, not to whoever wrote true into a quota.
        rate = math.nan if isinstance(given, bool) else float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        rate = math.nan
    if not 0 <= rate <= _MAX_RATE:
        raise InputError(f"{field}: must be a number from 0 to 1e18, or unlimited, not {given!r}")
    return rate


def _author(args: argparse.Namespace) -> str:
    if args.by is not None:
        if not args.by.strip():
            raise ConfigError("--by must not be empty")
        return str(args.by)
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"


def _print_list(rows: Sequence[Mapping[str, Any]]) -> None:
    # One row a line: JSON as a whole, and still fit for grep and diff.
    print("[" + ",".join(f"\n {_json(row)}" for row in rows) + ("\n]" if rows else "]"))


def _json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=_plain)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        text = value.astimezone(timezone.utc).isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
    raise TypeError(f"no JSON for {type(value).__name__}")
