"""Declares the options of a resource group besides its quotas, each once.

From a declaration follow the columns of the table ``resource_groups`` and of the changes that the
quota job reads, their comments and DDL, the options of ``quotaplane groups put``, the checks of
values, and the array in a shard's state (``quota.groups.Groups.options``). A test compares
docs/reference/history.md with the declarations.

To add a number: declare it, use ``Groups.options`` in ``quota``, run
``python -m quotaplane.history.ddl schemas/tables``, and copy its row into
docs/reference/history.md.

Null is the default everywhere, so a new column needs no values in old rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from quotaplane.groups.option_kinds import (
    ArrayOption,
    ChoiceOption,
    JsonOption,
    NumberOption,
    Option,
    RateOption,
)
from quotaplane.groups.pulsar_fields import PulsarFields
from quotaplane.groups.terms_by_broker import PRIORITIES, WEIGHTS, TermsByBroker
from quotaplane.model import MAX_RATE, MODES
from quotaplane.throttle.terms import TermsByDimension

OPTIONS: Final[tuple[Option, ...]] = (
    ChoiceOption(
        name="mode",
        choices=MODES,
        help="hard, soft (brokers are not limited, use above the limit is a warning) or shadow "
        "(computed and recorded only)",
    ),
    NumberOption(
        name="enforcement_percent",
        least=0.0,
        most=100.0,
        default=100.0,
        help="share of the brokers that are limited",
    ),
    NumberOption(
        name="weight",
        least=WEIGHTS[0],
        most=WEIGHTS[1],
        default=1.0,
        help="of the group among its siblings",
    ),
    NumberOption(
        name="priority",
        least=PRIORITIES[0],
        most=PRIORITIES[1],
        default=0,
        is_whole=True,
        help="of the group among its siblings, the higher first",
    ),
    RateOption(
        name="floor",
        least=0.0,
        most=MAX_RATE,
        default=0.0,
        help="guaranteed to the group within its parent, per second",
    ),
    JsonOption(
        name="brokers",
        model=TermsByBroker,
        rule_in_words="terms by broker, as JSON",
        default_in_words="none",
        help="weight, priority, floor and ceiling of single brokers",
    ),
    JsonOption(
        name="throttle",
        model=TermsByDimension,
        rule_in_words="throttle terms by dimension, as JSON",
        default_in_words="token_bucket, soft",
        help="by dimension, how requests are held to the limit (law, mode: refused or delayed, "
        "window_s, samples)",
    ),
    JsonOption(
        name="pulsar_fields",
        model=PulsarFields,
        rule_in_words="fields of a group in Pulsar, as JSON",
        default_in_words="none",
        help="more fields of the group in Pulsar, such as replicationDispatchRateInMsgs: kept for "
        "its tools, not enforced",
    ),
)
"""In the order of the table's columns."""

BY_COLUMN: Final[Mapping[str, Option]] = {
    column: option for option in OPTIONS for column in option.columns
}

POLICY_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    column: option.column_type for column, option in BY_COLUMN.items()
}

DEFAULTS: Final[Mapping[str, Any]] = {
    column: option.null_means for column, option in BY_COLUMN.items()
}
"""By column, the value that null stands for; a default is stored as null."""

JSON_COLUMNS: Final = tuple(option.name for option in OPTIONS if isinstance(option, JsonOption))

ARRAYS: Final[Mapping[str, ArrayOption]] = {
    option.name: option for option in OPTIONS if isinstance(option, ArrayOption)
}
"""By name, the options that are arrays in a shard's state."""

FLOOR_COLUMNS: Final = ARRAYS["floor"].columns
"""The columns of the floor: the part of the parent's quota guaranteed to a group's subtree."""
