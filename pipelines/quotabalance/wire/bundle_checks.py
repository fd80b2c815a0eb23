"""Checks the bundles of load reports: names, repetitions, rates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quotabalance.planning.cluster_load import RATES
from quotaplane.errors import InputError
from quotaplane.model import FloatArray, IntArray
from quotaplane.topics.bundle_names import BundleName, parse_bundle
from quotaplane.wire.reasons import ABSURD, BAD_BUNDLE, NEGATIVE, NOT_FINITE, shown

REASON_OF_FLAW: Final = ("", ABSURD, NOT_FINITE, NEGATIVE, BAD_BUNDLE)
"""Defects of a bundle's entry; the code is the index here, and the highest one counts."""

MOST_NAME_CHARS: Final = 1024
_NAMESPACE: Final = "[-=:.0-9A-Za-z_]+(/[-=:.0-9A-Za-z_]+)+"
"""Pulsar's names have no other characters, so a bundle's name is harmless in paths of its REST
API, in logs and on terminals."""
_DOTS: Final = r"(^|/)\.\.?/"
"""Parts of a name that have another meaning in a path."""
_USUAL: Final = rf"^{_NAMESPACE}/0x[0-9a-f]{{8}}_0x[0-9a-f]{{8}}$"
"""Names as Pulsar writes them; others are looked at one by one."""
_MOST_SHOWN: Final = 5
FlawArray = npt.NDArray[np.uint8]


def check_name(name: str) -> BundleName:
    """Read a bundle's name that may come from anywhere.

    Raises:
        InputError: Pulsar has no bundle of this name.

    >>> check_name("a/b/0x00000000_0xFFFFFFFF").namespace
    'a/b'
    """
    if len(name) > MOST_NAME_CHARS:
        raise InputError(f"a bundle's name has more than {MOST_NAME_CHARS} characters")
    bundle = parse_bundle(name)
    if not re.fullmatch(_NAMESPACE, bundle.namespace) or re.search(_DOTS, name):
        raise InputError(f"{shown(name, 100)} is not a bundle of Pulsar's: its namespace can't be")
    return bundle


def canonical_names(names: pa.StringArray) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
    """Bundles' names as Pulsar writes them, and which of them are unusable.

    >>> names, bad = canonical_names(pa.array(["a/b/0x00000000_0xFFFFFFFF", "a/b", "a/b/0x1_0x2"]))
    >>> names[0].as_py(), bad.tolist()
    ('a/b/0x00000000_0xffffffff', [False, True, True])
    """
    length = pc.binary_length(names)
    usual = pc.and_(pc.match_substring_regex(names, _USUAL), pc.less_equal(length, MOST_NAME_CHARS))
    low, high = pc.utf8_slice_codeunits(names, -19, -11), pc.utf8_slice_codeunits(names, -8)
    usual = pc.and_(usual, pc.less(low, high))
    usual = pc.and_not(usual, pc.match_substring_regex(names, _DOTS))
    odd = np.flatnonzero(~usual.to_numpy(zero_copy_only=False))
    bad = np.zeros(len(names), bool)
    if not len(odd):
        return names, bad
    texts = names.to_pylist()
    for place in odd.tolist():
        name = texts[place]
        try:
            texts[place] = str(check_name(name))
        except InputError:
            bad[place] = True
    return pa.array(texts, pa.string()), bad


def flaws_of_bundles(
    report: IntArray, names: pa.StringArray, rates: FloatArray, most_per_s: float
) -> tuple[pa.StringArray, FlawArray]:
    """Canonical names of n bundles' entries, and each entry's code, 0 if it is usable.

    Args:
        report: (n,) index of the report that has the entry.
        names: (n) as reported.
        rates: (n, 4).
        most_per_s: a higher rate is absurd.
    """
    names, bad = canonical_names(names)
    codes = np.zeros(len(names), np.uint8)
    # NaN compares false, so it is not between the bounds either.
    if not ((rates >= 0) & (rates <= most_per_s)).all():
        for flaw, wrong in (
            (ABSURD, rates > most_per_s),
            (NOT_FINITE, ~np.isfinite(rates)),
            (NEGATIVE, rates < 0),
        ):
            codes[wrong.any(axis=1)] = REASON_OF_FLAW.index(flaw)
    codes[bad | _repeated(report, names)] = REASON_OF_FLAW.index(BAD_BUNDLE)
    return names, codes


def _repeated(report: IntArray, names: pa.StringArray) -> npt.NDArray[np.bool_]:
    """The entries of a bundle that an earlier entry of the same report is about."""
    code = names.dictionary_encode().indices.to_numpy().astype(np.int64)
    key = report * (len(names) + 1) + code
    _, first = np.unique(key, return_index=True)
    repeated = np.ones(len(key), bool)
    repeated[first] = False
    return repeated


def describe_flaws(
    names: Sequence[str],
    rates: FloatArray,
    codes: FlawArray,
    most_per_s: float,
    *,
    bad: int,
    size: int,
) -> str:
    """The detail of a dead letter about the ``bad`` ones of a report's ``size`` bundles, of which
    at least the first few are given.
    """
    texts = []
    first = zip(names[:_MOST_SHOWN], rates, codes.tolist(), strict=False)
    for name, row, code in first:
        if REASON_OF_FLAW[code] == BAD_BUNDLE:
            texts.append(f"{shown(name, 100)} is not a bundle, or listed twice")
            continue
        wrong = int(np.flatnonzero(~((row >= 0) & (row <= most_per_s)))[0])
        texts.append(f"{shown(name, 100)}: {RATES[wrong]} is {row[wrong]:g}")
    more = f", and {bad - _MOST_SHOWN} more" if bad > _MOST_SHOWN else ""
    return f"{bad} of {size} bundles: {', '.join(texts)}{more}"
