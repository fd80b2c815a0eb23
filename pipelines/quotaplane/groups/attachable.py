"""Attachments: what may be attached to a group, its name in messages, and the part it is in.

A client of a broker belongs to the group that its user and client id, its topic, its namespace or
its tenant is attached to. A group whose name is a scope without ``<default>`` in it is attached to
that scope by itself.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.errors import InputError
from quotaplane.groups.resolve import scopes_of
from quotaplane.groups.scope import SCOPE_KEYS, parse_scope, templates

Kind = Literal["scope", "tenant", "namespace", "topic"]
"""``scope``: of users and client ids; ``topic``: all topics whose names begin so."""
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
PARTS: Final = 64
"""Attachments are published in so many parts, and only the parts that have changed."""
MAX_NAME_CHARS: Final = 1024

_PULSAR_NAME: Final = re.compile(r"[-=:.\w]+", re.ASCII)
_TOPIC: Final = re.compile(r"[-=:./\w]+", re.ASCII)
_FORMS: Final = {"tenant": "NAME", "namespace": "TENANT/NAME", "topic": "the beginning of a name"}


def check_attachable(kind: Kind, name: str) -> str:
    """The name of a scope, a tenant, a namespace with its tenant or topics, if it can be one.

    >>> check_attachable("namespace", "acme/orders"), check_attachable("scope", "user=alice")
    ('acme/orders', 'user=alice')

    Raises:
        InputError: there can't be such a name.
    """
    if len(name) > MAX_NAME_CHARS:
        raise InputError(f"{kind} {name[:80]!r}...: longer than {MAX_NAME_CHARS} characters")
    if kind == "scope":
        try:
            return str(parse_scope(name))
        except InputError as error:
            raise InputError(f"scope {name!r}: {error}") from None
    if kind == "topic":
        fits = _TOPIC.fullmatch(name) is not None
    else:
        parts = name.split("/")
        fits = len(parts) == (1 if kind == "tenant" else 2)
        fits = fits and all(map(_PULSAR_NAME.fullmatch, parts))
    if not fits:
        more = " /" if kind == "topic" else ""
        raise InputError(
            f"{kind} {name!r}: must be {_FORMS[kind]} of letters, digits and the characters "
            f"- = : . _{more}"
        )
    return name


def wire_name(kind: str, name: str) -> str:
    """The name in messages.

    >>> wire_name("scope", "user=alice,client=app-1"), wire_name("topic", "orders-")
    ('user=alice,client=app-1', 'topic=orders-')
    """
    return name if kind == "scope" else f"{kind}={name}"


def part_of(name: str) -> int:
    """The part that has a name of a message.

    >>> part_of("user=alice"), part_of("tenant=acme")
    (56, 24)
    """
    return sha256(name.encode()).digest()[0] % PARTS


def scope_names(groups: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """Those of the groups that are named as scopes, well-formed or not, in order.

    >>> scope_names(pa.array(["user=b", "acme", "client=", "user=a"])).to_pylist()
    ['client=', 'user=a', 'user=b']
    """
    named = pc.or_(*(pc.starts_with(groups, f"{key}=") for key in SCOPE_KEYS))
    found = pa.chunked_array(groups.filter(named), pa.string())
    return found.take(pc.sort_indices(found)).combine_chunks()


def attached_to_themselves(scopes: pa.StringArray) -> pa.StringArray:
    """Those of ``scope_names`` that are attached to the scope that they are.

    >>> attached_to_themselves(pa.array(["client=a b", "user=<default>", "user=a"])).to_pylist()
    ['user=a']
    """
    return scopes.filter(pa.array((scopes_of(scopes).level >= 0) & ~templates(scopes)))
