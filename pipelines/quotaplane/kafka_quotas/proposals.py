"""Proposes a resource group for each user, client id or both that has quotas of its own; pure.

Kafka allows the numbers on each broker. A group's quota is shared by all brokers, so the number is
multiplied: by the brokers, or by the factor that an administrator chooses. Kafka's defaults are of
everybody without numbers of their own; no group is everybody, so they stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from quotaplane.groups.names import is_copy, name_flaw
from quotaplane.groups.scope import DEFAULT, Scope
from quotaplane.kafka_quotas.client_quotas import KEYS, is_usable, rates
from quotaplane.kafka_quotas.differences import Precedence
from quotaplane.model import DIMENSIONS, MAX_RATE, FloatArray


class EntityState(Enum):
    """The outcome for an entity."""

    PROPOSED = "proposed"
    MADE = "made now"
    THERE = "there already"
    DEFAULT = "stays a default"
    TAKEN = "name taken"
    NO_QUOTA = "no quota"


@dataclass(frozen=True)
class EntityProposal:
    """An entity of Kafka's, and the group that is proposed for it."""

    scope: Scope
    """Its name is the group's."""
    values: Mapping[str, float]
    """Kafka's numbers that limit something, by Kafka's names."""
    state: EntityState
    cluster: FloatArray
    """(dimensions,) per second that Kafka allows on all brokers together; inf = unlimited."""
    quotas: FloatArray
    """(dimensions,) per second of the group; inf = unlimited."""
    exists: bool = False
    """There is a group of this name."""
    notes: tuple[str, ...] = ()

    @property
    def group(self) -> str | None:
        """The group's name, if the entity is to have one."""
        return (
            None if self.state in (EntityState.DEFAULT, EntityState.NO_QUOTA) else str(self.scope)
        )

    def becomes(self, state: EntityState, *notes: str) -> EntityProposal:
        """The same in another state."""
        return replace(self, state=state, notes=(*self.notes, *notes))


def propose(
    found: Mapping[Scope, Mapping[str, float]],
    brokers: int,
    factor: float,
    there: Mapping[str, FloatArray],
) -> list[EntityProposal]:
    """A proposal for each entity, by name.

    Args:
        found: numbers by Kafka's names.
        brokers: of the cluster.
        factor: what a number is multiplied with to be the group's quota.
        there: (dimensions,) quotas of the groups that exist, by name.
    """
    precedence = Precedence(found)
    return [
        _proposal(scope, found[scope], brokers, factor, there, precedence)
        for scope in sorted(found, key=str)
    ]


def _proposal(
    scope: Scope,
    values: Mapping[str, float],
    brokers: int,
    factor: float,
    there: Mapping[str, FloatArray],
    precedence: Precedence,
) -> EntityProposal:
    usable = {key.name: values[key.name] for key in KEYS if is_usable(values.get(key.name, np.nan))}
    proposal = EntityProposal(
        scope,
        usable,
        EntityState.PROPOSED,
        rates(usable, brokers),
        rates(usable, factor),
        str(scope) in there,
        tuple(_notes(values)),
    )
    if not usable:
        return proposal.becomes(EntityState.NO_QUOTA)
    if DEFAULT in scope:
        return proposal.becomes(EntityState.DEFAULT)
    name = str(scope)
    flaw = name_flaw(name) or ("names of copies end like this" if is_copy(name) else None)
    if flaw is not None:
        return proposal.becomes(EntityState.TAKEN, f"no group can have this name: {flaw}")
    if np.isinf(proposal.quotas).all():
        return proposal.becomes(EntityState.NO_QUOTA, f"more than {MAX_RATE:g} per second")
    if proposal.exists and np.array_equal(there[name], proposal.quotas):
        return proposal.becomes(EntityState.THERE, *precedence.differences(scope))
    if proposal.exists and np.isfinite(there[name]).any():
        return proposal.becomes(
            EntityState.TAKEN,
            f"the group has other quotas ({in_words(there[name])}) and is not changed",
        )
    return proposal.becomes(EntityState.PROPOSED, *precedence.differences(scope))


def in_words(quotas: FloatArray) -> str:
    """Quotas (dimensions,) in short.

    >>> in_words(np.array([100.0, *[np.inf] * (len(DIMENSIONS) - 1)]))
    'publish_messages 100'
    """
    return ", ".join(
        f"{DIMENSIONS[place]} {quotas[place]:.10g}" for place in np.flatnonzero(np.isfinite(quotas))
    )


def _notes(values: Mapping[str, float]) -> list[str]:
    names = {key.name for key in KEYS}
    return [
        f"{name} {value:.10g} is no limit"
        if name in names
        else f"{name}: quotaplane knows no such quota"
        for name, value in values.items()
        if name not in names or not is_usable(value)
    ]
