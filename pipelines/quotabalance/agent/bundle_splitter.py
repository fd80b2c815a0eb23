"""Splits one bundle at given positions, or where its topics' traffic divides evenly."""

from __future__ import annotations

import asyncio
from typing import Final

import numpy as np

from quotabalance.agent.cluster_view import ClusterView
from quotabalance.planning.decisions import Split
from quotabalance.planning.split_positions import split_positions
from quotabalance.pulsar_admin.bundle_actions import bundle_bounds, split, topic_weights
from quotaplane.errors import ClusterError, InputError
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.topics.bundle_names import BundleName, parse_bundle

_BY_TOPICS: Final = ("Topics", "Sessions")
"""Labels of splits whose parts are to have equally many topics, not bytes."""
_LOOKS: Final = 25
_LOOK_EVERY_S: Final = 0.2


async def split_bundle(
    rest: Rest, wanted: Split, view: ClusterView, timeout_s: float
) -> tuple[int, ...]:
    """Split a bundle, and check that the new bundles are there; returns the boundaries.

    Without boundaries they are computed from the topics that the owner has loaded.

    Raises:
        ClusterError: it can't be split, or it is uncertain whether it was.
    """
    bundle = parse_bundle(wanted.bundle)
    bounds = await bundle_bounds(rest, bundle.namespace)
    inside = [bound for bound in bounds if bundle.low < bound < bundle.high]
    if wanted.boundaries and set(wanted.boundaries) <= set(inside):
        return wanted.boundaries  # an earlier run did it
    if inside or bundle.low not in bounds or bundle.high not in bounds:
        raise ClusterError(f"bundle {wanted.bundle}: was split or merged already")
    boundaries = wanted.boundaries
    if not boundaries:
        hashes, weights = await topic_weights(rest, wanted.bundle, view.addresses[wanted.owner].url)
        if wanted.label in _BY_TOPICS:
            weights = np.ones(len(hashes))
        try:
            boundaries = split_positions(bundle, hashes, weights)
        except InputError as error:
            raise ClusterError(str(error)) from None
        if not boundaries:
            raise ClusterError(
                f"bundle {wanted.bundle}: has fewer than two topics, so no split divides it"
            )
    # The extensible manager refuses to make more than two bundles at once.
    one_by_one = view.settings[wanted.owner].extensible
    steps = [(boundary,) for boundary in sorted(boundaries)] if one_by_one else [boundaries]
    for made, step in enumerate(steps):
        try:
            await _split_and_look(rest, bundle, step, timeout_s, tries=_LOOKS if made else 1)
        except ClusterError as error:
            done = f"{made} of {len(steps)} boundaries made: " if made else ""
            raise ClusterError(f"{done}{error}") from None
        bundle = bundle._replace(low=step[-1])
    return boundaries


async def _split_and_look(
    rest: Rest, bundle: BundleName, boundaries: tuple[int, ...], timeout_s: float, tries: int
) -> None:
    """One step; in several ``tries``, as a broker may not know a bundle yet that the step before
    has made, though the namespace has its bounds.
    """
    for left in reversed(range(tries)):
        try:
            await split(rest, str(bundle), boundaries, timeout_s)
            break
        except RefusedError:
            if not left:
                raise
            await asyncio.sleep(_LOOK_EVERY_S)
    for _ in range(_LOOKS):
        if set(boundaries) <= set(await bundle_bounds(rest, bundle.namespace)):
            return
        await asyncio.sleep(_LOOK_EVERY_S)
    raise ClusterError(f"bundle {bundle}: Pulsar accepted the split, but did not make it")
