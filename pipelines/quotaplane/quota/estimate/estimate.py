"""The estimator's entry: what m report entries measured becomes the demand of n leases.

A lease's entries are used one by one, in the order in which they were measured: each is a window
(``window.Window``) that ``demand.learn`` compares with what was known before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from quotaplane.arrays import map_arrays, to_single
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.quota.estimate.demand import learn
from quotaplane.quota.estimate.demand_estimates import Estimates
from quotaplane.quota.estimate.noise import noise_of_groups, prior_noise
from quotaplane.quota.estimate.window import Measurements, window_of

_BLOCK: Final = 8192
"""Leases at once: for 4 dimensions twice as fast as all of them (measured), as the intermediate
arrays stay in the CPU's cache."""


class Known(NamedTuple):
    """The estimates of n leases, with the usage that they begin from."""

    usage: FloatArray
    """(d, n) per second, in the newest window."""
    estimates: Estimates
    """(d, n) the demand."""
    reports_refused: BoolArray
    """(n,) the broker reports what it refuses or delays."""


class Surroundings(NamedTuple):
    """The dimensions and the groups of n leases."""

    dimensions: tuple[int, ...]
    """The d dimensions, as indexes in ``model.DIMENSIONS``."""
    group: IntArray
    """(n,) index of the lease's group."""
    small_limit: FloatArray
    """(d, g) limits that are small for a broker of the group, per second; see ``Window``."""


def estimate(
    known: Known,
    lease_index: IntArray,
    measured: Measurements,
    around: Surroundings,
) -> Known:
    """Update the estimates with the measurements of m report entries.

    Args:
        known: the estimates before; the arrays stay as they are.
        lease_index: (m,) each entry's lease, ascending; entries of one lease are sorted by time.
        measured: the m entries.
        around: the leases' groups.
    """
    if not len(lease_index):
        return known
    noise = noise_of_groups(known.estimates.noise, around.group, around.small_limit.shape[1])
    after = Known(
        known.usage.copy(), map_arrays(np.copy, known.estimates), known.reports_refused.copy()
    )
    for leases, entries in _one_each(lease_index, measured, len(around.group)):
        for begin in range(0, len(entries.window_ms), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            at = block if isinstance(leases, slice) else leases[block]
            _learn(after, at, entries.take(block), noise[:, around.group[at]], around)
    return after


def _one_each(
    lease_index: IntArray, measured: Measurements, leases: int
) -> Iterator[tuple[IntArray | slice, Measurements]]:
    """The leases and their first entries, then the second ones of those that have more, ..."""
    begin = np.flatnonzero(np.diff(lease_index, prepend=-1))
    if len(begin) == len(lease_index):
        # The usual case, one entry for every lease, needs no index arrays.
        yield (slice(None) if len(begin) == leases else lease_index), measured
        return
    count = np.diff(begin, append=len(lease_index))
    number = np.arange(len(lease_index)) - np.repeat(begin, count)
    for each in range(int(count.max())):
        chosen = number == each
        yield lease_index[chosen], measured.take(chosen)


def _learn(
    known: Known,
    at: IntArray | slice,
    measured: Measurements,
    noise_of_group: FloatArray,
    around: Surroundings,
) -> None:
    """Update ``known``, in place, with one entry for each of the m leases ``at``.

    ``noise_of_group`` (d, m): of the group of each.
    """
    before = known.estimates.take(at)
    noise = prior_noise(before.noise, noise_of_group, measured)
    small_limit = around.small_limit[:, around.group[at]]
    window = window_of(measured, known.usage[:, at], small_limit, around.dimensions)
    after = learn(before.with_noise(noise), window)
    unchanged, counted = np.isnan(measured.usage), ~np.isnan(measured.throttled)
    # Refusals must be reported in all dimensions: a broker that reports them gets little headroom,
    # so in a dimension without them it could not show that it wants more.
    reports_refused = counted.any(axis=0) & (counted | unchanged).all(axis=0)
    reports_refused |= known.reports_refused[at] & unchanged.all(axis=0)
    if unchanged.any():
        # If the broker reports refusals, "unchanged" covers them, too: the estimate stays.
        after = before.where(unchanged & reports_refused, after)
    known.usage[:, at] = window.usage
    known.estimates.put(
        at, replace(after, demand=to_single(after.demand), old_demand=to_single(after.old_demand))
    )
    known.reports_refused[at] = reports_refused
