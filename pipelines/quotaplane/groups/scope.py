"""Scopes: groups whose names say which user and client id a quota is for.

``user=alice,client=app-1`` is one. Names in a scope are percent-encoded as Kafka's ``Sanitizer``
does it. ``<default>`` stands for all users (or clients) without a quota of their own; a user with
that very name is ``user=%3Cdefault%3E``. If several scopes fit a request, only the most specific
one applies: see ``resolve.py``.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.errors import InputError
from quotaplane.model import SEPARATOR, BoolArray

DEFAULT: Final = "<default>"

SCOPE_KEYS: Final = ("user", "client")
"""Keys of a scope, in the order in which they must be."""

FORMS: Final = "user=NAME, client=NAME or user=NAME,client=NAME"
"""The forms of scopes, for messages."""


class Scope(NamedTuple):
    """A user and a client, by encoded name or ``DEFAULT``; None: the scope does not name one."""

    user: str | None
    client: str | None

    def __str__(self) -> str:
        """The group's name.

        >>> str(Scope("alice", DEFAULT))
        'user=alice,client=<default>'
        """
        given = zip(SCOPE_KEYS, self, strict=True)
        return ",".join(f"{key}={name}" for key, name in given if name is not None)


def encode(name: str) -> str:
    """A name as it is in a scope: all but letters, digits and ``.-_`` of ASCII percent-encoded.

    >>> encode("CN=app 1*~"), encode("<default>"), encode("jürgen")
    ('CN%3Dapp%201%2A%7E', '%3Cdefault%3E', 'j%C3%BCrgen')

    Raises:
        InputError: it is empty, or no valid Unicode.
    """
    if not name:
        raise InputError("must not be empty")
    try:
        return quote(name, safe="").replace("~", "%7E")
    except UnicodeEncodeError:
        raise InputError("must be valid Unicode") from None


def decode(name: str) -> str:
    """The name that ``encode`` encoded.

    >>> decode("CN%3Dapp%201")
    'CN=app 1'
    """
    return unquote(name)


def scope_of(user: str | None, client: str | None) -> Scope:
    """The scope of names as people write them, where ``<default>`` is the default.

    >>> str(scope_of("CN=alice", "<default>"))
    'user=CN%3Dalice,client=<default>'

    Raises:
        InputError: a name is empty or no valid Unicode; says which one.
    """
    names = []
    for key, name in zip(SCOPE_KEYS, (user, client), strict=True):
        try:
            names.append(name if name is None or name == DEFAULT else encode(name))
        except InputError as error:
            raise InputError(f"{key}: {error}") from None
    return Scope(*names)


def is_scope(group: str) -> bool:
    """Whether a group's name is meant as a scope, well-formed or not.

    >>> is_scope("user=alice"), is_scope("tenant-a/orders"), is_scope("username")
    (True, False, False)
    """
    return group.startswith(tuple(f"{key}=" for key in SCOPE_KEYS))


def parse_scope(group: str) -> Scope:
    """The scope that a group's name stands for.

    >>> parse_scope("user=<default>,client=app-1")
    Scope(user='<default>', client='app-1')

    Raises:
        InputError: it is none, or not in the one spelling that it may have.
    """
    if SEPARATOR in group:
        raise InputError(
            f"scopes are no trees: there is no {SEPARATOR!r} in them (a colon in a name is %3A)"
        )
    parts = [part.partition("=") for part in group.split(",")]
    if not all(equals for _, equals, _ in parts):
        raise InputError(f"must be {FORMS}; a comma in a name is %2C")
    keys = [key for key, _, _ in parts]
    if keys not in (["user"], ["client"], ["user", "client"]):
        raise InputError(f"must be {FORMS}, in this order")
    for key, _, name in parts:
        if name != DEFAULT:
            _check(key, name)
    given = {key: name for key, _, name in parts}
    return Scope(given.get("user"), given.get("client"))


def templates(groups: pa.StringArray) -> BoolArray:
    """Whether each of n names is a template, a scope with ``<default>`` in it; shape (n,).

    >>> templates(pa.array(["user=alice", "client=<default>", "=<default>"])).tolist()
    [False, True, False]
    """
    found = np.zeros(len(groups), np.bool_)
    maybe = pc.match_substring(groups, f"={DEFAULT}")  # few of many groups
    for place in np.flatnonzero(maybe.to_numpy(zero_copy_only=False)):
        try:
            found[place] = DEFAULT in parse_scope(groups[place].as_py())
        except InputError:
            continue
    return found


def _check(key: str, name: str) -> None:
    try:
        plain = unquote(name, errors="strict")
    except UnicodeDecodeError:
        plain = name
    try:
        spelt = encode(plain)
    except InputError as error:
        raise InputError(f"{key}: {error}") from None
    if spelt != name:
        raise InputError(f"{key}: {name!r} must be written {spelt}")
