"""The views that queries see beside the history's tables: one row per dimension.

A table has a column of each kind for each dimension; in these views the dimension is a value, so
that one query serves all of them. They are SQL that both engines read, each a file in
``view_sql/``, which says what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from quotaplane.history.tables import RESOURCE_GROUPS, TABLES, USAGE
from quotaplane.model import (
    COUNTED,
    COUNTER_COLUMNS,
    DIMENSIONS,
    PARTS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
)
from quotaplane.query.group_feed import FEEDS
from quotaplane.query.sql_text import identifiers_in, with_literals

BEGINNING: Final = datetime(1970, 1, 2, tzinfo=timezone.utc)
"""Earlier than any history."""

_LOOK_BACK: Final = timedelta(hours=1)
"""How much earlier than ``since`` ``usage_values`` begins, because a report leaves out rates that
did not change."""
_FOLDER: Final = Path(__file__).parent / "view_sql"

_REPORTED_AT: Final = "coalesce(published_at, round_at)"
MOST_UNREPORTED: Final = 5
"""Stock brokers do not report rates that hardly changed, for up to five intervals: for this many
windows a rate holds that is not reported again."""
_MOST_WITHOUT_WINDOW_MS: Final = 60_000
"""A rate that was reported without its window holds for this long."""
HOLD_MS: Final = (
    f"coalesce(greatest({MOST_UNREPORTED}, coalesce(named_every, 0)) * window_ms, "
    f"{_MOST_WITHOUT_WINDOW_MS})"
)
"""For how long a rate in ``usage`` holds behind its window if it is not reported again, in SQL."""


def by_dimension(columns: str) -> str:
    """The ``UNPIVOT`` clause that makes a row per dimension.

    ``columns``: the new columns, each with that of the table; ``%`` stands for the dimension.

    >>> print(by_dimension("rate: %_per_s")[:88])
    UNPIVOT INCLUDE NULLS (rate FOR dimension IN (publish_messages_per_s AS publish_messages
    """

    def listed(names: Sequence[str]) -> str:
        return f"({', '.join(names)})" if len(names) > 1 else names[0]

    pairs = [[name.strip() for name in pair.split(":")] for pair in columns.split(",")]
    of_dimensions = (
        f"{listed([column.replace('%', name) for _, column in pairs])} AS {name}"
        for name in DIMENSIONS
    )
    new = listed([name for name, _ in pairs])
    return f"UNPIVOT INCLUDE NULLS ({new} FOR dimension IN ({', '.join(of_dimensions)}))"


_BY_DIMENSION: Final = re.compile(r"by_dimension\(([^)]*)\)")


def _fragments() -> dict[str, str]:
    """The parts of views that follow from the dimensions and the settings of groups, by name."""
    counted = [
        (DIMENSIONS[place], name) for place, name in zip(COUNTED, COUNTER_COLUMNS, strict=True)
    ]
    rates = (*RATE_COLUMNS, *THROTTLED_COLUMNS)
    return {
        "reported_at": _REPORTED_AT,
        # Kafka may give all records of a producer's batch one time. No counter gets smaller.
        "of_incarnation": (
            "PARTITION BY broker, resource_group, broker_started_at "
            f"ORDER BY {_REPORTED_AT}, {', '.join(COUNTER_COLUMNS)}, epoch, seq"
        ),
        # Rates, those that did not change filled in. This is done before there is a row for each
        # dimension: there are several times as many of these to sort.
        "unchanged": _listed(
            f"last_value({rate}) IGNORE NULLS OVER so_far AS {rate}, {throttled}"
            for rate, throttled in zip(RATE_COLUMNS, THROTTLED_COLUMNS, strict=True)
        ),
        "rates": _listed(rates),
        "no_rates": _listed(f"CAST(NULL AS DOUBLE) AS {name}" for name in rates),
        "counters": _listed(COUNTER_COLUMNS),
        "before": _listed(
            f"lag({name}) OVER in_order AS before_{name}" for name in COUNTER_COLUMNS
        ),
        "is_broken": " OR ".join(f"coalesce({n}, -1) < before_{n}" for n in COUNTER_COLUMNS),
        "growth": _listed(
            f"CASE WHEN NOT is_broken THEN {name} - coalesce(before_{name}, began_at_0) END"
            f" AS growth_{dimension}"
            for dimension, name in counted
        ),
        "counter_totals": _totals("counter"),
        "growth_totals": _totals("growth"),
        "hold_ms": HOLD_MS,
        "most_unreported": str(MOST_UNREPORTED),
        "without_window_ms": str(_MOST_WITHOUT_WINDOW_MS),
        "settings_as_text": _listed(map(_as_text, _SETTINGS)),
        "settings": _listed(f"{field.name} AS {field.name}" for field in _SETTINGS),
    }


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def _totals(kind: str) -> str:
    """Columns of totals, which have no counters: the sums of their parts' columns."""
    of = [f"{kind}_{name}" for name in DIMENSIONS]
    sums = {total: " + ".join(of[part] for part in parts) for total, parts in PARTS.items()}
    return _listed(f"{text} AS {of[total]}" for total, text in sums.items())


_SETTINGS: Final = [
    field for field in RESOURCE_GROUPS.schema if not field.name.startswith(("updated_", "resource"))
]


def _as_text(field: pa.Field) -> str:
    """A setting as text, the same with both engines: 1000, 0.25."""
    if not pa.types.is_string(field.type):
        plain = f"CAST(CAST({field.name} AS DECIMAL(38, 9)) AS STRING)"
        return f"regexp_replace({plain}, '[.]?0+$', '') AS {field.name}"
    return str(field.name)


def _sql(name: str, **more: str) -> str:
    """The SQL of a file in ``view_sql/``, with the fragments that it names.

    It has ``by_dimension(used: used_%)`` where that function makes the clause.
    """
    text = (_FOLDER / f"{name}.sql").read_text("utf-8").format_map(_fragments() | more)
    return _BY_DIMENSION.sub(lambda found: by_dimension(found[1]), text)


@dataclass(frozen=True)
class View:
    """A view that is made of tables or of other views."""

    name: str
    sql: str
    """``:usage_since`` is the time from which it needs reports."""

    def since(self, since: datetime) -> str:
        """The SQL of the view for questions about the time ``since``."""
        return with_literals(self.sql, {"usage_since": usage_since(since)})


VIEWS: Final[Mapping[str, View]] = {
    view.name: view
    for view in (
        View("usage_values", _sql("usage_values")),
        View("limit_values", _sql("limit_values", limits="limits", columns="")),
        View("recent_limits", _sql("recent_limits")),
        View("recent_limit_values", _sql("limit_values", limits="recent_limits", columns="")),
        View(
            "usage_and_limits",
            _sql(
                "usage_and_limits",
                limits_in_order=_sql("limit_values", limits="numbered", columns=" limit_no,"),
            ),
        ),
        *(
            View(name, _sql(name))
            for name in (
                "usage_amounts",
                "covered_stretches",
                "daily_values",
                "lease_values",
                "quotas",
                "quota_changes",
                "setting_changes",
            )
        ),
    )
}
"""Each after those that it is made of."""


class Sources(NamedTuple):
    """Everything that a query reads."""

    tables: tuple[str, ...]
    named: frozenset[str]
    """Those of the tables that the query itself names; only views read the others."""
    feeds: tuple[str, ...]
    views: tuple[View, ...]


def sources_of(sql: str | None) -> Sources:
    """The tables and views that a query reads; None: all.

    A column with the name of a table (``brokers``) counts, too: then the table is opened in vain.

    >>> sources = sources_of("SELECT * FROM limit_values")
    >>> sources.tables, [view.name for view in sources.views]
    (('limits',), ['limit_values'])
    """
    names = {*TABLES, *FEEDS, *VIEWS} if sql is None else identifiers_in(sql)
    named = frozenset(_of(TABLES, names))
    for view in reversed(list(VIEWS.values())):
        if view.name in names:
            names |= identifiers_in(view.sql)
    return Sources(
        _of(TABLES, names),
        named,
        _of(FEEDS, names),
        tuple(view for view in VIEWS.values() if view.name in names),
    )


def _of(known: Iterable[str], names: set[str]) -> tuple[str, ...]:
    return tuple(name for name in known if name in names)


def seen_by(until: datetime, table: str) -> str:
    """The condition for rows of a table that belong to the time up to ``until``, in both engines.

    A report may be recorded long after it was published.
    """
    at = "least(round_at, published_at)" if table == USAGE.name else "round_at"
    return with_literals(f"{at} <= :until", {"until": until})


def usage_since(since: datetime) -> datetime:
    """The time from which views on usage have reports, for questions about the time ``since``.

    >>> usage_since(datetime(2026, 3, 2, 12, tzinfo=timezone.utc)).isoformat()
    '2026-03-02T11:00:00+00:00'
    """
    return max(since.astimezone(timezone.utc) - _LOOK_BACK, BEGINNING)
