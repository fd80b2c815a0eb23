"""Fields of a Pulsar resource group: the four rates, and others that some versions have.

Rates of replication are in Pulsar's source, for example. quotaplane enforces no such field, but
keeps it for Pulsar's tools: the column ``pulsar_fields``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, JsonValue, RootModel, model_validator

RATE_KEYS: Final = (
    "publishRateInMsgs",
    "publishRateInBytes",
    "dispatchRateInMsgs",
    "dispatchRateInBytes",
)
"""Pulsar's names of the first four of ``model.DIMENSIONS``."""

UNLIMITED: Final = -1
"""The rate that Pulsar takes for "no limit"."""

NO_FIELDS: Final = "{}"
MOST_BYTES: Final = 4096
"""Most bytes of the column's text."""

_RATES: Final = frozenset(key.lower() for key in RATE_KEYS)
_NAME: Final = re.compile("[A-Za-z][A-Za-z0-9_]{0,99}")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a field's name has up to 100 letters, digits or _")
    if name.lower() in _RATES:
        raise ValueError("has a column of its own, with the rate per second")
    return name


class PulsarFields(RootModel[dict[Annotated[str, AfterValidator(_checked_name)], JsonValue]]):
    """The column ``pulsar_fields``: values by Pulsar's name.

    >>> fields = {"replicationDispatchRateInMsgs": 5, "replicationDispatchRateInBytes": -1}
    >>> PulsarFields.model_validate(fields).text()
    '{"replicationDispatchRateInMsgs": 5}'
    """

    model_config = ConfigDict(frozen=True, strict=True, hide_input_in_errors=True)

    @model_validator(mode="after")
    def _not_too_long(self) -> PulsarFields:
        # A surrogate can't be encoded, which is a ValueError, too.
        if len(self.text().encode()) > MOST_BYTES:
            raise ValueError(f"must be at most {MOST_BYTES} bytes of JSON")
        return self

    def text(self) -> str:
        """As JSON in one form only, without what is unlimited: equal fields are equal texts."""
        given = {k: v for k, v in self.root.items() if v not in (None, UNLIMITED, {})}
        return json.dumps(given, ensure_ascii=False, sort_keys=True, allow_nan=False)


def fields_in(group: Mapping[str, Any]) -> str:
    """The column's text for a group as Pulsar answers it; empty for fields that can't be kept.

    >>> fields_in({"publishRateInMsgs": 5, "replicationDispatchRateInMsgs": 7})
    '{"replicationDispatchRateInMsgs": 7}'
    """
    others = {name: value for name, value in group.items() if name not in RATE_KEYS}
    try:
        return PulsarFields.model_validate(others).text()
    except ValueError:  # the group's rates are followed all the same
        return NO_FIELDS


def read_fields(text: str | None) -> dict[str, Any]:
    """The fields in a column's text; none if it is null, or not what ``PulsarFields`` would write.

    >>> read_fields('{"a": 1}'), read_fields(None), read_fields("no json")
    ({'a': 1}, {}, {})
    """
    try:
        return dict(PulsarFields.model_validate_json(text or NO_FIELDS).root)
    except ValueError:
        return {}


def fields_to_set(wanted: Mapping[str, Any], cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The fields to set in a cluster's group so that it has what is wanted, and no other number.

    Pulsar keeps what a request does not name, and has no way to remove a field that is no number.

    >>> fields_to_set({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4, "d": {"e": 5}})
    {'b': 2, 'c': -1}
    """
    changed = {name: value for name, value in wanted.items() if cluster.get(name) != value}
    left = sorted(cluster.keys() - wanted.keys())
    return changed | {name: UNLIMITED for name in left if type(cluster[name]) in (int, float)}
