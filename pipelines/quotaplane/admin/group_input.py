"""What people say of resource groups, in files or options, made into what ``put_groups`` takes."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from quotaplane.admin.cases import json_type, parse_case, parse_json, read_json
from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, MAX_RATE, RATE_COLUMNS
from quotaplane.policy import MODES, POLICY_COLUMNS, TermsByBroker


def read_groups(
    path: str,
) -> tuple[list[str], np.ndarray[Any, np.dtype[np.float64]], pa.Table | None]:
    """Names, (n, 7) quotas and policy (n rows, or None) of a file, for ``put_groups``.

    Raises:
        InputError: names the file, the line or item, the field, and what is wrong with it.
    """
    if path.endswith(".csv"):
        records = _csv(path)
    elif path.endswith(".json"):
        records = _json_items(path)
    else:
        raise InputError(f"{path}: must end in .csv or .json")
    names: list[str] = []
    quotas: list[list[float]] = []
    policies: list[dict[str, Any]] = []
    for where, record in records:
        unknown = record.keys() - {"group", *RATE_COLUMNS, *POLICY_COLUMNS}
        if unknown:
            raise InputError(f"{where}: {min(unknown)}: unknown key")
        group = record.get("group")
        if not isinstance(group, str) or not group:
            raise InputError(f"{where}: group: must be a name")
        names.append(group)
        quotas.append([read_rate(record.get(c), f"{where}: {c}") for c in RATE_COLUMNS])
        policy = POLICY_COLUMNS.keys() & record.keys()
        policies.append({c: read_term(c, record[c], f"{where}: {c}") for c in policy})
    shape = (len(names), len(DIMENSIONS))
    return names, np.array(quotas, dtype=np.float64).reshape(shape), policy_table(policies)


def policy_table(policies: Sequence[Mapping[str, Any]]) -> pa.Table | None:
    """Rows of policy; a column that nobody gives is left out, None if that is all of them."""
    given = {name for policy in policies for name, value in policy.items() if value is not None}
    if not given:
        return None
    return pa.table(
        {c: pa.array([p.get(c) for p in policies], POLICY_COLUMNS[c]) for c in sorted(given)}
    )


def read_brokers(given: str) -> object:
    """What ``--brokers`` gives: JSON itself, or a file of it.

    Raises:
        InputError: it is no JSON, or there is no such file.
    """
    if given.lstrip().startswith("{"):
        return parse_json(given, "--brokers")
    return read_json(given)


def read_term(column: str, given: object, field: str) -> object:
    """A value of a policy column; None if not given. Ranges are left to ``put_groups``.

    >>> read_term("weight", "2", "--weight"), read_term("brokers", {"b": {}}, "--brokers")
    (2.0, '{}')

    Raises:
        InputError: it is not of the column's kind; names the field.
    """
    if given is None:
        return None
    if column == "brokers":
        return parse_case(given, TermsByBroker, field).text()
    if column == "mode":
        if not isinstance(given, str):
            raise InputError(f"{field}: must be one of {', '.join(MODES)}, not {given!r}")
        return given
    number = _number(given)
    if not math.isfinite(number):
        raise InputError(f"{field}: must be a number, not {given!r}")
    if column == "priority":
        if number != round(number):
            raise InputError(f"{field}: must be a whole number, not {given!r}")
        return int(max(min(number, 1e9), -1e9))
    return number


def _csv(path: str) -> Iterable[tuple[str, Mapping[str, object]]]:
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="", strict=True)
            if "group" not in (reader.fieldnames or ()):
                raise InputError(f"{path}: line 1: there is no column group")
            for record in reader:
                where = f"{path}: line {reader.line_num}"
                if "" in record or None in record.values():
                    raise InputError(f"{where}: has not as many cells as the header")
                cells: dict[str, object] = {key: cell or None for key, cell in record.items()}
                if cells.get("brokers"):
                    cells["brokers"] = parse_json(str(cells["brokers"]), f"{where}: brokers")
                yield where, cells
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not CSV: {error}") from None


def _json_items(path: str) -> Iterable[tuple[str, Mapping[str, object]]]:
    items = read_json(path)
    if not isinstance(items, list):
        raise InputError(f"{path}: must be a list of groups, not {json_type(items)}")
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise InputError(f"{path}: {index}: must be an object, not {json_type(item)}")
        yield f"{path}: {index}", item


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
    rate = _number(given)
    if not 0 <= rate <= MAX_RATE:
        raise InputError(f"{field}: must be a number from 0 to 1e18, or unlimited, not {given!r}")
    return rate


def _number(given: object) -> float:
    """A number, or NaN for what is none."""
    try:
        # A bool is a number to Python, not to whoever wrote true into a quota.
        return math.nan if isinstance(given, bool) else float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan
