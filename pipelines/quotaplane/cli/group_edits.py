"""``quotaplane groups put``, ``delete``, ``restore`` and ``apply``: changes, and their answers."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Final

from quotaplane.cli.group_tables import GroupDiff, change_rows, diff_rows, diffs_of
from quotaplane.console.answers import (
    add_answer_options,
    json_lines,
    json_of,
    print_answer,
    table_text,
)
from quotaplane.console.option_parser import OptionParser, whole_number
from quotaplane.console.terminal import inform, warn
from quotaplane.errors import ConfigError, InputError
from quotaplane.groups.option_kinds import ChoiceOption
from quotaplane.groups.policy_options import BY_COLUMN, POLICY_COLUMNS
from quotaplane.groups.scope import DEFAULT, scope_of
from quotaplane.history.store import ensure_tables, require_history
from quotaplane.model import RATE_COLUMNS
from quotaplane.parsing.point_in_time import parse_since
from quotaplane.registry.apply import apply_groups
from quotaplane.registry.attachments import delete_unattached
from quotaplane.registry.group_files import read_group_files
from quotaplane.registry.group_input import (
    JSON_COLUMNS,
    GivenGroups,
    given_groups,
    read_group,
    read_groups,
    read_object,
)
from quotaplane.registry.group_json import shown, shown_changes
from quotaplane.registry.restore import restore_groups
from quotaplane.registry.table import GroupsPut, change_groups
from quotaplane.settings import History

WOULD_CHANGE: Final = 12
"""Exit code of ``apply --dry-run --exit-code``: something would change."""


def author_options() -> OptionParser:
    """The options ``--by`` and ``--why`` of all commands that change something."""
    author = OptionParser(add_help=False)
    author.add_argument("--by", metavar="NAME", help="who makes the change (the login name)")
    author.add_argument("--why", metavar="TEXT", help="the reason, which history shows")
    return author


def edit_options() -> OptionParser:
    """The options ``--by``, ``--why`` and ``--dry-run``."""
    edit = OptionParser(add_help=False, parents=[author_options()])
    edit.add_argument("--dry-run", action="store_true", help="print it, and change nothing")
    return edit


def configure_put(put: argparse.ArgumentParser) -> None:
    """Add the arguments of ``put``."""
    put.add_argument("group", nargs="?", metavar="GROUP")
    _add_init(put)
    add_scope_options(put)
    put.add_argument("--file", metavar="FILE", help="many groups: .csv or .json")
    put.add_argument(
        "--quota",
        dest="quotas",
        action="append",
        metavar="TEXT",
        help='such as "write 10MB/min"; repeat it for more',
    )
    for column in RATE_COLUMNS:
        put.add_argument(_option(column), dest=column, metavar="N|unlimited")
    for column, option in BY_COLUMN.items():
        put.add_argument(
            _option(column),
            dest=column,
            metavar=option.metavar,
            choices=option.choices if isinstance(option, ChoiceOption) else None,
            help=f"{option.help}; default: {option.default_text}",
        )
    add_answer_options(put)


def configure_delete(delete: argparse.ArgumentParser) -> None:
    """Add the arguments of ``delete``."""
    delete.add_argument("group", nargs="*", metavar="GROUP")
    add_scope_options(delete)
    add_answer_options(delete)


def configure_restore(restore: argparse.ArgumentParser) -> None:
    """Add the arguments of ``restore``."""
    restore.add_argument("group", nargs="*", metavar="GROUP")
    restore.add_argument(
        "--from-history", action="store_true", required=True, help="from the table's own history"
    )
    when = restore.add_mutually_exclusive_group()
    when.add_argument(
        "--at", metavar="TIME", help="as it was then: 2026-03-01T12:00:00Z, or an age: 2h"
    )
    when.add_argument(
        "--version", type=whole_number, metavar="N", help="as of a version that history prints"
    )
    add_answer_options(restore)


def configure_apply(apply: argparse.ArgumentParser) -> None:
    """Add the arguments of ``apply``."""
    apply.add_argument(
        "-f",
        "--file",
        metavar="PATH",
        required=True,
        help="a YAML file of groups, a folder of such files, or - for stdin",
    )
    apply.add_argument("--prune", action="store_true", help="delete groups that are not in there")
    apply.add_argument(
        "--delete-all",
        action="store_true",
        help="with --prune: also more than a third of all groups, or where a file is empty",
    )
    apply.add_argument(
        "--exit-code",
        action="store_true",
        help=f"with --dry-run: exit code {WOULD_CHANGE} if something would change",
    )
    _add_init(apply)
    add_answer_options(apply)


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--init", action="store_true", help="create the history's tables that do not exist yet"
    )


def put(history: History, args: argparse.Namespace) -> int:
    """Create groups, or change the given quotas and options of groups.

    Raises:
        ConfigError, InputError, HistoryError: as ``quotaplane groups`` says.
    """
    groups = groups_named(args)
    columns = (*RATE_COLUMNS, *POLICY_COLUMNS, "quotas")
    record = {c: getattr(args, c) for c in columns if getattr(args, c) is not None}
    if bool(groups) == (args.file is not None):
        raise ConfigError("put takes either GROUP or --file FILE")
    if args.file is None:
        for column in JSON_COLUMNS:
            if isinstance(record.get(column), str):
                record[column] = read_object(record[column], _option(column))
        given = given_groups(groups, [read_group(record, _option)])
    elif record:
        raise ConfigError(f"{_option(next(iter(record)))} does not go with --file")
    else:
        given = read_groups(args.file)
    done = change_groups(
        history,
        given,
        author_of(args),
        why=args.why,
        dry_run=args.dry_run,
        ready=_ready(args),
        warn=warn,
    )
    if args.file is not None:
        _print_many(args, given, done)
        return 0
    (row,), diffs = done.rows.to_pylist(), diffs_of(done)
    diff = diffs[0] if diffs else GroupDiff(row["group"], "unchanged", {})
    answer = {**shown(row), **diff.as_json(), **_marked(args)}
    print_answer(
        args,
        lambda: json_of(answer),
        lambda: "\n".join([table_text(*diff_rows([diff])), *_reminder(args)]),
        lambda: diff_rows([diff]),
    )
    return 0


def apply(history: History, args: argparse.Namespace) -> int:
    """Make the table equal to files.

    Raises:
        ConfigError, InputError, HistoryError: as ``quotaplane groups`` says.
    """
    if args.exit_code and not args.dry_run:
        raise ConfigError("--exit-code goes with --dry-run")
    if args.delete_all and not args.prune:
        raise ConfigError("--delete-all goes with --prune")
    given = read_group_files(args.file, may_be_empty=args.delete_all or not args.prune)
    done = apply_groups(
        history,
        given,
        author_of(args),
        prune=args.prune,
        delete_all=args.delete_all,
        why=args.why,
        dry_run=args.dry_run,
        ready=_ready(args),
        warn=warn,
        say=inform,
    )
    changes = _print_many(args, given, done)
    return WOULD_CHANGE if args.exit_code and changes else 0


def delete(history: History, args: argparse.Namespace) -> int:
    """Delete groups.

    Raises:
        ConfigError, InputError, HistoryError: as ``quotaplane groups`` says.
    """
    groups = groups_named(args)
    if not groups:
        raise ConfigError("delete takes GROUP, or --user and --client")
    delete_unattached(history, groups, author_of(args), why=args.why, dry_run=args.dry_run)
    deleted = list(dict.fromkeys(groups))
    print_answer(
        args,
        lambda: json_of({"deleted": deleted, **_marked(args)}),
        lambda: (("group", "result"), [(group, "deleted") for group in deleted]),
    )
    return 0


def restore(history: History, args: argparse.Namespace) -> int:
    """Restore earlier states of groups.

    Raises:
        ConfigError, InputError, HistoryError: as ``quotaplane groups`` says.
    """
    now = datetime.now(timezone.utc)
    restored = restore_groups(
        history,
        args.group,
        author_of(args),
        at=None if args.at is None else parse_since(args.at, now, option="--at"),
        version=args.version,
        why=args.why,
        dry_run=args.dry_run,
        warn=warn,
    )
    changes = [{"group": group, "from": before, "to": to} for group, before, to in restored]
    print_answer(
        args,
        lambda: json_lines(shown_changes(changes)),
        lambda: change_rows(changes, ("group", "change")),
    )
    return 0


def _print_many(args: argparse.Namespace, given: GivenGroups, done: GroupsPut) -> int:
    """Print the effect on the groups of a file; returns the number of changed ones."""
    diffs = diffs_of(done)
    results = [diff.result for diff in diffs]
    counts = {name: results.count(name) for name in ("created", "changed", "deleted")}
    unchanged = len(given.names) - counts["created"] - counts["changed"]
    counts = {"groups": len(given.names), **counts, "unchanged": unchanged}
    if args.action == "put":
        del counts["deleted"]

    def as_json() -> str:
        head = json_of({**counts, **_marked(args)})
        return f'{head[:-1]}, "changes": {json_lines([diff.as_json() for diff in diffs])}}}'

    def as_table() -> str:
        summary = ", ".join(f"{count} {name}" for name, count in counts.items())
        table = [table_text(*diff_rows(diffs))] if diffs else []
        return "\n".join([*table, summary, *_reminder(args)])

    print_answer(args, as_json, as_table, lambda: diff_rows(diffs))
    return len(diffs)


def _marked(args: argparse.Namespace) -> dict[str, Any]:
    return {"dry_run": True} if args.dry_run else {}


def _reminder(args: argparse.Namespace) -> list[str]:
    return ["dry run: nothing was changed"] if args.dry_run else []


def _ready(args: argparse.Namespace) -> Callable[[History], None]:
    def ready(history: History) -> None:
        if args.init and not args.dry_run:
            ensure_tables(history, say=inform)
        else:
            require_history(history, "use --init to create it")

    return ready


def _option(column: str) -> str:
    return "--quota" if column == "quotas" else "--" + column.replace("_", "-")


def author_of(args: argparse.Namespace) -> str:
    """The author of the change.

    Raises:
        ConfigError: ``--by`` or ``--why`` is empty; or they or the login name can't be printed.
    """
    for option, text in (("--why", args.why), ("--by", args.by)):
        if text is not None and not text.strip():
            raise ConfigError(f"{option} must not be empty")
        if text is not None and not text.isprintable():
            raise ConfigError(f"{option} must be a printable text, not {text!r}")
    if args.by is not None:
        return str(args.by)
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # the user has no name, as in a container
        return "unknown"
    if not name.isprintable():
        raise ConfigError(f"the login name {name!r} can't be printed: name the author with --by")
    return name


def add_scope_options(parser: argparse.ArgumentParser) -> None:
    """``--user`` and ``--client``, in place of a group's name."""
    for who in ("user", "client"):
        parser.add_argument(
            f"--{who}", metavar="NAME", help=f"in place of GROUP; {DEFAULT}: any without a quota"
        )


def groups_named(args: argparse.Namespace) -> list[str]:
    """The groups named by GROUP, or by ``--user`` and ``--client``; empty if none is named.

    Raises:
        ConfigError: both are given.
        InputError: a name can't be one.
    """
    named = [args.group] if isinstance(args.group, str) else args.group or []
    scope = scope_named(args.user, args.client)
    if scope is None:
        return named
    if named:
        raise ConfigError("GROUP does not go with --user or --client")
    return [scope]


def scope_named(user: str | None, client: str | None) -> str | None:
    """The group that the options name, None if they are not given.

    >>> scope_named("CN=alice", None)
    'user=CN%3Dalice'

    Raises:
        InputError: a name can't be one.
    """
    if user is None and client is None:
        return None
    try:
        return str(scope_of(user, client))
    except InputError as error:
        raise InputError(f"--{error}") from None
