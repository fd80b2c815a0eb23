"""The resource groups of a shard as arrays: quota, policy, parent, and terms of single brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa

from quotaplane.arrays import map_arrays, taken
from quotaplane.groups.hierarchy import binding_quota, least_on_path, roots_of
from quotaplane.groups.option_kinds import OptionArray
from quotaplane.groups.policy_options import ARRAYS
from quotaplane.model import DIMENSIONS, BoolArray, CodeArray, FloatArray, IntArray, Mode
from quotaplane.throttle.coded import Throttles, default_throttles, joined

_D: Final = len(DIMENSIONS)


@dataclass(frozen=True)
class Overrides:
    """Terms of single brokers in a group: a row per (group, broker), sorted by group.

    ``group`` is an index, ``broker`` a name or "" for all brokers of the group. ``weight`` and
    ``priority`` have shape (rows,), ``floor`` and ``ceiling`` (dimensions, rows); NaN is not given.
    """

    group: IntArray
    broker: pa.StringArray
    weight: FloatArray
    priority: FloatArray
    floor: FloatArray
    ceiling: FloatArray

    def __len__(self) -> int:
        return len(self.group)

    def take(self, chosen: BoolArray | IntArray) -> Overrides:
        """The rows that ``chosen`` (a mask, or positions in order) picks."""
        index = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
        return replace(taken(self, index), broker=self.broker.take(pa.array(index)))

    def narrowed(self, dimensions: Sequence[int]) -> Overrides:
        """The same with these of the dimensions alone."""
        at = list(dimensions)
        return replace(self, floor=self.floor[at], ceiling=self.ceiling[at])


def no_overrides() -> Overrides:
    """No broker has anything of its own."""
    none, rates = np.empty(0), np.empty((_D, 0))
    return Overrides(np.empty(0, np.int64), pa.array([], pa.string()), none, none, rates, rates)


@dataclass(frozen=True)
class Groups:
    """The resource groups of a shard, sorted by id.

    ``quota`` has shape (dimensions, groups); +inf is unlimited. ``parent`` is the index of the
    group above in the same tree, -1 for none. ``options`` has an array for each of
    ``policy_options.ARRAYS``. ``throttle`` is how its brokers are to hold to its limits.
    ``template``: a scope with ``<default>`` in it, of which nothing is divided (``groups.scope``).

    Inside a step the dimensions are those that its rows have: see ``narrowed``.
    """

    ids: IntArray
    names: pa.StringArray
    quota: FloatArray
    parent: IntArray
    options: Mapping[str, OptionArray]
    overrides: Overrides
    throttle: Throttles
    template: BoolArray

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mode(self) -> CodeArray:
        """(groups,) of ``model.Mode``."""
        return self.options["mode"]

    @property
    def enforcement_percent(self) -> FloatArray:
        """(groups,) on how many of its brokers limits are enforced."""
        return self.options["enforcement_percent"]

    @property
    def weight(self) -> FloatArray:
        """(groups,) in the quota of its parent, as are ``priority`` and ``floor``."""
        return self.options["weight"]

    @property
    def priority(self) -> IntArray:
        """(groups,)"""
        return self.options["priority"]

    @property
    def floor(self) -> FloatArray:
        """(dimensions, groups) per second."""
        return self.options["floor"]

    def tree_quota(self, dimension: int) -> FloatArray:
        """(groups,) see ``binding_quota``."""
        return binding_quota(self.parent, self.quota[dimension], self.mode == Mode.HARD)

    def least_quota(self) -> FloatArray:
        """(dimensions, groups) the lowest quota that holds for each group: its own, or one above.

        A quota of its own counts here even if it binds no group below it.
        """
        above = [least_on_path(self.parent, self.tree_quota(d)) for d in range(len(self.quota))]
        return np.minimum(self.quota, np.stack(above))

    def take(self, chosen: BoolArray) -> Groups:
        """The groups that a mask (groups,) selects; it must select whole trees."""
        place = np.cumsum(chosen) - 1
        parent = self.parent[chosen]
        overrides = self.overrides.take(chosen[self.overrides.group])
        return Groups(
            ids=self.ids[chosen],
            names=self.names.filter(pa.array(chosen)),
            quota=self.quota[:, chosen],
            parent=np.where(parent < 0, -1, place[parent]),
            options={name: array[..., chosen] for name, array in self.options.items()},
            overrides=replace(overrides, group=place[overrides.group]),
            throttle=self.throttle.take(chosen),
            template=self.template[chosen],
        )

    def narrowed(self, dimensions: Sequence[int]) -> Groups:
        """The same with these of the dimensions alone."""
        at = list(dimensions)
        return replace(
            self,
            quota=self.quota[at],
            options={
                name: array[at] if ARRAYS[name].by_dimension else array
                for name, array in self.options.items()
            },
            overrides=self.overrides.narrowed(dimensions),
        )


def plain_groups(ids: IntArray, names: pa.StringArray, quota: FloatArray) -> Groups:
    """Groups, sorted by id, whose policy nobody set and which have no parents.

    >>> groups = plain_groups(np.array([7]), pa.array(["g"]), np.full((_D, 1), 10.0))
    >>> groups.weight.tolist(), groups.parent.tolist()
    ([1.0], [-1])
    """
    n = len(ids)
    return Groups(
        ids=ids,
        names=names,
        quota=quota,
        parent=np.full(n, -1, np.int64),
        options={name: option.filled(n) for name, option in ARRAYS.items()},
        overrides=no_overrides(),
        throttle=default_throttles(n),
        template=np.zeros(n, np.bool_),
    )


def joined_groups(parts: Sequence[Groups]) -> tuple[Groups, list[IntArray]]:
    """The groups of all parts, sorted by id; for each part, the new index of its groups.

    >>> one, other = (plain_groups(np.array([i]), pa.array([n]), np.ones((_D, 1)))
    ...     for i, n in ((7, "a"), (5, "b")))
    >>> both, places = joined_groups([one, other])
    >>> both.names.to_pylist(), [place.tolist() for place in places]
    (['b', 'a'], [[1], [0]])
    """
    ids = np.concatenate([part.ids for part in parts])
    order = np.argsort(ids)
    ends = np.cumsum([len(part) for part in parts])[:-1]
    places = np.split(np.argsort(order), ends)

    def all_of(arrays: Sequence[OptionArray]) -> OptionArray:
        both: OptionArray = np.concatenate(arrays, axis=-1)[..., order]
        return both

    moved = list(zip(parts, places, strict=True))
    above = [np.where(part.parent < 0, -1, place[part.parent]) for part, place in moved]
    terms = [replace(part.overrides, group=place[part.overrides.group]) for part, place in moved]
    overrides = replace(
        map_arrays(lambda *arrays: np.concatenate(arrays, axis=-1), *terms),
        broker=pa.concat_arrays([part.broker for part in terms]),
    )
    groups = Groups(
        ids=ids[order],
        names=pa.concat_arrays([part.names for part in parts]).take(pa.array(order)),
        quota=all_of([part.quota for part in parts]),
        parent=all_of(above),
        options={name: all_of([part.options[name] for part in parts]) for name in ARRAYS},
        overrides=overrides.take(np.argsort(overrides.group, kind="stable")),
        throttle=reduce(joined, [part.throttle for part in parts]).take(order),
        template=all_of([part.template for part in parts]),
    )
    return groups, places


def whole_trees(groups: Groups, touched: BoolArray) -> BoolArray:
    """The groups, shape (groups,), of every tree of which any is ``touched``.

    >>> groups = plain_groups(np.arange(3), pa.array(["a", "a::b", "c"]), np.ones((_D, 3)))
    >>> groups.parent[1] = 0
    >>> whole_trees(groups, np.array([False, True, False])).tolist()
    [True, True, False]
    """
    if (groups.parent < 0).all():
        return touched
    root = roots_of(groups.parent)
    whole = np.zeros(len(groups), bool)
    whole[root[touched]] = True
    return whole[root]


def group_columns(groups: Groups) -> dict[str, Any]:
    """Columns of a table of groups: one per vector, without those in which all is default.

    Read back by ``groups_from``; the names and the overrides go apart.
    """
    columns: dict[str, Any] = {"id": groups.ids, **_given(DIMENSIONS, groups.quota, np.inf)}
    if (groups.parent >= 0).any():
        columns["parent"] = groups.parent.astype(np.int32)
    by_dimension: dict[str, Any] = {}
    for name, option in ARRAYS.items():
        array, default = groups.options[name], option.default_code
        if option.by_dimension:
            by_dimension |= _given(_named(name), array, default)
        elif (array != default).any():
            columns[name] = array.astype(option.dtype_at_rest)
    if groups.template.any():
        columns["template"] = groups.template
    if groups.throttle.any_given:
        columns["throttle"] = groups.throttle.column()
    return columns | by_dimension


def override_columns(overrides: Overrides) -> dict[str, Any]:
    """Columns of a table of overrides, as of groups; read back by ``groups_from``."""
    return {
        "group": overrides.group.astype(np.int32),
        "broker": overrides.broker,
        "weight": overrides.weight,
        "priority": overrides.priority,
        **_given(_named("floor"), overrides.floor, np.nan),
        **_given(_named("ceiling"), overrides.ceiling, np.nan),
    }


def groups_from(
    columns: Mapping[str, Any], names: pa.StringArray, overrides: Mapping[str, Any]
) -> Groups:
    """Groups out of ``group_columns`` and ``override_columns``, to the bit."""
    n, rows = len(columns["id"]), len(overrides["group"])
    plain = plain_groups(columns["id"], names, _stacked(columns, DIMENSIONS, n, np.inf))
    options = {
        name: _stacked(columns, _named(name), n, option.default_code).astype(option.dtype)
        if option.by_dimension
        else columns[name].astype(option.dtype)
        for name, option in ARRAYS.items()
        if option.by_dimension or name in columns
    }
    given: dict[str, Any] = {
        name: columns[name].astype(getattr(plain, name).dtype)
        for name in ("parent", "template")
        if name in columns
    }
    if "throttle" in columns:
        given["throttle"] = Throttles.of_column(columns["throttle"])
    kept = Overrides(
        group=overrides["group"].astype(np.int64),
        broker=overrides["broker"],
        weight=overrides["weight"],
        priority=overrides["priority"],
        floor=_stacked(overrides, _named("floor"), rows, np.nan),
        ceiling=_stacked(overrides, _named("ceiling"), rows, np.nan),
    )
    return replace(plain, options={**plain.options, **options}, overrides=kept, **given)


def _named(what: str) -> list[str]:
    return [f"{what}_{dimension}" for dimension in DIMENSIONS]


def _given(names: Sequence[str], vectors: FloatArray, default: float) -> dict[str, FloatArray]:
    """The vectors (names, n) by name, without those that are ``default`` throughout."""
    blank = np.isnan if np.isnan(default) else partial(np.equal, default)
    known = zip(names, vectors, strict=True)
    return {name: vector for name, vector in known if not blank(vector).all()}


def _stacked(
    columns: Mapping[str, Any], names: Sequence[str], n: int, default: float
) -> FloatArray:
    """The vectors (names, n) that ``_given`` was given."""
    vectors = np.full((len(names), n), default)
    for row, name in enumerate(names):
        if name in columns:
            vectors[row] = columns[name]
    return vectors
