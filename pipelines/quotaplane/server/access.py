"""Roles, and the tenants that they are for.

The tenant of a group is its name up to the first ``::`` or ``/``: ``acme``, ``acme/orders`` and
``acme::orders::batch`` belong to the tenant ``acme``. Quotas of users and client ids
(``user=alice``) belong to no tenant: they need a role for all tenants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import bools
from quotaplane.groups.scope import SCOPE_KEYS, is_scope
from quotaplane.model import SEPARATOR, BoolArray
from quotaplane.settings.server import GRANT

ALL: Final = "*"
"""In a grant: all tenants, and groups without a tenant."""


class Role(IntEnum):
    """A set of rights; a higher role has all rights of the lower ones."""

    VIEWER = 1
    """Read."""
    OPERATOR = 2
    """Change groups and attachments."""
    ADMIN = 3
    """Everything; for all tenants: also the server's settings and the state of its tables."""


@dataclass(frozen=True)
class Principal:
    """The author of requests: a person or a program."""

    name: str
    """The token's subject: the author of changes."""
    roles: Mapping[str, Role]
    """The highest role for each tenant, and for ``ALL``."""
    is_anonymous: bool = False

    def may(self, role: Role, tenant: str | None) -> bool:
        """Whether the caller has a role for this tenant; None: for groups without a tenant.

        >>> acme = Principal("ann", {"acme": Role.OPERATOR, "*": Role.VIEWER})
        >>> acme.may(Role.OPERATOR, "acme"), acme.may(Role.OPERATOR, None)
        (True, False)
        """
        everywhere = self.roles.get(ALL, 0)
        return max(everywhere, 0 if tenant is None else self.roles.get(tenant, 0)) >= role

    def tenants(self, role: Role) -> list[str] | None:
        """The tenants for which the caller has a role, by name; None: all."""
        if self.may(role, None):
            return None
        return sorted(tenant for tenant, theirs in self.roles.items() if theirs >= role)


def tenant_of(group: str) -> str | None:
    """The tenant that a group belongs to.

    >>> [tenant_of(group) for group in ("acme", "acme/orders", "acme::a/b::c", "user=alice")]
    ['acme', 'acme', 'acme', None]
    """
    if is_scope(group):
        return None
    return group.partition(SEPARATOR)[0].partition("/")[0]


def belongs(groups: pa.Array | pa.ChunkedArray, tenants: Sequence[str]) -> BoolArray:
    """Which of n groups belong to one of these tenants, shape (n,); the same as ``tenant_of``.

    >>> belongs(pa.array(["acme::x", "acme/y", "acmes", "user=acme"]), ["acme", "user=acme"])
    array([ True,  True, False, False])
    """
    # Everything from the first separator on.
    roots = pc.replace_substring_regex(groups, f"(?s)({SEPARATOR}|/).*$", "")
    found = pc.is_in(roots, value_set=pa.array(tenants, pa.string()))
    for key in SCOPE_KEYS:
        found = pc.and_not(found, pc.starts_with(groups, f"{key}="))
    return bools(found)


def roles_of(values: Iterable[str], grants: Mapping[str, Sequence[str]]) -> dict[str, Role]:
    """The highest role by tenant, from the values of a token's claim.

    Unknown values are ignored: a token also names roles of other services. ``grants`` is the
    setting ``server.auth.grants``.

    >>> roles_of(["viewer", "operator:acme", "viewer:acme", "cook"], {})
    {'*': <Role.VIEWER: 1>, 'acme': <Role.OPERATOR: 2>}
    >>> roles_of(["admin", "team-a"], {"team-a": ["viewer:a"]})
    {'a': <Role.VIEWER: 1>}
    """
    roles: dict[str, Role] = {}
    for value in values:
        for grant in grants.get(value, ()) if grants else (value,):
            if not re.fullmatch(GRANT, grant):
                continue
            word, _, tenant = grant.partition(":")
            tenant = tenant or ALL
            roles[tenant] = max(roles.get(tenant, Role.VIEWER), Role[word.upper()])
    return roles


ANONYMOUS: Final = {
    "none": Principal("anonymous", {}, is_anonymous=True),
    "viewer": Principal("anonymous", {ALL: Role.VIEWER}, is_anonymous=True),
    "admin-without-authentication": Principal("anonymous", {ALL: Role.ADMIN}, is_anonymous=True),
}
"""The caller without a token, by the setting ``server.anonymous``."""
