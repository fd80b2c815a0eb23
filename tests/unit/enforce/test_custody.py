"""Custody of a publish quota: what -1 means, and each act."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.enforce.custody import (
    NEVER,
    NONE,
    Act,
    DropCopy,
    Give,
    KeepCopy,
    Recorded,
    Seen,
    Wish,
    act,
    cluster_limits,
    quota,
)
from quotaplane.model import FloatArray

INF, NAN = np.inf, np.nan
NOTHING = (NAN, NAN)
LATER = np.full(2, 2.0)
"""Decided after each row was written."""

TAKE, GIVE = Wish.TAKE, Wish.GIVE
Pair = tuple[float, float]


def row(publish: Pair | None) -> Recorded | None:
    return None if publish is None else Recorded(np.array(publish), 1.0)


def in_words(found: Act | None) -> object:
    """An act as (name, its numbers)."""
    if found is None:
        return None
    numbers = () if isinstance(found, DropCopy) else found
    return type(found).__name__, *(each.tolist() for each in numbers)


@pytest.mark.parametrize(
    ("cluster", "table", "copy", "takes", "gives"),
    [
        # The cluster has the row's numbers, and limits that follow them are in force.
        ((9, INF), (9, INF), NOTHING, ("KeepCopy", [9, INF]), None),
        ((9, INF), (9, INF), (7, INF), ("KeepCopy", [9, INF]), ("DropCopy",)),
        ((9, INF), (9, INF), (9, INF), ("Hide", [True, False]), ("DropCopy",)),
        ((9, 5), (9, 5), (9, 5), ("Hide", [True, True]), ("DropCopy",)),
        # Somebody set a number: the sync will copy it to the table.
        ((8, INF), (9, INF), NOTHING, None, None),
        ((8, INF), (9, INF), (9, INF), None, ("DropCopy",)),
        ((8, INF), (INF, INF), (9, INF), None, ("DropCopy",)),
        # Hidden.
        ((INF, INF), (9, 5), (9, 5), None, ("Give", [9, 5], [True, True])),
        ((INF, INF), (9, 5), (7, 5), ("KeepCopy", [9, 5]), ("Give", [9, 5], [True, True])),
        ((INF, INF), (9, INF), NOTHING, ("KeepCopy", [9, INF]), ("Give", [9, INF], [True, False])),
        # One of the two is hidden, the other one was set again.
        ((9, INF), (9, 5), (9, 5), ("Hide", [True, False]), ("Give", [9, 5], [False, True])),
        ((9, INF), (9, 5), (7, 5), ("KeepCopy", [9, 5]), ("Give", [9, 5], [False, True])),
        ((8, INF), (9, 5), (9, 5), None, ("Give", [8, 5], [False, True])),
        # The table lost the row.
        ((INF, INF), None, (9, 5), None, ("Give", [9, 5], [True, True])),
        ((8, INF), None, (9, 5), None, ("Give", [8, 5], [False, True])),
        ((8, INF), None, NOTHING, None, None),
        # Unlimited, by the table or by all.
        ((INF, INF), (INF, INF), NOTHING, None, None),
        ((INF, INF), (INF, INF), (9, 5), None, ("DropCopy",)),
        ((INF, INF), None, NOTHING, None, None),
        # The cluster does not have the group.
        (NOTHING, (9, 5), (9, 5), None, None),
    ],
)
def test_cells(cluster: Pair, table: Pair | None, copy: Pair, takes: object, gives: object) -> None:
    seen = Seen(np.array(cluster), np.array(copy))
    assert in_words(act(seen, row(table), TAKE, LATER)) == takes
    assert in_words(act(seen, row(table), GIVE)) == gives


@pytest.mark.parametrize("decided", [[0.0, 2.0], [1.0, 2.0], [-INF, -INF]])
def test_nothing_is_taken_before_limits_follow_the_row(decided: list[float]) -> None:
    """Each dimension that the cluster limits needs them."""
    seen = Seen(np.array([9.0, 5.0]), np.array([9.0, 5.0]))
    assert act(seen, row((9, 5)), TAKE, np.array(decided)) is None
    # The copy of a quota that is hidden already needs no limits.
    hidden = Seen(np.full(2, INF), NONE)
    assert in_words(act(hidden, row((9, 5)), TAKE, np.array(decided))) == ("KeepCopy", [9, 5])


@pytest.mark.parametrize(
    ("cluster", "table", "copy", "limits"),
    [
        ((9, INF), (9, INF), NOTHING, True),
        ((INF, INF), (9, INF), (9, INF), False),
        ((9, INF), (9, 5), (9, 5), False),
        ((9, INF), None, NOTHING, True),
        ((INF, INF), None, (9, INF), False),
        ((INF, INF), None, NOTHING, False),
        ((INF, INF), (INF, INF), NOTHING, True),
        (NOTHING, (9, 5), NOTHING, True),
        (NOTHING, None, NOTHING, True),
    ],
)
def test_cluster_limits(cluster: Pair, table: Pair | None, copy: Pair, limits: bool) -> None:
    assert cluster_limits(Seen(np.array(cluster), np.array(copy)), row(table)) is limits


# --- any cell, and a crash after any act ----------------------------------------------------------

NUMBER = st.sampled_from([3.0, 9.0, INF])
PAIR = st.tuples(NUMBER, NUMBER)


def done(seen: Seen, step: Act) -> Seen:
    """The cluster after an act."""
    if isinstance(step, KeepCopy):
        return seen._replace(copy=step.quota)
    if isinstance(step, DropCopy):
        return seen._replace(copy=NONE)
    number = step.quota if isinstance(step, Give) else np.full(2, INF)
    return seen._replace(quota=np.where(step.which, number, seen.quota))


def somewhere(seen: Seen) -> FloatArray:
    """In which dimensions the cluster has a number, or the copy."""
    has: FloatArray = np.isfinite(seen.quota) | np.isfinite(seen.copy)
    return has


@given(
    cluster=PAIR,
    table=st.none() | PAIR,
    copy=st.just(NOTHING) | PAIR,
    wishes=st.lists(st.tuples(st.sampled_from(Wish), st.integers(1, 3)), min_size=1, max_size=5),
    decided=st.sampled_from([NEVER, LATER]),
)
def test_from_any_cell_the_same_act_again_reaches_a_fixed_point_and_loses_nothing(
    cluster: Pair,
    table: Pair | None,
    copy: Pair,
    wishes: list[tuple[Wish, int]],
    decided: FloatArray,
) -> None:
    """After each number of acts the process crashes, and the next one has another wish."""
    seen, has = Seen(np.array(cluster), np.array(copy)), row(table)
    publish = NONE if has is None else has.publish
    meant = quota(seen.quota, publish, seen.copy)
    kept = somewhere(seen)
    for wish, acts in [*wishes, (wishes[-1][0], 4)]:
        for _ in range(acts):
            step = act(seen, has, wish, decided)
            if step is None:
                break
            seen = done(seen, step)
            assert np.array_equal(quota(seen.quota, publish, seen.copy), meant)
            # Once there is a number or a copy, there is always one.
            assert (somewhere(seen) >= (kept & np.isfinite(meant))).all()
            kept |= somewhere(seen)
    assert act(seen, has, wishes[-1][0], decided) is None
    if wishes[-1][0] is GIVE:
        assert np.isnan(seen.copy).all()
        assert np.array_equal(seen.quota, meant)
