"""Reads resource groups from files or options into the arguments of ``put_groups``."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.console.text_table import unescape_cell
from quotaplane.errors import InputError
from quotaplane.groups.option_kinds import number
from quotaplane.groups.policy_options import BY_COLUMN, DEFAULTS, POLICY_COLUMNS
from quotaplane.groups.policy_options import JSON_COLUMNS as JSON_OPTIONS
from quotaplane.groups.quota_text import parse_quota
from quotaplane.model import DIMENSIONS, MAX_RATE, RATE_COLUMNS, FloatArray
from quotaplane.parsing.decimals import how_to_write
from quotaplane.parsing.strict_json import json_type, parse_json, read_json, source_name
from quotaplane.throttle.terms import ALL_DIMENSIONS

JSON_COLUMNS: Final = (*JSON_OPTIONS, "quotas")
"""Fields with JSON in a cell or an option; ``quotas`` is a list of texts, no table column."""

KEYS: Final = ("group", *RATE_COLUMNS, *POLICY_COLUMNS, "quotas")
"""Fields of a group in a file."""

DERIVED: Final = ("parent", "updated_at", "updated_by")
"""Further fields that commands print; a file may have them, and they have no effect."""


class GivenGroups(NamedTuple):
    """Given quotas and policies of n groups, for a put (``registry.table``)."""

    names: list[str]
    quotas: FloatArray
    """(n, dimensions) per second; NaN keeps a group's quota (unlimited if it is new), +inf makes it
    unlimited."""
    policy: pa.Table | None
    """n rows with any of ``policy_options.POLICY_COLUMNS``; null keeps a group's value, a default
    is written as null."""
    timeframe_s: FloatArray | None
    """(n, dimensions) seconds over which a quota is measured, for the windows in ``throttle``; NaN
    and 1 keep these."""


class GivenGroup(NamedTuple):
    """Given quotas and policy of one group; NaN: not given."""

    quotas: list[float]
    timeframe_s: list[float]
    policy: dict[str, Any]


def read_groups(path: str) -> GivenGroups:
    """Read groups from a file.

    Raises:
        InputError: a value is wrong, with file, line or item, and field.
    """
    if path.endswith(".csv"):
        records = _csv(path)
    elif path.endswith(".json"):
        records = _json_items(path)
    else:
        raise InputError(f"{source_name(path)}: must end in .csv or .json")
    places: dict[str, str] = {}
    groups: list[GivenGroup] = []
    for where, record in records:
        unknown = record.keys() - {*KEYS, *DERIVED}
        if unknown:
            raise InputError(f"{where}: {min(unknown)}: unknown key")
        group = record.get("group")
        if not isinstance(group, str) or not group:
            raise InputError(f"{where}: group: must be a name")
        if group in places:
            raise InputError(f"{where}: group {group!r} is given twice: also {places[group]}")
        places[group] = where
        groups.append(read_group(record, f"{where}: {{}}".format))
    return given_groups(list(places), groups)


def given_state(state: Mapping[str, Any]) -> GivenGroup:
    """The complete input that recreates a group from its row.

    ``state`` has the values of the rate and policy columns, None as in ``list_groups``.
    """
    return GivenGroup(
        [math.inf if state[c] is None else state[c] for c in RATE_COLUMNS],
        [math.nan] * len(DIMENSIONS),
        {c: DEFAULTS[c] if state[c] is None else state[c] for c in POLICY_COLUMNS},
    )


def given_groups(names: list[str], groups: Sequence[GivenGroup]) -> GivenGroups:
    """The inputs of n groups, as one."""
    shape = (len(names), len(DIMENSIONS))
    quotas = np.array([group.quotas for group in groups], dtype=np.float64).reshape(shape)
    timeframe_s = np.array([group.timeframe_s for group in groups], dtype=np.float64).reshape(shape)
    return GivenGroups(
        names,
        quotas,
        _policy_table([group.policy for group in groups]),
        None if np.isnan(timeframe_s).all() else timeframe_s,
    )


def read_group(record: Mapping[str, object], field: Callable[[str], str]) -> GivenGroup:
    """Read one group, by column and ``quotas``; ``field`` makes the names of fields in errors.

    >>> read_group({"quotas": ["write 1KB/min"], "weight": "2"}, str).policy
    {'weight': 2.0}

    Raises:
        InputError: a value is not of its kind, or there are two for one dimension.
    """
    quotas = [read_rate(record.get(c), field(c)) for c in RATE_COLUMNS]
    timeframe_s = [math.nan] * len(DIMENSIONS)
    policy = {c: record[c] for c in POLICY_COLUMNS.keys() & record.keys()}
    if record.get("quotas") is not None:
        timeframe_s = _read_quotas(record["quotas"], quotas, field)
        if "throttle" in policy:
            policy["throttle"], timeframe_s = _with_windows(policy["throttle"], timeframe_s)
    read = {c: read_term(c, value, field(c)) for c, value in policy.items()}
    return GivenGroup(quotas, timeframe_s, read)


def _read_quotas(texts: object, quotas: list[float], field: Callable[[str], str]) -> list[float]:
    """The timeframe of each dimension; sets the rates in ``quotas``."""
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f'{field("quotas")}: must be a list such as ["write 10MB/min"]')
    timeframe_s = [math.nan] * len(DIMENSIONS)
    for text in texts:
        try:
            given = parse_quota(text)
        except InputError as error:
            raise InputError(f"{field('quotas')}: {error}") from None
        place = DIMENSIONS.index(given.dimension)
        if not math.isnan(timeframe_s[place]):
            raise InputError(f"{field('quotas')}: {text!r}: {given.dimension} is given twice")
        if not math.isnan(quotas[place]):
            column = field(RATE_COLUMNS[place])
            raise InputError(f"{field('quotas')}: {text!r} is given by {column}, too")
        quotas[place], timeframe_s[place] = given.rate_per_s, given.timeframe_s
    return timeframe_s


def _with_windows(throttle: object, timeframe_s: list[float]) -> tuple[object, list[float]]:
    """The terms and timeframes of a group that has both throttle terms and quotas as texts.

    Given windows take precedence over a quota's timeframe; given samples alone divide it. A
    timeframe of a second is not divided, and keeps no windows, as the terms are new.
    """
    if not isinstance(throttle, dict):
        return throttle, timeframe_s
    throttle, timeframe_s = dict(throttle), list(timeframe_s)
    for place, dimension in enumerate(DIMENSIONS):
        if timeframe_s[place] == 1:
            timeframe_s[place] = math.nan
        own = throttle.get(dimension, throttle.get(ALL_DIMENSIONS))
        if math.isnan(timeframe_s[place]) or not isinstance(own, dict):
            continue
        samples = own.get("samples")
        if "window_s" not in own and isinstance(samples, int) and samples > 0:
            throttle[dimension] = own = {**own, "window_s": timeframe_s[place] / samples}
        if "window_s" in own:
            timeframe_s[place] = math.nan
    return throttle, timeframe_s


def _policy_table(policies: Sequence[Mapping[str, Any]]) -> pa.Table | None:
    """Rows of policies, without columns that no group has; None if there are no columns."""
    given = {name for policy in policies for name, value in policy.items() if value is not None}
    if not given:
        return None
    return pa.table(
        {c: pa.array([p.get(c) for p in policies], POLICY_COLUMNS[c]) for c in sorted(given)}
    )


def read_object(given: str, option: str) -> object:
    """The value of an option that is JSON, or the name of a JSON file.

    Raises:
        InputError: it is no JSON, or there is no such file.
    """
    if given.lstrip().startswith("{"):
        return parse_json(given, option)
    return read_json(given)


def read_term(column: str, given: object, field: str) -> object:
    """A value of a policy column; None if not given. Ranges are left to ``put_groups``.

    >>> read_term("weight", "2", "--weight"), read_term("brokers", {"b": {}}, "--brokers")
    (2.0, '{}')

    Raises:
        InputError: it is not of the column's kind; names the field.
    """
    return None if given is None else BY_COLUMN[column].parse(given, field)


def _csv(path: str) -> Iterable[tuple[str, Mapping[str, object]]]:
    source = source_name(path)
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="", strict=True)
            _check_header(reader.fieldnames or (), f"{source}: line 1")
            for record in reader:
                where = f"{source}: line {reader.line_num}"
                if "" in record or None in record.values():
                    raise InputError(f"{where}: has not as many cells as the header")
                cells: dict[str, object] = {
                    key: unescape_cell(cell) or None for key, cell in record.items()
                }
                for column in JSON_COLUMNS:
                    if cells.get(column):
                        cells[column] = parse_json(str(cells[column]), f"{where}: {column}")
                yield where, cells
    except OSError as error:
        raise InputError(f"{source}: can't be read: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{source}: not CSV: {error}") from None


def _check_header(columns: Sequence[str], where: str) -> None:
    if "group" not in columns:
        raise InputError(f"{where}: there is no column group")
    if "" in columns:
        raise InputError(f"{where}: column {columns.index('') + 1} has no name")
    for column, times in Counter(columns).items():
        if times > 1:
            raise InputError(f"{where}: the column {column} occurs {times} times: keep one")


def _json_items(path: str) -> Iterable[tuple[str, Mapping[str, object]]]:
    items, source = read_json(path), source_name(path)
    if not isinstance(items, list):
        raise InputError(f"{source}: must be a list of groups, not {json_type(items)}")
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise InputError(f"{source}: {index}: must be an object, not {json_type(item)}")
        if "updated_at" in item:
            # Commands print null for a default.
            item = {key: _none_means(key) if v is None else v for key, v in item.items()}
        yield f"{source}: {index}", item


def _none_means(key: str) -> object:
    return "unlimited" if key in RATE_COLUMNS else None


def read_rate(given: object, field: str) -> float:
    """A quota per second: NaN if not given, +inf if unlimited.

    >>> read_rate("1e6", "f"), read_rate("unlimited", "f")
    (1000000.0, inf)

    Raises:
        InputError: it is no number from 0 to 1e18; names the field.
    """
    if given is None:
        return math.nan
    if given == "unlimited":
        return math.inf
    rate = number(given)
    if not 0 <= rate <= MAX_RATE:
        raise InputError(
            f"{field}: must be a number from 0 to 1e18, or unlimited, not {given!r}"
            f"{how_to_write(given)}"
        )
    return rate
