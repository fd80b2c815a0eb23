"""The answer of ``quotaplane groups import kafka``: rows, and what to do next."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from quotaplane.console.answers import Columns, Rows
from quotaplane.groups.scope import DEFAULT, Scope, decode
from quotaplane.kafka_quotas.client_quotas import CLIENT, KEYS, USER, rates
from quotaplane.kafka_quotas.proposals import EntityProposal, EntityState
from quotaplane.model import RATE_COLUMNS, FloatArray

_COLUMNS: Final = (
    *("entity", "dimension", "rate_per_s", "brokers", "cluster_per_s", "quota_per_s"),
    *("used_per_s", "note"),
)


def import_rows(
    proposals: Sequence[EntityProposal], brokers: int, used: Mapping[str, FloatArray]
) -> tuple[Columns, Rows]:
    """A row for each number that limits something, or one for an entity without any."""
    return _COLUMNS, [row for one in proposals for row in _rows(one, brokers, used)]


def _rows(
    one: EntityProposal, brokers: int, used: Mapping[str, FloatArray]
) -> Iterator[tuple[Any, ...]]:
    state = () if one.state is EntityState.PROPOSED else (one.state.value,)
    note, name, each = "; ".join((*state, *one.notes)), str(one.scope), rates(one.values, 1)
    if not one.values:
        yield (name, *[None] * (len(_COLUMNS) - 2), note)
    for key in KEYS:
        if key.name not in one.values:
            continue
        place = key.place
        uses = used[name][place] if name in used else np.nan
        yield (
            *(name, key.dimension, _number(each[place]), brokers if key.is_per_broker else 1),
            *(_number(one.cluster[place]), _number(_quotas(one)[place]), _number(uses), note),
        )
        note = ""


def as_json(
    one: EntityProposal, brokers: int, used: Mapping[str, FloatArray], args: argparse.Namespace
) -> dict[str, Any]:
    """An entity as JSON; null: unlimited for rates and quotas, unknown for usage."""
    name = str(one.scope)

    def by_column(values: FloatArray) -> dict[str, float | int | None]:
        return {RATE_COLUMNS[key.place]: _number(values[key.place]) for key in KEYS}

    return {
        "entity": _entity(one.scope),
        "state": one.state.value,
        "group": one.group,
        "kafka": dict(one.values),
        "brokers": brokers,
        "rates": by_column(rates(one.values, 1)),
        "cluster": by_column(one.cluster),
        "quotas": by_column(_quotas(one)),
        "used": by_column(used.get(name, np.full(len(RATE_COLUMNS), np.nan))),
        "notes": list(one.notes),
        "go_back": [_way_back(one, args)]
        if one.state in (EntityState.PROPOSED, EntityState.MADE)
        else [],
    }


def closing_lines(
    proposals: Sequence[EntityProposal], brokers: int, args: argparse.Namespace
) -> Iterator[str]:
    """The lines below the table: counts, what the numbers mean, and the next commands."""
    counts = Counter(one.state.value for one in proposals)
    yield ", ".join(f"{count} {state}" for state, count in counts.items()) or "no client quotas"
    yield (
        f"each of {brokers} brokers allows rate_per_s by itself, all together cluster_per_s; "
        "controller mutations are counted for the cluster"
    )
    yield ("a group's quota_per_s is for all brokers together, and one alone may allow all of it")
    if EntityState.DEFAULT.value in counts:
        yield "defaults stay per-broker defaults: the brokers' plugin keeps enforcing Kafka's own"
    if not args.apply:
        yield "nothing was changed; --apply makes these groups"
        return
    made = [one for one in proposals if one.state is EntityState.MADE]
    if made:
        yield (
            "\nbrokers with quotaplane's plugin now share these quotas; others go on with Kafka's "
            "numbers."
            "\nleave Kafka's numbers as they are: the plugin applies them where a group has no "
            "limit."
        )
        yield "\n# to go back:"
        yield from (_way_back(one, args) for one in made)


def _quotas(one: EntityProposal) -> FloatArray:
    """The group's; an entity without a group has none."""
    return np.full(len(one.quotas), np.inf) if one.group is None else one.quotas


def _entity(scope: Scope) -> dict[str, str | None]:
    """Names by type as in Kafka's protocol; None is the default.

    >>> _entity(Scope("CN%3Dalice", DEFAULT))
    {'user': 'CN=alice', 'client-id': None}
    """
    return {
        kind: None if name == DEFAULT else decode(name)
        for kind, name in zip((USER, CLIENT), scope, strict=True)
        if name is not None
    }


def _way_back(one: EntityProposal, args: argparse.Namespace) -> str:
    place = ["--conf", args.conf] if args.history is None else ["--history", args.history]
    words = ["restore", "--from-history"] if one.exists else ["delete"]
    return shlex.join(["quotaplane", "groups", *words, str(one.group), *place])


def _number(value: float) -> float | int | None:
    """A finite number, to six places; otherwise None."""
    if not np.isfinite(value):
        return None
    return int(value) if value == int(value) else round(float(value), 6)
