"""Files of groups for ``quotaplane groups apply``: each describes its groups completely.

A file is YAML: one group, or a list of them, with the keys of ``quotaplane groups put --file``. A
quota that is not given is unlimited, an option has its default.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from quotaplane.errors import InputError
from quotaplane.groups.flaws import option_flaws
from quotaplane.groups.names import check_name
from quotaplane.groups.policy_options import DEFAULTS, POLICY_COLUMNS
from quotaplane.model import RATE_COLUMNS
from quotaplane.parsing.strict_json import read_text, source_name
from quotaplane.parsing.strict_yaml import read_mappings, write_yaml
from quotaplane.registry.group_input import (
    KEYS,
    GivenGroup,
    GivenGroups,
    given_groups,
    read_group,
)
from quotaplane.registry.group_json import shown

SUFFIXES: Final = (".yaml", ".yml")

_HEAD: Final = "# Written by `quotaplane groups export`, for `quotaplane groups apply -f`.\n"


class _Place(NamedTuple):
    """The place of a group in a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}: line {self.line}"


def read_group_files(path: str, *, may_be_empty: bool = True) -> GivenGroups:
    """Read complete groups from a file, or from all files of a folder and its subfolders.

    ``-`` is stdin. Files and folders whose names begin with a dot are ignored. ``may_be_empty``:
    accept a file without groups; with ``--prune`` it would delete groups.

    Raises:
        InputError: a value is wrong, with file, line and key; or there is no file.
    """
    places: dict[str, _Place] = {}
    groups: list[GivenGroup] = []
    for file in _files(path):
        source, before = source_name(file), len(groups)
        for found in read_mappings(read_text(file), source):
            place = _Place(source, found.line)
            name, group = _read(found.values, found.lines, place)
            if name in places:
                raise InputError(f"{place}: group {name!r} is given twice: also {places[name]}")
            places[name] = place
            groups.append(group)
        if len(groups) == before and not may_be_empty:
            raise InputError(
                f"{source}: has no group, and --prune would delete those that it had: if that is "
                "meant, remove the file from its folder, or give --delete-all as well"
            )
    given = given_groups(list(places), groups)
    if given.policy is not None:
        first = min(option_flaws(given.policy), key=lambda flaw: flaw.row, default=None)
        if first is not None:
            raise InputError(f"{list(places.values())[first.row]}: {first.refusal}")
    return given


def _read(
    values: Mapping[str, Any], lines: Mapping[str, int], place: _Place
) -> tuple[str, GivenGroup]:
    def where(key: str) -> str:
        return f"{place.file}: line {lines.get(key, place.line)}: {key}"

    for key in values:
        if key not in KEYS:
            raise InputError(f"{where(key)}: unknown key")
    name = values.get("group")
    if not isinstance(name, str) or not name:
        quoted = "" if name is None else f", not {name!r} (quote it)"
        raise InputError(f"{where('group')}: must be a name{quoted}")
    try:
        check_name(name)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    given = read_group({key: value for key, value in values.items() if value is not None}, where)
    quotas = [math.inf if math.isnan(quota) else quota for quota in given.quotas]
    return name, GivenGroup(quotas, given.timeframe_s, {**DEFAULTS, **given.policy})


def _files(path: str) -> Iterator[str]:
    if path == "-" or not Path(path).is_dir():
        yield path
        return
    root = Path(path)
    found = [
        file
        for file in sorted(root.rglob("*"))
        if file.suffix.lower() in SUFFIXES
        and not file.is_dir()
        and not any(part.startswith(".") for part in file.relative_to(root).parts)
    ]
    if not found:
        raise InputError(f"{root.absolute()}: there is no file *.yaml or *.yml in this folder")
    yield from map(str, found)


def group_file(rows: Sequence[Mapping[str, Any]]) -> str:
    """The text of a file with these groups, rows of ``list_groups``, without default values."""
    groups = [_written(row) for row in rows]
    return _HEAD + write_yaml(groups)


def _written(row: Mapping[str, Any]) -> dict[str, Any]:
    defaults = shown(dict.fromkeys(chain(RATE_COLUMNS, POLICY_COLUMNS)))
    said = {key: value for key, value in shown(row).items() if key in defaults}
    return {"group": row["group"]} | {k: v for k, v in said.items() if v != defaults[k]}
