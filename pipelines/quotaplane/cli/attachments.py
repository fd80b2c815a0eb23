"""``quotaplane groups attach``, ``detach`` and ``attachments``: who uses which group's quota."""

from __future__ import annotations

import argparse
from typing import Final, get_args

import pyarrow.compute as pc

from quotaplane.cli.group_edits import author_of, scope_named
from quotaplane.console.answers import add_answer_options, json_of, print_answer, print_rows
from quotaplane.console.terminal import warn
from quotaplane.errors import ConfigError
from quotaplane.groups.attachments import Kind
from quotaplane.groups.scope import DEFAULT
from quotaplane.history.tables import ATTACHMENTS
from quotaplane.registry import attachments
from quotaplane.settings import History, load_settings

_SCOPE: Final = "scope"
_COLUMNS: Final = tuple(ATTACHMENTS.schema.names)
_CHANGE: Final = ("kind", "name", "from", "to")


def configure_attach(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``attach``."""
    parser.add_argument("group", metavar="GROUP")
    configure_detach(parser)


def configure_detach(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``detach``."""
    for who in ("user", "client"):
        text = f"requests of this {who}; {DEFAULT}: of any without a group"
        parser.add_argument(f"--{who}", metavar="NAME", help=text)
    parser.add_argument("--tenant", metavar="NAME", help="a tenant: its namespaces without a group")
    parser.add_argument("--namespace", metavar="TENANT/NAME", help="a namespace")
    parser.add_argument("--topic", metavar="PREFIX", help="topics whose names begin so")
    add_answer_options(parser)


def configure_list(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``attachments``."""
    parser.add_argument("group", nargs="?", metavar="GROUP")
    add_answer_options(parser)


def attach(history: History, args: argparse.Namespace) -> int:
    """Attach something to a group, or detach it from its group.

    Raises:
        ConfigError, InputError, HistoryError: as ``quotaplane groups`` says.
    """
    kind, name = _named(args)
    group = args.group if args.action == "attach" else None
    if args.conf is not None:
        settings = load_settings(args.conf)
        if settings.cluster is not None and kind in ("tenant", "namespace"):
            raise ConfigError(
                f"{args.conf}: the Pulsar cluster keeps attachments of namespaces (pulsar-admin "
                "namespaces set-resource-group), and cluster.tenants has those of tenants"
            )
        if settings.transport.attachments_topic is None:
            warn(
                f"{args.conf}: transport.attachments_topic is not set, so brokers do not get to "
                "know attachments"
            )
    done = attachments.attach(history, kind, name, group, author_of(args), why=args.why)
    values = (kind, name, *done)
    print_answer(
        args,
        lambda: json_of(dict(zip(_CHANGE, values, strict=True))),
        lambda: (_CHANGE, [values]),
    )
    return 0


def list_all(history: History, args: argparse.Namespace) -> int:
    """Print all attachments, or those of a group.

    Raises:
        HistoryError: the table can't be read.
    """
    rows = attachments.list_attachments(history)
    if args.group is not None:
        rows = rows.filter(pc.equal(rows["resource_group"], args.group))
    found = [{**row, "updated_at": row["updated_at"].isoformat()} for row in rows.to_pylist()]
    print_rows(args, found, _COLUMNS)
    return 0


def _named(args: argparse.Namespace) -> tuple[Kind, str]:
    """What the options name.

    Raises:
        ConfigError: nothing, or several things.
        InputError: a name can't be one.
    """
    scope = scope_named(args.user, args.client)
    given = {kind: getattr(args, kind) for kind in get_args(Kind) if kind != _SCOPE}
    given = {kind: name for kind, name in ({_SCOPE: scope} | given).items() if name is not None}
    if len(given) != 1:
        raise ConfigError(
            f"{args.action} takes one of --user and --client, --tenant, --namespace, --topic"
        )
    [(kind, name)] = given.items()
    return kind, name
