"""A law by itself as a controller: no memory of demand, no thresholds, no transition."""

from __future__ import annotations

import numpy as np

from quotaplane.laws import Law, Problem
from quotaplane.model import FloatArray, IntArray
from quotaplane.quota.estimate.demand import observe
from quotaplane.quota.headroom import without_history
from quotaplane.sim.loop import ArrivedReports


class LawController:
    """A law on the newest known report of each broker, with the estimate of demand before it.

    Limits go to every broker that was heard of; one that never was keeps what it has. All weigh the
    same. ``forget_after_rounds``: a broker that was silent for so many rounds no longer counts,
    until it is heard of again; None: it counts for ever.
    """

    initial_limit = np.inf

    def __init__(
        self,
        law: Law,
        brokers: int,
        forget_after_rounds: int | None = None,
    ) -> None:
        self._law = law
        self._forget_after = forget_after_rounds
        self._about, self._heard_in = np.full(brokers, -1), np.full(brokers, -1)
        # Usage says something about demand only beside the limit of the round it is from.
        self._usage, self._limit, self._throttled = np.zeros((3, brokers))

    def decide(self, round_: int, arrived: ArrivedReports, quota: float) -> FloatArray:
        """See ``Controller``."""
        self._remember(round_, arrived)
        known = self._heard_in >= 0
        if self._forget_after is not None:
            known &= round_ - self._heard_in < self._forget_after
        limits = np.full(len(known), np.nan)
        if known.any():
            limits[known] = self._divide(np.flatnonzero(known), quota)
        return limits

    def _remember(self, round_: int, arrived: ArrivedReports) -> None:
        self._heard_in[arrived.broker] = round_
        newer = arrived.about_round > self._about[arrived.broker]
        # Of several reports of one broker the last assignment stands: the newest.
        order = np.flatnonzero(newer)[np.argsort(arrived.about_round[newer], kind="stable")]
        broker = arrived.broker[order]
        self._about[broker] = arrived.about_round[order]
        self._usage[broker] = arrived.usage[order]
        self._limit[broker] = arrived.limit[order]
        self._throttled[broker] = arrived.throttled[order]

    def _divide(self, known: IntArray, quota: float) -> FloatArray:
        """One answer of the law for the brokers known."""
        starts, quotas, weight = np.array([0, len(known)]), np.array([quota]), np.ones(len(known))
        usage, limit = self._usage[known], self._limit[known]
        throttled = self._throttled[known]
        shown = observe(usage, limit, throttled)
        problem = Problem(
            starts=starts,
            quota=quotas,
            usage=usage,
            limit=limit,
            demand=shown,
            weight=weight,
            floor=np.zeros(len(known)),
        )
        return self._law(without_history(problem, ~np.isnan(throttled))).limits
