"""Models of requests and answers of the quick what-if; the OpenAPI document is made of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from quotaplane.model import MAX_GROUP_CHARS
from quotaplane.parsing.strict_json import CaseModel
from quotaplane.server.schemas import GroupBody

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
