"""Rules for the names in reports: that of their key or topic, and those that are allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import bools
from quotaplane.model import BoolArray, IntArray
from quotaplane.wire.reasons import BROKER_NOT_ALLOWED, OTHER_BROKER, shown
from quotaplane.wire.rejected_reports import Refusal


@dataclass(frozen=True)
class AllowedBrokers:
    """The names of brokers whose reports are used.

    >>> AllowedBrokers("host:*", patterns=("host:*",)).of(pa.array(["host:1", "ghost:1"])).tolist()
    [True, False]
    """

    text: str
    """The setting, for dead letters."""
    patterns: tuple[str, ...] = ()
    """``*`` stands for any characters, ``?`` for one."""
    names: frozenset[str] = frozenset()
    """Allowed as they are."""

    def of(self, names: pa.StringArray) -> BoolArray:
        """(n,) which of the names are allowed."""
        allowed: BoolArray = np.zeros(len(names), bool)
        if self.names:
            allowed |= bools(pc.is_in(names, value_set=pa.array(sorted(self.names))))
        if self.patterns:
            # RE2 takes time in proportion to the name's length, whatever the pattern.
            allowed |= bools(pc.match_substring_regex(names, pattern=_regex(self.patterns)))
        return allowed


@dataclass(frozen=True)
class SenderRules:
    """Rules for the names in a batch of n reports.

    >>> rules = SenderRules(named=pa.array([b"a", b"a", None]), source="key")
    >>> rules.of_other_brokers(np.arange(3), pa.array(["a", "b", "c"])).tolist()
    [False, True, True]
    """

    named: pa.BinaryArray | None = None
    """(n,) the broker that each report's key or topic names; None: the report's own name counts."""
    source: str = "payload"
    """``key`` or ``topic``: where ``named`` comes from."""
    allowed: AllowedBrokers | None = None
    """None: every name is."""

    def of_other_brokers(self, index: IntArray, names: pa.StringArray) -> BoolArray:
        """(m,) which of some reports name another broker than their key or topic.

        ``index`` has the m reports' indexes in the batch, ``names`` the brokers that they name.
        """
        if self.named is None:
            return np.zeros(len(index), bool)
        equal = pc.equal(self.named.take(pa.array(index)), names.cast(pa.binary()))
        other: BoolArray = ~bools(pc.fill_null(equal, False))
        return other

    def refusals(self, index: IntArray, names: pa.StringArray) -> list[Refusal]:
        """The reports that may not have their names; see ``of_other_brokers``."""
        if self.named is None and self.allowed is None:
            return []
        name_of = dict(zip(index.tolist(), names.to_pylist(), strict=True))
        other = self.of_other_brokers(index, names)
        unknown = np.zeros(len(index), bool)
        if self.allowed is not None:
            coded = names.dictionary_encode()
            unknown = ~self.allowed.of(coded.dictionary)[coded.indices.to_numpy()] & ~other

        def of_other(report: int) -> str:
            assert self.named is not None
            named = self.named[report].as_py()
            of = "names none" if named is None else f"names {shown(named.decode(errors='replace'))}"
            names = f"the report names the broker {shown(name_of[report])}"
            return f"{names}, but its {self.source} {of}"

        def not_allowed(report: int) -> str:
            patterns = self.allowed.text if self.allowed else ""
            return f"broker {shown(name_of[report])} is not one of allowed_brokers: {patterns}"

        return [
            Refusal(index[other], OTHER_BROKER, of_other),
            Refusal(index[unknown], BROKER_NOT_ALLOWED, not_allowed),
        ]


ANY_SENDER: Final = SenderRules()
"""A report counts for the broker that it names."""


def _regex(patterns: Iterable[str]) -> str:
    wild = {"*": ".*", "?": "."}
    translated = ("".join(wild.get(char) or re.escape(char) for char in one) for one in patterns)
    return f"(?s)^(?:{'|'.join(translated)})\\z"
