"""The answer of ``quotaplane groups import pulsar``: rows, and commands to continue or undo."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from quotaplane.console.answers import Columns, Rows
from quotaplane.console.terminal import one_line
from quotaplane.model import BASIC, DIMENSIONS, RATE_COLUMNS, FloatArray
from quotaplane.pulsar_admin.configured_rates import SUBSCRIPTION, TopicRates
from quotaplane.pulsar_admin.quota_proposals import ConfiguredNamespace, Proposal, State
from quotaplane.topics.topic_layout import KINDS, SIDES

_COLUMNS: Final = (
    *("namespace", "group", "dimension", "rate_per_s", "parts", "quota_per_s", "used_per_s"),
    "note",
)


def import_rows(proposals: Sequence[Proposal]) -> tuple[Columns, Rows]:
    """A row for each quota, or one for a namespace without any."""
    return _COLUMNS, [row for one in proposals for row in _rows(one)]


def _rows(one: Proposal) -> Iterator[tuple[Any, ...]]:
    state = () if one.state is State.PROPOSED else (one.state.value,)
    note = "; ".join((*state, *one.notes))
    name, places = one.namespace.name, np.flatnonzero(np.isfinite(one.quotas)).tolist()
    if not places:
        yield (name, one.group, None, None, one.namespace.count or None, None, None, note)
    for place in places:
        yield (
            *(name, one.group, DIMENSIONS[place], _number(one.rates[place]), one.namespace.count),
            *(_number(one.quotas[place]), _number(one.namespace.used[place]), note),
        )
        note = ""


def as_json(one: Proposal, conf: str) -> dict[str, Any]:
    """A namespace as JSON; null: unlimited for rates and quotas, unknown for usage."""

    def by_column(values: FloatArray) -> dict[str, float | int | None]:
        return dict(zip(RATE_COLUMNS[:BASIC], map(_number, values), strict=True))

    return {
        "namespace": one.namespace.name,
        "state": one.state.value,
        "group": one.group,
        "parts": one.namespace.count,
        "rates": by_column(one.rates),
        "quotas": by_column(one.quotas),
        "used": by_column(one.namespace.used),
        "notes": list(one.notes),
        "remove_rates": list(_removals(one)) if _is_made(one, State.PROPOSED) else [],
        "go_back": list(_way_back(one, conf)) if _is_made(one, State.PROPOSED) else [],
    }


def closing_lines(proposals: Sequence[Proposal], args: argparse.Namespace) -> Iterator[str]:
    """The lines below the table: counts, and after ``--apply`` the next commands."""
    counts = Counter(one.state.value for one in proposals)
    yield ", ".join(f"{count} {state}" for state, count in counts.items())
    if not args.apply:
        yield "nothing was changed; --apply makes these groups and attaches the namespaces"
        return
    made = [one for one in proposals if _is_made(one)]
    if made:
        yield "\n# to remove the old rates, one namespace after the other:"
        yield from (one_line(line) for one in made for line in _removals(one))
        yield "\n# to go back, also after that:"
        yield from (one_line(line) for one in made for line in _way_back(one, args.conf))


def _is_made(one: Proposal, *other: State) -> bool:
    """Whether its group was made, also in part, or the proposal is in another of these states."""
    return one.group is not None and one.state in (State.DONE, State.FAILED, *other)


def _removals(one: Proposal) -> Iterator[str]:
    """The commands that remove the rates of a namespace and its topics which the quotas replace."""
    namespace = one.namespace
    for topic, rates in ((None, namespace.rates), *namespace.topic_rates.items()):
        for word, rate, side in zip(KINDS, rates, SIDES, strict=False):
            if rate is None or rate.relative:
                continue
            # A dimension that is unlimited for some topics has no quota: the others' rates stay.
            if np.isfinite(one.quotas[side])[np.isfinite(rate.per_s)].all():
                yield _command(namespace, topic, f"remove-{word}-rate")


def _way_back(one: Proposal, conf: str) -> Iterator[str]:
    """The commands that undo the import.

    The namespace's rates come first, so that its topics always have some; the topics' own rates
    come last, after the enforcer has removed its own.
    """
    namespace, group = one.namespace, shlex.quote(str(one.group))
    yield from _settings(namespace, None, namespace.rates)
    yield f"pulsar-admin namespaces remove-resource-group {shlex.quote(namespace.name)}"
    yield f"pulsar-admin resourcegroups delete {group}"
    yield f"quotaplane groups delete {group} --conf {shlex.quote(conf)}"
    for topic, rates in namespace.topic_rates.items():
        yield from _settings(namespace, topic, rates)


def _settings(
    namespace: ConfiguredNamespace, topic: str | None, rates: TopicRates
) -> Iterator[str]:
    """The commands that set rates; those of subscriptions are never removed."""
    for word, rate in zip(KINDS, rates[:SUBSCRIPTION], strict=True):
        if rate is None:
            continue
        end = "" if word == "publish" else "d"
        options = [f"-m{end} {rate.messages}", f"-b{end} {rate.bytes}"]
        if word == "dispatch":
            options += [f"-dt {rate.period_s}", *(["-rp"] if rate.relative else [])]
        yield _command(namespace, topic, f"set-{word}-rate", *options)


def _command(namespace: ConfiguredNamespace, topic: str | None, *words: str) -> str:
    kind, name = ("namespaces", namespace.name) if topic is None else ("topicPolicies", topic)
    return " ".join(("pulsar-admin", kind, *words, shlex.quote(name)))


def _number(value: float) -> float | int | None:
    """A finite number, to a tenth; otherwise None."""
    if not np.isfinite(value):
        return None
    return int(value) if value == int(value) else round(float(value), 1)
