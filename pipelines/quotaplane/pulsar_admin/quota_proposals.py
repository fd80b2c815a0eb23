"""Proposes a resource group for each namespace whose topics have rates; pure.

Pulsar applies a rate to each topic and each partition in full. So what a namespace may use today is
the sum over its parts, and that sum is the proposed quota: no client gets less than before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

import numpy as np

from quotaplane.groups.names import is_copy
from quotaplane.model import BASIC, DIMENSIONS, SEPARATOR, FloatArray
from quotaplane.pulsar_admin.configured_rates import NO_RATES, SUBSCRIPTION, TopicRates, per_s
from quotaplane.pulsar_admin.resource_groups import to_cluster

_UNITS: Final = 2


@dataclass(frozen=True)
class ConfiguredNamespace:
    """A namespace with the rates that administrators set in it."""

    name: str
    """``tenant/namespace``."""
    group: str | None = None
    """The group that it is attached to. Then nothing else is known of it."""
    rates: TopicRates = NO_RATES
    """The namespace's: of each topic without a rate of its own."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Number of parts of each topic that can have rates of its own."""
    other_parts: int = 0
    """Parts that can't, such as non-persistent topics."""
    topic_rates: Mapping[str, TopicRates] = field(default_factory=dict)
    """By topic, the rates of those that have their own."""
    used: FloatArray = field(default_factory=lambda: np.zeros(BASIC))
    """(4,) per second; NaN = unknown."""
    failure: str = ""
    """Why it could not be read."""

    @property
    def count(self) -> int:
        """The number of its parts."""
        return self.other_parts + sum(self.parts.values())


class State(Enum):
    """The outcome for a namespace."""

    PROPOSED = "proposed"
    DONE = "attached now"
    ATTACHED = "attached already"
    OWN = "left out"
    NO_RATE = "no rate"
    NO_TOPICS = "no topics"
    TAKEN = "name taken"
    FAILED = "failed"


@dataclass(frozen=True)
class Proposal:
    """A namespace, and the group that is proposed for it."""

    namespace: ConfiguredNamespace
    state: State
    notes: tuple[str, ...] = ()
    group: str | None = None
    """The group's name; of an attached namespace, the group that it has."""
    rates: FloatArray = field(default_factory=lambda: np.full(BASIC, np.inf))
    """(4,) per second of each part whose topic has no rate of its own; inf = unlimited."""
    quotas: FloatArray = field(default_factory=lambda: np.full(BASIC, np.inf))
    """(4,) per second, whole numbers; inf = unlimited."""

    def becomes(self, state: State, *notes: str) -> Proposal:
        """The same in another state."""
        return replace(self, state=state, notes=(*self.notes, *notes))


def group_name(namespace: str) -> str:
    """The group of a namespace: a child of its tenant's group, should there be one.

    >>> group_name("acme/orders")
    'acme::orders'
    """
    return namespace.replace("/", SEPARATOR, 1)


def propose(
    found: Sequence[ConfiguredNamespace],
    broker: TopicRates,
    left_out: Mapping[str, str],
    flaw: Callable[[str], str | None],
) -> list[Proposal]:
    """A proposal for each namespace.

    Args:
        found: the namespaces.
        broker: the brokers' own rates, of topics without any other.
        left_out: namespaces that must not get a quota, and why.
        flaw: says why a group can't have a name, or None.
    """
    proposals = [_proposal(namespace, broker, left_out) for namespace in found]
    names = Counter(one.group for one in proposals if one.state is State.PROPOSED)
    return [_with_fit_name(one, names, flaw) for one in proposals]


def taken(proposal: Proposal, where: str, quotas: FloatArray) -> Proposal:
    """The proposal, given that its group exists with quotas (4,): these must be the same."""
    if np.array_equal(proposal.quotas, quotas):
        return proposal
    return proposal.becomes(
        State.TAKEN,
        f"group {proposal.group} exists {where} with other quotas ({_in_words(quotas)}) and is not "
        "changed; delete it, or attach the namespace to it yourself",
    )


def _proposal(
    namespace: ConfiguredNamespace, broker: TopicRates, left_out: Mapping[str, str]
) -> Proposal:
    if namespace.failure:
        return Proposal(namespace, State.FAILED, (namespace.failure,))
    if namespace.name in left_out:
        return Proposal(namespace, State.OWN, (left_out[namespace.name],))
    if namespace.group is not None:
        return Proposal(namespace, State.ATTACHED, (), namespace.group)
    applied = _first(namespace.rates, broker)
    own = [_first(rates, applied) for rates in namespace.topic_rates.values()]
    notes = list(_notes(namespace, [applied, *own]))
    rates = per_s(applied)
    own_parts = np.array([namespace.parts[topic] for topic in namespace.topic_rates], np.float64)
    each = np.array([rates, *map(per_s, own)])
    count = np.array([namespace.count - own_parts.sum(), *own_parts])
    if not namespace.count:
        return Proposal(namespace, State.NO_TOPICS, tuple(notes), rates=rates)
    each, count = each[count > 0], count[count > 0]  # none times unlimited is no number
    # Rounded, as a sum of thirds may be a little more than a whole number.
    allowed = np.round((count[:, None] * each).sum(axis=0), 6)
    quotas = to_cluster(allowed.reshape(-1, _UNITS)).reshape(BASIC)
    for place, dimension in enumerate(DIMENSIONS[:BASIC]):
        if np.isinf(quotas[place]) and np.isfinite(each[:, place]).any():
            notes.append(f"{dimension}: some topics have no rate, so there is no quota")
        if quotas[place] < allowed[place]:
            notes.append(f"{dimension}: cut, as {allowed[place]:.0f} is more than Pulsar can store")
    limited = np.isfinite(quotas).any()
    state = State.PROPOSED if limited else State.NO_RATE
    group = group_name(namespace.name) if limited else None
    return Proposal(namespace, state, tuple(notes), group, rates, quotas)


def _first(rates: TopicRates, others: TopicRates) -> TopicRates:
    """By kind, the rate that applies: messages and bytes are always of the same level."""
    return tuple(other if rate is None else rate for rate, other in zip(rates, others, strict=True))


def _notes(namespace: ConfiguredNamespace, applied: Sequence[TopicRates]) -> Sequence[str]:
    notes = []
    own = sum(any(rates[:SUBSCRIPTION]) for rates in namespace.topic_rates.values())
    if own:
        notes.append(f"topics with rates of their own: {own}")
    if namespace.other_parts:
        notes.append(f"topics that can have none, such as non-persistent: {namespace.other_parts}")
    if any(rates[SUBSCRIPTION] for rates in applied):
        notes.append("subscription rates stay: they limit each subscription, a quota all together")
    if any(rate is not None and rate.relative for rates in applied for rate in rates):
        notes.append("a rate relative to the publish rate stays, and is no quota")
    return notes


def _with_fit_name(
    proposal: Proposal, names: Mapping[str | None, int], flaw: Callable[[str], str | None]
) -> Proposal:
    group = proposal.group
    if proposal.state is not State.PROPOSED or group is None:
        return proposal
    if names[group] > 1:
        return proposal.becomes(State.TAKEN, f"group {group} would have two namespaces")
    found = flaw(group) or ("names of copies end like this" if is_copy(group) else None)
    if found is None:
        return proposal
    return proposal.becomes(State.TAKEN, f"no group can have the name {group!r}: {found}")


def _in_words(quotas: FloatArray) -> str:
    """Quotas (4,) in short.

    >>> _in_words(np.array([100.0, np.inf, np.inf, np.inf]))
    'publish_messages 100'
    """
    words = [
        f"{dimension} {quota:.10g}"
        for dimension, quota in zip(DIMENSIONS[:BASIC], quotas, strict=True)
        if np.isfinite(quota)
    ]
    return ", ".join(words) or "unlimited"
