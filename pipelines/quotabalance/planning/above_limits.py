"""Which bundles have more than a bundle may have, as far as noise lets it be known. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quotabalance.planning.bundle_estimates import BundleEstimates
from quotabalance.planning.bundle_limits import LIMIT_LABELS, WITHIN
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.options import BalanceOptions


class AboveLimit(NamedTuple):
    """A bundle that has more than a bundle may have."""

    bundle: int
    """Its place."""
    times: float
    """Its amount divided by the limit."""
    label: str
    text: str
    """Its amount and the limit, for a reason."""


def above_limits(
    load: ClusterLoad, estimates: BundleEstimates, options: BalanceOptions
) -> list[AboveLimit]:
    """The bundles that have more than a bundle may have, those with the most first.

    Rates must exceed a limit beyond noise: by ``noise_z`` standard errors, in the mean of at least
    ``confirm_samples`` samples. Where topics are not counted, a bundle may have many.
    """
    limits, bundles = options.bundle_limits, len(load.bundles)
    topics = load.topics if len(load.topics) else np.full(bundles, 2)
    sessions = load.sessions if len(load.sessions) else np.zeros(bundles, np.int64)
    sizes, messages = estimates.mean, estimates.mean * estimates.messages_per_byte
    certain = 1 - options.noise_z * np.sqrt(estimates.squared_error())
    certain[estimates.samples < options.confirm_samples] = 0.0
    found = limits.exceeded(topics, sessions, sizes * certain, messages * certain)
    at = np.flatnonzero(found < WITHIN)
    amounts = np.stack([topics, sessions, messages, sizes])[found[at], at]
    times = amounts / np.array(limits)[found[at]]
    above = []
    for i in np.argsort(-times, kind="stable").tolist():
        limit = int(found[at[i]])
        text = f"{amounts[i]:.6g}, {limits.text(limit)}"
        above.append(AboveLimit(int(at[i]), float(times[i]), LIMIT_LABELS[limit], text))
    return above
