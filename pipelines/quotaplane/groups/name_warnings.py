"""Names of groups and brokers that are allowed, and that hardly any report will have.

A quota under such a name silently has no effect.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.groups.names import called, is_copy, original_of
from quotaplane.groups.scope import FORMS, is_scope
from quotaplane.groups.terms_by_broker import ALL_BROKERS, read_terms
from quotaplane.model import BoolArray

_INVISIBLE: Final = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U0001d159\U000e0100-\U000e01ef"
)
"""Printable characters that are not seen; other ones can't be in a name."""
_FLAWED: Final = re.compile(f"^ | $| ::|:: |[{_INVISIBLE}]")
_ALMOST_SCOPE: Final = re.compile(
    r"\s*((user|client)([-_ ]?(name|id|principal))?|principal|ip)\s*=", re.IGNORECASE
)
_ALPHABETS: Final = ("LATIN", "GREEK", "CYRILLIC")
"""Those that have letters which look alike."""


def name_warnings(groups: pa.StringArray, concerned: BoolArray) -> Iterator[str]:
    """A line about each of the ``concerned`` (n,) names that is doubtful, given all n names.

    >>> names = pa.array(["acme", "Acme", "acme/*"])
    >>> [line[:38] for line in name_warnings(names, np.array([False, True, True]))]
    ["group 'acme/*': is no pattern, but one", "group 'Acme': differs from 'acme' only"]
    """
    doubtful = set()
    for place in np.flatnonzero(concerned).tolist():
        doubt = _doubt(groups[place].as_py())
        if doubt is not None:
            doubtful.add(place)
            yield f"{called(groups[place].as_py())}: {doubt}"
    for place, other in _twins(groups, concerned):
        if place not in doubtful:
            yield (
                f"{called(groups[place].as_py())}: differs from {groups[other].as_py()!a} "
                "only in case, or in what can't be seen: reports that name one don't count for "
                "the other"
            )


def broker_warnings(group: str, terms: str | None) -> Iterator[str]:
    """A line about each broker in the column ``brokers`` of a group whose name is doubtful.

    >>> [line] = broker_warnings("a", '{"b*": {"weight": 2.0}, "*": {"priority": 1}}')
    >>> print(line)
    group 'a': brokers: 'b*': is no pattern, but one broker's name: only '*' alone stands for all
    """
    for broker in read_terms(terms) if terms else ():
        if broker == ALL_BROKERS:
            continue
        doubt = _spelling_doubt(broker)
        if _has_wildcard(broker):
            doubt = "is no pattern, but one broker's name: only '*' alone stands for all"
        if doubt is not None:
            yield f"{called(group)}: brokers: {broker!r}: {doubt}"


def _doubt(name: str) -> str | None:
    if _ALMOST_SCOPE.match(name) and not is_scope(name):
        return f"looks like a scope and is none: a scope is {FORMS}"
    if is_copy(name):
        return (
            f"is how a Pulsar cluster keeps the quota of {original_of(name)!r} while the enforcer "
            "has it: no broker reports it"
        )
    if _has_wildcard(name):
        return "is no pattern, but one group's name: only reports that name it so count"
    return _spelling_doubt(name)


def _has_wildcard(name: str) -> bool:
    return "*" in name or "?" in name


def _spelling_doubt(name: str) -> str | None:
    found = _FLAWED.search(name)
    if found is not None and found[0].strip(" :"):
        return f"has an invisible character: {name!a}"
    if found is not None:
        return "has a space at an end: only reports that name it so count"
    if name.isascii():
        return None
    composed = unicodedata.normalize("NFC", name)
    if composed != name:
        return f"is {name!a}, and most programs write {composed!a} (Unicode's NFC)"
    alphabets = {unicodedata.name(letter, "").split(" ")[0] for letter in name if letter.isalpha()}
    mixed = [alphabet.capitalize() for alphabet in _ALPHABETS if alphabet in alphabets]
    if len(mixed) > 1:
        return f"has letters of {' and '.join(mixed)}, which look alike: {name!a}"
    return None


def _twins(groups: pa.StringArray, concerned: BoolArray) -> Iterator[tuple[int, int]]:
    """Places of concerned names, and for each that of another name that looks like it."""
    seen = pc.replace_substring_regex(groups, f"[{_INVISIBLE}]", "")
    seen = pc.utf8_trim_whitespace(pc.utf8_lower(pc.utf8_normalize(seen, "NFKC")))
    concerned_ones = seen.filter(pa.array(concerned))
    alike: defaultdict[str, list[int]] = defaultdict(list)
    among = pc.is_in(seen, value_set=concerned_ones).to_numpy(zero_copy_only=False)
    for place in np.flatnonzero(among).tolist():
        alike[seen[place].as_py()].append(place)
    for places in alike.values():
        for place in places if len(places) > 1 else ():
            if concerned[place]:
                yield place, next(other for other in places if other != place)
