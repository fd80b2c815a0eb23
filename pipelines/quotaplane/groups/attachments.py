"""Attachments: what may be attached to a group, its name in messages, and the part it is in.

A client of a broker belongs to the group that its user and client id, its topic, its namespace or
its tenant is attached to. A group whose name is a scope without ``<default>`` in it is attached to
that scope by itself.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, Literal, get_args

import numpy as np
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


def attached_to_themselves(groups: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """Those of the groups that are attached to the scope that their names are.

    >>> names = ["user=alice", "user=<default>", "acme", "client=a b", "user=a,client=b"]
    >>> attached_to_themselves(pa.array(names)).to_pylist()
    ['user=alice', 'user=a,client=b']
    """
    groups = pa.chunked_array([groups]) if isinstance(groups, pa.Array) else groups
    maybe = pc.or_(*(pc.starts_with(groups, f"{key}=") for key in SCOPE_KEYS))
    found = groups.filter(maybe).cast(pa.string()).combine_chunks()
    whole = (scopes_of(found).level >= 0) & ~templates(found)
    return found.filter(pa.array(np.asarray(whole)))
