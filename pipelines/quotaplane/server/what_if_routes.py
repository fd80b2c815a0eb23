"""``/api/v1/what-if``: limits in a recorded period under another quota, weight, floor or law."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from quotaplane.errors import ConfigError, InputError, UnknownGroupError
from quotaplane.model import DIMENSIONS, MAX_GROUP_CHARS, FloatArray
from quotaplane.parsing.point_in_time import parse_since, parse_until
from quotaplane.parsing.strict_json import CaseModel
from quotaplane.registry.group_input import given_groups
from quotaplane.registry.table import rows_if_put
from quotaplane.server.access import Role
from quotaplane.server.group_routes import patch_of
from quotaplane.server.recorded_periods import Span, tree_of
from quotaplane.server.refusals import answers
from quotaplane.server.request_parts import body_schema, json_answer, read_body
from quotaplane.server.schemas import GroupBody
from quotaplane.server.services import Caller, Served, allow_group

if TYPE_CHECKING:
    from quotaplane.replay.period import Period
    from quotaplane.replay.quick_what_if import Effect, KnownPeriod, SteadyConfig

routes: Final = APIRouter(prefix="/api/v1", tags=["history"])

_MOST_BROKERS: Final = 20
_MOST_ROWS: Final = 200


Series = list[float | None]


class WhatIfBody(CaseModel):
    """A group, a recorded period, and the changes to assume."""

    group: str = Field(min_length=1, max_length=MAX_GROUP_CHARS, examples=["acme::orders"])
    since: str = Field(
        max_length=64, description="A time (2026-03-01T12:00:00Z) or an age (2h, 7d)."
    )
    until: str | None = Field(
        default=None, max_length=64, description="As `since`; by default now."
    )
    points: int = Field(default=300, ge=1, le=1000, description="Most buckets of the period.")
    changes: GroupBody = Field(  # type: ignore[valid-type]
        default=GroupBody(), description="What is different in the group, as PATCH takes it."
    )
    law: str | None = Field(
        default=None,
        max_length=64,
        description="Another law; null: that of the settings.",
        examples=["static"],
    )
    law_options: dict[str, Any] | None = Field(
        default=None, description="Its options; only with a law."
    )


class WhatIfBroker(BaseModel):
    """A broker's usage and limits over time, per second."""

    broker: str | None = Field(description="null: all others together.")
    used_per_s: Series = Field(description="null: it reported nothing.")
    limit_per_s: Series = Field(description="As recorded; null: unlimited.")
    changed_limit_per_s: Series = Field(description="With the change; null: unlimited.")


class WhatIfDimension(BaseModel):
    """The group in one dimension, with the groups below it."""

    dimension: str = Field(examples=["publish_bytes"])
    quota_per_s: Series = Field(description="As recorded; null: unlimited.")
    changed_quota_per_s: Series = Field(description="With the change; null: unlimited.")
    brokers_total: int
    brokers: list[WhatIfBroker] = Field(description="At most 20, those that used most, and others.")
    less_units: float = Field(description="What was used above the changed limits.")
    less_s: float = Field(description="For how long that was so on any broker.")
    more_units: float = Field(description="How much more could have been used at reached limits.")
    more_s: float


class WhatIfRow(BaseModel):
    """A broker of a group in the tree whose limit would have been different."""

    group: str
    broker: str
    dimension: str
    limit_per_s: float | None = Field(description="Means while both limits are finite.")
    changed_limit_per_s: float | None
    less_units: float
    less_s: float
    first_less_at: datetime | None
    last_less_at: datetime | None
    more_units: float
    more_s: float


class WhatIfAnswer(BaseModel):
    """The effect that a change would have had."""

    group: str
    since: datetime
    until: datetime
    step_ms: int = Field(description="Width of a bucket.")
    times: list[int] = Field(description="Where the buckets begin, in ms since 1970.")
    law: str
    dimensions: list[WhatIfDimension] = Field(
        description="Those in which the group has or would have a limit."
    )
    rows_total: int
    rows: list[WhatIfRow] = Field(description="At most 200, the greatest loss first.")


@routes.post(
    "/what-if",
    response_model=WhatIfAnswer,
    responses=answers(404, 413, 415),
    openapi_extra=body_schema(WhatIfBody),
)
async def what_if(request: Request, caller: Caller, served: Served) -> Response:
    """Limits in a recorded period as they would have been with another quota, weight, floor or law.

    Nothing is changed. The limits are those of a steady state; `quotaplane replay` runs every round
    again and is exact. A period without records has empty series.
    """
    body, raw = await read_body(request, WhatIfBody)
    allow_group(caller, Role.VIEWER, body.group, served)
    bounds = _bounds(body)
    config = _config(body, served.settings)
    groups = await served.groups.get()
    if groups.find(body.group) is None:
        raise UnknownGroupError(f"group {body.group!r} does not exist")
    rows = tree_of(groups.rows, body.group)
    changed = _changed_rows(rows, body.group, raw.get("changes") or {})
    span = Span(body.group, body.since, body.until, body.points)
    known = await served.periods.get(span, rows, bounds)
    law = body.law or served.settings.law.name
    return await served.workers.query(
        lambda: json_answer(compared(known, body.group, changed, config, law))
    )


def _bounds(body: WhatIfBody) -> tuple[datetime, datetime]:
    now = datetime.now(timezone.utc)
    begin = parse_since(body.since, now, option="body: since")
    end = now if body.until is None else parse_until(body.until, now, option="body: until")
    if end <= begin:
        raise InputError("body: until: must be later than since")
    return begin, end


def _config(body: WhatIfBody, settings: Any) -> SteadyConfig:
    from quotaplane.replay.quick_what_if import steady_config

    if body.law is None and body.law_options is not None:
        raise InputError("body: law_options: name the law, too")
    try:
        return steady_config(settings, body.law, body.law_options)
    except ConfigError as error:
        raise InputError(f"body: {str(error).replace('options.', 'law_options.', 1)}") from None


def _changed_rows(rows: pa.Table, group: str, raw: Mapping[str, Any]) -> pa.Table:
    """The rows of the tree with the changes of the group."""
    named = raw.get("group")
    if named is not None and named != group:
        raise InputError(f"body: changes: group: must be {group!r}, or left out")
    after = rows_if_put(rows, given_groups([group], [patch_of(raw, "body: changes")]))
    names = after.column_names
    others = rows.filter(pc.not_equal(rows["group"], group)).select(names)
    return pa.concat_tables([others, after.cast(others.schema)])


def compared(
    known: KnownPeriod, group: str, changed: pa.Table, config: SteadyConfig, law: str
) -> dict[str, Any]:
    """The answer about a group whose tree has the ``changed`` rows."""
    from quotaplane.replay.quick_what_if import (
        below,
        compare,
        difference_rows,
        dimensions_shown,
        groups_of,
        steady_limits,
    )

    period, groups = known.period, groups_of(changed)
    at = groups.names.to_pylist().index(group)
    quota = period.quota.copy()
    differs = groups.quota[:, at] != known.groups.quota[:, at]
    quota[differs, at] = groups.quota[differs, at, None]
    found = compare(period, known.limits, steady_limits(period, groups, quota, config), quota)
    rows = difference_rows(period, groups, found)
    pairs = below(groups, at)[period.group]
    shown = dimensions_shown(period, found, groups, at)
    return {
        "group": group,
        "since": _moment(period.since_ms),
        "until": _moment(period.until_ms),
        "step_ms": period.grid.step_ms,
        "times": period.grid.times_ms().tolist(),
        "law": law,
        "dimensions": [_dimension(period, found, pairs, at, place) for place in shown],
        "rows_total": len(rows),
        "rows": rows.slice(0, _MOST_ROWS).to_pylist(),
    }


def _dimension(period: Period, found: Effect, pairs: Any, group: int, place: int) -> dict[str, Any]:
    from quotaplane.replay.quick_what_if import by_broker

    used, limit, changed = (
        by_broker(period, pairs, rates[place]) for rates in (period.used, period.limit, found.limit)
    )
    order = np.argsort(-np.nansum(used, axis=1), kind="stable")
    order = order[~np.isnan(used[order]).all(axis=1)]
    first, others = order[:_MOST_BROKERS], order[_MOST_BROKERS:]
    lines: list[tuple[str | None, FloatArray, FloatArray, FloatArray]] = [
        (period.brokers[b], used[b], limit[b], changed[b]) for b in first.tolist()
    ]
    if len(others):
        rest = [_together(rates[others]) for rates in (used, limit, changed)]
        lines.append((None, rest[0], rest[1], rest[2]))
    less, more = found.less[place, pairs], found.more[place, pairs]
    ms = period.used_ms[pairs]
    return {
        "dimension": DIMENSIONS[place],
        "quota_per_s": _series(period.quota[place, group]),
        "changed_quota_per_s": _series(found.quota[place, group]),
        "brokers_total": len(order),
        "brokers": [
            {
                "broker": broker,
                "used_per_s": _series(one),
                "limit_per_s": _series(two),
                "changed_limit_per_s": _series(three),
            }
            for broker, one, two, three in lines
        ],
        "less_units": float(less.sum()),
        "less_s": _seconds(less, ms),
        "more_units": float(more.sum()),
        "more_s": _seconds(more, ms),
    }


def _together(rates: FloatArray) -> FloatArray:
    """(T,) sums of the finite rates; NaN: none is finite."""
    finite = np.isfinite(rates)
    sums = np.where(finite, rates, 0.0).sum(axis=0)
    return np.where(finite.any(axis=0), sums, np.nan)


def _seconds(units: FloatArray, ms: FloatArray) -> float:
    """The seconds during which any of the (n, T) units are above 0."""
    return float(np.where(units > 0, ms, 0.0).max(axis=0, initial=0.0).sum() / 1000.0)


def _series(rates: FloatArray) -> list[float | None]:
    """The rates for JSON: null in place of a rate that is not finite."""
    values = rates.astype(object)
    values[~np.isfinite(rates)] = None
    listed: list[float | None] = values.tolist()
    return listed


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=timezone.utc)
