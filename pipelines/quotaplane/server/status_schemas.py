"""Models of answers about the present state; the OpenAPI document is made of them."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from quotaplane.groups.standing import NEAR_QUOTA, OVER_QUOTA, UNFAIR


class JobAnswer(BaseModel):
    """The quota job's last round, and the last minute."""

    epoch: int
    seq: int
    round_at: datetime
    age_s: float = Field(description="Seconds since the last recorded round.")
    duration_s: float | None = Field(description="Seconds of reading and deciding in that round.")
    lag_s: float | None = Field(description="Age of the newest report in that round, in seconds.")
    law: str | None = Field(examples=["max_min"])
    brokers_live: int
    rounds: int = Field(description="In the last minute, as the next four.")
    reports: int
    rejected: int
    outdated: int = Field(
        description="Reports that had been seen before, or are older than one already used. If "
        "they go on, two agents have the same broker name."
    )
    limits: int = Field(description="Limits published.")


class GroupStanding(BaseModel):
    """A group beside its quota in one dimension; rates are in the dimension's unit per second."""

    group: str = Field(examples=["acme::orders"])
    dimension: str = Field(examples=["publish_bytes"])
    quota_per_s: float
    used_per_s: float
    used_part: float | None = Field(
        description="Usage divided by the quota; null: something is used of a quota of 0."
    )
    limits_per_s: float = Field(description="Sum of the brokers' limits.")
    demand_per_s: float = Field(description="Sum over the brokers whose demand is known.")
    saturated: int = Field(
        description="Brokers that want more than their limit, by 5 % or an amount not known."
    )
    throttled_per_s: float = Field(description="Refused or delayed, as far as it is reported.")
    brokers: int
    stale: int = Field(description="Of these, silent ones.")
    worst_share: float | None = Field(
        description="The least part that a broker that wants more has of what it wants or of its "
        "fair share, whichever is less; null: no broker wants more, or floors, priorities or terms "
        "of brokers say who has less."
    )
    mode: str = Field(examples=["hard"])
    unreported: bool = Field(
        description="No broker reports the group or one below it (or none did for a day), and it "
        "was not changed for a day. Often its name is not the one that brokers use."
    )
    parent: str | None = Field(description="The group above it in its tree; null: none.")


class Counts(BaseModel):
    """Numbers of groups of the caller's tenants, not only of those searched; each counted once."""

    groups: int
    over_quota: int = Field(description=f"They use more than {OVER_QUOTA:.0%} of a quota.")
    near_quota: int = Field(
        description=f"They use {NEAR_QUOTA:.0%} to {OVER_QUOTA:.0%} of a quota."
    )
    unfair: int = Field(
        description=f"A broker that wants more has less than {UNFAIR:.0%} of its share."
    )
    throttled: int = Field(description="Something was refused or delayed in the last minute.")
    stale_brokers: int = Field(description="Silent brokers among those that report these groups.")
    brokers_live: int = Field(description="The others of them.")


class StatusAnswer(BaseModel):
    """The state of the job and of groups."""

    as_of: datetime = Field(description="When the history was read; a few seconds ago.")
    job: JobAnswer | None = Field(description="null: no round is recorded.")
    counts: Counts
    total: int = Field(description="How many rows were found.")
    groups: list[GroupStanding]


Matrix = list[list[float | None]]


class HeatMapAnswer(BaseModel):
    """Groups and brokers in one dimension; matrices are lists by group of lists by broker.

    In a tree, a group's values are sums that include the groups below it.
    """

    as_of: datetime = Field(description="When the history was read; a few seconds ago.")
    dimension: str = Field(examples=["publish_bytes"])
    total: int = Field(description="How many groups were found; `groups` is a page of them.")
    groups: list[str]
    brokers: list[str] = Field(
        description="Those with the most limits reached in the groups found, then by name."
    )
    brokers_total: int = Field(description="How many brokers report the groups found.")
    used_per_s: Matrix = Field(description="null: the broker does not report the group.")
    limit_per_s: Matrix = Field(description="null: not reported, or unlimited.")
    demand_per_s: Matrix = Field(description="null: not reported, or saturated: not known.")
    part: Matrix = Field(
        description="Usage divided by the limit; null: there is no limit, or something is used at "
        "a limit of 0."
    )
