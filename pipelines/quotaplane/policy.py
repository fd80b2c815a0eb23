"""A resource group's policy besides its quota: columns, ranges, and what brokers have of their own.

The same columns are in the table ``resource_groups`` and in the events that reach the operator.
Null is the default everywhere, so a table of before there were policies needs no filling in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

import pyarrow as pa
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
)

from quotaplane.model import RATE_COLUMNS, Mode

FLOOR_COLUMNS: Final = tuple(f"floor_{name}" for name in RATE_COLUMNS)
"""What the subtree of a group is guaranteed of its parent's quota, per dimension."""

POLICY_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "mode": pa.string(),
    "enforcement_percent": pa.float64(),
    "weight": pa.float64(),
    "priority": pa.int64(),
    **dict.fromkeys(FLOOR_COLUMNS, pa.float64()),
    "brokers": pa.string(),
}

DEFAULTS: Final[Mapping[str, Any]] = {
    "mode": "hard",
    "enforcement_percent": 100.0,
    "weight": 1.0,
    "priority": 0,
    **dict.fromkeys(FLOOR_COLUMNS, 0.0),
    "brokers": "{}",
}
"""What null stands for; a default is never written down."""

MODES: Final = tuple(mode.name.lower() for mode in Mode)
"""By code."""

RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "enforcement_percent": (0.0, 100.0),
    "weight": (1e-9, 1e9),
    "priority": (-100, 100),
    **dict.fromkeys(FLOOR_COLUMNS, (0.0, 1e18)),
}
"""The least and the most of what is a number."""

ALL_BROKERS: Final = "*"
"""In place of a broker's name: every broker that has no term of its own."""

_MAX_BROKER_CHARS: Final = 512  # as in reports


def _checked_broker(name: str) -> str:
    if not name or len(name) > _MAX_BROKER_CHARS or not name.isprintable():
        raise ValueError("a broker's name has 1 to 512 printable characters")
    return name


def _within(name: str) -> Any:
    least, most = RANGES[name]
    return Field(default=None, ge=least, le=most)


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class BrokerRates(_Strict):
    """A rate per dimension and second; None is not given."""

    publish_messages_per_s: float | None = _within(FLOOR_COLUMNS[0])
    publish_bytes_per_s: float | None = _within(FLOOR_COLUMNS[1])
    dispatch_messages_per_s: float | None = _within(FLOOR_COLUMNS[2])
    dispatch_bytes_per_s: float | None = _within(FLOOR_COLUMNS[3])


class BrokerTerms(_Strict):
    """On what terms one broker shares a group's quota; None is not given."""

    weight: float | None = _within("weight")
    priority: int | None = _within("priority")
    floor: BrokerRates = BrokerRates()
    ceiling: BrokerRates = BrokerRates()


class Overrides(RootModel[dict[Annotated[str, AfterValidator(_checked_broker)], BrokerTerms]]):
    """The column ``brokers``: terms by broker's name; those of ``"*"`` are for all brokers.

    >>> overrides = Overrides.model_validate({"b1": {"weight": 2}, "*": {"floor": {}}})
    >>> overrides.text()
    '{"b1": {"weight": 2.0}}'
    """

    model_config = ConfigDict(frozen=True, strict=True, hide_input_in_errors=True)

    def text(self) -> str:
        """As JSON in one form only, without what says nothing: equal terms are equal texts."""
        given = {name: _given(terms.model_dump()) for name, terms in self.root.items()}
        return json.dumps(_given(given), ensure_ascii=False, sort_keys=True)


def _given(terms: dict[str, Any]) -> dict[str, Any]:
    found = {key: _given(v) if isinstance(v, dict) else v for key, v in terms.items()}
    return {key: value for key, value in found.items() if value is not None and value != {}}


def read_overrides(text: str) -> dict[str, BrokerTerms]:
    """The terms in a column's text; none at all if it is not what ``Overrides`` would write.

    >>> read_overrides('{"b1": {"weight": 2.0}}')["b1"].weight
    2.0
    >>> read_overrides("no json")
    {}
    """
    # `groups put` refuses such a text, but others may write the table too, and one of them must
    # not stop the shard of all the others.
    try:
        return Overrides.model_validate_json(text).root
    except ValidationError:
        return {}
