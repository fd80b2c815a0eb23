"""Whom a quota is for: groups named ``user=alice,client=app-1`` and the like.

Names in a scope are percent-encoded as Kafka's ``Sanitizer`` does, so that ``<default>`` is none:
it stands for everybody who has no quota of his own. A user who is really called so is
``user=%3Cdefault%3E``. Of the scopes that fit a request the most specific one holds, alone: see
``resolve.py``.
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
"""What a scope may name, in this order."""

FORMS: Final = "user=NAME, client=NAME or user=NAME,client=NAME"
"""Of scopes, for messages."""


class Scope(NamedTuple):
    """Users and clients, by encoded name or ``DEFAULT``; None where the scope says nothing."""

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
    """The name that ``encode`` has made a scope's name of.

    >>> decode("CN%3Dapp%201")
    'CN=app 1'
    """
    return unquote(name)


def scope_of(user: str | None, client: str | None) -> Scope:
    """The scope of names as people write them, where ``<default>`` is the default.

    >>> str(scope_of("CN=alice", "<default>"))
    'user=CN%3Dalice,client=<default>'

    Raises:
        InputError: a name is empty or no valid Unicode; says whose.
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
    """Which of n names are scopes for everybody who has no quota of his own, shape (n,).

    >>> templates(pa.array(["user=alice", "client=<default>", "=<default>"])).tolist()
    [False, True, False]
    """
    found = np.zeros(len(groups), np.bool_)
    maybe = pc.match_substring(groups, f"={DEFAULT}")  # of many groups few
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
