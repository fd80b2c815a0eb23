"""Models of answers about one group over time."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

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
