"""Which names a resource group may have: those that reports can use, with no empty part in a path,
and none that leads elsewhere (``..``).

A name that looks like a scope (``user=...``, ``client=...``) must be one. ``check_name`` refuses a
name, ``flawed_names`` finds the bad ones among many, ``usable`` is the part that concerns reports.
Names of copies are those in which a Pulsar cluster keeps publish quotas that were taken over.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.errors import CopyOfQuotaError, InputError
from quotaplane.groups.scope import SCOPE_KEYS, is_scope, parse_scope
from quotaplane.model import MAX_GROUP_CHARS, SEPARATOR, BoolArray

_SHOWN: Final = 20
"""Characters of a too long name that a message shows."""


def check_name(group: str) -> str:
    """A group's name, if it can be one.

    >>> check_name("acme::orders")
    'acme::orders'

    Raises:
        InputError: it is empty, longer than 1024 characters, or not printable: no report
            could use it. Or a part of it, as a path, is empty, ``.`` or ``..``. Or it looks like
            a scope (``user=...``, ``client=...``) and is none.
    """
    flaw = name_flaw(group)
    if flaw is not None:
        raise InputError(f"{called(group)}: {flaw}" if group else f"a group's name {flaw}")
    return group


def called(group: str) -> str:
    """How a line about a group calls it.

    >>> called("g"), called("x" * 1025)
    ("group 'g'", "group 'xxxxxxxxxxxxxxxxxxxx'...")
    """
    if len(group) > MAX_GROUP_CHARS:
        return f"group {group[:_SHOWN]!r}..."
    return f"group {group!r}"


def name_flaw(group: str) -> str | None:
    """Why a group can't have this name, None if it can.

    >>> name_flaw("acme::"), name_flaw("acme")
    ("has an empty part beside '::'", None)
    >>> name_flaw("acme/../globex")
    "has the part '.' or '..', which means another name in a path"
    """
    if not group:
        return "must not be empty"
    if len(group) > MAX_GROUP_CHARS:
        return f"longer than {MAX_GROUP_CHARS} characters"
    if not group.isprintable():  # a surrogate is not printable, either
        return "has a character that can't be printed"
    if not all(group.split(SEPARATOR)):
        return f"has an empty part beside {SEPARATOR!r}"
    if not {".", ".."}.isdisjoint(group.split("/")):
        return "has the part '.' or '..', which means another name in a path"
    if is_scope(group):
        try:
            parse_scope(group)
        except InputError as error:
            return str(error)
    return None


def flawed_names(groups: pa.StringArray) -> Iterator[tuple[int, str]]:
    """The places of the names that a group can't have, ascending, and why.

    >>> list(flawed_names(pa.array(["acme", "", "user=a b"])))
    [(1, 'must not be empty'), (2, "user: 'a b' must be written a%20b")]
    """
    maybe = ~_plain(groups) | _has(pc.match_substring(groups, SEPARATOR))
    maybe |= _has(pc.match_substring_regex(groups, r"(^|/)\.\.?(/|$)"))
    for key in SCOPE_KEYS:
        maybe |= _has(pc.starts_with(groups, f"{key}="))
    for place in np.flatnonzero(maybe).tolist():  # few of many groups
        flaw = name_flaw(groups[place].as_py())
        if flaw is not None:
            yield place, flaw


def usable(names: Sequence[str], column: pa.StringArray) -> BoolArray:
    r"""Which of n names, given both ways, a report may use: 1 to 1024 printable characters.

    >>> names = ["g", "", "a\tb", "jürgen"]
    >>> usable(names, pa.array(names)).tolist()
    [True, False, False, True]
    """
    length = pc.utf8_length(column).to_numpy().astype(np.int64)
    found: BoolArray = (length > 0) & (length <= MAX_GROUP_CHARS)
    others = np.flatnonzero(found & ~_has(pc.ascii_is_printable(column)))
    if len(others):
        text = "".join([names[at] for at in others.tolist()])
        printable = _printable()[np.frombuffer(text.encode("utf-32-le"), "<u4")]
        begins = np.cumsum(length[others]) - length[others]
        found[others] = np.logical_and.reduceat(printable, begins)
    return found


def _plain(names: pa.StringArray) -> BoolArray:
    """Which names are of printable ASCII, and of a fitting length."""
    length = pc.utf8_length(names).to_numpy(zero_copy_only=False)
    fits: BoolArray = (length > 0) & (length <= MAX_GROUP_CHARS)
    return fits & _has(pc.ascii_is_printable(names))


def _has(mask: pa.BooleanArray) -> BoolArray:
    return np.asarray(mask.to_numpy(zero_copy_only=False), dtype=np.bool_)


@cache
def _printable() -> BoolArray:
    """For every character of Unicode whether it is printable, as ``str.isprintable`` says."""
    characters = map(chr, range(sys.maxunicode + 1))
    return np.fromiter(map(str.isprintable, characters), bool, sys.maxunicode + 1)


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
