"""Reads YAML of users strictly: keys are text and occur once; errors name the line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from quotaplane.errors import InputError

_MERGE: Final = "tag:yaml.org,2002:merge"
_TEXT: Final = "tag:yaml.org,2002:str"


class YamlMapping(NamedTuple):
    """A mapping, and where it is in its file."""

    values: dict[str, Any]
    line: int
    """Its first line, from 1."""
    lines: dict[str, int]
    """The line of each key; a key that came by ``<<`` is not among them."""


def read_mappings(text: str, source: str) -> Iterator[YamlMapping]:
    r"""The mapping that a document is, or those in the list that it is; ``source`` names the file.

    >>> [found] = read_mappings("- group: a\n  weight: 2", "groups.yaml")
    >>> found.values, found.lines
    ({'group': 'a', 'weight': 2}, {'group': 1, 'weight': 2})
    >>> list(read_mappings("- a\n- b: 1\n  b: 2", "groups.yaml"))
    Traceback (most recent call last):
        ...
    quotaplane.errors.InputError: groups.yaml: line 1: must be a mapping (key: value), not a text

    Raises:
        InputError: the text is not such YAML; names the line.
    """
    try:
        # What the text holds decides the types, of which SafeLoader has only plain ones.
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        items = node.value if isinstance(node, yaml.SequenceNode) else [node] if node else []
        for item in items:
            if not isinstance(item, yaml.MappingNode):
                kind = "a list" if isinstance(item, yaml.SequenceNode) else "a text"
                raise InputError(
                    f"{source}: line {_line(item)}: must be a mapping (key: value), not {kind}"
                )
            _check(item, source, (), set())
            lines = {key.value: _line(key) for key, _ in item.value if key.tag == _TEXT}
            yield YamlMapping(loader.construct_object(item, deep=True), _line(item), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise InputError(f"{source}: {where}not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # a control character; a date such as 2026-02-30
        raise InputError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError(f"{source}: nested too deeply") from None


def _check(
    node: yaml.Node, source: str, above: tuple[yaml.Node, ...], done: set[yaml.Node]
) -> None:
    """Check all keys in a node; a node that aliases repeat is checked once."""
    if node in above:
        raise InputError(f"{source}: line {_line(node)}: contains itself")
    if node in done:
        return
    done.add(node)
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check(item, source, (*above, node), done)
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set()
    for key, value in node.value:
        if key.tag not in (_TEXT, _MERGE):
            shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or mapping"
            raise InputError(f"{source}: line {_line(key)}: the key {shown} must be text: quote it")
        if key.value in seen:
            raise InputError(f"{source}: line {_line(key)}: {key.value}: the key occurs twice")
        seen.add(key.value)
        _check(value, source, (*above, node), done)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
