"""Restores groups as the table's history has them, in one change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from deltalake.exceptions import DeltaError

from quotaplane.deltalog.log import commit_time
from quotaplane.errors import InputError, TableChangedError
from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.history.store import not_written, open_table
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.group_input import given_groups, given_state
from quotaplane.registry.table import change_groups, read_groups
from quotaplane.settings import History
from quotaplane.texts import utc_text

State = Mapping[str, Any]
"""A group's rate and policy columns with their values, None as in ``list_groups``."""

_ATTEMPTS: Final = 10


class Restored(NamedTuple):
    """A group that is restored."""

    group: str
    before: State | None
    """None: it is not in the table."""
    after: State


def _ignore(_: object) -> None:
    pass


def restore_groups(
    history: History,
    groups: Sequence[str],
    by: str,
    *,
    at: datetime | None = None,
    version: int | None = None,
    why: str | None = None,
    dry_run: bool = False,
    warn: Callable[[str], None] = _ignore,
) -> list[Restored]:
    """Restore earlier states of groups, all of them or none; returns the changed ones, by name.

    Args:
        history: where the tables are.
        groups: their names; empty: all groups of that time or, without a time, all deleted ones.
        by: the author.
        at: restore the state at this time.
        version: restore the state at this version of the table. Without a time or version: the
            state before each group's last change.
        why: the reason, for the table's log.
        dry_run: change nothing.
        warn: as in ``change_groups``.

    Raises:
        InputError: the history does not have the requested state; nothing was written.
        TableChangedError: other writers change the table all the time.
        HistoryError: the table can't be read or written.
    """
    for _ in range(_ATTEMPTS):
        table = read_groups(history)
        changes = [c for c in group_changes(history) if c["version"] <= table.version]
        current = {row["group"]: _state(row) for row in table.rows.to_pylist()}
        versions = _versions(history, table.version)
        named = list(dict.fromkeys(groups))
        if at is None and version is None:
            wanted = last_states(current, changes, named, since=versions[0][1])
        else:
            then, when = _asked_for(at, version, versions)
            wanted = states_of(states_at(current, changes, then), named, when)
        restored = [
            Restored(group, current.get(group), state)
            for group, state in sorted(wanted.items())
            if state != current.get(group)
        ]
        if dry_run or not restored:
            return restored
        try:
            _put(history, restored, by, why, table.version, warn)
        except TableChangedError:
            continue
        return restored
    raise TableChangedError("history table resource_groups: is being changed all the time")


def states_at(
    current: Mapping[str, State], changes: Sequence[Mapping[str, Any]], version: int
) -> dict[str, State]:
    """The states of groups at a version: later changes are undone.

    ``changes`` are ``group_changes``, from that version on at least.
    """
    states = dict(current)
    for change in reversed(changes):
        if change["version"] > version:
            if change["from"] is None:
                states.pop(change["group"], None)
            else:
                states[change["group"]] = change["from"]
    return states


def states_of(states: Mapping[str, State], named: Sequence[str], when: str) -> dict[str, State]:
    """The states of the named groups, or all.

    Raises:
        InputError: one of them did not exist.
    """
    if not states:
        raise InputError(f"there was no group {when}")
    for group in named:
        if group not in states:
            raise InputError(f"group {group!r} did not exist {when}")
    return {group: states[group] for group in named or states}


def last_states(
    current: Mapping[str, State],
    changes: Sequence[Mapping[str, Any]],
    named: Sequence[str],
    *,
    since: datetime,
) -> dict[str, State]:
    """The states of named groups before their last change; without names, of deleted groups and of
    those whose rows are lost.

    Raises:
        InputError: the history, which begins at ``since``, has no such state.
    """
    found: dict[str, State] = {}
    for change in changes:
        group = change["group"]
        # Rows may be lost with a damaged file: no change says that the group is deleted.
        ends = ("from",) if group in current else ("from", "to")
        for state in map(change.__getitem__, ends):
            if state is not None and state != current.get(group):
                found[group] = state
    begins = f"the table's history, which begins at {utc_text(since, 'milliseconds')},"
    if named:
        for group in named:
            if group not in found:
                raise InputError(f"group {group!r}: {begins} has no other state of it")
        return {group: found[group] for group in named}
    deleted = {group: state for group, state in found.items() if group not in current}
    if not deleted:
        raise InputError(f"nothing to restore: {begins} has no group that the table lacks")
    return deleted


def _versions(history: History, newest: int) -> list[tuple[int, datetime]]:
    """The table's versions that its log still has, oldest first, with their times."""
    table = open_table(history, RESOURCE_GROUPS.name)
    try:
        made = {int(entry["version"]): commit_time(entry) for entry in table.history()}
    except (DeltaError, OSError, ValueError) as error:
        raise not_written(history, RESOURCE_GROUPS.name, error) from None
    found: list[tuple[int, datetime]] = []
    for version, at in sorted(made.items()):
        # Writers' clocks differ: no version is older than the one before.
        found.append((version, max(at, found[-1][1]) if found else at))
    return [(version, at) for version, at in found if version <= newest]


def _asked_for(
    at: datetime | None, version: int | None, versions: Sequence[tuple[int, datetime]]
) -> tuple[int, str]:
    """The requested version, and a phrase for it."""
    (first, begins), (last, _) = versions[0], versions[-1]
    if version is not None:
        if not first <= version <= last:
            raise InputError(f"version: the table's history has {first} to {last}, not {version}")
        return version, f"at version {version}"
    assert at is not None
    reached = [made_version for made_version, made in versions if made <= at]
    if not reached:
        begins_text, at_text = utc_text(begins, "milliseconds"), utc_text(at, "milliseconds")
        raise InputError(f"at: the table's history begins at {begins_text}, not {at_text}")
    return reached[-1], f"at {utc_text(at, 'milliseconds')}"


def _put(
    history: History,
    restored: Sequence[Restored],
    by: str,
    why: str | None,
    version: int,
    warn: Callable[[str], None],
) -> None:
    names = [one.group for one in restored]
    given = given_groups(names, [given_state(one.after) for one in restored])
    change_groups(history, given, by, why=why, at_version=version, warn=warn, may_be_copies=True)


def _state(row: Mapping[str, Any]) -> State:
    return {c: row[c] for c in (*RATE_COLUMNS, *POLICY_COLUMNS)}
