"""Reading and changing the quotas (table ``resource_groups``): no JVM, safe beside the job.

A change is a Delta MERGE by the deltalake package. It fails when somebody else committed in
between, and is then made again from what they left: no change is lost, none is made twice. The
table's change feed carries it to the job, and says for good who changed what.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

from quotaplane.deltalog.durable import COMMIT_ONLY, Synced, checkpoint
from quotaplane.deltalog.read import read_changes, read_rows
from quotaplane.errors import HistoryError, InputError, TableChangedError
from quotaplane.groups.flaws import quota_flaws, refuse
from quotaplane.groups.hierarchy import ancestors, parents_of
from quotaplane.groups.ids import ids_of
from quotaplane.groups.names import check_name
from quotaplane.history.store import (
    ensure_history,
    keep,
    one_line,
    open_table,
    open_to_write,
    table_uri,
    writing,
)
from quotaplane.history.tables import CHANGES_PER_CHECKPOINT, RESOURCE_GROUPS
from quotaplane.model import RATE_COLUMNS, FloatArray
from quotaplane.registry.group_input import GivenGroups
from quotaplane.registry.policies import check_policy, doubts, policy_after, with_parents
from quotaplane.settings import History

_ATTEMPTS: Final = 20
GROUP: Final = "resource_group"
"""The table's name of the column ``group`` of rows: ``group`` is a keyword of SQL."""

_ROWS: Final = pa.schema(
    [f.with_name("group") if f.name == GROUP else f for f in RESOURCE_GROUPS.schema]
)
_PROPERTIES: Final = WriterProperties(compression="ZSTD", compression_level=1)


def _ignore(_: str) -> None:
    pass


def put_groups(
    history: History,
    groups: Sequence[str],
    quotas: FloatArray,
    by: str,
    *,
    policy: pa.Table | None = None,
    timeframe_s: FloatArray | None = None,
    at_version: int | None = None,
    ready: Callable[[History], None] = ensure_history,
    warn: Callable[[str], None] = _ignore,
    sleep: Callable[[float], None] = time.sleep,
) -> pa.Table:
    """Create groups or change their quotas and policies, all of them or (on an error) none.

    Args:
        history: where the tables are.
        groups: n different names.
        quotas: (n, dimensions) per second; NaN keeps what a group has (unlimited if it is new),
            +inf makes it unlimited.
        by: who does it; kept in the row and in the table's log.
        policy: n rows of any of ``policy_options.POLICY_COLUMNS``; null keeps what a group has.
            What equals its default is written as null.
        timeframe_s: of the shape of ``quotas``: over how many seconds a quota is measured, which
            sets the windows in ``throttle``; NaN keeps them, and so does a second.
        at_version: nothing is done unless this is still the table's version (``read_groups``).
        ready: is called once the arguments are found right: creates the tables if there are none,
            or refuses.
        warn: is given a line for what is allowed but strange: a child's quota above its parent's.
        sleep: waits between attempts.

    Returns:
        The rows as they are now, in the order of ``groups``, as ``list_groups`` has them. Those
        that were not changed keep their ``updated_at``; if no row changes nothing is written.

    Raises:
        InputError: a name, a quota or something of the policy is wrong; names it.
        TableChangedError: the table is not at ``at_version`` any more.
        HistoryError: the table can't be read or written.
    """
    names = [check_name(group) for group in groups]
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(n for n in names if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise InputError(f"group {twice!r} is given twice")
    _check_quotas(names, quotas)
    if policy is not None:
        policy = check_policy(names, policy)
    ready(history)

    def once(table: DeltaTable) -> pa.Table:
        _check_version(table, at_version)
        current = _read(table)
        rows, changed = _rows_after(current, names, quotas, by, policy, timeframe_s)
        if changed.any():
            merge = table.merge(
                _stored(rows.filter(pa.array(changed))),
                "t.resource_group = s.resource_group",
                source_alias="s",
                target_alias="t",
                writer_properties=_PROPERTIES,
                commit_properties=CommitProperties(custom_metadata={"userName": by}),
                post_commithook_properties=COMMIT_ONLY,
            )
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        others = pc.invert(pc.is_in(current["group"], value_set=rows["group"].combine_chunks()))
        now = pa.concat_tables([rows, current.filter(others)]).combine_chunks()
        parent = parents_of(now["group"].combine_chunks())
        for line in doubts(now, parent, names, timeframe_s):
            warn(line)
        return with_parents(now, parent).slice(0, len(names))

    return _optimistically(history, once, sleep)


def delete_groups(
    history: History,
    groups: Sequence[str],
    by: str,
    *,
    at_version: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Delete groups, all of them or none; ``at_version`` as in ``put_groups``.

    Raises:
        InputError: there is no such group; names the first one.
        TableChangedError: the table is not at ``at_version`` any more.
        HistoryError: the table can't be read or written.
    """
    doomed = pa.table({"group": pa.array(list(dict.fromkeys(groups)), pa.string())})

    def once(table: DeltaTable) -> None:
        _check_version(table, at_version)
        there = pc.is_in(doomed["group"], value_set=_read(table)["group"].combine_chunks())
        if not pc.all(there, min_count=0).as_py():
            missing = doomed.filter(pc.invert(there))["group"][0].as_py()
            raise InputError(f"group {missing!r} does not exist")
        merge = table.merge(
            _stored(doomed),
            "t.resource_group = s.resource_group",
            source_alias="s",
            target_alias="t",
            writer_properties=_PROPERTIES,
            commit_properties=CommitProperties(custom_metadata={"userName": by}),
            post_commithook_properties=COMMIT_ONLY,
        )
        merge.when_matched_delete().execute()

    _optimistically(history, once, sleep)


class GroupsRead(NamedTuple):
    """The table as it was at a version."""

    rows: pa.Table
    """As ``list_groups`` has them."""
    version: int


def read_groups(history: History) -> GroupsRead:
    """All groups, and the version that they were read at: for a change that depends on them.

    Raises:
        HistoryError: the table is missing or can't be read.
    """
    table = open_table(history, RESOURCE_GROUPS.name)
    return GroupsRead(with_parents(_read(table).sort_by("group")), table.version())


def list_groups(history: History) -> pa.Table:
    """All groups, by name, with the columns of the table and ``parent``.

    A null quota is unlimited; a null of the policy is as ``policy_options.DEFAULTS`` say.

    Raises:
        HistoryError: the table is missing or can't be read.
    """
    return read_groups(history).rows


def get_group(history: History, group: str) -> dict[str, Any]:
    """One group's row and its ``parent``; nulls (None) as in ``list_groups``.

    Raises:
        InputError: there is no such group.
        HistoryError: the table is missing or can't be read.
    """
    found = _read(open_table(history, RESOURCE_GROUPS.name), [group, *ancestors(group)])
    rows = {row["group"]: row for row in found.to_pylist()}
    if group not in rows:
        raise InputError(f"group {group!r} does not exist")
    return {**rows[group], "parent": next(filter(rows.get, ancestors(group)), None)}


def groups_if_put(history: History, given: GivenGroups, at: datetime) -> pa.Table:
    """The rows of the given groups if they were put into the table as it was then.

    Before its log begins, the table is taken as it was at first.

    Raises:
        InputError: a name, a quota or something of the policy is wrong.
        HistoryError: the table is missing, or can't be read as it was.
    """
    names = [check_name(group) for group in given.names]
    _check_quotas(names, given.quotas)
    policy = None if given.policy is None else check_policy(names, given.policy)
    table = open_table(history, RESOURCE_GROUPS.name)
    try:
        log = {int(e["version"]): e["timestamp"] / 1000 for e in table.history()}
        versions = [version for version, made_s in log.items() if made_s <= at.timestamp()]
        table.load_as_version(max(versions, default=min(log)))
    except (DeltaError, OSError) as error:
        raise HistoryError(f"history table resource_groups: {one_line(error)}") from None
    rows, _ = _rows_after(_read(table), names, given.quotas, "", policy, given.timeframe_s)
    return rows


def group_changes(history: History, group: str | None = None) -> list[dict[str, Any]]:
    """Who changed what and when, oldest first, as far back as the table's log goes.

    Each is ``{"version", "at", "by", "group", "from", "to"}``; ``version`` is the table's after the
    change; ``from`` and ``to`` map the rate and policy columns to what they hold, None as in
    ``list_groups``; ``from`` is None for a new group, ``to`` for a deleted one.

    Raises:
        HistoryError: the table is missing, or its log or its changes can't be read.
    """
    table = open_table(history, RESOURCE_GROUPS.name)
    try:
        log = {entry["version"]: entry for entry in table.history()}
        feed = read_changes(table, since=min(log))
    except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
        raise HistoryError(f"history table resource_groups: {one_line(error)}") from None
    held = [n for n in RESOURCE_GROUPS.schema.names if n != GROUP and not n.startswith("updated")]
    if group is not None:
        feed = feed.filter(pc.equal(feed[GROUP], group))
    changes: dict[tuple[int, str], dict[str, Any]] = {}
    for row in feed.sort_by([("_commit_version", "ascending"), (GROUP, "ascending")]).to_pylist():
        version, kind = row["_commit_version"], row["_change_type"]
        committed = log[version]
        at = datetime.fromtimestamp(committed["timestamp"] / 1000, tz=timezone.utc)
        by = committed.get("userName", row["updated_by"])
        change = changes.setdefault(
            (version, row[GROUP]),
            {
                "version": version,
                "at": at,
                "by": by,
                "group": row[GROUP],
                "from": None,
                "to": None,
            },
        )
        side = "from" if kind in ("update_preimage", "delete") else "to"
        change[side] = {name: row.get(name) for name in held}
    return list(changes.values())


def _check_quotas(names: Sequence[str], quotas: FloatArray) -> None:
    if quotas.shape != (len(names), len(RATE_COLUMNS)):
        wanted = len(names), len(RATE_COLUMNS)
        raise InputError(f"quotas must have shape {wanted}, not {quotas.shape}")
    refuse(names, quota_flaws(quotas))


def _rows_after(
    current: pa.Table,
    names: Sequence[str],
    quotas: FloatArray,
    by: str,
    policy: pa.Table | None,
    timeframe_s: FloatArray | None,
) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.bool_]]]:
    """The rows of the named groups after the change, and which of them differ from before."""
    group = pa.array(names, pa.string())
    place = pc.index_in(group, value_set=current["group"].combine_chunks())
    known = np.asarray(place.is_valid())
    if not known.all():
        new_names = [name for name, there in zip(names, known, strict=True) if not there]
        for name, other in collisions(current, new_names).items():
            raise InputError(f"group {name!r}: has the same id as {other!r}; choose another name")
    before = current.take(place)
    old = np.column_stack([_rates(before, name) for name in RATE_COLUMNS])
    old[~known] = np.inf
    new = np.where(np.isnan(quotas), old, quotas)
    policies, otherwise = policy_after(before, policy, timeframe_s)
    changed: np.ndarray[Any, np.dtype[np.bool_]] = ~known | (new != old).any(axis=1) | otherwise
    now = pa.scalar(datetime.now(timezone.utc), RESOURCE_GROUPS.schema.field("updated_at").type)
    mask = pa.array(changed)
    rows = [
        group,
        *(pa.array(column, mask=np.isinf(column)) for column in new.T),
        *policies,
        pc.if_else(mask, now, before["updated_at"]),
        pc.if_else(mask, by, before["updated_by"]),
    ]
    return pa.table(rows, schema=_ROWS), changed


def _rates(table: pa.Table, name: str) -> FloatArray:
    filled = table[name].fill_null(np.inf).combine_chunks()
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.float64)


def collisions(current: pa.Table, new: Sequence[str]) -> dict[str, str]:
    """Those of the ``new`` names that the table can't have, and the group whose id each has.

    A group that is in the table holds its id; of several new ones, the first does. 63 bits: with a
    million groups the odds are about 1 in 20 million, and a collision would let two groups share
    one quota without anybody being told.
    """
    if not new:
        return {}
    names = [*current["group"].to_pylist(), *new]
    _, first, inverse = np.unique(ids_of(names), return_index=True, return_inverse=True)
    holders = (names[at] for at in first[inverse[-len(new) :]].tolist())
    return {name: holder for name, holder in zip(new, holders, strict=True) if holder != name}


def _read(table: DeltaTable, groups: Sequence[str] | None = None) -> pa.Table:
    only = None
    if groups is not None:
        listed = ", ".join("'" + group.replace("'", "''") + "'" for group in groups)
        only = f"{GROUP} IN ({listed})"
    try:
        rows = read_rows(table, predicate=only)
        for name in RESOURCE_GROUPS.since_later.difference(rows.column_names):
            rows = rows.append_column(name, pa.nulls(len(rows)))
        rows = rows.select(RESOURCE_GROUPS.schema.names).cast(RESOURCE_GROUPS.schema)
        return rows.rename_columns(_ROWS.names)
    except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
        raise HistoryError(f"history table resource_groups: {one_line(error)}") from None


def _stored(rows: pa.Table) -> pa.Table:
    """Rows with the table's column names."""
    return rows.rename_columns([GROUP if name == "group" else name for name in rows.column_names])


def _check_version(table: DeltaTable, wanted: int | None) -> None:
    if wanted is not None and table.version() != wanted:
        raise TableChangedError(
            f"history table {RESOURCE_GROUPS.name}: changed by somebody else meanwhile"
        )


def _optimistically(
    history: History, once: Callable[[DeltaTable], Any], sleep: Callable[[float], None]
) -> Any:
    with writing(history):
        return _attempted(history, once, sleep)


def _attempted(
    history: History, once: Callable[[DeltaTable], Any], sleep: Callable[[float], None]
) -> Any:
    uri = table_uri(history, RESOURCE_GROUPS.name)
    synced = Synced(uri)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            table = open_to_write(history, RESOURCE_GROUPS.name)
            before = table.version()
            done = once(table)
            # Also where nothing had to be changed: what is there may be another's latest commit.
            keep(synced, table, RESOURCE_GROUPS.name, before=before)
            _checkpoint_if_due(table, uri, before)
            return done
        except (CommitFailedError, DeltaProtocolError) as error:
            if attempt == _ATTEMPTS:
                raise HistoryError(f"history table resource_groups: {one_line(error)}") from None
            # Several writers in step would go on colliding.
            sleep(random.uniform(0, 0.02 * min(attempt, 10)))
        except (DeltaError, OSError) as error:
            raise HistoryError(f"history table resource_groups: {one_line(error)}") from None
    raise AssertionError("unreachable")


def _checkpoint_if_due(table: DeltaTable, uri: str, before: int) -> None:
    if table.version() // CHANGES_PER_CHECKPOINT > before // CHANGES_PER_CHECKPOINT:
        # The change is made, whatever happens here; the next one due makes up for it.
        with suppress(DeltaError, OSError):
            checkpoint(table, uri)
