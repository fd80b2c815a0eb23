"""A group as JSON: for commands, the server and its ETags."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.console.answers import json_of
from quotaplane.groups.hierarchy import ancestors
from quotaplane.groups.policy_options import DEFAULTS
from quotaplane.groups.policy_options import JSON_COLUMNS as JSON_OPTIONS

as_json: Final = json_of


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with defaults in place of null, except for quotas, and with JSON as objects."""
    answer: dict[str, Any] = {c: DEFAULTS.get(c) if v is None else v for c, v in row.items()}
    # Not checked: a wrong value that another program wrote into the table must be visible.
    for column in JSON_OPTIONS:
        with contextlib.suppress(ValueError):
            answer[column] = json.loads(answer[column])
    if "parent" in answer:
        answer = {"group": answer.pop("group"), "parent": answer.pop("parent"), **answer}
    return answer


def shown_changes(changes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Changes in the form of ``group_changes``, with states in the form of ``shown``."""
    return [
        {k: shown(v) if k in ("from", "to") and v else v for k, v in change.items()}
        for change in changes
    ]


def etag(text: bytes) -> str:
    """The ETag of an answer: equal for equal texts.

    >>> etag(b"{}") == etag(b"{}") != etag(b"[]")
    True
    """
    return f'"{hashlib.sha256(text).hexdigest()[:20]}"'


def group_json(row: Mapping[str, Any]) -> bytes:
    """The JSON of one group; ``row`` is one of ``list_groups``."""
    return as_json(shown(row)).encode()


def etag_of(rows: pa.Table, group: str) -> str | None:
    """The ETag of a group's JSON; None if it is not among the ``rows``, which are all groups."""
    names = rows["group"].combine_chunks()

    def place(name: str) -> int:
        return int(pc.index(names, name).as_py())

    found = place(group)
    if found < 0:
        return None
    parent = next((above for above in ancestors(group) if place(above) >= 0), None)
    row = rows.slice(found, 1).to_pylist()[0]
    return etag(group_json({**row, "parent": parent}))
