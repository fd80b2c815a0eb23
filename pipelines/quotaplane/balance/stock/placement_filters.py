"""Filters that both of Pulsar's managers use before they choose a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from quotaplane.model import BoolArray, IntArray


def domain_codes(brokers: Sequence[str], domains: Mapping[str, Sequence[str]]) -> IntArray:
    """Each broker's failure domain as a number; shape (B,), or (0,) if there are no domains.

    Brokers that are in no domain are together in one, ``default``.

    >>> domain_codes(["b1", "b2", "b3"], {"rack 1": ["b2"]}).tolist()
    [0, 1, 0]
    """
    of_broker = {broker: name for name, members in domains.items() for broker in members}
    if not of_broker:
        return np.zeros(0, np.int64)
    codes: dict[str, int] = {}
    names = (of_broker.get(broker, "default") for broker in brokers)
    return np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)


def apart(candidates: BoolArray, held: IntArray, domains: IntArray) -> BoolArray:
    """The candidates with the least of an anti-affinity group; shapes (B,).

    First only the failure domains are kept whose candidates together hold the least, then only the
    brokers that hold the least (``LoadManagerShared.filterAntiAffinityGroupOwnedBrokers``).

    Args:
        candidates: brokers that may be chosen.
        held: how much of the group each broker holds.
        domains: ``domain_codes``; (0,) = none.

    >>> held, domains = np.array([2, 1, 2, 1, 2, 2]), np.array([0, 0, 1, 1, 2, 2])
    >>> apart(np.ones(6, bool), held, domains).tolist()
    [False, True, False, True, False, False]
    """
    if not candidates.any():
        return candidates
    if len(domains):
        together = np.bincount(domains[candidates], held[candidates], domains.max() + 1)
        least = together[domains[candidates]].min()
        candidates = candidates & (together[domains] == least)
    found: BoolArray = candidates & (held == held[candidates].min())
    return found
