"""Makes the table equal to files: creates, changes and, on request, deletes, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

import pyarrow as pa

from quotaplane.errors import InputError
from quotaplane.history.store import ensure_history, only_one
from quotaplane.registry.attachments import LOCK, check_unattached
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.group_input import GivenGroups
from quotaplane.registry.table import GroupsPut, change_groups
from quotaplane.settings import History
from quotaplane.texts import first_few

CLUSTER_WRITER: Final = "pulsar:"
"""Prefix of the author of groups that were copied from a Pulsar cluster."""


def _ignore(_: str) -> None:
    pass


def apply_groups(
    history: History,
    given: GivenGroups,
    by: str,
    *,
    prune: bool,
    delete_all: bool = False,
    why: str | None = None,
    dry_run: bool = False,
    ready: Callable[[History], None] = ensure_history,
    warn: Callable[[str], None] = _ignore,
    say: Callable[[str], None] = _ignore,
) -> GroupsPut:
    """Create or change the given groups; with ``prune`` delete all others.

    More than a third of all groups are deleted only with ``delete_all``. Groups that were copied
    from a Pulsar cluster are not deleted, as the next copy would create them again; ``say`` prints
    a line about them. The other arguments, the answer and the errors are those of
    ``change_groups``.

    Raises:
        InputError: also if more than a third of all groups would be deleted.
        GroupInUseError: a group that would be deleted has tenants or namespaces attached to it.
    """
    spared: set[str] = set()

    def others(rows: pa.Table) -> Sequence[str]:
        unnamed = set(rows["group"].to_pylist()).difference(given.names)
        spared.clear()
        spared.update(_of_a_cluster(history, rows) & unnamed if unnamed else ())
        doomed = sorted(unnamed - spared)
        if not delete_all:
            _check_share(doomed, len(rows) - len(spared))
        check_unattached(history, doomed)
        return doomed

    with ExitStack() as held:

        def begin(history: History) -> None:
            ready(history)
            if prune:
                held.enter_context(only_one(history, LOCK))

        put = change_groups(
            history,
            given,
            by,
            why=why,
            delete=others if prune else lambda _: (),
            dry_run=dry_run,
            ready=begin,
            warn=warn,
        )
    if spared:
        say(
            f"not deleted, as they are copied from a Pulsar cluster (delete them there): "
            f"{', '.join(sorted(spared))}"
        )
    return put


def _check_share(doomed: Sequence[str], of: int) -> None:
    """Refuse to delete more than a third of the groups, which is probably a mistake."""
    if 3 * len(doomed) > of:
        raise InputError(
            f"--prune would delete {len(doomed)} of {of} groups, more than a third: "
            f"{first_few(doomed)}; "
            "if that is meant, give --delete-all as well"
        )


def _of_a_cluster(history: History, rows: pa.Table) -> set[str]:
    """The groups that the copy of a cluster created; or wrote last, if the log is too short."""
    creator = dict(zip(rows["group"].to_pylist(), rows["updated_by"].to_pylist(), strict=True))
    creator |= {c["group"]: c["by"] for c in group_changes(history) if c["from"] is None}
    return {group for group, by in creator.items() if by.startswith(CLUSTER_WRITER)}
