"""The limits of brokers, from limits messages: each holds for its lease, then its safe limit does.

docs/reference/wire.md has the rules. The limits are in arrays by (broker, group): a broker has one
row, a simulated cluster or an enforcer has one for each broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from quotaplane.client.group_columns import GroupColumns
from quotaplane.errors import InputError
from quotaplane.groups.ids import ids_of
from quotaplane.model import DIMENSIONS, UNLIMITED, BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from quotaplane.wire.limits import LimitsMessage

_NO_END: Final = int(np.iinfo(np.int64).max)
_NO_COLUMNS: Final = np.empty(0, np.int64)


class Applied(NamedTuple):
    """Changes that a message made for its broker; groups are given as columns of the arrays."""

    listed: IntArray = _NO_COLUMNS
    """Groups whose limits it set."""
    removed: IntArray = _NO_COLUMNS
    """Groups that it removed."""
    new_terms: IntArray = _NO_COLUMNS
    """Groups whose throttle terms changed."""
    changed: int = 0
    """Number of limits that changed; a removal counts as one."""
    safe_changed: bool = False
    """Whether any safe limit changed."""


class ReceivedLimits:
    """The newest limits of some brokers for some groups; late and repeated messages change nothing.

    Rows of the arrays are brokers and columns are groups, both in the order in which they were
    added. A group is stored by id; messages may have its id or its name.

    >>> from quotaplane.wire.limits import decode_limits, encode_limits
    >>> limits = ReceivedLimits(["b1"], ["g"])
    >>> message = encode_limits(broker="b1", shard=0, epoch=1, seq=7, issued_at_ms=0,
    ...     lease_ms=5000, groups=["g"], limits=np.array([[20.0]]), safe_limits=np.array([[10.0]]))
    >>> limits.apply(decode_limits(message)).changed
    1
    >>> [float(limits.all(now_ms)[0, 0, 0]) for now_ms in (0, 5000, 5001)]
    [20.0, 20.0, 10.0]
    """

    def __init__(
        self,
        brokers: Iterable[str] = (),
        groups: Sequence[str] = (),
        *,
        started_at_ms: int = 0,
        unset: float = UNLIMITED,
        unset_safe: float = UNLIMITED,
        removed: float = UNLIMITED,
        dimensions: int = len(DIMENSIONS),
        throttles: bool = True,
        admits: Callable[[IntArray], BoolArray] | None = None,
    ) -> None:
        """Begin without any message.

        Args:
            brokers: names; ``add_broker`` adds more. Messages for other brokers change nothing.
            groups: names; ``admits`` adds more.
            started_at_ms: when these brokers started, as in their reports; 0: not reported.
            unset: the limit before any message listed the group.
            unset_safe: the safe limit before any message had one.
            removed: the limit of a group that a message removed.
            dimensions: how many to keep, from the first of ``DIMENSIONS`` on.
            throttles: whether to keep throttle terms.
            admits: from the ids of new groups, returns which of them get a column. None: no new
                group does.
        """
        self._unset, self._unset_safe, self._removed = unset, unset_safe, removed
        self._admits = admits
        self._row = {broker: row for row, broker in enumerate(brokers)}
        self._started_at_ms = [started_at_ms] * len(self._row)
        self._groups = GroupColumns()
        # By (broker, group); both axes may be longer than the numbers of brokers and groups.
        self._limit: FloatArray = np.full((0, 0, dimensions), unset)
        self._safe: FloatArray = np.full((0, 0, dimensions), unset_safe)
        self._until_ms: IntArray = np.full((0, 0), _NO_END)
        self._epoch: IntArray = np.full((0, 0), -1)
        self._seq: IntArray = np.full((0, 0), -1)
        self._is_removed: BoolArray = np.zeros((0, 0), np.bool_)
        self._throttle: npt.NDArray[Any] | None = (
            np.full((0, 0), "", np.object_) if throttles else None
        )
        self._decided_ms: FloatArray = np.full(0, -np.inf)
        ids = ids_of(groups)
        if len(np.unique(ids)) < len(ids):
            raise InputError("groups: two of them have the same id")
        self._groups.add(ids)
        self._make_room()

    @property
    def brokers(self) -> Collection[str]:
        """Names of the brokers, by row."""
        return self._row.keys()

    @property
    def ids(self) -> IntArray:
        """Ids of the groups, sorted."""
        return self._groups.ids

    @property
    def room(self) -> tuple[int, int]:
        """Numbers of rows and columns that are allocated."""
        rows, columns = self._until_ms.shape
        return rows, columns

    @property
    def epochs(self) -> IntArray:
        """(brokers, groups) epoch of the last message that listed or removed each; -1: none did."""
        return self._epoch[: len(self._row), : len(self._groups)]

    def row(self, broker: str) -> int:
        """The row of a broker; -1: it is not known."""
        return self._row.get(broker, -1)

    def rows(self, brokers: Iterable[str]) -> IntArray:
        """The rows of brokers; -1: not known."""
        return np.array([self._row.get(name, -1) for name in brokers], np.int64)

    def columns(self, ids: IntArray) -> IntArray:
        """The columns of groups by id; -1: not known."""
        return self._groups.of_ids(ids)

    def columns_of(self, names: Sequence[str]) -> IntArray:
        """The columns of groups by name; -1: not known."""
        return self._groups.of_names(names)

    def add_broker(self, broker: str) -> int:
        """Keep a broker's limits from now on, whose start is not known; returns its row."""
        if broker not in self._row:
            self._row[broker] = len(self._row)
            self._started_at_ms.append(0)
            self._make_room()
        return self._row[broker]

    def restart(self, row: int, started_at_ms: int) -> None:
        """Forget the limits of a restarted broker; messages for its earlier start are ignored."""
        self._started_at_ms[row] = started_at_ms
        self._limit[row], self._safe[row] = self._unset, self._unset_safe
        self._until_ms[row], self._is_removed[row] = _NO_END, False
        self._epoch[row] = self._seq[row] = -1
        if self._throttle is not None:
            self._throttle[row] = ""

    def apply(
        self,
        message: LimitsMessage,
        now_ms: float | None = None,
        *,
        issued_ms: float | None = None,
    ) -> Applied:
        """Apply a message to those groups for which it is newer than the last one applied.

        A message for another broker, or for another incarnation of it, changes nothing.

        ``now_ms``: a message whose lease is not over takes precedence over one whose lease is over,
        even if its version is lower. None: only versions are compared.

        ``issued_ms``: time of issue on the clock of the calls of ``all``, see
        ``LimitsMessage.issued_on``. None: the time in the message.
        """
        until_ms = int(message.issued_at_ms if issued_ms is None else issued_ms) + message.lease_ms
        row = self._row.get(message.broker)
        if row is None or message.broker_started_at_ms not in (0, self._started_at_ms[row]):
            return Applied()
        if message.groups:
            columns = self._groups.of_names(message.groups, self._columns_with_new)
        else:
            columns = self._columns_with_new(message.group_ids)
        listed, entry = self._newer(row, columns, message, now_ms, until_ms)
        limits = message.limits[entry, : self._limit.shape[-1]]
        changed = int((self._limit[row, listed] != limits).any(axis=1).sum())
        self._limit[row, listed] = limits
        safe_changed = self._set_safe(row, listed, entry, message.safe_limits)
        new_terms = _NO_COLUMNS
        if message.throttles is not None and self._throttle is not None:
            texts = np.array(message.throttles, np.object_)[entry]
            new_terms = listed[self._throttle[row, listed] != texts]
            self._throttle[row, listed] = texts
        self._decided_ms[listed] = np.maximum(self._decided_ms[listed], message.issued_at_ms)
        self._is_removed[row, listed] = False
        self._stamp(row, listed, message, until_ms)
        applied = Applied(listed, _NO_COLUMNS, new_terms, changed, safe_changed)
        if message.removed_groups or len(message.removed_group_ids):
            return self._remove(row, message, now_ms, until_ms, applied)
        return applied

    def _remove(
        self,
        row: int,
        message: LimitsMessage,
        now_ms: float | None,
        until_ms: int,
        before: Applied,
    ) -> Applied:
        """Remove the groups that a message removes; only the message's version is kept."""
        ids = np.concatenate([ids_of(message.removed_groups), message.removed_group_ids])
        columns = self._columns_with_new(ids)
        removed, _ = self._newer(row, columns, message, now_ms, until_ms)
        safe_changed = bool(np.isfinite(self._safe[row, removed]).any())
        # The safe limit is the same, as a removal has no end.
        self._limit[row, removed] = self._safe[row, removed] = self._removed
        self._is_removed[row, removed] = True
        had_terms = _NO_COLUMNS
        if self._throttle is not None:
            had_terms = removed[self._throttle[row, removed] != ""]
            self._throttle[row, removed] = ""
        self._stamp(row, removed, message, until_ms)
        return before._replace(
            removed=removed,
            new_terms=np.concatenate([before.new_terms, had_terms]),
            changed=before.changed + len(removed),
            safe_changed=before.safe_changed or safe_changed,
        )

    def _set_safe(
        self, row: int, listed: IntArray, entry: IntArray, safe_limits: FloatArray | None
    ) -> bool:
        """Set the safe limits of listed groups; returns whether any changed."""
        if safe_limits is None:
            # A group that was removed and is listed again has lost its earlier safe limit.
            again = listed[self._is_removed[row, listed]]
            self._safe[row, again] = self._unset_safe
            return len(again) > 0
        safe = safe_limits[entry, : self._safe.shape[-1]]
        changed = not np.array_equal(self._safe[row, listed], safe)
        self._safe[row, listed] = safe
        return changed

    def _newer(
        self,
        row: int,
        columns: IntArray,
        message: LimitsMessage,
        now_ms: float | None,
        until_ms: int,
    ) -> tuple[IntArray, IntArray]:
        """The columns for which the message is newer, and their indexes in ``columns``."""
        epoch, seq = self._epoch[row, columns], self._seq[row, columns]
        newer: BoolArray = (message.epoch > epoch) | (
            (message.epoch == epoch) & (message.seq > seq)
        )
        if now_ms is not None:
            over = self._until_ms[row, columns] < now_ms
            if until_ms >= now_ms:
                newer |= over
            else:
                # A group without any message yet has no lease that could be over.
                newer &= over | (epoch < 0)
        entry = np.flatnonzero(newer & (columns >= 0))
        return columns[entry], entry

    def _stamp(self, row: int, columns: IntArray, message: LimitsMessage, until_ms: int) -> None:
        """Record the message's version and lease end."""
        self._until_ms[row, columns] = until_ms
        self._epoch[row, columns] = message.epoch
        self._seq[row, columns] = message.seq

    def _columns_with_new(self, ids: IntArray) -> IntArray:
        """The columns of groups by id, after admitted new groups were added; -1: not known."""
        columns = self.columns(ids)
        if self._admits is None:
            return columns
        new = ids[(columns < 0) & (ids >= 0)]
        if not len(new):
            return columns
        # In the order of the message, so that neighbours in it are neighbours in memory.
        new = new[np.sort(np.unique(new, return_index=True)[1])]
        self._groups.add(new[self._admits(new)])
        self._make_room()
        return self.columns(ids)

    def _make_room(self) -> None:
        # At least one row and one column: index -1, which means "not known", must be valid.
        needs = max(len(self._row), 1), max(len(self._groups), 1)
        room = [(0, _growth(has, need)) for has, need in zip(self.room, needs, strict=True)]
        if room == [(0, 0), (0, 0)]:
            return
        self._limit = np.pad(self._limit, [*room, (0, 0)], constant_values=self._unset)
        self._safe = np.pad(self._safe, [*room, (0, 0)], constant_values=self._unset_safe)
        self._until_ms = np.pad(self._until_ms, room, constant_values=_NO_END)
        self._epoch = np.pad(self._epoch, room, constant_values=-1)
        self._seq = np.pad(self._seq, room, constant_values=-1)
        self._is_removed = np.pad(self._is_removed, room, constant_values=False)
        if self._throttle is not None:
            before, self._throttle = self._throttle, np.full(self.room, "", np.object_)
            self._throttle[: before.shape[0], : before.shape[1]] = before
        self._decided_ms = np.pad(self._decided_ms, room[1], constant_values=-np.inf)

    def forget(self, ended_before_ms: float, brokers: Collection[str], ids: IntArray) -> None:
        """Forget brokers and groups whose leases all ended before a time, except the given ones.

        The columns of the remaining groups may change.
        """
        recent: BoolArray = (self._epoch >= 0) & (self._until_ms >= ended_before_ms)
        of_broker, of_group = np.asarray(recent.any(axis=1)), np.asarray(recent.any(axis=0))
        rows = {name: row for name, row in self._row.items() if name in brokers or of_broker[row]}
        stays: BoolArray = np.isin(self.ids, ids) | self._groups.by_id(of_group)
        if len(rows) == len(self._row) and stays.all():
            return
        columns = self._groups.keep(stays)
        kept = np.ix_(np.array([*rows.values()], np.int64), columns)
        self._started_at_ms = [self._started_at_ms[row] for row in rows.values()]
        self._row = {name: row for row, name in enumerate(rows)}
        self._limit, self._safe = self._limit[kept], self._safe[kept]
        self._until_ms, self._is_removed = self._until_ms[kept], self._is_removed[kept]
        self._epoch, self._seq = self._epoch[kept], self._seq[kept]
        if self._throttle is not None:
            self._throttle = self._throttle[kept]
        self._decided_ms = self._decided_ms[columns]
        self._make_room()

    def all(self, now_ms: float) -> FloatArray:
        """The limits in force (brokers, groups, d) per second; inf is unlimited."""
        rows, columns = len(self._row), len(self._groups)
        over = self._until_ms[:rows, :columns] < min(now_ms, _NO_END)
        safe, limit = self._safe[:rows, :columns], self._limit[:rows, :columns]
        return np.where(over[..., None], safe, limit)

    def of(self, row: int | IntArray, column: IntArray, now_ms: float) -> FloatArray:
        """The limits in force (k, d) of k pairs; ``unset`` where one of them is -1.

        ``now_ms=inf`` gives the safe limits, for groups that any message listed.
        """
        over = self._until_ms[row, column] < min(now_ms, _NO_END)
        limits = np.where(over[:, None], self._safe[row, column], self._limit[row, column])
        limits[(np.asarray(row) < 0) | (column < 0)] = self._unset
        return limits

    def lease_ends_ms(self, rows: IntArray, columns: IntArray) -> IntArray:
        """When the leases of the limits that these brokers have for these groups end (k,).

        Pairs that no message listed, and removed ones, are left out.
        """
        pairs = np.ix_(rows[rows >= 0], columns[columns >= 0])
        limited = (self._epoch[pairs] >= 0) & ~self._is_removed[pairs]
        ends: IntArray = self._until_ms[pairs][limited]
        return ends

    def throttles(self, row: int, columns: IntArray) -> Sequence[str]:
        """The throttle terms of a broker's groups, as texts; "" = the defaults."""
        if self._throttle is None:
            return [""] * len(columns)
        known = (columns >= 0) & (row >= 0)
        texts: list[str] = np.where(known, self._throttle[row, columns], "").tolist()
        return texts

    def acknowledged(self, row: int, columns: IntArray) -> tuple[tuple[int, int] | None, IntArray]:
        """The acknowledgement for a broker's report.

        Returns:
            The newest (epoch, seq) of all groups of the broker, None if it has no limits; for each
            given group the seq of its limit if that is of the same epoch, else -1.
        """
        epoch = self._epoch[row]
        newest = int(epoch.max())
        if newest < 0:
            return None, np.full(len(columns), -1)
        of_newest = epoch == newest
        seq = int(self._seq[row, of_newest].max())
        known = of_newest[columns] & (columns >= 0)
        return (newest, seq), np.where(known, self._seq[row, columns], -1)

    def is_known(self, columns: IntArray) -> BoolArray:
        """Which groups any message listed or removed, for any broker; false for column -1."""
        epochs = self._epoch[:, columns]
        return np.asarray((epochs >= 0).any(axis=0)) & (columns >= 0)

    def decided_ms(self, columns: IntArray) -> FloatArray:
        """When the newest limits of each group were issued, for any broker; -inf: never."""
        return np.where(columns >= 0, self._decided_ms[columns], -np.inf)


def _growth(has: int, needs: int) -> int:
    """By how much to lengthen an axis."""
    if needs <= has:
        return 0
    # By half: brokers and groups are added one by one, and a copy for each would be quadratic.
    return needs - has if has == 0 else (3 * needs + 1) // 2 - has
