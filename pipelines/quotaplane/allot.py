"""Limits out: a law over every touched group, and which of its answers are worth sending."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from quotaplane.demand import probe
from quotaplane.laws import Problem
from quotaplane.model import DIMENSIONS, BoolArray, FloatArray, IntArray, Round
from quotaplane.state import Groups, Rows, to_single

if TYPE_CHECKING:
    from quotaplane.control import StepConfig

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Allotment:
    """The rows with their limits; which changed; which go out; and why, per dimension.

    ``changed`` has shape (rows,), ``going_out`` holds positions, ``reasons`` is (4, rows) of
    ``laws.reason.Reason`` codes and only means something where ``changed``.
    """

    rows: Rows
    changed: BoolArray
    going_out: IntArray
    reasons: npt.NDArray[np.uint8]


def allot(
    groups: Groups,
    rows: Rows,
    touched: BoolArray,
    quota_changed: BoolArray,
    restarted: BoolArray,
    round_: Round,
    config: StepConfig,
    rounds: int,
) -> Allotment:
    """Divide the quotas of the touched groups; ``restarted``: brokers that know none
    of their limits.

    A group whose limits would all move by less than ``significant_change`` keeps those it has,
    unless they add up to more than its quota or somebody changed it: fairness is worth a message,
    noise is not. When one moves, all of the group's limits are issued together, so that what is in
    force adds up.
    """
    new, reasons = _by_law(groups, rows, touched, config)
    new = to_single(new)
    same = new == rows.limit
    with np.errstate(invalid="ignore"):  # inf - inf is no number, and no move either
        by = np.abs(new - rows.limit)
    moved = by > config.significant_change * np.where(np.isinf(rows.limit), 0.0, rows.limit)
    worth = np.bincount(rows.group, weights=moved.any(axis=0), minlength=len(groups)) > 0
    worth |= quota_changed
    for dimension, quota in enumerate(groups.quota):
        total = np.bincount(rows.group, weights=rows.limit[dimension], minlength=len(groups))
        worth |= np.isfinite(quota) & (total > quota * (1.0 + _ROUNDING))
    changed = (worth & touched)[rows.group] & ~same.all(axis=0)
    # Once no report can be about the time before it any more, a limit counts as old.
    old = rows.issued_at_ms < round_.now_ms - 2 * config.expire_after_ms
    rows = replace(
        rows,
        limit=np.where(changed, new, rows.limit),
        before=np.where(changed | old, rows.limit, rows.before),
        issued=rows.issued | changed,
        issued_at_ms=np.where(changed, round_.now_ms, np.where(old, -1, rows.issued_at_ms)),
        issued_seq=np.where(changed, round_.seq, np.where(old, -1, rows.issued_seq)),
    )
    turn = groups.ids % config.refresh_rounds == rounds % config.refresh_rounds
    renewed = (turn[rows.group] | restarted[rows.broker]) & rows.issued
    return Allotment(rows, changed, np.flatnonzero(changed | renewed), reasons)


def _by_law(
    groups: Groups, rows: Rows, touched: BoolArray, config: StepConfig
) -> tuple[FloatArray, npt.NDArray[np.uint8]]:
    """What the law gives: (4, rows); untouched groups keep theirs, no quota is no limit."""
    limits = rows.limit.copy()
    reasons = np.zeros(limits.shape, np.uint8)
    size = np.bincount(rows.group, minlength=len(groups))
    for dimension in range(len(DIMENSIONS)):
        quota = groups.quota[dimension]
        free = (touched & np.isinf(quota))[rows.group]
        limits[dimension, free] = np.inf
        subject = touched & np.isfinite(quota) & (size > 0)
        if not subject.any():
            continue
        every = bool(subject.all())
        picked = slice(None) if every else subject[rows.group]
        starts = np.concatenate([[0], np.cumsum(size[subject])])
        weight = np.ones(int(starts[-1]))
        problem = Problem(
            starts=starts,
            quota=quota[subject],
            usage=rows.usage[dimension, picked],
            limit=rows.limit[dimension, picked],
            demand=probe(
                rows.demand[dimension, picked] * (1.0 + config.headroom),
                starts,
                quota[subject],
                weight,
                config.probe_share,
            ),
            weight=weight,
            floor=np.zeros_like(weight),
        )
        limits[dimension, picked], reasons[dimension, picked] = config.law(problem)
    return limits, reasons
