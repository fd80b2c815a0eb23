"""Small histories made by hand, each with a question and its exact answer.

tests/unit/query/test_audits.py asks DuckDB, tests/spark/test_audits.py asks Spark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from quotaplane.history.store import table_uri
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.history.writer import HistoryWriter
from quotaplane.laws import Reason
from quotaplane.model import BASIC, DIMENSIONS, Round
from quotaplane.query.answer import Answer
from quotaplane.query.usage_by_day import roll_up
from quotaplane.query.views import BEGINNING
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.history.history_cases import (
    INF,
    NAN,
    NOON_MS,
    brokers,
    limits,
    rounds,
    usage,
)
from tests.unit.sim.recorded_history import at, set_commit_time

Build = Callable[[History], None]
Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A question to a history, and its answer."""

    name: str
    build: Build
    audit: str
    rows: Rows
    columns: tuple[str, ...] = ()
    """Of the answer, those that ``rows`` have; none: all."""
    since: datetime = BEGINNING
    until: datetime | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)


class Built:
    """Histories in a folder, each built once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[Build, History] = {}

    def history(self, build: Build) -> History:
        """The history that a function builds."""
        if build not in self._built:
            history = History(path=str(self._folder / str(len(self._built))))
            build(history)
            self._built[build] = history
        return self._built[build]


def write(history: History, happened: Mapping[float, Mapping[str, Any]], epoch: int = 1) -> None:
    """Rounds by the second they happened at; each is its own seq."""
    make_history(history)
    with HistoryWriter(history, f"checkpoint-{epoch}") as writer:
        for seq, (second, tables) in enumerate(happened.items()):
            stamp = Round(epoch, seq, NOON_MS + int(second * 1000))
            writer.append_round(stamp, {"rounds": rounds(), **tables})


def change(
    history: History,
    second: float,
    by: str,
    group: str,
    quota: float | None,
    dimension: str = DIMENSIONS[0],
) -> None:
    """Set a quota, or delete a group (None), at a time."""
    make_history(history)
    if quota is None:
        delete_groups(history, [group], by)
    else:
        quotas = np.full((1, len(DIMENSIONS)), NAN)
        quotas[0, DIMENSIONS.index(dimension)] = quota
        put_groups(history, [group], quotas, by)
    table = Path(table_uri(history, RESOURCE_GROUPS.name))
    set_commit_time(table, NOON_MS + int(second * 1000))


def used(second: float, *rows: tuple[str, str, float], **options: Any) -> dict[str, Any]:
    return {"usage": usage(rows, published_at_ms=NOON_MS + int(second * 1000), **options)}


def given(*rows: tuple[str, str, float], **options: Any) -> dict[str, Any]:
    return {"limits": limits(rows, **options)}


def equal(found: Answer, columns: Sequence[str], rows: Rows) -> None:
    """Check an answer; numbers may differ in the last bits."""
    places = [found.columns.index(name) for name in columns or found.columns]
    answered = [tuple(_utc(row[place]) for place in places) for row in found.rows]
    assert len(answered) == len(rows), answered
    for row, wanted in zip(answered, rows, strict=True):
        assert len(row) == len(wanted), row
        assert all(map(_same, row, wanted)), f"{row} is not {wanted}"


def _utc(value: Any) -> Any:
    return value.astimezone(timezone.utc) if isinstance(value, datetime) else value


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(value, float | int):
        return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return bool(value == wanted)


# --- exceeded


def _runs(history: History) -> None:
    happened: dict[float, dict[str, Any]] = {0: given(("b1", "g", 50.0), ("b2", "g", 50.0))}
    for place, b1 in enumerate((50, 60, 80, 40, 5, 5, 90)):
        second = 10 + 5 * place
        rows = ("b1", "g", b1), ("b2", "g", 52 if place == 1 else 20)
        happened[second + 0.1] = used(second, *rows, window_ms=5000)
    write(history, happened)


def _bursts(history: History) -> None:
    """A bucket of a second lets 100 of 50 through, b1 then less; b2 is a second above the limit
    now and again, and never below it for long."""
    happened: dict[float, dict[str, Any]] = {0: given(("b1", "g", 50.0), ("b2", "g", 50.0))}
    rates = {10: (100, 95), 11: (0, 55), 12: (0, 50), 13: (100, 95), 14: (50, 50), 15: (50, 95)}
    for second, (b1, b2) in rates.items():
        rows = ("b1", "g", b1), ("b2", "g", b2)
        happened[second + 0.1] = used(second, *rows, window_ms=1000)
    write(history, happened)


def _before_the_limit(history: History) -> None:
    """The windows begin before the lower limit; a broker has just started; the limits of an epoch
    ended; a stock broker did not report its rate again."""
    started = {"started_at_ms": NOON_MS + 98_000}
    write(
        history,
        {
            0: given(("b1", "g", 50.0), ("b2", "g", 50.0), ("b3", "g", 50.0), ("b4", "g", 50.0)),
            20: given(("b1", "g", 10.0)),
            79: used(79, ("b1", "g", 40.0), window_ms=60_000),
            89: used(89, ("b4", "g", 45.0), window_ms=10_000),
            90: given(("b4", "g", 30.0)),
            99: used(99, ("b2", "g", 90.0), ("b2", "free", 5.0), window_ms=1000, **started),
            109: used(109, ("b4", "g", NAN), window_ms=10_000),
        },
    )
    write(
        history,
        {110: {}, 206: used(206, ("b3", "g", 400.0), window_ms=5000), 210: {}},
        epoch=2,
    )


def _slow_round(history: History) -> None:
    """The round that lowers the limit ends after nine seconds, when the next one begins."""
    write(
        history,
        {
            0: given(("b", "g", 50.0)),
            20: given(("b", "g", 10.0)) | {"rounds": rounds(duration_ms=8000)},
            29: used(28, ("b", "g", 40.0), window_ms=1000),
            38: used(38, ("b", "g", 10.0), window_ms=1000),
            39: used(39, ("b", "g", 40.0), window_ms=1000),
        },
    )


def _of_its_time(history: History) -> None:
    write(
        history,
        {
            0: given(("b", "g", 50.0), reason=Reason.FLOOR),
            20: given(("b", "g", 10.0), reason=Reason.STEP),
            20.5: used(19.0, ("b", "g", 40.0)),  # published before the cut
            24: used(23.5, ("b", "g", 41.0)),  # 3.5 s after it: the old limit still excuses
            30: used(29.0, ("b", "g", 42.0)),
            40: given(("b", "g", 100.0), reason=Reason.EVEN),
            41: used(40.5, ("b", "g", 43.0)),
        },
    )


def _unchanged(history: History) -> None:
    write(
        history,
        {
            1: used(1, ("b", "free", 70.0), ("b", "g", 70.0)),  # nothing limits either yet
            2: given(("b", "g", 50.0)),
            3: given(("b", "free", INF)),
            10: used(10, ("b", "free", 70.0), ("b", "g", 71.0)),
            15: used(15, ("b", "g", NAN)),
            16: given(("b", "g", NAN), ended_because="silent"),
            30: used(30, ("b", "g", 90.0)),
        },
    )


def _of_dimension(dimension: str) -> Build:
    def build(history: History) -> None:
        write(
            history,
            {
                0: given(("b", "g", 50.0), dimension=dimension),
                10: used(10, ("b", "g", 60.0), dimension=dimension),
            },
        )

    return build


FAIR = "saturated: fair share"
STEP = "on its way to its fair share, a step a round"
_MESSAGES = "publish_messages"

_EXCEEDED = (
    Case(
        "unbroken runs",
        _runs,
        "exceeded",
        [
            # 52 of 50 is within the tolerance
            ("b1", "g", _MESSAGES, at(15), at(20), 2, 50.0, 80.0, FAIR, True),
            ("b1", "g", _MESSAGES, at(40), at(40), 1, 50.0, 90.0, FAIR, True),
        ],
    ),
    Case(
        "a tolerance, since then",
        _runs,
        "exceeded",
        [("b1", "g", _MESSAGES, at(40), at(40), 1, 50.0, 90.0, FAIR, True)],
        since=at(12),
        parameters={"tolerance": 0.7, "burst_s": 0.1},
    ),
    Case(
        "without a tolerance",
        _runs,
        "exceeded",
        [("b1", at(15), 80.0), ("b2", at(15), 52.0), ("b1", at(40), 90.0)],
        ("broker", "first_at", "worst_used_per_s"),
        parameters={"tolerance": 0.0, "burst_s": 0.0},
    ),
    Case(
        "with a large burst",
        _runs,
        "exceeded",
        [(at(40),)],
        ("first_at",),
        parameters={"burst_s": 3.6},
    ),
    Case(
        "bursts that add up",
        _bursts,
        "exceeded",
        [("b2", at(10), at(15), 4)],
        ("broker", "first_at", "last_at", "reports"),
    ),
    Case(
        "a shorter burst",
        _bursts,
        "exceeded",
        [("b1", at(10)), ("b2", at(10)), ("b1", at(13))],
        ("broker", "first_at"),
        parameters={"burst_s": 0.8},
    ),
    Case("before the limit was there", _before_the_limit, "exceeded", []),
    Case("a slow round", _slow_round, "exceeded", [(at(39), 10.0)], ("first_at", "limit_per_s")),
    Case(
        "as it was then",
        _runs,
        "exceeded",
        [(at(15), at(20))],
        ("first_at", "last_at"),
        until=at(22),
    ),
    Case(
        "the limit of then",
        _of_its_time,
        "exceeded",
        [("b", "g", _MESSAGES, at(29), at(29), 1, 10.0, 42.0, STEP, True)],
    ),
    Case(
        "the limit of then, at once",
        _of_its_time,
        "exceeded",
        [("b", "g", _MESSAGES, at(23.5), at(29), 2, 10.0, 42.0, STEP, True)],
        parameters={"settle_s": 0},
    ),
    Case(
        "unchanged rates, and no limit",
        _unchanged,
        "exceeded",
        [("b", "g", _MESSAGES, at(10), at(15), 2, 50.0, 71.0, FAIR, True)],
    ),
    *(
        Case(
            dimension,
            _of_dimension(dimension),
            "exceeded",
            [("b", "g", dimension, at(10), at(10), 1, 50.0, 60.0, FAIR, True)],
        )
        for dimension in DIMENSIONS[BASIC:]
    ),
)


# --- silent


def _silences(history: History) -> None:
    def changed(*rows: tuple[str, str, float]) -> dict[str, Any]:
        return {"brokers": brokers([(b, s, NOON_MS + int(t * 1000)) for b, s, t in rows])}

    write(
        history,
        {
            0: changed(
                ("back", "live", 0), ("gone", "live", 0), ("late", "live", 0), ("ok", "live", 0)
            ),
            30: changed(("back", "stale", 20), ("gone", "stale", 20)),
            35: changed(("back", "gone", 20), ("gone", "gone", 20)),
            50: changed(("back", "live", 49.5)),
            70: changed(("back", "stale", 60)),
            71: changed(("back", "live", 71)),
            95: changed(("late", "stale", 85)),
            100: {},
        },
    )


_SILENT_ROWS = [
    ("back", at(20), at(30), at(35), at(50), "back", 30.0),
    ("gone", at(20), at(30), at(35), None, "gone", 80.0),
    ("back", at(60), at(70), None, at(71), "back", 11.0),
    ("late", at(85), at(95), None, None, "stale", 15.0),
]
_SILENT = (
    Case("silences", _silences, "silent", _SILENT_ROWS),
    Case("silences since then", _silences, "silent", _SILENT_ROWS[2:], since=at(60)),
)


# --- propagation


def _waits_for_all(history: History) -> None:
    write(
        history,
        {
            1: given(("b1", "g", 30.0), ("b2", "g", 30.0)),
            2.5: given(("b3", "g", 30.0)),
            100.5: given(("b1", "g", 40.0), ("b2", "g", 40.0)),
            # published again, because another dimension changed
            101: given(("b3", "g", 30.0)),
            102: given(("b3", "g", 40.0)),
            109: given(("b1", "g", 60.0), ("b3", "g", 20.0)),
        },
    )
    change(history, 0, "ann", "g", 90.0)
    change(history, 100, "bob", "g", 120.0)


def _a_total(history: History) -> None:
    write(history, {3: given(("b1", "g", 60.0), ("b2", "g", 30.0), dimension="total_bytes")})
    change(history, 0, "ann", "g", 90.0, "total_bytes")


def _never(history: History) -> None:
    write(
        history,
        {
            1: given(("b1", "g", 100.0)),
            60: given(("b1", "g", 60.0)),
            61: given(("b1", "h", 60.0)),
        },
    )
    change(history, 0, "ann", "g", 100.0)
    change(history, 10, "ann", "nobody", 10.0)
    change(history, 20, "ann", "g", 50.0)
    change(history, 30, "ann", "g", 70.0)
    change(history, 35, "ann", "h", 50.0)
    change(history, 40, "ann", "g", 5.0, "publish_bytes")


def _unlimited_and_deleted(history: History) -> None:
    write(
        history,
        {
            1: given(("b1", "g", 40.0), ("b2", "g", 60.0)),
            11: given(("b1", "g", INF)),
            13: given(("b2", "g", INF)),
            24: given(("b1", "g", 5.0), ("b2", "g", 5.0)),
            35: given(("b1", "g", NAN), ("b2", "g", NAN), ended_because="group_deleted"),
        },
    )
    change(history, 0, "ann", "g", 100.0)
    change(history, 10, "bob", "g", INF)
    change(history, 20, "ann", "g", 10.0)
    change(history, 30, "zed", "g", None)


def _put_early(history: History) -> None:
    """The quota is put long before a broker uses the group."""
    write(history, {1: {}, 1000: given(("b1", "g", 50.0))})
    change(history, 0, "ann", "g", 50.0)


def _soft_above(history: History) -> None:
    """The quota of a soft group with groups below it counts as none."""
    write(history, {1: given(("b1", "t", INF), enforced=False), 2: given(("b1", "t::a", 5.0))})
    quotas = np.full((1, len(DIMENSIONS)), NAN)
    quotas[0, 0] = 50.0
    put_groups(history, ["t"], quotas, "ann", policy=pa.table({"mode": ["soft"]}))
    set_commit_time(Path(history.path, "resource_groups"), NOON_MS)
    change(history, 0, "ann", "t::a", 5.0)


def _over_the_quota(history: History) -> None:
    write(history, {1: given(("b1", "g", 50.0), ("b2", "g", 60.0))})
    change(history, 0, "ann", "g", 100.0)


_NAME = ("g", _MESSAGES)
_FIRST = (*_NAME, at(0), "ann", None, 90.0, "in force", 3, at(1), at(2.5), 2.5, False)
_SECOND = (*_NAME, at(100), "bob", 90.0, 120.0, "in force", 3, at(100.5), at(102), 2.0, False)
_PROPAGATION = (
    Case("all brokers", _waits_for_all, "propagation", [_FIRST, _SECOND], until=at(200)),
    Case(
        "roughly",
        _waits_for_all,
        "propagation",
        [(*_NAME, at(100), "bob", 90.0, 120.0, "in force", 3, at(100.5), at(100.5), 0.5, False)],
        since=at(50),
        until=at(200),
        parameters={"tolerance": 0.1},
    ),
    Case(
        "late",
        _unlimited_and_deleted,
        "propagation",
        [(1.0, False), (3.0, False), (4.0, False), (5.0, True)],
        ("seconds", "late"),
        until=at(60),
        parameters={"within_s": 4},
    ),
    Case(
        "a total",
        _a_total,
        "propagation",
        [("g", "total_bytes", at(0), "ann", None, 90.0, "in force", 2, at(3), at(3), 3.0, False)],
        until=at(60),
    ),
    Case(
        "never",
        _never,
        "propagation",
        [
            (*_NAME, at(0), "ann", None, 100.0, "in force", 1, at(1), at(1), 1.0, False),
            ("nobody", _MESSAGES, at(10), "ann", None, 10.0, "no brokers", *[None] * 4, False),
            (*_NAME, at(20), "ann", 100.0, 50.0, "superseded", *[None] * 4, False),
            (*_NAME, at(30), "ann", 50.0, 70.0, "below", None, at(60), None, None, False),
            ("h", _MESSAGES, at(35), "ann", None, 50.0, "pending", None, at(61), None, None, True),
            (
                "g",
                "publish_bytes",
                at(40),
                "ann",
                None,
                5.0,
                "pending",
                None,
                at(60),
                *[None] * 2,
                True,
            ),
        ],
        until=at(125),
    ),
    Case("before the first broker", _put_early, "propagation", [(False,)], ("late",)),
    Case(
        "a soft group above others",
        _soft_above,
        "propagation",
        [("t", "in force", False), ("t::a", "in force", False)],
        ("resource_group", "state", "late"),
        until=at(200),
    ),
    Case(
        "within limits.over",
        _over_the_quota,
        "propagation",
        [("in force", False)],
        ("state", "late"),
        until=at(200),
        parameters={"over": 0.1},
    ),
    Case(
        "unlimited, and deleted",
        _unlimited_and_deleted,
        "propagation",
        [
            (*_NAME, at(0), "ann", None, 100.0, "in force", 2, at(1), at(1), 1.0, False),
            (*_NAME, at(10), "bob", 100.0, None, "in force", 2, at(11), at(13), 3.0, False),
            (*_NAME, at(20), "ann", None, 10.0, "in force", 2, at(24), at(24), 4.0, False),
            (*_NAME, at(30), "zed", 10.0, None, "in force", 0, at(35), at(35), 5.0, False),
        ],
        until=at(60),
    ),
)


# --- conservation


def _more_than_the_quota(history: History) -> None:
    write(
        history,
        {
            1: given(("b1", "g", 50.0), ("b2", "g", 50.0), ("b1", "soft", 70.0)),
            20: given(("b2", "g", 60.0)),
            # both in one round
            30: given(("b1", "g", 80.0), ("b2", "g", 20.0)),
            # a lower quota counts ten seconds after its change
            45: given(("b1", "g", 30.0)),
            60: given(("b1", "soft", 71.0), enforced=False),
            70: given(("b1", "g", INF)),
            75: given(("b1", "g", 30.0)),
            80: {},
        },
    )
    change(history, 0, "ann", "g", 100.0)
    change(history, 34, "ann", "g", 60.0)
    change(history, 0, "ann", "soft", 50.0)


def _a_tree(history: History) -> None:
    write(
        history,
        {
            11: given(("b1", "a", 50.0), ("b1", "a::b", 50.0), ("b1", "a::b::c", 30.0)),
            19: given(("b1", "a::b::c", 0.0)),
            20: {},
        },
    )
    change(history, 0, "ann", "a", 100.0)
    change(history, 0, "ann", "a::b", 90.0)
    change(history, 0, "ann", "a::b::c", INF)


def _expired(last_seen_s: float) -> Build:
    """b1 expires in second 35; b2 gets its share at once."""
    last_seen_ms = NOON_MS + int(last_seen_s * 1000)

    def build(history: History) -> None:
        write(
            history,
            {
                1: given(("b1", "g", 50.0), ("b2", "g", 50.0)),
                35: {
                    "brokers": brokers([("b1", "gone", last_seen_ms)]),
                    "limits": limits([("b1", "g", NAN)], ended_because="silent"),
                },
                35.5: given(("b2", "g", 100.0)),
                90: {},
            },
        )
        change(history, 0, "ann", "g", 100.0)

    return build


def _waits(history: History) -> None:
    """A limit waits for two leases, or does not follow a lower quota after them."""
    write(
        history,
        {
            1: given(("b1", "g", 50.0), ("b2", "g", 50.0)),
            30: given(("b1", "g", 10.0), reason=Reason.WAITING),
            300: {},
        },
    )
    change(history, 0, "ann", "g", 100.0)
    change(history, 30, "bob", "g", 40.0)


def _handed_back(history: History) -> None:
    """The second epoch does not know b1, and hands back what b2 had."""
    write(history, {1: given(("b1", "g", 50.0), ("b2", "g", 50.0)), 9: {}})
    again = given(("b2", "g", 50.0), reason=Reason.HANDED_BACK)
    write(history, {20: {}, 21: again, 22: given(("b3", "g", 60.0)), 200: {}}, epoch=2)
    change(history, 0, "ann", "g", 100.0)


def _another_epoch(history: History) -> None:
    write(history, {1: given(("b1", "g", 50.0), ("b2", "g", 50.0)), 9: {}})
    write(history, {200: given(("b1", "g", 100.0)), 300: {}}, epoch=2)
    change(history, 0, "ann", "g", 100.0)


_CONSERVATION = (
    Case(
        "more than the quota",
        _more_than_the_quota,
        "conservation",
        [
            # ten seconds after the quota was put; the group is not soft by its definition
            ("soft", _MESSAGES, at(10), at(60), 50.0, 50.0, 20.0, True),
            ("g", _MESSAGES, at(20), at(30), 10.0, 100.0, 10.0, True),
            ("g", _MESSAGES, at(44), at(45), 1.0, 60.0, 40.0, True),
            ("g", _MESSAGES, at(70), at(75), 5.0, 60.0, INF, True),
        ],
        until=at(80),
    ),
    Case(
        "since then",
        _more_than_the_quota,
        "conservation",
        [("g", at(70))],
        ("resource_group", "first_at"),
        since=at(65),
        until=at(80),
    ),
    Case(
        "within a tolerance",
        _more_than_the_quota,
        "conservation",
        [("soft", at(10)), ("g", at(44)), ("g", at(70))],
        ("resource_group", "first_at"),
        until=at(80),
        parameters={"tolerance": 0.2},
    ),
    Case(
        "within limits.over",
        _more_than_the_quota,
        "conservation",
        [("soft", at(10)), ("g", at(44)), ("g", at(70))],
        ("resource_group", "first_at"),
        until=at(80),
        parameters={"over": 0.1},
    ),
    Case(
        "beyond limits.over",
        _more_than_the_quota,
        "conservation",
        # excess_per_s is what exceeds the quota itself
        [("soft", at(10), 20.0), ("g", at(20), 10.0), ("g", at(44), 40.0), ("g", at(70), INF)],
        ("resource_group", "first_at", "excess_per_s"),
        until=at(80),
        parameters={"over": 0.09},
    ),
    Case(
        "as it lasts",
        _more_than_the_quota,
        "conservation",
        [("soft", None, 10.0), ("g", None, 0.0)],
        ("resource_group", "until_at", "seconds"),
        until=at(25),
    ),
    Case(
        "a tree",
        _a_tree,
        "conservation",
        [("a", _MESSAGES, at(11), at(19), 8.0, 100.0, 30.0, True)],
    ),
    Case(
        "an expired broker",
        _expired(20),
        "conservation",
        # until the newest round: the lease is longer
        [("g", _MESSAGES, at(35.5), at(155), 119.5, 100.0, 50.0, False)],
    ),
    Case("a broker that expired after its lease", _expired(-90), "conservation", []),
    Case(
        "limits that wait",
        _waits,
        "conservation",
        [("g", _MESSAGES, at(270), None, 30.0, 40.0, 20.0, True)],
        until=at(300),
    ),
    Case(
        "what an earlier epoch left",
        _handed_back,
        "conservation",
        [("g", at(22), 60.0, False)],
        ("resource_group", "first_at", "excess_per_s", "unexplained"),
    ),
    Case("limits of an earlier epoch", _another_epoch, "conservation", []),
)


# --- staleness


def _pauses(history: History) -> None:
    """Leases are 120 s."""
    write(
        history,
        {
            1: given(("b1", "g", 50.0), ("b1", "h", 50.0), ("b1", "shadow", 5.0)),
            2: given(("b1", "shadow", 5.0), enforced=False),
            100: {},
            300: given(("b1", "h", NAN), ended_because="silent"),
            420: {},
        },
    )


def _forgotten(history: History) -> None:
    def changed(*rows: tuple[str, str, float]) -> dict[str, Any]:
        return {"brokers": brokers([(b, s, NOON_MS + int(t * 1000)) for b, s, t in rows])}

    write(
        history,
        {
            0: changed(("b1", "live", 0), ("b2", "live", 0))
            | given(("b1", "g", 5.0), ("b2", "g", 5.0)),
            100: changed(("b1", "stale", 90), ("b2", "stale", 90)),
            110: changed(("b1", "gone", 90)),
            200: {},
            310: {},
            400: given(("b1", "g", NAN), ended_because="silent"),
        },
    )


_STALENESS = (
    Case(
        "pauses",
        _pauses,
        "staleness",
        [
            ("no rounds", None, at(220), at(300), 80.0, 2),
            ("no rounds", None, at(540), None, 60.0, 1),
        ],
        until=at(600),
    ),
    Case(
        "pauses since then",
        _pauses,
        "staleness",
        [(at(540),)],
        ("since_at",),
        since=at(301),
        until=at(600),
    ),
    Case("short pauses", _pauses, "staleness", [], until=at(200)),
    Case(
        "forgotten brokers",
        _forgotten,
        "staleness",
        [
            ("not ended", "b1", at(230), at(400), 170.0, 1),
            ("not expired", "b2", at(340), None, 60.0, 0),
        ],
        until=at(400),
    ),
)


# --- oscillation


def _up_and_down(history: History) -> None:
    happened: dict[float, dict[str, Any]] = {}
    for n in range(12):
        high = n % 2 == 1
        happened[10.0 * n] = given(
            ("b1", "g", 50.0 if high else 30.0),  # swings
            ("b2", "g", 50.0 if high else 45.0),  # too little
            ("b3", "g", 10.0 * n),  # up only
        )
        # published again, because another dimension changed
        happened[10.0 * n + 5] = given(("b1", "g", 50.0 if high else 30.0))
    happened[300] = given(("b1", "g", 10.0))
    happened[310] = given(("b1", "g", 100.0))
    write(history, happened)


def _others_come_and_go(history: History) -> None:
    """b2 wants 50 of 100 now and again; b1 always wants more, and has what is left."""
    happened: dict[float, dict[str, Any]] = {}
    for n in range(12):
        high = 60.0 if n % 2 else 20.0
        tables = [
            limits([("b1", "g", 100.0 - high)], quota=100.0),
            limits([("b2", "g", high)], quota=100.0, demand=high - 5.0),
        ]
        happened[10.0 * n] = {"limits": pa.concat_tables(tables, promote_options="default")}
    write(history, happened)


_OSCILLATION = (
    Case(
        "up and down",
        _up_and_down,
        "oscillation",
        [("b1", "g", _MESSAGES, at(0), at(110), 11, 30.0, 50.0, 0, True)],
    ),
    Case(
        "as others come and go",
        _others_come_and_go,
        "oscillation",
        [("b1", 11, 11, False), ("b2", 11, 11, False)],
        ("broker", "swings", "swings_of_demand", "unexplained"),
    ),
    Case(
        "parts of an equal share",
        _others_come_and_go,
        "oscillation",
        [],
        parameters={"least": 0.9},
    ),
    Case("slow swings", _up_and_down, "oscillation", [], parameters={"within_s": 9}),
    Case(
        "small swings",
        _up_and_down,
        "oscillation",
        [("b1", 11), ("b2", 11)],
        ("broker", "swings"),
        parameters={"swing": 0.1},
    ),
    Case(
        "few swings",
        _up_and_down,
        "oscillation",
        [(6,)],
        ("swings",),
        since=at(60),
        parameters={"swings": 6},
    ),
)


# --- starvation


def _starving(history: History) -> None:
    """Of a quota of 90, b1 and b2 have half each although b3 wants more, too."""
    happened: dict[float, dict[str, Any]] = {
        0: given(("b1", "g", 42.0), ("b2", "g", 42.0), ("b3", "g", 6.0), quota=90.0),
    }
    for n in range(1, 31):
        tables = [
            usage([("b1", "g", 42.0), ("b3", "g", 6.0 if n <= 25 else 29.0)], NOON_MS + n * 1000),
            # b2 has more than it wants, and says so
            usage([("b2", "g", 42.0)], NOON_MS + n * 1000, throttled=0.0),
        ]
        happened[float(n)] = {"usage": pa.concat_tables(tables, promote_options="default")}
    happened[25.5] = given(("b3", "g", 29.0), quota=90.0)
    write(history, dict(sorted(happened.items())))


def _satisfied(history: History) -> None:
    """b3 uses nearly all of its limit, and wants no more; b1 is refused a bit now and then."""
    limited = [
        limits([("b1", "g", 20.0), ("b2", "g", 64.0)], quota=90.0),
        limits([("b3", "g", 6.0)], quota=90.0, demand=5.9),
    ]
    happened = {0.0: {"limits": pa.concat_tables(limited, promote_options="default")}}
    for n in range(1, 31):
        tables = [
            usage([("b3", "g", 5.9)], NOON_MS + n * 1000),
            usage([("b1", "g", 18.0)], NOON_MS + n * 1000, throttled=2.0),
        ]
        happened[float(n)] = {"usage": pa.concat_tables(tables, promote_options="default")}
    write(history, happened)


def _with_weights(history: History) -> None:
    _starving(history)
    make_history(history)
    terms = pa.table({"brokers": ['{"b3": {"weight": 0.1}}']})
    put_groups(history, ["g"], np.full((1, len(DIMENSIONS)), NAN), "ann", policy=terms)


def _with_floors(history: History) -> None:
    _starving(history)
    make_history(history)
    terms = pa.table({"brokers": ['{"b1": {"floor": {"publish_messages_per_s": 42}}}']})
    put_groups(history, ["g"], np.full((1, len(DIMENSIONS)), NAN), "ann", policy=terms)


_STARVATION = (
    Case(
        "less than its share",
        _starving,
        "starvation",
        [("b3", "g", _MESSAGES, at(1), at(25), 25, 6.0, 30.0, None, FAIR)],
    ),
    Case("for long", _starving, "starvation", [], parameters={"rounds": 26}),
    Case(
        "a bit less", _starving, "starvation", [(30,)], ("reports",), parameters={"tolerance": 0.01}
    ),
    Case("satisfied", _satisfied, "starvation", []),
    Case("by weight", _with_weights, "starvation", []),
    Case("floors", _with_floors, "starvation", []),
)


# --- changes


def _changed(history: History) -> None:
    change(history, 0, "ann", "g", 1000.5)
    change(history, 10, "bob", "g", INF)
    policy = pa.table({"mode": ["soft"], "weight": [0.001], "priority": pa.array([-5])})
    put_groups(
        history, ["g"], np.full((1, len(DIMENSIONS)), NAN), "eve", policy=policy, why="night"
    )
    set_commit_time(Path(history.path, "resource_groups"), NOON_MS + 20_000)
    change(history, 30, "zed", "g", None)


_CHANGES = (
    Case(
        "all settings",
        _changed,
        "changes",
        [
            (at(0), "ann", "created", "g", "defined", None, "true", None, 1),
            (at(0), "ann", "created", "g", "publish_messages_per_s", None, "1000.5", None, 1),
            (at(10), "bob", "changed", "g", "publish_messages_per_s", "1000.5", None, None, 2),
            (at(20), "eve", "changed", "g", "mode", None, "soft", "night", 3),
            (at(20), "eve", "changed", "g", "priority", None, "-5", "night", 3),
            (at(20), "eve", "changed", "g", "weight", None, "0.001", "night", 3),
            (at(30), "zed", "deleted", "g", "defined", "true", None, None, 4),
            (at(30), "zed", "deleted", "g", "mode", "soft", None, None, 4),
            (at(30), "zed", "deleted", "g", "priority", "-5", None, None, 4),
            (at(30), "zed", "deleted", "g", "weight", "0.001", None, None, 4),
        ],
    ),
    Case("in a time", _changed, "changes", [("bob",)], ("changed_by",), since=at(5), until=at(15)),
)


# --- top_consumers, chargeback


def _use_of_days(history: History) -> None:
    def report(second: float, *rows: tuple[str, str, float], **options: Any) -> pa.Table:
        return usage(rows, NOON_MS + int(second * 1000), **options)

    day = 86_400.0
    first = report(10, ("b1", "acme/a", 5.0), ("b2", "acme/a", 1.0), window_ms=10_000)
    second = [
        report(20, ("b1", "acme/a", NAN), window_ms=10_000, throttled=2.0),
        report(20, ("b1", "zeta", 7.0), ("b1", "idle", 0.0), window_ms=1_000),
    ]
    write(
        history,
        {
            10: {"usage": first},
            20: {"usage": pa.concat_tables(second, promote_options="default")},
            # not reported again for 30 seconds: counts until the next window begins
            60: {"usage": report(60, ("b1", "acme/a", 2.0), window_ms=10_000)},
            day: {"usage": report(day, ("b1", "acme::b", 3.0), window_ms=20_000)},
            # without windows
            day + 5: {"usage": report(day + 5, ("b2", "acme::b", 4.0))},
            day + 15: {"usage": report(day + 15, ("b2", "acme::b", 0.0))},
        },
    )
    roll_up(history, at(2 * day))


def _counted(history: History) -> None:
    """b1 restarts at 100; reports of 10 s, of which some are lost. b2 started long ago.

    A report of b3 has no counter.
    """

    def report(
        second: float, counter: float | None, began_s: float = 0.0, **options: Any
    ) -> pa.Table:
        started_at_ms = NOON_MS + int(began_s * 1000)
        return usage(
            [(options.pop("broker", "b1"), "g", 1.0)],
            NOON_MS + int(second * 1000),
            window_ms=10_000,
            started_at_ms=started_at_ms,
            counter=counter,
            **options,
        )

    def happened(*reports: tuple[float, float, float]) -> dict[float, dict[str, Any]]:
        return {second: {"usage": report(second, *rest)} for second, *rest in reports}

    write(
        history,
        {0: {}}
        | happened((10, 50, 0), (70, 650, 0), (130, 20, 100), (140, 20, 100))
        | {
            # Less than before by mistake: from here on the rates count.
            150: {"usage": report(150, 15.0, 100)},
            160: {"usage": report(160, 30.0, 100)},
            170: {"usage": report(170, 1000.0, -1e6, broker="b2")},
            200: {"usage": report(200, 1007.0, -1e6, broker="b2")},
            210: {"usage": report(210, 50.0, 205, broker="b3")},
            220: {"usage": report(220, None, 205, broker="b3")},
            230: {"usage": report(230, 100.0, 205, broker="b3")},
        },
    )
    roll_up(history, at(86_400.0))


_OF_A = 10 * 5.0 + 10 * 1.0 + (10 + 30) * 5.0 + 10 * 2.0
_OF_ALL = _OF_A + 7 + 20 * 3.0 + 10 * 4.0
_USE = (
    Case(
        "use of days",
        _use_of_days,
        "top_consumers",
        [
            (_MESSAGES, 1, "acme/a", _OF_A, 100 * _OF_A / _OF_ALL, 20.0, 2, 5.0),
            (_MESSAGES, 2, "acme::b", 100.0, 100 * 100 / _OF_ALL, None, 2, 4.0),
            (_MESSAGES, 3, "zeta", 7.0, 100 * 7 / _OF_ALL, None, 1, 7.0),
        ],
        until=at(90_000),
    ),
    Case(
        "the first of a minute",
        _use_of_days,
        "top_consumers",
        [("acme/a", 10 * 5.0 + 10 * 1.0 + 10 * 5.0)],
        ("resource_group", "used"),
        until=at(30),
        parameters={"top": 1},
    ),
    Case(
        "use of days",
        _use_of_days,
        "chargeback",
        [
            (
                date(2026, 3, 1),
                "acme",
                _MESSAGES,
                _OF_A,
                20.0,
                1,
                60 / 86400,
                "b1",
                60 / 86400,
                False,
            ),
            (
                date(2026, 3, 1),
                "zeta",
                _MESSAGES,
                7.0,
                None,
                1,
                60 / 86400,
                "b1",
                60 / 86400,
                False,
            ),
            (
                date(2026, 3, 2),
                "acme",
                _MESSAGES,
                100.0,
                None,
                1,
                15 / 86400,
                "b2",
                25 / 86400,
                False,
            ),
        ],
        until=at(200_000),
    ),
    Case(
        "counters of which reports were lost, and a restart",
        _counted,
        "top_consumers",
        # b1: 650 and 20, then 20 by its rate as the counter went back;
        # b2: 10 by its rate, as its counter of before is not known, and 7;
        # b3: 50, and 20 by its rate.
        [("g", 650.0 + 20 + 20 + 10 + 7 + 50 + 20, 3)],
        ("resource_group", "used", "brokers"),
        until=at(90_000),
    ),
    Case(
        "use of a day",
        _use_of_days,
        "chargeback",
        [("acme", 100.0)],
        ("tenant", "used"),
        since=at(86_400),
        until=at(200_000),
    ),
)


# --- coverage


def _missing(history: History) -> None:
    """Reports of 10 s, each fifth of which is there. b2 has no groups in use; b4 ends."""

    def status(**rows: tuple[str, float]) -> dict[str, Any]:
        changes = [(b, s, NOON_MS + int(seen * 1000)) for b, (s, seen) in rows.items()]
        return {"brokers": brokers(changes)}

    def reports(*rows: tuple[str, float]) -> dict[str, Any]:
        tables = [
            usage([(broker, "g", 1.0)], NOON_MS + int(second * 1000), window_ms=10_000)
            for broker, second in rows
        ]
        return {"usage": pa.concat_tables(tables)}

    write(
        history,
        {
            0: status(b1=("live", 0), b2=("live", 0), b3=("live", 0))
            | reports(("b1", 0), ("b3", 0)),
            50: reports(("b1", 50), ("b3", 50)),
            100: reports(("b1", 100), ("b3", 100)),
            150: status(b3=("stale", 100)) | reports(("b1", 150)),
            200: status(b3=("gone", 100), b4=("live", 200)) | reports(("b1", 200)),
            250: reports(("b1", 250), ("b4", 250)),
            300: status(b3=("live", 300)) | reports(("b1", 300), ("b3", 300), ("b4", 300)),
            350: status(b4=("stale", 300)) | reports(("b1", 350), ("b3", 350)),
            400: reports(("b1", 400), ("b3", 400)),
            # The job did not run; of this time, it gets the reports of b1.
            600: reports(("b1", 450), ("b1", 500), ("b1", 550), ("b1", 600), ("b3", 600)),
            650: reports(("b1", 650), ("b3", 650)),
        },
    )


_COVERAGE = (
    Case(
        "reports are missing",
        _missing,
        "coverage",
        [
            ("b3", at(100), at(290), 190.0, 3),
            ("b4", at(300), None, 360.0, 4),
            ("b2", at(400), at(600), 200.0, 0),
            ("b3", at(400), at(590), 190.0, 0),
        ],
        until=at(660),
    ),
    Case(
        "for long, since then",
        _missing,
        "coverage",
        [("b4", 360.0), ("b2", 200.0)],
        ("broker", "missing_s"),
        since=at(295),
        until=at(660),
        parameters={"least_s": 195},
    ),
)


# --- soft_exceeded


def _soft(history: History) -> None:
    """Quotas of 50; what is below a soft group counts for it, too."""
    write(
        history,
        {
            1: used(1, ("b1", "s", 30.0), ("b2", "s", 10.0), ("b1", "hard", 90.0)),
            2: used(2, ("b1", "s", 30.0), ("b2", "s", 40.0)),
            4: used(4, ("b1", "s::below", 10.0)),
            6: given(("b2", "s", NAN), ended_because="silent"),
            8: used(8, ("b1", "s", 60.0), ("b1", "part", 60.0)),
        },
    )
    for group, mode, percent in (("s", "soft", None), ("hard", None, None), ("part", None, 20.0)):
        policy = {"mode": pa.array([mode], pa.string()), "enforcement_percent": pa.array([percent])}
        quotas = np.full((1, len(DIMENSIONS)), NAN)
        quotas[0, 0] = 50.0
        put_groups(history, [group], quotas, "ann", policy=pa.table(policy))
        set_commit_time(Path(history.path, "resource_groups"), NOON_MS)
    change(history, 0, "ann", "s::below", INF)
    change(history, 9, "ann", "part", 100.0)


_SOFT = (
    Case(
        "soft groups",
        _soft,
        "soft_exceeded",
        [
            ("s", _MESSAGES, "soft", 100.0, at(2), at(6), 50.0, 80.0, 20 * 2 + 30 * 2),
            ("part", _MESSAGES, "hard", 20.0, at(8), at(9), 50.0, 60.0, 10.0),
            ("s", _MESSAGES, "soft", 100.0, at(8), None, 50.0, 70.0, 0.0),
        ],
    ),
)


# --- throttled


def _throttled(history: History) -> None:
    write(
        history,
        {
            1: given(("b1", "g", 10.0), ("b2", "g", 10.0), ("b3", "g", 10.0)),
            2: {"usage": usage([("b1", "g", 10.0)], NOON_MS + 2000, throttled=3.0, window_ms=1000)},
            3: {"usage": usage([("b1", "g", 10.0)], NOON_MS + 3000, throttled=5.0, window_ms=2000)},
            4: used(4, ("b2", "g", 9.6), ("b3", "g", 9.0), window_ms=1000),
            5: given(("b2", "g", 10.0), enforced=False, reason=Reason.STEP),
            6: used(6, ("b2", "g", 50.0), window_ms=1000),
        },
    )


_THROTTLED = (
    Case(
        "who, how much, why",
        _throttled,
        "throttled",
        [
            ("b1", "g", _MESSAGES, at(2), at(3), 13.0, 5.0, 2, 10.0, FAIR),
            ("b2", "g", _MESSAGES, at(4), at(4), None, None, 1, 10.0, FAIR),
        ],
    ),
    Case(
        "in a time",
        _throttled,
        "throttled",
        [("b1", 10.0)],
        ("broker", "throttled"),
        since=at(3),
        until=at(3.5),
    ),
)

BY_HAND = (
    *(*_EXCEEDED, *_SILENT, *_PROPAGATION, *_CONSERVATION, *_STALENESS, *_OSCILLATION),
    *(*_STARVATION, *_CHANGES, *_USE, *_COVERAGE, *_SOFT, *_THROTTLED),
)
