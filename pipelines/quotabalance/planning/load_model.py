"""From bundles to the use of machines: a linear model of each resource, and foreign load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.bundle_estimates import BundleEstimates
from quotabalance.planning.cluster_load import RESOURCES, ClusterLoad
from quotabalance.planning.options import BalanceOptions
from quotaplane.model import BoolArray, FloatArray, IntArray

CANDIDATES: Final = {
    "cpu": ((1.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "memory": ((1.0, 1.0, 0.0),),
    "directMemory": ((1.0, 1.0, 0.0),),
    "bandwidthIn": ((1.0, 0.0, 0.0),),
    "bandwidthOut": ((0.0, 1.0, 0.0),),
}
"""A resource's use may be proportional to one of these sums: weights of bytes in, bytes out and
messages. The best fit is taken."""

MEMORY_SAMPLES: Final = 10.0
"""Samples of a broker that its use per byte and its foreign load are averaged over."""

LOW_QUARTER: Final = 0.25
"""The use per byte is that of the broker a quarter up from the lowest: brokers above it may have
foreign load, and a few may be measured too low."""

ENOUGH: Final = 6
"""With fewer brokers the spread does not separate messages from foreign load: bytes are used."""

BARELY_USED: Final = 0.1
"""A broker with less than this share of the mean load shows what an idle machine uses."""

SMALLEST_FOREIGN: Final = 0.03
"""Foreign load counts from this share of a machine's limit on."""

FIRST_FOREIGN: Final = 0.06
"""The same when there is only one sample."""


SMALLEST_LIMIT: Final = 1e-6
"""A smaller limit of a machine counts as not known."""


@dataclass(frozen=True)
class MachineModel:
    """The learned model of the machines. B brokers in the order of ``brokers``, 5 resources."""

    brokers: tuple[str, ...]
    ratio: FloatArray
    """Shape (2, B, 5): use per unit of each candidate sum, above what an idle machine uses."""
    ratio_samples: FloatArray
    """Shape (B,): samples in ``ratio``; 0 = the broker had no load yet."""
    residual: FloatArray
    """Shape (B, 5): use that its bundles do not explain."""
    residual_variance: FloatArray
    """Shape (B, 5): of one sample of ``residual``."""
    residual_samples: FloatArray
    """Shape (B,)."""
    idle: FloatArray
    """Shape (5,): what an idle machine uses, in its unit."""

    @classmethod
    def empty(cls) -> MachineModel:
        """Nothing is known."""
        none = np.zeros((0, 5))
        nobody = np.zeros(0)
        return cls((), np.zeros((2, 0, 5)), nobody, none, none, nobody, np.zeros(5))

    def aligned(self, brokers: tuple[str, ...]) -> MachineModel:
        """The same for exactly these brokers."""
        if brokers == self.brokers:
            return self
        place = dict(zip(self.brokers, range(len(self.brokers)), strict=True))
        at = np.array([place.get(name, -1) for name in brokers], np.int64)
        known = at >= 0

        def take(old: FloatArray, axis: int) -> FloatArray:
            shape = list(old.shape)
            shape[axis] = len(at)
            new = np.zeros(shape)
            index = [slice(None)] * old.ndim
            index[axis] = known  # type: ignore[call-overload]
            new[tuple(index)] = np.take(old, at[known], axis)
            return new

        return MachineModel(
            brokers,
            take(self.ratio, 1),
            take(self.ratio_samples, 0),
            take(self.residual, 0),
            take(self.residual_variance, 0),
            take(self.residual_samples, 0),
            self.idle,
        )

    def learned(self, load: ClusterLoad, new: BoolArray) -> MachineModel:
        """Take in a new sample of the brokers that are marked in ``new``; shape (B,)."""
        if not new.any():
            return self
        sums = _sums(load)
        busy = new & (sums[0, :, 0] > 0) & (load.usage.max(axis=1) > 0)
        idle = self._idle(load, sums, new)
        above = np.maximum(load.usage - idle, 0)
        ratio = np.divide(above, sums, out=np.zeros_like(sums), where=sums > 0)
        count = np.where(busy, np.minimum(self.ratio_samples + 1, MEMORY_SAMPLES), 1)
        averaged = self.ratio + (ratio - self.ratio) / count[:, None]
        model = replace(
            self,
            idle=idle,
            ratio=np.where(busy[:, None], averaged, self.ratio),
            ratio_samples=np.where(busy, count, self.ratio_samples),
        )
        return model._with_residuals(load, sums, new)

    def _idle(self, load: ClusterLoad, sums: FloatArray, new: BoolArray) -> FloatArray:
        """The use of a machine without load: the line through a barely used broker and the median
        of the others, at 0; of several barely used brokers the least. At most half of what the
        least used of the others uses.
        """
        bytes_ = sums[0, :, 0]
        barely = new & (bytes_ < BARELY_USED * bytes_.mean()) & (load.usage.max(axis=1) > 0)
        busy = new & ~barely & (bytes_ > 0)
        if not (barely.any() and busy.any()):
            return self.idle
        carried, usage = np.median(sums[0, busy], axis=0), np.median(load.usage[busy], axis=0)
        share = sums[0, barely] / np.where(carried > 0, carried, np.inf)
        at_0 = (load.usage[barely] - share * usage) / (1 - np.minimum(share, 0.5))
        bound: FloatArray = np.minimum(np.maximum(at_0.min(axis=0), 0), load.usage[busy].min(0) / 2)
        return bound

    def _with_residuals(self, load: ClusterLoad, sums: FloatArray, new: BoolArray) -> MachineModel:
        per_unit, which = self.use_per_unit()
        explained = np.take_along_axis(sums, which[None, None, :], 0)[0] * per_unit + self.idle
        sample = load.usage - explained
        count = np.where(new, np.minimum(self.residual_samples + 1, MEMORY_SAMPLES), 1.0)
        step = 1 / count[:, None]
        change = sample - self.residual
        variance = (1 - step) * (self.residual_variance + step * change**2)
        first = (count == 1)[:, None]
        mark = new[:, None]
        return replace(
            self,
            residual=np.where(mark, self.residual + step * change, self.residual),
            residual_variance=np.where(mark & ~first, variance, self.residual_variance),
            residual_samples=np.where(new, count, self.residual_samples),
        )

    def use_per_unit(self) -> tuple[FloatArray, IntArray]:
        """Use of each resource per unit of load, and of which candidate sum; shape (5,) each.

        Of two candidate sums, that one counts whose ratios differ less between the brokers.
        """
        seen = self.ratio_samples > 0
        if not seen.any():
            return np.zeros(5), np.zeros(5, np.int64)
        ratio = self.ratio[:, seen]
        middle = np.median(ratio, axis=1)
        spread = np.median(np.abs(ratio - middle[:, None]), axis=1)
        relative = np.divide(spread, middle, out=np.full_like(spread, np.inf), where=middle > 0)
        # the second sum must fit clearly better, so that noise does not switch between them
        better = (relative[1] < 0.7 * relative[0] - 0.01) & (seen.sum() >= ENOUGH)
        which = better.astype(np.int64)
        low = np.quantile(ratio, LOW_QUARTER, axis=1, method="lower")
        return np.take_along_axis(low, which[None], 0)[0], which

    def foreign(self, limit: FloatArray) -> FloatArray:
        """Use of each machine that neither its bundles nor idling explain; shape (B, 5).

        Less than two standard errors, or than ``SMALLEST_FOREIGN`` of the limit, counts as none.
        """
        samples = np.maximum(self.residual_samples, 1)[:, None]
        error = np.sqrt(self.residual_variance / samples)
        sure = (self.residual > 2 * error) & (self.residual > SMALLEST_FOREIGN * limit)
        first = (self.residual_samples < 2)[:, None]  # its variance is not known
        sure &= ~first | (self.residual > FIRST_FOREIGN * limit)
        return np.where(sure, self.residual, 0)


class Workload(NamedTuple):
    """The quantities that the planner balances. B brokers, N bundles, R resources."""

    names: tuple[str, ...]
    """Names of the R resources."""
    need: FloatArray
    """Shape (N, R): use of each resource that a bundle takes along."""
    foreign: FloatArray
    """Shape (B, R): use that stays on the broker's machine."""
    capacity: FloatArray
    """Shape (B, R)."""
    idle: FloatArray
    """Shape (R,): what an idle machine uses; it is in no other number here."""
    per_unit: FloatArray
    """Shape (3, R): use for each byte in, byte out and message."""
    has_limits: bool
    """Capacities are those of machines; otherwise only weights."""


def workload(
    load: ClusterLoad,
    estimates: BundleEstimates,
    model: MachineModel,
    live: BoolArray,
    weights: FloatArray,
    options: BalanceOptions,
) -> Workload:
    """The resources that can be balanced: their limits are known, and bundles use them.

    Without any, bytes per second are balanced, and each broker's capacity is its weight.

    Args:
        load: names are sorted.
        estimates: of the same bundles.
        model: of the same brokers.
        live: shape (B,): brokers whose numbers count.
        weights: shape (B,): configured capacities.
        options: which resources matter.
    """
    features = np.empty((len(load.bundles), 3))
    features[:, 0] = estimates.mean * estimates.share_in
    features[:, 1] = estimates.mean - features[:, 0]
    features[:, 2] = estimates.mean * estimates.messages_per_byte
    per_unit, which = model.use_per_unit()
    columns = [RESOURCES.index(name) for name in options.resources]
    columns = [
        r
        for r in columns
        if live.any() and (load.limit[live, r] > SMALLEST_LIMIT).all() and per_unit[r] > 0
    ]
    if not columns:
        both = np.array([[1.0], [1.0], [0.0]])
        zeros = np.zeros((len(weights), 1))
        return Workload(
            ("throughput",), features @ both, zeros, weights[:, None], np.zeros(1), both, False
        )
    names = tuple(RESOURCES[r] for r in columns)
    use = np.zeros((3, len(columns)))
    for column, r in enumerate(columns):
        use[:, column] = per_unit[r] * np.array(CANDIDATES[RESOURCES[r]][which[r]])
    capacity = load.limit[:, columns] * weights[:, None]
    return Workload(
        names, features @ use, model.foreign(load.limit)[:, columns], capacity,
        model.idle[columns], use, True,
    )  # fmt: skip


def _sums(load: ClusterLoad) -> FloatArray:
    """Shape (2, B, 5): each broker's candidate sums of each resource; a missing one is 0."""
    rates = load.rates
    features = [rates[:, 0], rates[:, 1], rates[:, 2] + rates[:, 3]]
    brokers = len(load.brokers)
    totals = np.array([np.bincount(load.owner, column, brokers) for column in features])
    sums = np.zeros((2, brokers, len(RESOURCES)))
    for r, name in enumerate(RESOURCES):
        for place, weights in enumerate(CANDIDATES[name]):
            sums[place, :, r] = np.array(weights) @ totals
    return sums
