"""Changes of resource groups taken into a shard: what ``resource_groups`` says from now on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrays import find, map_arrays
from quotaplane.groups.hierarchy import parents_of
from quotaplane.groups.option_kinds import OptionArray, read_numbers
from quotaplane.groups.policy_options import ARRAYS
from quotaplane.groups.scope import templates
from quotaplane.groups.terms_by_broker import ALL_BROKERS, read_terms
from quotaplane.model import (
    MAX_RATE,
    RATE_COLUMNS,
    TREE_BITS,
    BoolArray,
    FloatArray,
    IntArray,
)
from quotaplane.quota.groups import Groups, Overrides, no_overrides
from quotaplane.quota.leases import Leases
from quotaplane.quota.state import ShardState
from quotaplane.throttle.coded import Throttles, coded, default_throttles, joined
from quotaplane.throttle.coded import changed as throttle_changed


@dataclass(frozen=True)
class GroupChanges:
    """The effect of a round's changes of definitions on a shard."""

    groups: Groups
    """Afterwards, in all dimensions."""
    leases: Leases
    """Afterwards, without those of deleted groups."""
    changed: BoolArray
    """(g,) a definition, a policy or a parent is new."""
    throttle_changed: BoolArray
    """(g,) the throttle terms differ from those that brokers have."""
    lost: Leases | None = None
    """Those of deleted groups, numbered as before; None: nothing was changed."""


def no_changes(state: ShardState) -> GroupChanges:
    """All groups are as they were."""
    nothing = np.zeros(len(state.groups), bool)
    return GroupChanges(state.groups, state.leases, nothing, nothing)


def change_groups(state: ShardState, events: pa.Table) -> GroupChanges:
    """Take in changes (``wire.shard_inputs.GROUPS``; columns of the policy may be absent).

    `groups put` refuses what is out of its range, but others may write the table too: such a value
    is taken for the nearest that is allowed, an unknown mode for hard, no number for not given, and
    a text that can't be read for none.
    """
    old, rows = state.groups, state.leases
    # A commit that deletes a row and puts one for the same group (an overwrite) has put it.
    if _ambiguous(events):
        events = events.sort_by([(name, "ascending") for name in events.column_names])
    put_last = ~events["deleted"].to_numpy()
    order = np.lexsort((np.arange(len(events)), put_last, events["version"].to_numpy()))
    ids = events["group_id"].to_numpy()[order]
    last = len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1]
    newest = events.take(pa.array(order[last]))  # by id, the latest change of each
    put = newest.filter(pa.array(~newest["deleted"].to_numpy()))
    put_ids = put["group_id"].to_numpy()

    stays = ~np.isin(old.ids, newest["group_id"].to_numpy())
    all_ids = np.concatenate([old.ids[stays], put_ids])
    by_id = np.argsort(all_ids, kind="stable")
    ids = all_ids[by_id]
    names = pa.concat_arrays(
        [old.names.filter(pa.array(stays)), put["group"].combine_chunks().cast(pa.string())]
    ).take(pa.array(by_id))

    def merged(before: OptionArray, of_put: OptionArray) -> OptionArray:
        both: OptionArray = np.concatenate([before[..., stays], of_put], axis=-1)[..., by_id]
        return both

    # Both id arrays are sorted, so the rows keep their order when their groups are renumbered.
    place = find(ids, old.ids)
    alive: BoolArray = place >= 0
    changed = np.isin(ids, put_ids)
    parent, moved = _parents(old, ids, names, place, alive)
    groups = Groups(
        ids=ids,
        names=names,
        parent=parent,
        overrides=_merged(old.overrides, stays, place, put, np.searchsorted(ids, put_ids)),
        throttle=joined(old.throttle.take(stays), _throttles(put)).take(by_id),
        quota=merged(old.quota, _quotas(put)),
        options={
            name: merged(old.options[name], option.read(put)) for name, option in ARRAYS.items()
        },
        template=merged(old.template, templates(put["group"].combine_chunks())),
    )
    keep = alive[rows.group]
    kept = rows if keep.all() else rows.take(keep)  # groups seldom go, and rows are many
    kept = replace(kept, group=place[kept.group])
    return GroupChanges(
        groups=groups,
        leases=kept,
        changed=changed | moved,
        throttle_changed=throttle_changed(old.ids, old.throttle, groups.ids, groups.throttle),
        lost=rows.take(np.flatnonzero(~keep)),
    )


def _ambiguous(events: pa.Table) -> bool:
    """Whether a commit puts a group more than once: a table's rows are in no order."""
    put = events.filter(pc.invert(events["deleted"])).select(["group_id", "version"])
    return len(put.group_by(["group_id", "version"]).aggregate([])) < len(put)


def _quotas(put: pa.Table) -> FloatArray:
    """(dimensions, groups) of the groups that are put; absent is unlimited."""
    quota = np.stack([read_numbers(put, name, np.inf) for name in RATE_COLUMNS])
    return np.where(np.isinf(quota), np.inf, np.clip(quota, 0.0, MAX_RATE))


def _throttles(put: pa.Table) -> Throttles:
    if "throttle" not in put.column_names:
        return default_throttles(len(put))
    return coded(put["throttle"].combine_chunks())


def _parents(
    old: Groups, ids: IntArray, names: pa.StringArray, place: IntArray, alive: BoolArray
) -> tuple[IntArray, BoolArray]:
    """The parents, and which groups, there before, have another parent or a child less."""
    n = len(ids)
    parent = np.full(n, -1, np.int64)
    moved = np.zeros(n, bool)
    here = np.zeros(n, bool)
    here[place[alive]] = True
    # Only where groups came or went can there be other parents; a tree shares its upper bits.
    trees = np.concatenate([ids[~here], old.ids[~alive]]) >> TREE_BITS
    stirred = np.isin(ids >> TREE_BITS, trees)
    before = np.full(n, -1, np.int64)
    child = np.flatnonzero(alive & (old.parent >= 0))
    if len(child):
        above = old.parent[child]
        before[place[child]] = np.where(alive[above], place[above], -1)
        moved[place[child[~alive[above]]]] = True  # also where that leaves it without any
        parent[~stirred] = before[~stirred]
    lost = np.flatnonzero(~alive & (old.parent >= 0))
    above = old.parent[lost]
    moved[place[above[alive[above]]]] = True
    if stirred.any():
        parent[stirred] = parents_of(names, stirred)[stirred]
    return parent, moved | (here & (parent != before))


def _merged(
    old: Overrides, stays: BoolArray, place: IntArray, put: pa.Table, at: IntArray
) -> Overrides:
    """The overrides of the groups that stay and of those that are put, at their new indexes."""
    new = _overrides(put, at)
    if not len(old) and not len(new):
        return new
    kept = old.take(stays[old.group])
    kept = replace(kept, group=place[kept.group])
    both = map_arrays(lambda *arrays: np.concatenate(arrays, axis=-1), kept, new)
    both = replace(both, broker=pa.concat_arrays([kept.broker, new.broker]))
    return both.take(np.argsort(both.group, kind="stable"))


def _overrides(put: pa.Table, at: IntArray) -> Overrides:
    """The overrides in the column ``brokers`` of the groups at ``at``."""
    if "brokers" not in put.column_names or put["brokers"].null_count == len(put):
        return no_overrides()
    encoded = put["brokers"].combine_chunks().dictionary_encode()
    # Many groups have the same text: each is read once.
    texts = [list(read_terms(t).items()) for t in encoded.dictionary.to_pylist()]
    terms = [item for text in texts for item in text]
    size = np.array([len(text) for text in texts])
    start = np.cumsum(size) - size
    code = encoded.indices.fill_null(0).to_numpy()
    count = np.where(encoded.indices.is_valid().to_numpy(False), size[code], 0)
    first = np.repeat(start[code] - (np.cumsum(count) - count), count)
    which = first + np.arange(len(first))
    rates = {
        side: np.array(
            [[_number(getattr(getattr(t, side), name)) for _, t in terms] for name in RATE_COLUMNS]
        ).reshape(len(RATE_COLUMNS), len(terms))
        for side in ("floor", "ceiling")
    }
    distinct = Overrides(
        group=np.zeros(len(terms), np.int64),
        broker=pa.array(["" if name == ALL_BROKERS else name for name, _ in terms], pa.string()),
        weight=np.array([_number(t.weight) for _, t in terms], np.float64),
        priority=np.array([_number(t.priority) for _, t in terms], np.float64),
        **rates,
    )
    return replace(distinct.take(which), group=np.repeat(at, count))


def _number(given: float | None) -> float:
    return np.nan if given is None else float(given)
