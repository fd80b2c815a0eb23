"""The terms of single brokers within a group: the JSON of the column ``brokers``."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    create_model,
)

from quotaplane.model import MAX_BROKER_CHARS, MAX_RATE, RATE_COLUMNS

WEIGHTS: Final = (1e-9, 1e9)
"""Least and greatest weight, of a broker in its group and of a group among its siblings."""

PRIORITIES: Final = (-100, 100)
"""Least and greatest priority, of a broker and of a group."""

ALL_BROKERS: Final = "*"
"""In place of a broker's name: every broker that has no term of its own."""


def _checked_broker(name: str) -> str:
    if not name or len(name) > MAX_BROKER_CHARS or not name.isprintable():
        raise ValueError(f"a broker's name has 1 to {MAX_BROKER_CHARS} printable characters")
    return name


def _within(least: float, most: float) -> Any:
    return Field(default=None, ge=least, le=most)


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


_RATES: Final[dict[str, Any]] = {
    column: (float | None, _within(0.0, MAX_RATE)) for column in RATE_COLUMNS
}
BrokerRates = create_model("BrokerRates", __base__=_Strict, **_RATES)
"""A rate per dimension and second, by column; None is not given."""


class BrokerTerms(_Strict):
    """The terms on which one broker shares a group's quota; None: not given."""

    weight: float | None = _within(*WEIGHTS)
    priority: int | None = _within(*PRIORITIES)
    # Made of the dimensions, which type checkers don't follow.
    floor: BrokerRates = BrokerRates()  # type: ignore[valid-type]
    ceiling: BrokerRates = BrokerRates()  # type: ignore[valid-type]


class TermsByBroker(RootModel[dict[Annotated[str, AfterValidator(_checked_broker)], BrokerTerms]]):
    """The column ``brokers``: terms by broker's name; those of ``"*"`` are for all brokers.

    >>> terms = TermsByBroker.model_validate({"b1": {"weight": 2}, "*": {"floor": {}}})
    >>> terms.text()
    '{"b1": {"weight": 2.0}}'
    """

    model_config = ConfigDict(frozen=True, strict=True, hide_input_in_errors=True)

    def text(self) -> str:
        """JSON without empty values, in one form only: equal terms are equal texts."""
        given = {name: _given(terms.model_dump()) for name, terms in self.root.items()}
        return json.dumps(_given(given), ensure_ascii=False, sort_keys=True)


def _given(terms: dict[str, Any]) -> dict[str, Any]:
    found = {key: _given(v) if isinstance(v, dict) else v for key, v in terms.items()}
    return {key: value for key, value in found.items() if value is not None and value != {}}


def read_terms(text: str) -> dict[str, BrokerTerms]:
    """The terms in a column's text; none if the text is not valid.

    >>> read_terms('{"b1": {"weight": 2.0}}')["b1"].weight
    2.0
    >>> read_terms("no json")
    {}
    """
    # `groups put` refuses such a text, but others may write the table too, and one of them must
    # not stop the shard of all the others; it becomes a dead letter (``flaws``).
    try:
        return TermsByBroker.model_validate_json(text).root
    except ValidationError:
        return {}
