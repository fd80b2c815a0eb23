"""One tick of the enforcer: from everything that it reads to everything that it does. Pure.

``divide`` is the only place that decides what is written. It has no clock and makes no requests:
times are arguments, and what it has to remember is in its result (``DivisionMemory``).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from quotaplane.enforce.crowded_groups import CrowdedGroups
from quotaplane.enforce.default_rates import default_rates
from quotaplane.enforce.groups_in_force import GroupsInForce
from quotaplane.enforce.least_bytes import raised_limits
from quotaplane.enforce.rate_writes import Moves, Rates, plan
from quotaplane.enforce.subdivide import Divide, Subdivision, subdivide
from quotaplane.model import BASIC, BoolArray, FloatArray
from quotaplane.topics.topic_layout import Layout


class DivisionSettings(NamedTuple):
    """The settings of a division."""

    law: Divide
    """By which a broker's limit is divided."""
    significant_change: float
    """Raises by less than this fraction are not made, and steps down by less are small."""
    most_raised: float
    """The part of a group's limits by which they may be raised, see ``raised_limits``."""
    patient: bool
    """Small steps down may wait."""


class DivisionReadings(NamedTuple):
    """Everything that a division reads. Rates and limits are per second; inf = unlimited."""

    layout: Layout
    """The u topics with p parts, and the k pairs of a broker and a group."""
    limits: FloatArray
    """(k, 4) limits of the pairs; NaN = none was received that counts."""
    safe_limits: FloatArray | None
    """(b, g, 4) safe limits of brokers and groups; None: the default rates stay as they are."""
    decided_ms: FloatArray
    """(g,) when the newest limits of each group were decided."""
    usage: FloatArray
    """(p, 4) NaN = not measured yet."""
    saturated: BoolArray
    """(p, 4) the part used what its rate allows."""
    rates: Rates
    """The rates of the topics."""
    own_rates: FloatArray
    """(u, 4) the topics' own administrators' rates, in force or recorded."""
    other_rates: FloatArray
    """(u, 4) administrators' rates for topics without one: of namespaces, or of the brokers."""
    has_default: BoolArray
    """(u, 2) a topic without a rate would get a default of ours."""
    limited_by_cluster: Collection[str]
    """Groups that the cluster limits by itself, see ``custody.cluster_limits``."""
    job_gone: bool
    """The cluster is to limit the groups, as no job does."""
    now_s: float
    """The time, of a clock that nobody sets."""


class DivisionMemory(NamedTuple):
    """State that a division leaves to the next one."""

    groups: tuple[str, ...] = ()
    default_rates: FloatArray = np.zeros((0, BASIC))
    """(g, 4) rates for topics that have none yet; NaN = leave them as they are."""
    crowded: CrowdedGroups = CrowdedGroups()
    in_force: GroupsInForce = GroupsInForce()


class TopicDivision(NamedTuple):
    """Everything that a division does."""

    moves: Moves
    """The writes that are needed, and the rates that must be read first."""
    writes: Moves
    """The writes to make now: a rate is removed only after the default that would replace it."""
    wanted: Subdivision
    """The rates that topics are to have."""
    keep_defaults: frozenset[str] | None
    """Default rates are removed, except those of these groups; None: they are in ``memory``."""
    memory: DivisionMemory


def divide(
    readings: DivisionReadings, memory: DivisionMemory, settings: DivisionSettings
) -> TopicDivision:
    """Divide the limits of brokers over topics, and choose what to write.

    While the job is gone, the rates of the groups that the cluster limits are removed, and no limit
    of ours counts as in force.
    """
    layout, rates = readings.layout, readings.rates
    crowded = memory.crowded.after(layout, readings.limits, readings.now_s)
    default = memory.default_rates
    if readings.safe_limits is not None:
        default = default_rates(layout, readings.safe_limits, settings.most_raised)
    elif memory.groups != layout.groups:
        default = np.full((len(layout.groups), BASIC), np.nan)
    keep: frozenset[str] | None = None
    if readings.job_gone:
        keep = frozenset(layout.groups).difference(readings.limited_by_cluster)
        division, moves = without_rates(layout, keep), removal(layout, rates, keep)
    else:
        division, moves = planned(readings, settings)
    ours = np.where(division.unlimited, np.inf, division.rates)
    in_force = memory.in_force.after(layout, ours, rates, moves, readings.decided_ms)
    return TopicDivision(
        moves=moves,
        writes=moves.without_removals(readings.has_default),
        wanted=division,
        keep_defaults=keep,
        memory=DivisionMemory(layout.groups, default, crowded, in_force),
    )


def planned(readings: DivisionReadings, settings: DivisionSettings) -> tuple[Subdivision, Moves]:
    """The rates that topics are to have by the limits, and the writes that this needs."""
    layout, pairs = readings.layout, readings.layout.pairs
    limits = raised_limits(
        readings.limits, pairs.group, np.diff(pairs.starts), settings.most_raised
    )
    division = subdivide(
        *(layout, limits, readings.usage, readings.saturated),
        ceilings=_ceilings(readings),
        law=settings.law,
    )
    moves = plan(
        *(layout, limits, division, readings.rates),
        significant_change=settings.significant_change,
        patient=settings.patient,
    )
    return division, moves


def _ceilings(readings: DivisionReadings) -> FloatArray:
    """Administrators' rates (u, 4): a topic's own, else its namespace's, else the brokers'."""
    own = np.repeat(readings.rates.administrators | readings.rates.recorded, 2, axis=1)
    return np.where(own, readings.own_rates, readings.other_rates)


def without_rates(layout: Layout, keep: Collection[str]) -> Subdivision:
    """No topic has a rate of ours, except those of the groups to ``keep``, which are left alone."""
    rates, shares = (np.full((len(each), BASIC), np.inf) for each in (layout.topics, layout.parts))
    kept = np.array([group in keep for group in layout.groups], np.bool_)[layout.group]
    rates[kept] = np.nan
    shares[kept[layout.topic]] = np.nan
    return Subdivision(rates, shares, rates, np.isposinf(rates))


def removal(layout: Layout, rates: Rates, keep: Collection[str]) -> Moves:
    """The writes that remove all rates of ours, except those of the groups to ``keep``."""
    limits = np.full((len(layout.pairs.broker), BASIC), np.inf)
    return plan(layout, limits, without_rates(layout, keep), rates, significant_change=0.0)
