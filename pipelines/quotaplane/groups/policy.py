"""A resource group's policy besides its quota: columns, ranges, and what brokers have of their own.

The same columns are in the table ``resource_groups`` and in the events that reach the operator.
Null is the default everywhere, so a table of before there were policies needs no filling in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
)

from quotaplane.model import MAX_BROKER_CHARS, MAX_RATE, MODES, RATE_COLUMNS
from quotaplane.throttle import terms as throttle_terms

FLOOR_COLUMNS: Final = tuple(f"floor_{name}" for name in RATE_COLUMNS)
"""What the subtree of a group is guaranteed of its parent's quota, per dimension."""

POLICY_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "mode": pa.string(),
    "enforcement_percent": pa.float64(),
    "weight": pa.float64(),
    "priority": pa.int64(),
    **dict.fromkeys(FLOOR_COLUMNS, pa.float64()),
    "brokers": pa.string(),
    "throttle": pa.string(),
}

DEFAULTS: Final[Mapping[str, Any]] = {
    "mode": "hard",
    "enforcement_percent": 100.0,
    "weight": 1.0,
    "priority": 0,
    **dict.fromkeys(FLOOR_COLUMNS, 0.0),
    "brokers": "{}",
    "throttle": "{}",
}
"""What null stands for; a default is never written down."""


RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "enforcement_percent": (0.0, 100.0),
    "weight": (1e-9, 1e9),
    "priority": (-100, 100),
    **dict.fromkeys(FLOOR_COLUMNS, (0.0, MAX_RATE)),
}
"""The least and the most of what is a number."""

ALL_BROKERS: Final = "*"
"""In place of a broker's name: every broker that has no term of its own."""


def _checked_broker(name: str) -> str:
    if not name or len(name) > MAX_BROKER_CHARS or not name.isprintable():
        raise ValueError(f"a broker's name has 1 to {MAX_BROKER_CHARS} printable characters")
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
    total_messages_per_s: float | None = _within(FLOOR_COLUMNS[4])
    total_bytes_per_s: float | None = _within(FLOOR_COLUMNS[5])
    controller_mutations_per_s: float | None = _within(FLOOR_COLUMNS[6])


class BrokerTerms(_Strict):
    """On what terms one broker shares a group's quota; None is not given."""

    weight: float | None = _within("weight")
    priority: int | None = _within("priority")
    floor: BrokerRates = BrokerRates()
    ceiling: BrokerRates = BrokerRates()


class TermsByBroker(RootModel[dict[Annotated[str, AfterValidator(_checked_broker)], BrokerTerms]]):
    """The column ``brokers``: terms by broker's name; those of ``"*"`` are for all brokers.

    >>> terms = TermsByBroker.model_validate({"b1": {"weight": 2}, "*": {"floor": {}}})
    >>> terms.text()
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


def flaws(put: pa.Table) -> Iterator[tuple[int, str]]:
    """What is wrong with rows of policy, whichever of its columns are there: row, and words.

    >>> list(flaws(pa.table({"mode": ["hard", "harsh"], "weight": [0.0, 1.0]})))
    [(1, "mode: must be one of hard, soft, shadow, not 'harsh'"),
     (0, 'weight: must be a number from 1e-09 to 1e+09, not 0')]
    """
    for name in POLICY_COLUMNS:
        if name not in put.column_names:
            continue
        values = put[name].combine_chunks()
        if name in RANGES:
            least, most = RANGES[name]
            fits = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
            must = f"a number from {least:g} to {most:g}"
        elif name == "mode":
            fits, must = pc.is_in(values, pa.array(MODES)), "one of " + ", ".join(MODES)
        else:
            parsed, must = _TEXTS[name]
            texts = values.dictionary_encode()
            good = [parsed(text) is not None for text in texts.dictionary.to_pylist()]
            fits = pa.array(good, pa.bool_()).take(texts.indices)
        bad = pc.and_not(pc.is_valid(values), fits.fill_null(True))
        for row in np.flatnonzero(bad.to_numpy(False)).tolist():
            value = values[row].as_py()
            shown = repr(value) if isinstance(value, str) else f"{value:g}"
            yield row, f"{name}: must be {must}, not {shown}"


def read_terms(text: str) -> dict[str, BrokerTerms]:
    """The terms in a column's text; none at all if it is not what ``TermsByBroker`` would write.

    >>> read_terms('{"b1": {"weight": 2.0}}')["b1"].weight
    2.0
    >>> read_terms("no json")
    {}
    """
    # `groups put` refuses such a text, but others may write the table too, and one of them must
    # not stop the shard of all the others; it becomes a dead letter (``flaws``).
    return _parsed(text) or {}


def _parsed(text: str) -> dict[str, BrokerTerms] | None:
    try:
        return TermsByBroker.model_validate_json(text).root
    except ValidationError:
        return None


_TEXTS: Final[Mapping[str, tuple[Callable[[str], object], str]]] = {
    "brokers": (_parsed, "terms by broker, as JSON"),
    "throttle": (throttle_terms.parsed, "throttle terms by dimension, as JSON"),
}
"""The columns of JSON: how they are read, and what they must be."""
