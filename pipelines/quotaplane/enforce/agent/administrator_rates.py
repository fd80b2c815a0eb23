"""Keeps a record of the rates that administrators set, from before one is overwritten.

The enforcer's rate of a topic takes the place of an administrator's. So that one is in the table
``administrator_rates`` of the history first, and is written again when the enforcer leaves the
topic. Rates of namespaces stay where they are; they are recorded so that people can see them.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

import numpy as np

from quotaplane.agents.conditions import Conditions, Say
from quotaplane.agents.known_conditions import ADMINISTRATORS_RATES
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.errors import HistoryError, QuotaplaneError
from quotaplane.model import FloatArray
from quotaplane.parsing.bounded_json import MALFORMED, parse_bounded
from quotaplane.pulsar_admin.topic_rates import own_rate
from quotaplane.registry.recorded_rates import (
    AdministratorRate,
    Key,
    change_administrator_rates,
    list_administrator_rates,
)
from quotaplane.settings import History
from quotaplane.texts import first_few
from quotaplane.topics.topic_layout import KINDS, Layout

_PATIENCE_S: Final = 10.0
"""How long the first read may take, for storage that does not answer."""
_SAID_EVERY_S: Final = 60.0


class NamespaceRate(NamedTuple):
    """An administrator's rate of a namespace."""

    namespace: str
    kind: int
    group: str
    rates: FloatArray
    """(2,) in messages and bytes per second; inf = unlimited."""


class AdministratorRates:
    """The record of one cluster.

    Args:
        history: has the table.
        topic_rates: receives the recorded rates.
        conditions: reports failures to read and write the table.
        say: prints a line when rates were found.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        history: History,
        topic_rates: RatesInForce,
        conditions: Conditions,
        say: Say,
        now_ms: Callable[[], float],
    ) -> None:
        self._history, self._topic_rates, self._conditions = history, topic_rates, conditions
        self._say, self._now_ms = say, now_ms
        self._by = f"enforcer, process {os.getpid()} on host {socket.gethostname()}"
        self._rows: dict[Key, AdministratorRate] = {}
        self._changes: dict[Key, AdministratorRate | None] = {}
        """Changes that the table must still get; None: the row must go."""
        self._committing: dict[Key, AdministratorRate | None] = {}
        self._task: asyncio.Task[None] | None = None
        self._only_in_memory = False
        self._new: set[Key] = set()
        """Rates of topics that were found and not reported yet."""
        self._lost: set[str] = set()
        """Topics whose rates the table has lost, not reported yet."""
        self._replaced: set[Key] = set()
        """Rates of ours that get a row as if they were an administrator's."""
        self._said_new_s = self._said_lost_s = -np.inf
        self._left_others_of: Layout | None = None
        self._namespace_changes = -1
        self.cluster = ""
        self.looked = False
        """Whether the table was read since ``forget``, even if in vain."""
        self.loaded = False
        """Whether it was read."""

    def __len__(self) -> int:
        """The number of rates in force or recorded."""
        return len(self._rows.keys() | {key for key, row in self._changes.items() if row})

    def only_in_memory(self) -> None:
        """From now on write nothing; for a dry run."""
        self._only_in_memory = True

    def forget(self) -> None:
        """Read the table anew: another enforcer may have changed it."""
        self._rows, self._changes = {}, {}
        self.looked = self.loaded = False
        self._left_others_of, self._namespace_changes = None, -1

    # --- what the enforcer finds ------------------------------------------------------------------

    def policy_of(self, topic: str, kind: int) -> dict[str, Any] | None:
        """Pulsar's JSON of a topic's recorded rate; None: the table has none."""
        key = topic, KINDS[kind]
        row = self._rows.get(key)
        if row is None or row.policy is None or self._changes.get(key, row) is None:
            return None
        return _policy_in(row.policy, kind)

    def leave_others(self) -> None:
        """Give back the recorded topics that are in no attached namespace any more."""
        layout, to_remove = self._topic_rates.layout, self._topic_rates.to_remove
        if layout is self._left_others_of or not self.loaded:
            return
        self._left_others_of = layout
        for place, kind in self._rows:
            if "://" in place and place not in layout.topic_index:
                to_remove.setdefault((place, KINDS.index(kind)), -np.inf)

    def drop_given_back(self) -> None:
        """Drop the rows of rates that are in force again."""
        for topic, kind in np.argwhere(self._topic_rates.administrators).tolist():
            self.gone(self._topic_rates.layout.topics[topic], kind)
        for place, kind in list(self._rows):
            if "://" not in place:
                self.gone(place, KINDS.index(kind))

    def found(
        self, topic: str, kind: int, group: str, rates: FloatArray, policy: Mapping[str, Any]
    ) -> bool:
        """An administrator's rate is in force on a topic; returns whether that is recorded."""
        return self._put(topic, kind, group, rates, json.dumps(policy, sort_keys=True))

    def lost(self, topic: str, kind: int) -> None:
        """A rate of ours is in place of an administrator's, and the table does not have that."""
        self._lost.add(topic)
        self._replaced.add((topic, KINDS[kind]))

    def gone(self, place: str, kind: int) -> None:
        """No administrator's rate is on a topic or namespace any more, or it was given back."""
        key = place, KINDS[kind]
        if key in self._rows or key in self._committing:
            self._changes[key] = None
        else:
            self._changes.pop(key, None)
        self._new.discard(key)

    def namespaces_have(self, found: Sequence[NamespaceRate], changes: int) -> None:
        """All administrators' rates of namespaces; ``changes``: how often they changed."""
        if changes == self._namespace_changes:
            return
        self._namespace_changes = changes
        keys = {(each.namespace, KINDS[each.kind]) for each in found}
        for place, kind in [key for key in self._rows if "://" not in key[0] and key not in keys]:
            self.gone(place, KINDS.index(kind))
        for each in found:
            self._put(each.namespace, each.kind, each.group, each.rates, None)

    def _put(
        self, place: str, kind: int, group: str, rates: FloatArray, policy: str | None
    ) -> bool:
        key = place, KINDS[kind]
        messages, in_bytes = (float(rate) if np.isfinite(rate) else None for rate in rates)
        seen_at = datetime.fromtimestamp(self._now_ms() / 1000.0, tz=timezone.utc)
        row = AdministratorRate(
            *(self.cluster, place, KINDS[kind], group, messages, in_bytes, policy),
            *(seen_at, self._by),
        )
        if _same(row, self._rows.get(key)) and key not in self._committing:
            self._changes.pop(key, None)
            return True
        if not _same(row, self._changes.get(key)):
            self._changes[key] = row
            if policy is not None:  # NamespaceDefaults reports namespaces
                self._new.add(key)
        return False

    # --- the table --------------------------------------------------------------------------------

    async def look(self) -> None:
        """Read the table if that was not done, and write what it must get, in one commit.

        Waits for storage that does not answer at most for some seconds; the next call goes on.
        """
        task = self._task = self._task or asyncio.create_task(self._look())
        await asyncio.wait({task}, timeout=_PATIENCE_S)
        error: BaseException | None = HistoryError(f"no answer within {_PATIENCE_S:g} s")
        if task.done():
            self._task, error = None, task.exception()
        if isinstance(error, QuotaplaneError):
            error = HistoryError(f"{error}; {_MEANWHILE}")
        self._conditions.note(ADMINISTRATORS_RATES, "", error)  # type: ignore[arg-type]
        self.looked = True
        self._report(asyncio.get_running_loop().time())

    async def finish(self) -> None:
        """Write all that the table must still get; a look under way may have begun before some."""
        if self._task is not None:
            await self.look()
        await self.look()

    async def _look(self) -> None:
        if not self.loaded:
            rows = await asyncio.to_thread(list_administrator_rates, self._history, self.cluster)
            self._rows = {(row.place, row.kind): row for row in rows if _is_usable(row)}
            self.loaded = True
            self._topic_rates.forget_held()
            for key, row in self._rows.items():
                if _same(row, self._changes.get(key)):
                    del self._changes[key]
        self._committing = dict(self._changes)
        try:
            await self._commit(self._committing)
        finally:
            self._committing = {}

    async def _commit(self, changes: Mapping[Key, AdministratorRate | None]) -> None:
        if not changes:
            return
        if not self._only_in_memory:
            await asyncio.to_thread(
                change_administrator_rates, self._history, self.cluster, changes, self._by
            )
        for key, row in changes.items():
            newest = self._changes.get(key, row)
            if newest is row:
                self._changes.pop(key, None)
            if row is None:
                self._rows.pop(key, None)
                continue
            self._rows[key] = row
            if newest is row and row.policy is not None:
                self._topic_rates.note_recorded(row.place, KINDS.index(row.kind))
                if key in self._replaced:  # read again, it is what it is: ours
                    self._topic_rates.mark_unknown(row.place, KINDS.index(row.kind))
                    self._replaced.discard(key)

    def _report(self, now_s: float) -> None:
        """Say what was found and what is lost, each at most once a minute."""
        topics = {place for place, _ in self._new}
        if topics and now_s >= self._said_new_s + _SAID_EVERY_S:
            self._said_new_s = now_s
            self._new = set()
            self._say(
                f"administrators' rates: found on {len(topics)} topics: "
                f"{first_few(sorted(topics))}; these get no higher ones (`quotaplane limits GROUP` "
                "shows them)"
            )
        if self._lost and now_s >= self._said_lost_s + _SAID_EVERY_S:
            self._said_lost_s = now_s
            lost, self._lost = self._lost, set()
            self._say(
                f"administrators' rates: the table administrator_rates has lost those of "
                f"{len(lost)} topics: {first_few(sorted(lost))}; the lower rates that stand in "
                "their place now count as theirs: set them again (`pulsar-admin topicPolicies "
                "set-publish-rate`), or remove them"
            )


_MEANWHILE: Final = "topics whose administrator's rate is not recorded keep that rate"


def _policy_in(text: str, kind: int) -> dict[str, Any] | None:
    """The policy in a row; None: it is none."""
    try:
        return own_rate(parse_bounded(text.encode()), kind).policy
    except MALFORMED:
        return None


def _is_usable(row: AdministratorRate) -> bool:
    """Whether a row that was read is one of ours: anybody with rights on the files may write it."""
    if row.kind not in KINDS:
        return False
    return row.policy is None or _policy_in(row.policy, KINDS.index(row.kind)) is not None


def _same(one: AdministratorRate | None, other: AdministratorRate | None) -> bool:
    """Whether two rows say the same, whenever and by whatever process that was seen."""
    return one is not None and other is not None and one[:-2] == other[:-2]
