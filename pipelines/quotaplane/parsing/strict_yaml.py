"""Reads and writes YAML of users strictly: keys are text and occur once; errors name the line.

A text without quotes that programs read differently is refused, and written with quotes: in YAML
1.1 ``0100`` is 64, ``1:30`` is 90 and ``no`` is false, in YAML 1.2 they are 100 and two texts.

What a text may cost is bounded before it is composed: libyaml takes minutes for ``[`` a quarter of
a million times. Only the number of its nodes is the caller's choice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import yaml

from quotaplane.errors import InputError
from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.parsing.decimals import DECIMAL, DOUBTFUL_ZERO, is_doubtful_zero

_MOST_LEVELS: Final = 32
"""Most mappings and lists within each other."""
_TIMES: Final = 10
_MOST_REPEATED: Final = 100_000
"""With all aliases and ``<<`` written out, a text may have ``_TIMES`` as many nodes, and this many
more. Aliases of aliases grow exponentially."""
_MOST_DIGITS: Final = 100
"""Most characters of what is no text."""

_STANDARD: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_STANDARD}merge"
_TEXT: Final = f"{_STANDARD}str"
_NUMBERS: Final = (f"{_STANDARD}int", f"{_STANDARD}float")
_CONTAINERS: Final = (f"{_STANDARD}seq", f"{_STANDARD}map")
_UNCLEAR: Final = "!unclear"
"""The tag of a text without quotes that programs read differently."""

_OTHER_BREAK: Final = re.compile("[\x85\u2028\u2029]")
"""YAML 1.1 ends a line with these, YAML 1.2 and JSON don't."""

_DIGITS: Final = "0123456789"
_PLAIN: Final = (
    (f"{_STANDARD}null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (f"{_STANDARD}bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    (f"{_STANDARD}int", r"[-+]?(0|[1-9][0-9]*)", list("-+" + _DIGITS)),
    (
        f"{_STANDARD}float",
        rf"{DECIMAL}|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+." + _DIGITS),
    ),
    (_MERGE, r"<<", ["<"]),
    (_UNCLEAR, r"=|y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF", list("=yYnNoO")),
    (
        _UNCLEAR,
        r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9_]+)?"
        r"|[-+]?0([oO][0-7_]+|[xX][0-9a-fA-F_]+|[bB][01_]+)"
        r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?",
        list("-+." + _DIGITS),
    ),
    (
        _UNCLEAR,
        r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
        r"(([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]*)?"
        r"([ \t]*(Z|[-+][0-9]{1,2}(:?[0-9]{2})?))?)?",
        list(_DIGITS),
    ),
)
"""Tag, form and first characters of a text without quotes, the first that fits: as YAML 1.2 has
it, then the other numbers, words and times of YAML 1.1. Any other is a text."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """With libyaml it is ten times as fast."""


class _Dumper(yaml.SafeDumper):
    pass


for _class in (_Loader, _Dumper):
    _class.yaml_implicit_resolvers = {}
    for _tag, _form, _first in _PLAIN:
        _class.add_implicit_resolver(_tag, re.compile(rf"(?:{_form})\Z"), _first)


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
    with _errors_of(source):
        loader, check = _prepared(text, source, most_nodes)
        node = loader.get_single_node()
        items = node.value if isinstance(node, yaml.SequenceNode) else [node] if node else []
        for item in items:
            yield _mapping(loader, item, check, source)


def read_documents(text: str, source: str, *, most_nodes: float) -> Iterator[YamlMapping]:
    r"""The mapping that each document of a text is; empty documents are left out.

    >>> [found.values for found in read_documents("a: 1\n---\n---\nb: 2", "f", most_nodes=9)]
    [{'a': 1}, {'b': 2}]

    Raises:
        InputError: as ``read_mappings``; a document is no mapping.
    """
    with _errors_of(source):
        loader, check = _prepared(text, source, most_nodes)
        while loader.check_node():
            node = loader.get_node()
            if not (isinstance(node, yaml.ScalarNode) and node.value == ""):
                yield _mapping(loader, node, check, source)


def _mapping(loader: _Loader, node: yaml.Node, check: _Check, source: str) -> YamlMapping:
    if not isinstance(node, yaml.MappingNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "a text"
        raise InputError(
            f"{source}: line {_line(node)}: must be a mapping (key: value), not {kind}"
        )
    check.node(node)
    lines = {key.value: _line(key) for key, _ in node.value if key.tag == _TEXT}
    return YamlMapping(loader.construct_object(node, deep=True), _line(node), lines)


def read_value(text: str, source: str, *, most_nodes: float = math.inf) -> object:
    """The value that a document is; None if there is none.

    >>> read_value("0.5", "--set"), read_value("[a, 1e3]", "--set")
    (0.5, ['a', 1000.0])

    Raises:
        InputError: the text is not such YAML; names the line.
    """
    with _errors_of(source):
        loader, check = _prepared(text, source, most_nodes)
        node = loader.get_single_node()
        if node is None:
            return None
        check.node(node)
        value: object = loader.construct_object(node, deep=True)
        return value


def write_yaml(value: object) -> str:
    """A document of plain values; all programs read it alike.

    >>> print(write_yaml([{"group": "no"}, {"group": "0o17"}, {"weight": 1e18}]), end="")
    - group: 'no'
    - group: '0o17'
    - weight: 1.0e+18
    """
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


@contextmanager
def _errors_of(source: str) -> Iterator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise InputError(f"{source}: {where}not YAML: {error.problem}") from None
    except (yaml.YAMLError, *MALFORMED) as error:  # a control character
        raise InputError(f"{source}: not YAML: {' '.join(str(error).split())[:300]}") from None


def _prepared(text: str, source: str, most_nodes: float) -> tuple[_Loader, _Check]:
    nodes = _count(text, source, most_nodes)
    loader = _Loader(text)
    return loader, _Check(source, min(_TIMES * nodes + _MOST_REPEATED, 2 * most_nodes), loader)


def _count(text: str, source: str, most_nodes: float) -> int:
    """The number of nodes; reads only as much of the text as the bounds allow."""
    other = _OTHER_BREAK.search(text)
    if other is not None:
        line, shown = text.count("\n", 0, other.start()) + 1, repr(other[0]).strip("'")
        raise InputError(
            f"{source}: line {line}: has {shown}, a line break only to some programs: write it as "
            "an escape in double quotes"
        )
    nodes = levels = 0
    for event in yaml.parse(text, Loader=_Loader):
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

    def __init__(self, source: str, most: float, loader: _Loader) -> None:
        self._source, self._most, self._loader = source, most, loader
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
            self._check_scalar(node)
        elif node.tag not in _CONTAINERS:
            raise self._unknown_tag(node)
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

    def _check_scalar(self, node: yaml.ScalarNode) -> None:
        if node.tag == _TEXT:
            return
        if len(node.value) > _MOST_DIGITS:
            raise InputError(
                f"{self._place(node)}: a number or time of more than {_MOST_DIGITS} "
                "characters; quote it if it is text"
            )
        read_as = self._loader.resolve(yaml.ScalarNode, node.value, (True, False))
        if node.tag != read_as:
            raise self._unknown_tag(node)
        if node.tag == _UNCLEAR:
            raise InputError(
                f"{self._place(node)}: {node.value} means different things to different programs: "
                "write a plain decimal number, true or false; or quote it if it is text"
            )
        if node.tag in _NUMBERS and is_doubtful_zero(node.value):
            raise InputError(f"{self._place(node)}: {node.value}: {DOUBTFUL_ZERO}")

    def _unknown_tag(self, node: yaml.Node) -> InputError:
        tag = node.tag.replace(_STANDARD, "!!", 1)
        return InputError(f"{self._place(node)}: the tag {tag} can't be used here: leave it out")

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
