"""Names of the groups in which a Pulsar cluster keeps copies of publish quotas taken over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quotaplane.errors import CopyOfQuotaError

_COPY: Final = ".taken-over"


def copy_of(group: str) -> str:
    """The group that has the copy of a group's quota.

    >>> copy_of("orders"), is_copy("orders.taken-over"), original_of("orders.taken-over")
    ('orders.taken-over', True, 'orders')
    """
    return f"{group}{_COPY}"


def is_copy(group: str) -> bool:
    """Whether a group of the cluster is such a copy."""
    return group.endswith(_COPY) and group != _COPY


def original_of(copy: str) -> str:
    """The group whose quota a copy has."""
    return copy.removesuffix(_COPY)


def refuse_copies(groups: Iterable[str]) -> None:
    """Leave the enforcer's copies of quotas alone: a quota would be given back wrong.

    Raises:
        CopyOfQuotaError: a group has the name of one.
    """
    for group in filter(is_copy, groups):
        raise CopyOfQuotaError(
            f"group {group!r} keeps the quota of group {original_of(group)!r} for the enforcer, "
            "which alone changes it"
        )
