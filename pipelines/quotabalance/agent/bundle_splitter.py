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
_UNDIVIDED: Final = "not found under namespace"
"""The extensible manager's words if its algorithm finds no boundary, though the bundle is there."""
_LOOKS: Final = 25
_LOOK_EVERY_S: Final = 0.2


async def split_bundle(
    rest: Rest, wanted: Split, view: ClusterView, timeout_s: float
) -> tuple[int, ...]:
    """Split a bundle, and check that the new bundles are there; returns the boundaries made.

    Without boundaries they are computed from the topics that the owner has loaded. The extensible
    manager makes no further ones as soon as the rest of the bundle has fewer than two topics.

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
    made: tuple[int, ...] = ()
    for step in steps:
        try:
            await _split_and_look(rest, bundle, step, timeout_s)
        except _TooFewTopicsError:
            if not made:
                raise
            break  # the topics are apart already: further parts would be empty
        except ClusterError as error:
            done = f"{len(made)} of {len(boundaries)} boundaries made: " if made else ""
            raise ClusterError(f"{done}{error}") from None
        made += step
        bundle = bundle._replace(low=step[-1])
    return made


async def _split_and_look(
    rest: Rest, bundle: BundleName, boundaries: tuple[int, ...], timeout_s: float
) -> None:
    try:
        await split(rest, str(bundle), boundaries, timeout_s)
    except RefusedError as error:
        if _UNDIVIDED in str(error):
            raise _TooFewTopicsError(
                f"bundle {bundle}: Pulsar does not split a bundle that has fewer than two topics"
            ) from None
        raise
    for _ in range(_LOOKS):
        if set(boundaries) <= set(await bundle_bounds(rest, bundle.namespace)):
            return
        await asyncio.sleep(_LOOK_EVERY_S)
    raise ClusterError(
        f"bundle {bundle}: Pulsar accepted the split, but did not make it; the modular manager "
        f"does so if the bundle has fewer than two topics"
    )


class _TooFewTopicsError(ClusterError):
    """The bundle has not two topics, so there is nothing to divide."""
