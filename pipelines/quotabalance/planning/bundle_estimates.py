"""The load of each bundle, estimated from noisy samples, and its uncertainty."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

import numpy as np

from quotabalance.planning.child_bundles import children_of, guessed_loads
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.options import KEPT_SAMPLES
from quotaplane.model import BoolArray, FloatArray, IntArray

WINDOWS: Final = ((4, 3.2), (2, 3.8), (1, 4.5))
"""Windows (samples, standard errors): the latest samples are compared with the mean before, and a
larger difference is a change of load. A long window sees small changes, a short one big ones."""

BROKER_WINDOWS: Final = ((4, 4.0), (2, 4.3), (1, 4.8))
"""The same for all bundles of a broker together: a wrong change of theirs makes bundles move."""

DRIFT_FROM: Final = 6
"""Least samples of a bundle that drift is estimated from."""

DRIFT_BUNDLES: Final = 30
"""Drift is not estimated from fewer bundles than this."""

DRIFT_BOUND: Final = 5.0
"""Drift explains a mean squared difference that is above 1 by this many standard errors."""

DRIFT_SAMPLES: Final = 20.0
"""Number of samples after drift was seen in which loads are means of the latest 4."""

MEMORY_SAMPLES: Final = 30
"""A bundle's load is the mean of at most this many samples; fewer after its load has changed."""

NOISE_PRIOR: Final = 0.5
"""Relative standard deviation of a bundle's samples that is assumed before it is measured."""

SMALLEST_NOISE: Final = 0.02
"""Relative standard deviation of samples that is always assumed."""

BUNDLE_PRIOR_SAMPLES: Final = 4.0
"""The weight of the cluster's noise, in samples of a bundle's own."""

CLUSTER_PRIOR_SAMPLES: Final = 20.0
"""The weight of ``NOISE_PRIOR``, in samples of the cluster."""


@dataclass(frozen=True)
class BundleEstimates:
    """Estimates of N bundles. Loads are bytes per second, in and out together."""

    names: tuple[str, ...]
    latest: FloatArray
    """Shape (4, N): the latest samples, the newest first; nan = there was none."""
    mean: FloatArray
    """Shape (N,): mean of the latest ``samples`` samples."""
    samples: FloatArray
    """Shape (N,): how many samples ``mean`` is of; few after a change of load, 0 = a guess."""
    squares: FloatArray
    """Shape (N,): sum of squared relative deviations of samples from the mean before them."""
    deviations: FloatArray
    """Shape (N,): how many deviations ``squares`` is the sum of."""
    share_in: FloatArray
    """Shape (N,): the share of its bytes that comes in."""
    messages_per_byte: FloatArray
    """Shape (N,): messages, in and out together, for each byte."""
    short: FloatArray
    """(N,) samples for which ``mean`` is of the latest 4 only, as loads drift."""
    owner: FloatArray
    """Shape (N,): CRC-32 of the name of the broker that the latest sample is of."""

    @classmethod
    def empty(cls) -> BundleEstimates:
        """Estimates of no bundles."""
        none = np.zeros(0)
        return cls((), np.zeros((KEPT_SAMPLES, 0)), none, none, none, none, none, none, none, none)

    def relative_variance(self) -> FloatArray:
        """Variance of one sample divided by the squared mean; shape (N,).

        A bundle's own deviations are few, so the cluster's are mixed in.
        """
        prior = NOISE_PRIOR**2
        total = self.squares.sum() + CLUSTER_PRIOR_SAMPLES * prior
        pooled = total / (self.deviations.sum() + CLUSTER_PRIOR_SAMPLES)
        own = (self.squares + BUNDLE_PRIOR_SAMPLES * pooled) / (
            self.deviations + BUNDLE_PRIOR_SAMPLES
        )
        variance: FloatArray = np.maximum(own, SMALLEST_NOISE**2)
        return variance

    def squared_error(self) -> FloatArray:
        """Squared standard error of ``mean`` divided by its square; shape (N,)."""
        square: FloatArray = self.relative_variance() / np.maximum(self.samples, 1)
        return square

    def aligned(self, load: ClusterLoad) -> tuple[BundleEstimates, BoolArray]:
        """The estimates of exactly the bundles of ``load``, and which of them were known before.

        A bundle that is new starts with its load as its only sample; parts of a bundle that was
        split start without a sample at the load that this had, if they seem to carry much less.
        """
        names = tuple(load.bundles)
        if names == self.names:
            return self, np.ones(len(names), np.bool_)
        first = _first(load)
        if not self.names:
            return first, np.zeros(len(names), np.bool_)
        place = dict(zip(self.names, range(len(self.names)), strict=True))
        at = np.fromiter((place.get(name, -1) for name in names), np.int64, len(names))
        known = at >= 0
        merged = [
            np.where(known, getattr(self, name)[..., at], getattr(first, name)) for name in COLUMNS
        ]
        all_ = BundleEstimates(names, *merged)
        return (all_ if known.all() else all_._with_children(self, load, known)), known

    def _with_children(
        self, before: BundleEstimates, load: ClusterLoad, known: BoolArray
    ) -> BundleEstimates:
        """Guess the loads of new bundles that were not measured for a whole period yet."""
        places = np.flatnonzero(~known).tolist()
        mine, new = set(self.names), [self.names[place] for place in places]
        heirs = children_of([name for name in before.names if name not in mine], new)
        carried = dict(zip(before.names, before.mean.tolist(), strict=True)) if heirs else {}
        mean, samples, latest = self.mean.copy(), self.samples.copy(), self.latest.copy()
        for old, parts in heirs.items():
            at = np.array([places[part] for part in parts])
            topics = load.topics[at] if len(load.topics) else load.topics
            names = [new[part] for part in parts]
            loads = guessed_loads(carried[old], self.mean[at], names, topics, old)
            if loads is not None:
                mean[at], latest[:, at], samples[at] = loads, np.nan, 0
        return replace(self, mean=mean, samples=samples, latest=latest)

    def guessed(self) -> BoolArray:
        """Bundles whose loads were never measured; shape (N,)."""
        none: BoolArray = self.samples < 1
        return none

    def handed_over(self, load: ClusterLoad) -> BoolArray:
        """Brokers that a bundle came to or left since its latest sample; shape (B,).

        The use of such a machine was measured with other bundles than are reported now.
        """
        if not self.names:
            return np.zeros(len(load.brokers), np.bool_)
        now, _ = self.aligned(load)
        brokers = _codes(load.brokers)
        arrived = now.owner != brokers[load.owner]
        new = set(load.bundles).difference(self.names)
        arrived |= np.array([name in new for name in load.bundles], np.bool_) if new else False
        gone = set(self.names).difference(load.bundles)
        left = [self.owner[place] for place, name in enumerate(self.names) if name in gone]
        received = np.bincount(load.owner, arrived, len(brokers)) > 0
        return received | np.isin(brokers, [*now.owner[arrived], *left])

    def lost_at_s(
        self,
        load: ClusterLoad,
        known: BoolArray,
        measured_at_s: FloatArray,
        ordered: Container[str],
    ) -> FloatArray:
        """When another broker measured a bundle that has left a broker since its latest sample,
        though that was not ordered; shape (B,), -inf = none has.

        Args:
            load: with the same bundles as these estimates.
            known: as of ``aligned``.
            measured_at_s: shape (B,): of the brokers' numbers.
            ordered: bundles with an order.
        """
        brokers = _codes(load.brokers)
        left = np.flatnonzero(known & (self.owner != brokers[load.owner]))
        own = [place for place in left.tolist() if load.bundles[place] not in ordered]
        lost: FloatArray = np.full(len(brokers), -np.inf)
        if own:
            order, loser = np.argsort(brokers), self.owner[own]
            at = np.searchsorted(brokers, loser, sorter=order)
            at = order[np.minimum(at, len(order) - 1)]
            known_loser = brokers[at] == loser
            np.maximum.at(lost, at[known_loser], measured_at_s[load.owner[own]][known_loser])
        return lost

    def taken(self, places: Sequence[int]) -> BundleEstimates:
        """The estimates of some bundles only, in the order of their places."""
        at = np.array(places, np.int64)
        names = tuple(self.names[place] for place in places)
        return BundleEstimates(names, *(getattr(self, name)[..., at] for name in COLUMNS))

    def joined(self, others: BundleEstimates) -> BundleEstimates:
        """These and other bundles; of a bundle that is in both, these."""
        mine = set(self.names)
        rest = others.taken([i for i, name in enumerate(others.names) if name not in mine])
        if not rest.names:
            return self
        return BundleEstimates(
            self.names + rest.names,
            *(np.concatenate([getattr(self, n), getattr(rest, n)], axis=-1) for n in COLUMNS),
        )

    def sampled(self, load: ClusterLoad, new: BoolArray) -> BundleEstimates:
        """Take in one more sample of the bundles that are marked in ``new``.

        Args:
            load: with the same bundles as these estimates.
            new: shape (N,): the bundle's load was measured anew.

        Returns:
            The mean of the latest samples since each bundle's load has changed.
        """
        if not new.any():
            return self
        sample, owner = load.throughput(), _owners(load)
        # Clients connect again after a move, so the first sample on another broker may be too low.
        arrived = new & (owner != self.owner)
        owner = np.where(new, owner, self.owner)
        new = new & ~(arrived & (sample < self.mean))
        latest = np.where(new, np.vstack([sample, self.latest[:-1]]), self.latest)
        window, changed = self._changes(latest, load, new)
        short = np.maximum(self.short - 1, 0)
        if self._drifting(latest, new & ~changed):
            short[:] = DRIFT_SAMPLES
        recent = new & ~changed & (short > 0) & (self.samples >= KEPT_SAMPLES)
        window[recent] = KEPT_SAMPLES
        changed |= recent
        count = np.where(changed, window, np.minimum(self.samples + 1, MEMORY_SAMPLES))
        means = np.cumsum(latest, axis=0) / np.arange(1, KEPT_SAMPLES + 1)[:, None]
        of_window = means[window - 1, np.arange(len(window))]
        mean = np.where(changed, of_window, self.mean + (sample - self.mean) / count)
        squares, deviations = self._noise(sample, new & (~changed | recent))
        share, per_byte = _mix(load, sample)
        weight = np.where(new & (sample > 0), 1 / np.minimum(count, 10), 0)
        return replace(
            self,
            latest=latest,
            mean=np.where(new, mean, self.mean),
            samples=np.where(new, count, self.samples),
            squares=squares,
            deviations=deviations,
            share_in=self.share_in + weight * (share - self.share_in),
            messages_per_byte=self.messages_per_byte + weight * (per_byte - self.messages_per_byte),
            short=np.where(new, short, self.short),
            owner=owner,
        )

    def _drifting(self, latest: FloatArray, rest: BoolArray) -> bool:
        """Whether the loads of the cluster's bundles drift.

        The latest 4 samples of a bundle differ from its mean, which has 3 of them among its n, with
        a variance of 1/4 - 1/(2n) of a sample's. Noise makes the mean of the squared differences,
        each by its variance, 1; drift makes it more.
        """
        rest = rest & (self.samples >= DRIFT_FROM) & (self.mean > 0.1 * self.mean.mean())
        count = int(rest.sum())
        if count < DRIFT_BUNDLES:
            return False
        difference = latest[:, rest].mean(axis=0) / self.mean[rest] - 1
        variance = self.relative_variance()[rest] * (0.25 - 0.5 / self.samples[rest])
        square = np.minimum(difference**2 / variance, 9)
        return bool(square.mean() > 1 + DRIFT_BOUND * np.sqrt(2 / count))

    def _noise(self, sample: FloatArray, counts: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Add the squared deviation of a sample; of more than 3 standard deviations only 3."""
        known = (self.mean > 0) & (self.samples > 0)
        deviation = np.divide(sample - self.mean, self.mean, out=np.zeros_like(sample), where=known)
        square = deviation**2 / (1 + 1 / np.maximum(self.samples, 1))
        square = np.minimum(square, 9 * self.relative_variance())
        full = MEMORY_SAMPLES
        counts = counts & known
        keep = np.where(counts & (self.deviations >= full), 1 - 1 / full, 1.0)
        return (
            self.squares * keep + np.where(counts, square, 0),
            self.deviations * keep + counts,
        )

    def _changes(
        self, latest: FloatArray, load: ClusterLoad, new: BoolArray
    ) -> tuple[IntArray, BoolArray]:
        """Changes of load: of single bundles, then of all others of a broker together.

        Returns:
            The latest samples since the change, and whether there was one; shape (N,) each.
        """
        variance = np.log1p(self.relative_variance())
        floor = 1e-6 * max(float(self.mean.mean()), 1e-6)
        window = np.ones(len(new), np.int64)
        changed = np.zeros(len(new), np.bool_)
        sums = np.cumsum(latest, axis=0)
        for length, bound in WINDOWS:
            of_window = sums[length - 1] / length
            error = np.sqrt(variance * (1 / length + 1 / np.maximum(self.samples, 1)))
            change = np.abs(np.log((of_window + floor) / (self.mean + floor))) / error
            found = new & (self.samples >= length) & (change > bound)
            window[found] = length
            changed |= found
        brokers = len(load.brokers)
        for length, bound in BROKER_WINDOWS:
            rest = new & ~changed & (self.samples >= length)
            owner = load.owner[rest]
            mean = self.mean[rest]
            before = np.bincount(owner, mean, brokers)
            now = np.bincount(owner, sums[length - 1][rest] / length, brokers)
            spread = mean**2 * variance[rest] * (1 / length + 1 / self.samples[rest])
            error = np.sqrt(np.bincount(owner, spread, brokers)) / np.maximum(before, floor)
            change = np.abs(np.log((now + floor) / (before + floor)))
            found = rest & (change > bound * error)[load.owner]
            window[found] = length
            changed |= found
        return window, changed


COLUMNS: Final = (
    *("latest", "mean", "samples", "squares", "deviations"),
    *("share_in", "messages_per_byte", "short", "owner"),
)
"""The fields of ``BundleEstimates`` that are arrays; the last axis has the bundles."""


def _first(load: ClusterLoad) -> BundleEstimates:
    sample = load.throughput()
    zeros = np.zeros(len(sample))
    share, per_byte = _mix(load, sample)
    latest = np.full((KEPT_SAMPLES, len(sample)), np.nan)
    latest[0] = sample
    names = tuple(load.bundles)
    return BundleEstimates(
        *(names, latest, sample, zeros + 1, zeros, zeros, share, per_byte, zeros, _owners(load))
    )


def _owners(load: ClusterLoad) -> FloatArray:
    """CRC-32 of the name of each bundle's broker; shape (N,)."""
    owners: FloatArray = _codes(load.brokers)[load.owner]
    return owners


def _codes(brokers: Sequence[str]) -> FloatArray:
    """CRC-32 of each name; shape (B,)."""
    return np.array([crc32(name.encode("utf-8", "surrogatepass")) for name in brokers], np.float64)


def _mix(load: ClusterLoad, sample: FloatArray) -> tuple[FloatArray, FloatArray]:
    positive = sample > 0
    share = np.divide(load.rates[:, 0], sample, out=np.full(len(sample), 0.5), where=positive)
    messages = load.rates[:, 2] + load.rates[:, 3]
    per_byte = np.divide(messages, sample, out=np.zeros(len(sample)), where=positive)
    return share, per_byte
