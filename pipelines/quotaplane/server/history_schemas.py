"""Models of answers about the history and single groups; the OpenAPI document is made of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

_AdministratorsRates = Annotated[
    list[str],
    Field(description="Lower rates that administrators set on the group's topics: the first few."),
]


class LimitInForce(BaseModel):
    """A broker's limit in one dimension; rates are in the dimension's unit per second."""

    group: str
    broker: str
    dimension: str
    limit_per_s: float | None
    used_per_s: float | None
    demand_per_s: float | None = Field(description="null: not known, the broker is saturated.")
    enforced: bool
    broker_status: str = Field(examples=["live"])
    lease_ends_at: datetime | None = Field(
        description="When its lease ends if it is not sent again. null: not known."
    )
    since: datetime | None = Field(description="The round that decided it.")
    reason: str | None = Field(examples=["less than its fair share of 50 was wanted"])
    administrators_rates: _AdministratorsRates


class LimitList(BaseModel):
    """Limits in force."""

    limits: list[LimitInForce]


class LimitReason(BaseModel):
    """A broker's limit with its reason."""

    broker: str
    dimension: str
    limit_per_s: float | None
    enforced: bool
    reason: str | None
    reason_code: int | None = Field(description="As in the table `limits`.")
    numbers: dict[str, float | None] = Field(description="What the reason is made of.")
    demand_per_s: float | None = Field(description="As the law was given it.")
    quota_per_s: float | None = Field(description="The quota that the law divided.")
    law: str | None
    epoch: int
    seq: int
    since: datetime = Field(description="The round that decided it.")
    lease_s: float = Field(description="For how long it holds without being renewed.")
    used_per_s: float | None = Field(description="In the newest report up to the time.")
    throttled_per_s: float | None
    reported_at: datetime | None
    group_quota_per_s: float | None
    quota_changed_at: datetime | None
    quota_changed_by: str | None
    administrators_rates: _AdministratorsRates


class WhyAnswer(BaseModel):
    """The limits of a group at a time."""

    at: datetime
    limits: list[LimitReason]


class BrokerAnswer(BaseModel):
    """A broker."""

    broker: str
    status: str | None = Field(description="live, stale or gone.")
    last_seen_at: datetime | None
    since: datetime | None = Field(description="Since when it has this status.")
    group_count: int
    limits_reached: int = Field(description="Limits that it wants more than.")
    rejected: int = Field(description="Its reports of the last minute that were refused.")


class BrokerList(BaseModel):
    """All brokers."""

    brokers: list[BrokerAnswer]


class RowList(BaseModel):
    """Rows of a table of the history; docs/reference/history.md describes its columns."""

    since: datetime
    until: datetime
    rows: list[dict[str, Any]]


class AuditParameter(BaseModel):
    """A number that an audit takes."""

    default: float
    meaning: str


class AuditAbout(BaseModel):
    """An audit: a question to the history."""

    name: str = Field(examples=["exceeded"])
    question: str
    finds_violations: bool
    parameters: dict[str, AuditParameter]


class AuditList(BaseModel):
    """All audits."""

    audits: list[AuditAbout]


class AuditRows(BaseModel):
    """The answer to an audit."""

    question: str
    since: datetime
    until: datetime
    columns: list[str]
    total: int = Field(description="How many rows the answer has; `rows` has the first ones.")
    rows: list[list[Any]]
    violations: int


class RejectedKind(BaseModel):
    """The reports of a sender that were refused for the same reason."""

    reason: str = Field(examples=["stale"])
    sender: str | None = Field(description="The broker; null: not known.")
    reports: int = Field(description="Number; a lower bound if some were not counted.")
    last_at: datetime = Field(description="The round of the newest.")
    detail: str | None = Field(description="What was wrong with the newest.")


class RejectedSummary(BaseModel):
    """Refused reports by reason and sender, the most frequent first."""

    since: datetime
    until: datetime
    total: int = Field(description="How many rows there are.")
    rows: list[RejectedKind]


_Rates = list[float | None]


class BrokerSeries(BaseModel):
    """A broker over time, in the dimension's unit per second; null: not known."""

    broker: str | None = Field(description="null: all brokers that are not listed, together.")
    used_per_s: _Rates = Field(description="Mean over the reported part of each bucket.")
    peak_per_s: _Rates = Field(description="The highest reported rate.")
    limit_per_s: _Rates = Field(description="Mean of the limits in force; null: unlimited.")
    demand_per_s: _Rates = Field(
        description="Mean of the demand that the law was given; null: the broker is saturated."
    )
    throttled_per_s: _Rates = Field(description="Refused or delayed, as far as it is reported.")


class LimitChange(BaseModel):
    """A limit of a broker that changed."""

    at_ms: int
    broker: str
    limit_per_s: float | None = Field(description="null: unlimited, or ended.")
    reason: str


class SeriesAnswer(BaseModel):
    """A group over time, in `times` of equal buckets."""

    group: str
    dimension: str = Field(examples=["publish_bytes"])
    since: datetime
    until: datetime
    step_ms: int = Field(description="Length of a bucket.")
    begin_ms: int = Field(description="Begin of the first bucket; a multiple of `step_ms`.")
    times: list[int] = Field(description="Begins of the buckets, in milliseconds since 1970.")
    quota_per_s: _Rates = Field(description="The group's own quota; null: unlimited.")
    brokers_total: int = Field(description="How many brokers reported the group or had a limit.")
    brokers: list[BrokerSeries] = Field(description="At most 20, those that used most, and others.")
    reasons: list[LimitChange] = Field(description="The newest 500 changes of limits.")
    reasons_total: int
