"""``quotaplane groups``: changes, lists, restores and imports groups; attaches to them; history."""

from __future__ import annotations

import argparse
import importlib
from typing import Final, cast

from quotaplane.cli import attachments, group_edits
from quotaplane.cli.group_edits import add_scope_options, groups_named
from quotaplane.cli.group_tables import brief_rows, change_rows, one_row, whole_rows
from quotaplane.cli.history_options import add_history_options, history_of
from quotaplane.console.answers import (
    add_answer_options,
    json_lines,
    json_of,
    print_answer,
    print_rows,
)
from quotaplane.console.option_parser import OptionParser
from quotaplane.errors import ConfigError
from quotaplane.groups.quota_text import QUOTA_FORM
from quotaplane.history.store import require_history
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.group_files import group_file
from quotaplane.registry.group_json import shown, shown_changes
from quotaplane.registry.scopes import resolved
from quotaplane.registry.table import get_group, list_groups

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
  quotaplane groups list --csv --conf conf/local.yaml
  quotaplane groups apply -f groups/ --prune --dry-run --conf conf/local.yaml

  quotaplane groups attach batch --user alice --client "<default>" --conf conf/kafka.yaml
  quotaplane groups detach --topic orders- --conf conf/kafka.yaml

  quotaplane groups import pulsar --namespaces "acme/*" --conf conf/pulsar.yaml

put --init creates the history's tables where there are none yet; without it, put refuses a history
that does not exist. put changes only what is given; a dimension never given is unlimited, anything
else never given has its default. FILE is CSV (header: group and any of the columns that get prints,
such as weight; an empty cell keeps what is there) or JSON (a list of {"group": ...,
"publish_messages_per_s": 100}); "quotas" may be among the columns: a list of what --quota takes, in
a CSV cell as JSON; "unlimited" takes a quota away. A file is put as a whole or not at all. A rate
of null in JSON answers means unlimited. What `list --json` or `list --csv` prints can be put back.

apply makes groups what YAML files say: what is left out is unlimited or has its default. A file has
one group or a list of groups, with the keys of put --file. A folder stands for all *.yaml and *.yml
in and below it. --prune deletes the groups that are in no file; --delete-all, too, lets it delete
more than a third of all groups, or those of an empty file. All of it is one change. export prints
the groups as such a file.

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

attach lets requests of a user and client id, of a tenant, a namespace or of topics use a group's
quota, in place of the group that they used before; detach ends that; attachments lists all of them.
A group whose name is a scope without <default> needs no attachment. The quota job publishes them
(transport.attachments_topic).

import pulsar proposes a group for each namespace of a Pulsar cluster whose topics have rates. Its
quota is what the namespace may use today: the sum of the rates of all topics and partitions.
--apply makes the groups, here and in the cluster, and attaches the namespaces; it changes no rate,
and prints how to go back. docs/start/from-topic-rates.md has the steps.

restore --from-history puts groups back as the table's history has them: GROUP as it was before its
last change, or before it was deleted; without GROUP all deleted ones. With --at or --version it
puts back what was there then, and leaves groups alone that came later. It prints what it changes.
docs/operate/throttle.md has all of this.
"""


_EDITS: Final = {
    "put": (group_edits.configure_put, group_edits.put, "create or change groups"),
    "apply": (group_edits.configure_apply, group_edits.apply, "make groups what YAML files say"),
    "delete": (group_edits.configure_delete, group_edits.delete, "delete groups"),
    "restore": (
        group_edits.configure_restore,
        group_edits.restore,
        "put back what was deleted or changed",
    ),
}


_ATTACH: Final = {
    "attach": (attachments.configure_attach, "let requests of somebody use a group's quota"),
    "detach": (attachments.configure_detach, "end an attachment"),
}


_RESOLVED: Final = ("dimension", "rate_per_s", "group", "mode", "terms", "shared_by")

_SOURCES: Final = {"pulsar": "quotaplane.cli.import_pulsar"}
"""By source of an import, the module that runs it; only this one is imported."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG.replace("QUOTA_FORM", QUOTA_FORM)
    place = OptionParser(add_help=False)
    add_history_options(place)
    edit = group_edits.edit_options()
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    for name, (configure_edit, _, text) in _EDITS.items():
        configure_edit(actions.add_parser(name, parents=[place, edit], help=text))
    get = actions.add_parser("get", parents=[place], help="print one group")
    get.add_argument("group", nargs="?", metavar="GROUP")
    add_scope_options(get)
    every = actions.add_parser("list", parents=[place], help="print all groups")
    actions.add_parser("export", parents=[place], help="print all groups as YAML for apply")
    resolve = actions.add_parser(
        "resolve", parents=[place], help="print the quotas of a user's or client's requests"
    )
    resolve.add_argument(
        "--user", metavar="NAME", help="none: requests without a user (in Kafka: ANONYMOUS)"
    )
    resolve.add_argument("--client", metavar="NAME", help="none: requests without a client id")
    _configure_import(actions.add_parser("import", help="propose groups from rates set elsewhere"))
    author = group_edits.author_options()
    for name, (configure_attach, text) in _ATTACH.items():
        configure_attach(actions.add_parser(name, parents=[place, author], help=text))
    listed = actions.add_parser("attachments", parents=[place], help="print all attachments")
    attachments.configure_list(listed)
    changes = actions.add_parser("history", parents=[place], help="print who changed what, when")
    changes.add_argument("group", nargs="?", metavar="GROUP")
    for action in (get, every, resolve, changes):
        add_answer_options(action)


def _configure_import(parser: argparse.ArgumentParser) -> None:
    sources = parser.add_subparsers(dest="source", metavar="SOURCE", required=True)
    pulsar = sources.add_parser(
        "pulsar", parents=[group_edits.author_options()], help="rates of a Pulsar cluster's topics"
    )
    pulsar.add_argument("--conf", metavar="FILE", required=True, help="the quota job's settings")
    pulsar.add_argument(
        "--namespaces",
        metavar="PATTERN",
        default="*",
        help="only these, such as acme/*; default: all",
    )
    pulsar.add_argument(
        "--apply", action="store_true", help="make the groups and attach the namespaces"
    )
    add_answer_options(pulsar)


def run(args: argparse.Namespace) -> int:
    """Do one action and print its answer.

    Raises:
        ConfigError: the settings or the options are wrong, or there is no history.
        InputError: a group or a quota is wrong, or there is no such group; nothing was written.
        HistoryError: the tables can't be read or written.
        ClusterError: of an import: the cluster can't be reached, or refuses.
    """
    if args.action == "import":
        return cast(int, importlib.import_module(_SOURCES[args.source]).run(args))
    history = history_of(args)
    if args.action in ("put", "apply"):  # these may create a history
        return _EDITS[args.action][1](history, args)
    named = groups_named(args) if args.action == "get" else []
    if args.action == "get" and not named:
        raise ConfigError("get takes GROUP, or --user and --client")
    require_history(history)
    if args.action in _EDITS:
        return _EDITS[args.action][1](history, args)
    if args.action in _ATTACH:
        return attachments.attach(history, args)
    if args.action == "attachments":
        return attachments.list_all(history, args)
    if args.action == "get":
        row = get_group(history, named[0])
        print_answer(
            args,
            lambda: json_of(shown(row)),
            lambda: one_row(row),
            lambda: whole_rows([row]),
        )
    elif args.action == "export":
        print(group_file(list_groups(history).to_pylist()), end="")
    elif args.action == "list":
        rows = list_groups(history).to_pylist()
        print_answer(
            args,
            lambda: json_lines([*map(shown, rows)]),
            lambda: brief_rows(rows),
            lambda: whole_rows(rows),
        )
    elif args.action == "resolve":
        found = list(resolved(list_groups(history), args.user, args.client))
        print_rows(args, found, _RESOLVED)
    else:
        found = group_changes(history, args.group)
        if args.group is not None and not found:
            get_group(history, args.group)  # raises if there is none
        print_answer(args, lambda: json_lines(shown_changes(found)), lambda: change_rows(found))
    return 0
