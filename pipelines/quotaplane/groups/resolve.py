"""Finds the quota that applies to a request of a user and a client, and its bucket: Kafka's rules.

``ClientQuotaManager`` has eight levels of scopes. Only the first level with a quota applies, the
most specific first. Each dimension is resolved by itself: a scope without a quota in a dimension is
skipped there. The level's metric tags name the bucket: if the level names a user and a client, the
pair has its own; else all clients of the user share one, or all users of the client id.

Kafka resolves twice: the level gives the tags of the bucket, and the tags give the levels that the
bucket may have. With both names the result is the same level. A request without a user has no tag
for it, so only the levels of the client alone apply; the same holds without a client id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import indices_of
from quotaplane.errors import InputError
from quotaplane.groups.scope import DEFAULT, decode, is_scope, parse_scope
from quotaplane.model import BoolArray, IntArray

_NAMED: Final = 0
_DEFAULT: Final = 1
_ABSENT: Final = 2

LEVELS: Final = (
    (_NAMED, _NAMED),
    (_NAMED, _DEFAULT),
    (_NAMED, _ABSENT),
    (_DEFAULT, _NAMED),
    (_DEFAULT, _DEFAULT),
    (_DEFAULT, _ABSENT),
    (_ABSENT, _NAMED),
    (_ABSENT, _DEFAULT),
)
"""Kinds of a scope's user and client, the most specific first (Kafka's order)."""

_SAYS: Final = np.array(LEVELS) != _ABSENT
"""(levels, 2) whether the level names the user, the client."""


@dataclass(frozen=True)
class Scopes:
    """The scopes among d definitions; a definition that is no scope fits no request."""

    level: IntArray
    """(d,) index into ``LEVELS``; -1: no scope."""
    user: IntArray
    """(d,) index of the user named, 0 if none is."""
    client: IntArray
    """(d,) as ``user``."""
    users: pa.StringArray
    """All users named by any scope, as requests have them."""
    clients: pa.StringArray
    """As ``users``."""


class Resolved(NamedTuple):
    """The definitions that apply to n requests in one dimension, and the e entities they count for.

    An entity has one bucket, which its requests share.
    """

    definition: IntArray
    """(n,) the definition that applies, -1 for none."""
    entity: IntArray
    """(n,) the entity of the request: 0 to e - 1, or -1 where no definition applies."""
    entity_definition: IntArray
    """(e,) the only definition that applies to it."""
    entity_user: pa.StringArray
    """(e,) its user; null: all users share the bucket."""
    entity_client: pa.StringArray
    """(e,) as ``entity_user``."""


def scopes_of(groups: pa.Array) -> Scopes:
    """The scopes among names of groups; a name that is no well-formed scope fits no request.

    >>> scopes_of(pa.array(["tenant-a", "user=<default>", "user=a,client=b"])).level.tolist()
    [-1, 5, 0]
    """
    level = np.full(len(groups), -1, np.int64)
    codes = np.zeros((2, len(groups)), np.int64)
    found: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for row, group in enumerate(groups.to_pylist()):
        if not is_scope(group):
            continue
        try:
            scope = parse_scope(group)
        except InputError:
            continue
        kinds = tuple(
            _ABSENT if name is None else _DEFAULT if name == DEFAULT else _NAMED for name in scope
        )
        level[row] = LEVELS.index(kinds)
        for side, (name, kind) in enumerate(zip(scope, kinds, strict=True)):
            if name is not None and kind == _NAMED:
                codes[side, row] = found[side].setdefault(decode(name), len(found[side]))
    users, clients = (pa.array(list(names), pa.string()) for names in found)
    return Scopes(level, codes[0], codes[1], users, clients)


def resolve(scopes: Scopes, has_quota: BoolArray, users: pa.Array, clients: pa.Array) -> Resolved:
    """Find the definitions that apply to n requests in a dimension.

    ``<default>`` does not match an empty name (null or ""). Kafka calls unauthenticated users
    ANONYMOUS.

    Args:
        scopes: the scopes among d definitions.
        has_quota: (d,) whether a definition has a quota in this dimension.
        users: (n,) names, not encoded, null for none: Arrow's strings, or numpy's objects.
        clients: (n,) as ``users``.

    >>> scopes = scopes_of(pa.array(["user=<default>", "user=alice", "client=app"]))
    >>> found = resolve(
    ...     scopes, np.array([True, True, True]), pa.array(["alice", "bob", "alice", None]),
    ...     pa.array(["x", "x", "y", "app"]),
    ... )
    >>> found.definition.tolist(), found.entity.tolist(), found.entity_user.to_pylist()
    ([1, 0, 1, -1], [0, 1, 0, -1], ['alice', 'bob'])
    """
    user, user_names = _encoded(users)
    client, client_names = _encoded(clients)
    # Requests are many, pairs of a user and a client are fewer.
    stride = max(len(client_names), 1)
    pairs, pair = np.unique(user * stride + client, return_inverse=True)
    user, client = np.divmod(pairs, stride)
    fitting = _fitting(
        scopes,
        has_quota,
        indices_of(user_names, scopes.users)[user],
        indices_of(client_names, scopes.clients)[client],
    )
    fits = fitting >= 0
    named = np.column_stack([_named(user_names)[user], _named(client_names)[client]])
    tags = named & _SAYS[fits.argmax(axis=0)]
    fits &= (tags == _SAYS[:, None]).all(axis=2)
    applies = fits.any(axis=0)
    definition = np.where(applies, fitting[fits.argmax(axis=0), np.arange(len(pairs))], -1)

    of_user, of_client = np.where(tags, np.column_stack([user, client]) + 1, 0)[applies].T
    stride += 1
    keys, first, which = np.unique(
        of_user * stride + of_client, return_index=True, return_inverse=True
    )
    entity = np.full(len(pairs), -1, np.int64)
    entity[applies] = which
    of_user, of_client = np.divmod(keys, stride)
    return Resolved(
        definition=definition[pair],
        entity=entity[pair],
        entity_definition=definition[applies][first],
        entity_user=_taken(user_names, of_user),
        entity_client=_taken(client_names, of_client),
    )


def _fitting(scopes: Scopes, has_quota: BoolArray, user: IntArray, client: IntArray) -> IntArray:
    """(levels, pairs) the definition of each level that fits a pair, -1 for none.

    ``user`` and ``client``, of shape (pairs,), are indexes of those that scopes name, or -1.
    """
    fitting = np.full((len(LEVELS), len(user)), -1, np.int64)
    stride = len(scopes.clients) + 1
    for number, kinds in enumerate(LEVELS):
        there = np.flatnonzero(has_quota & (scopes.level == number))
        if not len(there):
            continue
        keys = scopes.user[there] * stride + scopes.client[there]
        order = np.argsort(keys)
        keys, there = keys[order], there[order]
        # A part that the level does not name is 0, as in ``Scopes``.
        named = [
            code if kind == _NAMED else np.zeros_like(code)
            for code, kind in zip((user, client), kinds, strict=True)
        ]
        wanted = named[0] * stride + named[1]
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        fits = (named[0] >= 0) & (named[1] >= 0) & (keys[place] == wanted)
        fitting[number, fits] = there[place[fits]]
    return fitting


def _encoded(names: pa.Array) -> tuple[IntArray, pa.StringArray]:
    """Codes (n,), and the names that they stand for."""
    if isinstance(names, np.ndarray):
        names = pa.array(names, pa.string())
    elif isinstance(names, pa.ChunkedArray):
        names = names.combine_chunks()
    encoded = names.cast(pa.string()).fill_null("").dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary


def _named(names: pa.StringArray) -> BoolArray:
    return np.asarray(pc.not_equal(names, "").to_numpy(zero_copy_only=False), dtype=bool)


def _taken(names: pa.StringArray, one_more: IntArray) -> pa.StringArray:
    """The names at indexes that are one too high, null at 0."""
    return names.take(pa.array(one_more - 1, pa.int64(), mask=one_more == 0))
