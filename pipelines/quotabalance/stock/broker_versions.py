"""Pulsar's filter of the brokers with the newest version."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cmp_to_key
from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import BoolArray

_NUMBER: Final = r"(?:0|[1-9]\d*)"
_PART: Final = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_PART}(?:\.{_PART})*))?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


class _Version(NamedTuple):
    numbers: tuple[int, int, int]
    before: tuple[str, ...]
    """The parts of a pre-release."""


def newest(
    brokers: Sequence[str], versions: Mapping[str, str], candidates: BoolArray
) -> BoolArray | None:
    """The candidates with the newest version; shapes (B,). None: a candidate's version is not
    known, or is no semantic version, so that Pulsar compares none.

    >>> versions = {"b1": "4.0.8", "b2": "4.0.8-rc.1", "b3": "4.0.8+build"}
    >>> newest(["b1", "b2", "b3"], versions, np.ones(3, bool)).tolist()
    [True, False, True]
    """
    parsed: dict[int, _Version] = {}
    for index in np.flatnonzero(candidates).tolist():
        match = _VERSION.fullmatch(versions.get(brokers[index], ""))
        if not match:
            return None
        numbers = (int(match[1]), int(match[2]), int(match[3]))
        parsed[index] = _Version(numbers, tuple(match[4].split(".")) if match[4] else ())
    if not parsed:
        return candidates.copy()
    latest = max(parsed.values(), key=cmp_to_key(_compare))
    found = np.zeros(len(brokers), bool)
    found[[index for index, version in parsed.items() if version == latest]] = True
    return found


def _compare(one: _Version, other: _Version) -> int:
    if one.numbers != other.numbers:
        return 1 if one.numbers > other.numbers else -1
    if not (one.before and other.before):
        return bool(other.before) - bool(one.before)
    for left, right in zip(one.before, other.before, strict=False):
        if left != right:
            if left.isdecimal() and right.isdecimal():
                return int(left) - int(right)
            return 1 if left > right else -1
    return len(one.before) - len(other.before)
