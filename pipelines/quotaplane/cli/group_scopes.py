"""Scopes on the command line: groups named by user and client."""

from __future__ import annotations

import argparse

from quotaplane.errors import ConfigError, InputError
from quotaplane.groups.scope import DEFAULT, scope_of


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
