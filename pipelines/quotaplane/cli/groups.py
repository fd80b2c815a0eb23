"""``quotaplane groups``: who may use how much. Put, get, list, delete, restore, and who did it."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quotaplane.cli.group_restore import add_restore_options, restore
from quotaplane.cli.group_scopes import add_scope_options, scope_named
from quotaplane.errors import ConfigError
from quotaplane.groups.option_kinds import ChoiceOption
from quotaplane.groups.policy_options import BY_COLUMN, POLICY_COLUMNS
from quotaplane.groups.quota_text import QUOTA_FORM
from quotaplane.history.store import ensure_tables, require_history
from quotaplane.model import RATE_COLUMNS
from quotaplane.option_parser import OptionParser
from quotaplane.registry.attachments import delete_unattached
from quotaplane.registry.group_input import (
    JSON_COLUMNS,
    given_groups,
    read_group,
    read_groups,
    read_object,
)
from quotaplane.registry.group_json import as_json, shown
from quotaplane.registry.scopes import resolved
from quotaplane.registry.table import (
    get_group,
    group_changes,
    list_groups,
    put_groups,
)
from quotaplane.settings import History, load_settings
from quotaplane.terminal import tell, warn

_EPILOG: Final = """\
examples:
  quotaplane groups put tenant-a/orders --publish-messages-per-s 1000 --conf conf/local.yaml
  quotaplane groups put tenant-a/orders --publish-messages-per-s unlimited --conf conf/local.yaml
  quotaplane groups put tenant-a/orders --mode soft --enforcement-percent 10 --conf conf/local.yaml
  quotaplane groups put acme::orders --weight 2 --brokers '{"b1": {"priority": 1}}' --conf ...
  quotaplane groups put --file groups.csv --conf conf/local.yaml
  quotaplane groups put acme --quota "write 10MB/min" --quota "read 1000 reqs/s" --conf ...
  quotaplane groups put --user alice --quota "5 mutations/s" --throttle terms.json --conf ...
  quotaplane groups restore --from-history --at 2h --dry-run --conf conf/local.yaml
  quotaplane groups resolve --user alice --client app-1 --conf conf/local.yaml
  quotaplane groups list --conf conf/local.yaml

put --init creates the history's tables where there are none yet; without it, put refuses a history
that does not exist. put changes only what is given; a dimension never given is unlimited, anything
else never given has its default. FILE is CSV (header: group and any of the columns that get prints,
such as weight; an empty cell keeps what is there) or JSON (a list of {"group": ...,
"publish_messages_per_s": 100}); "quotas" may be among the columns: a list of what --quota takes, in
a CSV cell as JSON; "unlimited" takes a quota away. A file is put as a whole or not at all. A rate
of null in the answers means unlimited.

acme::orders is a child of acme: it shares what acme has. --weight, --priority and the floors are
the group's among its siblings; --brokers gives single brokers of the group terms of their own:
  {"b1": {"weight": 2, "priority": 1, "floor": {"publish_messages_per_s": 10}},
   "*": {"ceiling": {"publish_bytes_per_s": 1e6}}}        "*" is every broker; {} takes all away

--quota is QUOTA_FORM: a quota
and, but for s, the time over which it is measured. --throttle says how requests are held to them:
  {"*": {"law": "sliding_window"}, "publish_bytes": {"mode": "hard", "window_s": 60}}
"*" is every dimension without terms of its own; {} takes all away. law: token_bucket (default),
windowed_rate, amended_rate, sliding_window; window_s, samples: over what time it measures; mode: a
request above the limit is delayed (soft, default) or refused (hard). That is another thing than
--mode, which says whether brokers are limited at all.

--user, --client or both, in place of GROUP, name a scope (user=alice,client=app-1): a quota for
requests of that user and client id; <default> stands for all who have none. Of the scopes that fit
a request the most specific one with a quota holds, alone: user and client, user and default client,
user; then the same with the default user; then client, default client. resolve tells which.

restore --from-history puts groups back as the table's history has them: GROUP as it was before its
last change, or before it was deleted; without GROUP all deleted ones. With --at or --version it
puts back what was there then, and leaves groups alone that came later. It prints what it changes.
docs/throttle.md has all of this.
"""


def _option(column: str) -> str:
    return "--quota" if column == "quotas" else "--" + column.replace("_", "-")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG.replace("QUOTA_FORM", QUOTA_FORM)
    place = OptionParser(add_help=False)
    where = place.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--conf", metavar="FILE", help="the job's settings; its history.path is used"
    )
    where.add_argument("--history", metavar="PATH", help="folder of the history's tables")
    author = OptionParser(add_help=False)
    author.add_argument("--by", metavar="NAME", help="who makes the change (the login name)")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    put = actions.add_parser("put", parents=[place, author], help="create or change groups")
    put.add_argument("group", nargs="?", metavar="GROUP")
    put.add_argument(
        "--init", action="store_true", help="create the history's tables that do not exist yet"
    )
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
    get = actions.add_parser("get", parents=[place], help="print one group")
    get.add_argument("group", nargs="?", metavar="GROUP")
    add_scope_options(get)
    actions.add_parser("list", parents=[place], help="print all groups")
    delete = actions.add_parser("delete", parents=[place, author], help="delete groups")
    delete.add_argument("group", nargs="*", metavar="GROUP")
    add_scope_options(delete)
    resolve = actions.add_parser(
        "resolve", parents=[place], help="print the quotas of a user's or client's requests"
    )
    resolve.add_argument(
        "--user", metavar="NAME", help="none: requests without a user (in Kafka: ANONYMOUS)"
    )
    resolve.add_argument("--client", metavar="NAME", help="none: requests without a client id")
    put_back = actions.add_parser(
        "restore", parents=[place, author], help="put back what was deleted or changed"
    )
    add_restore_options(put_back)
    changes = actions.add_parser("history", parents=[place], help="print who changed what, when")
    changes.add_argument("group", nargs="?", metavar="GROUP")


def run(args: argparse.Namespace) -> int:
    """Do one action and print its answer as JSON.

    Raises:
        ConfigError: the settings or the options are wrong, or there is no history.
        InputError: a group or a quota is wrong, or there is no such group; nothing was written.
        HistoryError: the tables can't be read or written.
    """
    history = History(path=args.history) if args.history else load_settings(args.conf).history
    groups = _groups_named(args) if args.action in ("put", "get", "delete") else []
    if args.action in ("get", "delete") and not groups:
        raise ConfigError(f"{args.action} takes GROUP, or --user and --client")
    if args.action != "put":
        require_history(history)
    if args.action == "put":
        _put(history, args, groups)
    elif args.action == "get":
        print(as_json(shown(get_group(history, groups[0]))))
    elif args.action == "list":
        _print_list([shown(row) for row in list_groups(history).to_pylist()])
    elif args.action == "delete":
        delete_unattached(history, groups, _author(args))
        print(as_json({"deleted": list(dict.fromkeys(groups))}))
    elif args.action == "resolve":
        _print_list(list(resolved(list_groups(history), args.user, args.client)))
    elif args.action == "restore":
        restored = restore(history, args, _author(args), warn)
        _print_changes([{"group": g, "from": before, "to": to} for g, before, to in restored])
    else:
        _print_changes(group_changes(history, args.group))
    return 0


def _put(history: History, args: argparse.Namespace, groups: list[str]) -> None:
    columns = (*RATE_COLUMNS, *POLICY_COLUMNS, "quotas")
    record = {c: getattr(args, c) for c in columns if getattr(args, c) is not None}
    if bool(groups) == (args.file is not None):
        raise ConfigError("put takes either GROUP or --file FILE")
    if args.file is not None:
        if record:
            raise ConfigError(f"{_option(next(iter(record)))} does not go with --file")
        given = read_groups(args.file)
    else:
        for column in JSON_COLUMNS:
            if isinstance(record.get(column), str):
                record[column] = read_object(record[column], _option(column))
        given = given_groups(groups, [read_group(record, _option)])

    def ready(history: History) -> None:
        if args.init:
            ensure_tables(history, say=tell)
        else:
            require_history(history, "use --init to create it")

    rows = put_groups(
        history,
        given.names,
        given.quotas,
        _author(args),
        policy=given.policy,
        timeframe_s=given.timeframe_s,
        ready=ready,
        warn=warn,
    )
    single = args.file is None
    print(as_json(shown(rows.to_pylist()[0]) if single else {"groups": rows.num_rows}))


def _groups_named(args: argparse.Namespace) -> list[str]:
    """The groups that GROUP names, or ``--user`` and ``--client`` do; none if nothing does."""
    named = [args.group] if isinstance(args.group, str) else args.group or []
    scope = scope_named(args.user, args.client)
    if scope is None:
        return named
    if named:
        raise ConfigError("GROUP does not go with --user or --client")
    return [scope]


def _author(args: argparse.Namespace) -> str:
    if args.by is not None:
        if not args.by.strip():
            raise ConfigError("--by must not be empty")
        return str(args.by)
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"


def _print_changes(changes: Sequence[Mapping[str, Any]]) -> None:
    sides = ("from", "to")
    _print_list([{k: shown(v) if k in sides and v else v for k, v in c.items()} for c in changes])


def _print_list(rows: Sequence[Mapping[str, Any]]) -> None:
    # One row a line: JSON as a whole, and still fit for grep and diff.
    print("[" + ",".join(f"\n {as_json(row)}" for row in rows) + ("\n]" if rows else "]"))
