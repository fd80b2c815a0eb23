"""Models of requests and answers; the OpenAPI document is made of them.

The fields of a group are made from the declared dimensions and options.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    Field,
    JsonValue,
    PlainValidator,
    WithJsonSchema,
    create_model,
    model_validator,
)

from quotaplane.groups.attachments import Kind
from quotaplane.groups.option_kinds import ChoiceOption, JsonOption, NumberOption, Option, number
from quotaplane.groups.policy_options import BY_COLUMN
from quotaplane.model import DECLARED_DIMENSIONS, MAX_RATE, RATE_COLUMNS
from quotaplane.parsing.strict_json import CaseModel

MOST_WHY: Final = 1000
"""Most characters of a reason."""

_UNITS: Final = {f"{each.name}_per_s": each.unit for each in DECLARED_DIMENSIONS}


def _checked_rate(given: Any) -> Any:
    if given is None or given == "unlimited":
        return given
    rate = math.nan if isinstance(given, str) else number(given)
    if not 0 <= rate <= MAX_RATE:
        raise ValueError("must be a number from 0 to 1e18, unlimited or null")
    return rate


def _checked_why(given: Any) -> Any:
    if not isinstance(given, str) or len(given) > MOST_WHY or not given.isprintable():
        raise ValueError(f"must be a printable text of up to {MOST_WHY} characters")
    return given


Why = Annotated[
    str,
    PlainValidator(_checked_why),
    WithJsonSchema({"type": "string", "maxLength": MOST_WHY, "pattern": "^[ -~]*$"}),
]


def _rate(column: str) -> Any:
    schema = {
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": MAX_RATE},
            {"type": "string", "const": "unlimited"},
            {"type": "null"},
        ],
        "description": f"The group's quota, in {_UNITS[column]} per second; null is unlimited.",
        "examples": [1000],
    }
    return Annotated[Any, PlainValidator(_checked_rate), WithJsonSchema(schema)]


def _option(column: str, option: Option) -> tuple[Any, Any]:
    kind: Any
    if isinstance(option, ChoiceOption):
        kind = Literal[option.choices]
    elif isinstance(option, JsonOption):
        kind = option.model
    elif isinstance(option, NumberOption):
        base: Any = int if option.is_whole else float
        kind = Annotated[base, Field(ge=option.least, le=option.most)]
    else:  # pragma: no cover
        raise TypeError(column)
    about = f"{option.help}; default: {option.default_text}"
    return kind | None, Field(default=None, description=about[:1].upper() + about[1:])


_READ_ONLY: Final = "Ignored in requests, so that an answer can be sent back."
_OPTIONS: Final[dict[str, Any]] = {c: _option(c, option) for c, option in BY_COLUMN.items()}
_CHANGEABLE: Final[dict[str, Any]] = {
    **{column: (_rate(column), None) for column in RATE_COLUMNS},
    **_OPTIONS,
}

GroupBody = create_model(
    "GroupBody",
    __base__=CaseModel,
    __doc__="A group's quotas and policy; keys that are not known are refused.",
    group=(
        str | None,
        Field(default=None, description="The group; must be the one in the path.", examples=["a"]),
    ),
    parent=(Any, Field(default=None, description=_READ_ONLY)),
    updated_at=(Any, Field(default=None, description=_READ_ONLY)),
    updated_by=(Any, Field(default=None, description=_READ_ONLY)),
    quotas=(
        list[str] | None,
        Field(
            default=None,
            description="Quotas as texts, in place of rates per second.",
            examples=[["write 10MB/min"]],
        ),
    ),
    why=(Why | None, Field(default=None, description="The reason, kept in the history.")),
    **_CHANGEABLE,
)

_ANSWERED: Final[dict[str, Any]] = {
    **{
        column: (
            float | None,
            Field(description=f"The quota, in {_UNITS[column]} per second; null: unlimited."),
        )
        for column in RATE_COLUMNS
    },
    # Values that other programs wrote into the table may be invalid; they are shown unchanged.
    **{column: (Any, field) for column, (_, field) in _OPTIONS.items()},
}

Group = create_model(
    "Group",
    __doc__="A resource group.",
    group=(str, Field(description="Its name.", examples=["acme::orders"])),
    parent=(
        str | None,
        Field(description="The group above it in its tree.", examples=["acme"]),
    ),
    updated_at=(datetime, Field(description="When it was last changed, UTC.")),
    updated_by=(str, Field(description="Who changed it last.")),
    **_ANSWERED,
)

GroupState = create_model(
    "GroupState", __doc__="Quotas and policy of a group at some time.", **_ANSWERED
)


class ErrorAnswer(BaseModel):
    """Every answer with a status of 400 or more."""

    reason: str = Field(
        description="What is wrong, and where; names the field.",
        examples=["weight: must be at most 1e+09"],
    )


class GroupList(BaseModel):
    """A page of groups."""

    total: int = Field(description="How many groups there are on all pages.", examples=[2])
    version: int = Field(description="The version of the table that they were read at.")
    groups: list[Group]  # type: ignore[valid-type]


class GroupChange(BaseModel):
    """The change that a request made, or with `dry_run` would make."""

    group: str = Field(examples=["acme::orders"])
    result: Literal["created", "changed", "unchanged", "deleted"]
    from_: Group | None = Field(  # type: ignore[valid-type]
        alias="from", description="The group before; null: it did not exist."
    )
    to: Group | None = Field(  # type: ignore[valid-type]
        description="The group now; null: it was deleted."
    )
    dry_run: bool
    warnings: list[str] = Field(description="What is allowed but strange.")


class HistoryEntry(BaseModel):
    """A change of a group."""

    version: int = Field(description="The table's version after the change.", examples=[17])
    at: datetime = Field(description="When, UTC.")
    by: str = Field(description="Who.", examples=["ann"])
    why: str | None = Field(description="The reason that was given.")
    group: str = Field(examples=["acme::orders"])
    from_: GroupState | None = Field(  # type: ignore[valid-type]
        alias="from", description="null: the group was created."
    )
    to: GroupState | None = Field(  # type: ignore[valid-type]
        description="null: the group was deleted."
    )


class HistoryPage(BaseModel):
    """Changes, the newest first."""

    total: int
    changes: list[HistoryEntry]


class RollbackBody(CaseModel):
    """The groups to set back, and the version or time."""

    groups: list[str] = Field(
        description="Names of groups; none: all (with a time or version), or all deleted ones.",
        examples=[["acme::orders"]],
    )
    version: int | None = Field(
        default=None, ge=0, description="A version of the table, as the history of changes has it."
    )
    at: str | None = Field(
        default=None,
        description="A time (2026-03-01T12:00:00Z) or an age (2h), in place of a version. Without "
        "both: as the groups were before they became what they are.",
    )
    why: Why | None = Field(default=None, description="The reason, kept in the history.")


class RolledBack(BaseModel):
    """A group that was set back."""

    group: str
    from_: GroupState | None = Field(  # type: ignore[valid-type]
        alias="from", description="null: it did not exist."
    )
    to: GroupState  # type: ignore[valid-type]


class RollbackAnswer(BaseModel):
    """The changes that a rollback made, or with `dry_run` would make."""

    changed: list[RolledBack]
    dry_run: bool
    warnings: list[str]


class ResolvedQuota(BaseModel):
    """The quota of one dimension that applies to requests of a user and a client."""

    dimension: str = Field(examples=["publish_bytes"])
    rate_per_s: float = Field(description="In the dimension's unit per second.")
    group: str = Field(examples=["user=alice"])
    mode: str
    terms: dict[str, Any]
    shared_by: dict[str, str] = Field(description="Whose requests share it.")


_KEPT: Final = "Not all versions of Pulsar have it: kept, not enforced."
_LATER: Final = Field(default=None, ge=-1, le=2**63 - 1, description=_KEPT)


class PulsarGroup(CaseModel):
    """A resource group in Pulsar's form: whole numbers per second, -1 is unlimited.

    In a request null or an absent key keeps the group's value, and is -1 for a new group. Keys with
    the upper and lower case of PIP-82 (``PublishRateInbytes``) are read, too.
    """

    publishRateInMsgs: int | None = Field(default=None, ge=-1, le=10**18, examples=[1000])  # noqa: N815
    publishRateInBytes: int | None = Field(default=None, ge=-1, le=10**18)  # noqa: N815
    dispatchRateInMsgs: int | None = Field(default=None, ge=-1, le=10**18)  # noqa: N815
    dispatchRateInBytes: int | None = Field(default=None, ge=-1, le=10**18)  # noqa: N815
    replicationDispatchRateInMsgs: int | None = _LATER  # noqa: N815
    replicationDispatchRateInBytes: int | None = _LATER  # noqa: N815
    replicatorDispatchRate: dict[str, JsonValue] | None = Field(  # noqa: N815
        default=None, description=_KEPT
    )

    @model_validator(mode="before")
    @classmethod
    def _as_pulsar_writes_them(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        known = {name.lower(): name for name in cls.model_fields}
        found: dict[object, object] = {}
        for key, value in given.items():
            name = known.get(str(key).lower(), key)
            if name in found:
                raise ValueError(f"{name} is given twice, in different cases")
            found[name] = value
        return found


class Attachment(BaseModel):
    """A scope, tenant, namespace or beginning of topics' names, and the group it is attached to."""

    kind: Kind
    name: str = Field(examples=["acme/orders", "user=alice,client=app-1"])
    resource_group: str
    updated_at: datetime
    updated_by: str


class AttachmentList(BaseModel):
    """A page of attachments."""

    total: int
    attachments: list[Attachment]


class VersionAnswer(BaseModel):
    """The version of the server."""

    version: str = Field(description="Of quotaplane.")
    api: Literal["v1"]


class MeAnswer(BaseModel):
    """The caller."""

    name: str
    anonymous: bool
    roles: dict[str, str] = Field(
        description="The highest role for each tenant; `*` is all.", examples=[{"acme": "operator"}]
    )


class TableHealth(BaseModel):
    """One of the history's tables."""

    table: str
    exists: bool
    version: int | None = Field(description="Its newest version.")
    committed_at: datetime | None = Field(description="When that was committed, UTC.")
    files: int | None = Field(description="Live data files.")
    bytes: int | None = Field(description="Their size.")
    fault: str | None = Field(description="What is broken; null: nothing was found.")


class TablesAnswer(BaseModel):
    """The state of the history's tables."""

    history: str = Field(description="Where they are.")
    whole: bool
    tables: list[TableHealth]


class Check(BaseModel):
    """The state of something that the server needs."""

    name: Literal["history", "job"]
    ok: bool
    state: str = Field(examples=["ok"])
    age_s: float | None = Field(description="history: since the last look; job: since its round.")


class ReadyAnswer(BaseModel):
    """Whether the server can do its work, as of the last check in the background."""

    ready: bool
    checks: list[Check]
    conditions: list[str] = Field(
        description="What is wrong now: names of docs/reference/metrics.md."
    )


class AliveAnswer(BaseModel):
    """The process answers."""

    alive: Literal[True]
