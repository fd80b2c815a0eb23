"""Reads YAML of users strictly: keys are text and occur once; errors name the line.

What a text may cost is bounded before it is composed: libyaml takes minutes for ``[`` a quarter of
a million times. Only the number of its nodes is the caller's choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from quotaplane.bounded_json import MALFORMED
from quotaplane.errors import InputError

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""What the text holds decides the types, of which these have only plain ones. With libyaml it is
ten times as fast."""
_MOST_LEVELS: Final = 32
"""Most mappings and lists within each other."""
_TIMES: Final = 10
_MOST_REPEATED: Final = 100_000
"""With all aliases and ``<<`` written out, a text may have ``_TIMES`` as many nodes, and so many
more. Aliases of aliases grow exponentially."""
_MOST_DIGITS: Final = 100
"""Most characters of what is no text: YAML has ``1:59:59`` for 7199, which takes quadratic time."""

_MERGE: Final = "tag:yaml.org,2002:merge"
_TEXT: Final = "tag:yaml.org,2002:str"


class YamlMapping(NamedTuple):
    """A mapping, and where it is in its file."""

    values: dict[str, Any]
    line: int
    """Its first line, from 1."""
    lines: dict[str, int]
    """The line of each key; a key that came by ``<<`` is not among them."""


def read_mappings(text: str, source: str, *, most_nodes: float = math.inf) -> Iterator[YamlMapping]:
    r"""The mapping that a document is, or those in the list that it is; ``source`` names the file.

    A text with more keys and values than ``most_nodes`` is refused.

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
        nodes = _count(text, source, most_nodes)
        check = _Check(source, min(_TIMES * nodes + _MOST_REPEATED, 2 * most_nodes))
        loader = _LOADER(text)
        node = loader.get_single_node()
        items = node.value if isinstance(node, yaml.SequenceNode) else [node] if node else []
        for item in items:
            if not isinstance(item, yaml.MappingNode):
                kind = "a list" if isinstance(item, yaml.SequenceNode) else "a text"
                raise InputError(
                    f"{source}: line {_line(item)}: must be a mapping (key: value), not {kind}"
                )
            check.node(item)
            lines = {key.value: _line(key) for key, _ in item.value if key.tag == _TEXT}
            yield YamlMapping(loader.construct_object(item, deep=True), _line(item), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise InputError(f"{source}: {where}not YAML: {error.problem}") from None
    except (yaml.YAMLError, *MALFORMED) as error:
        # A control character; a date such as 2026-02-30; ``!!int`` or ``!!bool`` before another.
        raise InputError(f"{source}: not YAML: {' '.join(str(error).split())[:300]}") from None


def _count(text: str, source: str, most_nodes: float) -> int:
    """The number of nodes; reads only as much of the text as the bounds allow."""
    nodes = levels = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
        if isinstance(event, yaml.CollectionStartEvent):
            levels += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            levels -= 1
        if levels > _MOST_LEVELS:
            raise InputError(
                f"{source}: line {_line(event)}: nested too deeply: more than {_MOST_LEVELS} levels"
            )
        if nodes > most_nodes:
            raise InputError(
                f"{source}: line {_line(event)}: more than {most_nodes} keys and values"
            )
    return nodes


class _Check:
    """Checks nodes, and counts them as if every alias were written out; ``most``: of those."""

    def __init__(self, source: str, most: float) -> None:
        self._source, self._most = source, most
        self._size: dict[yaml.Node, int | None] = {}
        """By node that was looked at: how many nodes it has; None: it is being looked at."""

    def node(self, node: yaml.Node) -> int:
        """The number of nodes in a node; one that aliases repeat is checked once."""
        if node in self._size:
            size = self._size[node]
            if size is None:
                raise InputError(f"{self._place(node)}: contains itself")
            return size
        self._size[node] = None
        size = 1
        if isinstance(node, yaml.ScalarNode):
            if node.tag != _TEXT and len(node.value) > _MOST_DIGITS:
                raise InputError(
                    f"{self._place(node)}: a number or time of more than {_MOST_DIGITS} "
                    "characters; quote it if it is text"
                )
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                size = self._sum(size, item)
        elif isinstance(node, yaml.MappingNode):
            self._check_keys(node)
            for _, value in node.value:
                size = self._sum(size, value)
        self._size[node] = size
        return size

    def _sum(self, size: int, node: yaml.Node) -> int:
        size += self.node(node)
        if size > self._most:
            raise InputError(
                f"{self._place(node)}: with aliases (*) written out, there are more than "
                f"{self._most} keys and values"
            )
        return size

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen = set()
        for key, _ in node.value:
            if key.tag not in (_TEXT, _MERGE):
                shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or mapping"
                raise InputError(f"{self._place(key)}: the key {shown} must be text: quote it")
            if key.value in seen:
                raise InputError(f"{self._place(key)}: {key.value}: the key occurs twice")
            seen.add(key.value)

    def _place(self, node: yaml.Node) -> str:
        return f"{self._source}: line {_line(node)}"


def _line(found: yaml.Node | yaml.Event) -> int:
    mark = found.start_mark
    return 0 if mark is None else int(mark.line) + 1
