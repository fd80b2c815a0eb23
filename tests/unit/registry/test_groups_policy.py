"""The policy of a group, from the command line to the table: kept, shown, refused or doubted."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.errors import InputError
from quotaplane.groups.policy_options import DEFAULTS, FLOOR_COLUMNS, JSON_COLUMNS, POLICY_COLUMNS
from quotaplane.model import DIMENSIONS
from quotaplane.registry.table import get_group, put_groups
from quotaplane.settings import History
from tests.unit.registry.groups_cases import Command, quota, version, warned

ALL = {
    "mode": "soft",
    "enforcement_percent": 12.5,
    "weight": 2.0,
    "priority": -3,
    **{name: float(i + 1) for i, name in enumerate(FLOOR_COLUMNS)},
    "brokers": {"*": {"ceiling": {"publish_bytes_per_s": 1e6}}, "b1": {"weight": 2.0}},
    "throttle": {"*": {"law": "sliding_window"}, "publish_bytes": {"mode": "hard"}},
    "pulsar_fields": {"replicationDispatchRateInMsgs": 400},
}
NOTHING = {**DEFAULTS, **{name: {} for name in JSON_COLUMNS}}


def options(policy: dict[str, Any]) -> list[str]:
    return [
        word
        for name, value in policy.items()
        for word in (
            "--" + name.replace("_", "-"),
            json.dumps(value) if isinstance(value, dict) else str(value),
        )
    ]


def policy_of(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in POLICY_COLUMNS}


def test_a_policy_is_put_shown_and_kept_until_something_else_is_given(groups: Command) -> None:
    assert policy_of(groups("put", "g")) == NOTHING
    assert policy_of(groups("put", "g", *options(ALL))) == ALL
    assert policy_of(groups("put", "g", "--publish-messages-per-s", "9")) == ALL
    changed = groups("put", "g", "--weight", "5", "--mode", "shadow")
    assert policy_of(changed) == {**ALL, "weight": 5.0, "mode": "shadow"}
    assert groups("get", "g") == changed
    assert groups("list") == [changed]


def test_defaults_given_are_written_as_null_and_are_no_change(
    groups: Command, history: History
) -> None:
    made = groups("put", "g")
    assert groups("put", "g", *options(NOTHING)) == made
    assert version(history) == 1
    groups("put", "g", *options(ALL))
    assert policy_of(groups("put", "g", *options(NOTHING))) == NOTHING
    row = get_group(history, "g")
    assert [row[name] for name in POLICY_COLUMNS] == [None] * len(POLICY_COLUMNS)


def test_the_same_policy_written_otherwise_is_no_change(groups: Command, history: History) -> None:
    groups("put", "g", "--brokers", '{"b": {"weight": 2, "floor": {}}, "a": {"priority": 1}}')
    groups("put", "g", "--brokers", '{"a":{"priority":1},"b":{"weight":2.0},"c":{}}')
    assert version(history) == 1


def test_the_parent_is_shown(groups: Command) -> None:
    for name in ("a", "a::b::c", "x::y"):
        groups("put", name)
    assert [(row["group"], row["parent"]) for row in groups("list")] == [
        ("a", None),
        ("a::b::c", "a"),
        ("x::y", None),
    ]
    assert groups("put", "a::b")["parent"] == "a"
    assert groups("get", "a::b::c")["parent"] == "a::b"


def test_what_a_parent_cannot_give_is_a_warning(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    rate, floor = "--publish-messages-per-s", "--floor-publish-messages-per-s"
    assert warned(history, capsys, "a", rate, "100") == []
    assert warned(history, capsys, "a::b", rate, "100", floor, "60") == []
    more = "group 'a::c': publish_messages_per_s: 200 is more than the 100 of its parent 'a'"
    assert warned(history, capsys, "a::c", rate, "200") == [more]
    floors = (
        "group 'a': floor_publish_messages_per_s: the floors of its children add up to 120, "
        "more than its quota of 100"
    )
    assert warned(history, capsys, "a::c", rate, "50", floor, "60") == [floors]
    assert warned(history, capsys, "a", rate, "unlimited") == []
    assert len(warned(history, capsys, "a", rate, "40")) == 3
    assert warned(history, capsys, "other") == []
    assert get_group(history, "a")["publish_messages_per_s"] == 40.0


def test_many_warnings_are_cut_short(history: History) -> None:
    said: list[str] = []
    names = ["a", *(f"a::{i}" for i in range(20))]
    quotas = quota().repeat(21, axis=0)
    quotas[:, 0] = [1.0] + [2.0] * 20
    put_groups(history, names, quotas, "ann", warn=said.append)
    assert (len(said), said[-1]) == (11, "and 10 more")


def test_quotas_and_policies_of_another_shape_or_sign_are_refused(history: History) -> None:
    with pytest.raises(InputError, match=rf"shape \(1, {len(DIMENSIONS)}\), not \(1, 3\)"):
        put_groups(history, ["g"], np.zeros((1, 3)), "ann")
    with pytest.raises(InputError, match=r"group 'g': publish_bytes_per_s: must be 0 or more"):
        put_groups(history, ["g"], quota(1.0, -1.0), "ann")
    with pytest.raises(InputError, match="policy must have 1 rows, not 2"):
        put_groups(history, ["g"], quota(), "ann", policy=pa.table({"weight": [1.0, 2.0]}))
    with pytest.raises(InputError, match="policy: height: unknown key"):
        put_groups(history, ["g"], quota(), "ann", policy=pa.table({"height": [1.0]}))
