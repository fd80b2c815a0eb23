"""Reads what ``kafka-configs.sh --describe`` prints about users and clients; tried with 3.9 to 4.4.

Lines are like ``Quota configs for user-principal 'alice', the default client-id are
producer_byte_rate=1000.0``. Names are not escaped in there, so some look like two names: such a
line is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from quotaplane.errors import InputError
from quotaplane.kafka_quotas.client_quotas import CLIENT, IP, USER, Entity, FoundQuota

_BEGINS: Final = re.compile("(Quota c|C)onfigs for ")
"""``Configs for`` was printed from ZooKeeper."""
_OTHER: Final = re.compile("(SCRAM|Error retrieving SCRAM) credential configs for ")
_TYPES: Final = {"user-principal": USER, "client-id": CLIENT, "ip": IP}
_DEFAULT: Final = re.compile("(?:the )?default (user-principal|client-id|ip)")
_DEFAULT_USER: Final = re.compile("((?:the )?default user-principal), ")
_NAMED: Final = re.compile("(user-principal|client-id|ip) '(.+)'")
_BETWEEN: Final = re.compile("', client-id '|, (?:the )?default client-id$")
_NUMBER: Final = re.compile(r"([a-z_]+)=(-?(?:NaN|Infinity|[0-9]+(?:\.[0-9]+)?(?:E-?[0-9]+)?))")
_MOST_SHOWN: Final = 80
_ASK_THE_CLUSTER: Final = (
    "let the command ask the cluster itself (--conf), which knows names exactly"
)


def is_described(text: str) -> bool:
    """Whether a text begins as the command's output does."""
    first = text.lstrip()
    return bool(_BEGINS.match(first) or _OTHER.match(first))


def read_described(text: str, source: str) -> Iterator[FoundQuota]:
    r"""The quotas that the command printed; credentials and empty lines are left out.

    >>> line = "Quota configs for user-principal 'O'Hara' are producer_byte_rate=1.0E7"
    >>> list(read_described(line, "f"))[0][:2]
    ({'user': "O'Hara"}, {'producer_byte_rate': 10000000.0})

    Raises:
        InputError: a line is none of the command's, or has more than one meaning; names it.
    """
    for number, line in enumerate(text.split("\n"), 1):
        line, where = line.removesuffix("\r"), f"{source}: line {number}"
        begin = _BEGINS.match(line)
        if not line.strip() or _OTHER.match(line):
            continue
        if line.endswith(" are"):  # an entity without numbers, and an editor that trims lines
            line += " "
        # A name may contain " are ", numbers can't.
        entity, found, values = line[begin.end() if begin else 0 :].rpartition(" are ")
        if begin is None or not found:
            raise InputError(
                f"{where}: {line[:_MOST_SHOWN]!r} is no line of kafka-configs.sh --describe; if "
                f"a name has a line break, {_ASK_THE_CLUSTER}"
            )
        try:
            yield FoundQuota(_entity(entity), _values(values), where)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


def _entity(text: str) -> Entity:
    """The entity that a line is about.

    >>> _entity("the default user-principal, client-id 'a b'")
    {'user': None, 'client-id': 'a b'}
    """
    parts, default = [text], _DEFAULT_USER.match(text)
    if default:
        parts = [default[1], text[default.end() :]]
    elif text.startswith("user-principal '"):
        cuts = list(_BETWEEN.finditer(text))
        if len(cuts) > 1:
            raise InputError(f"a name in it has \"', client-id '\": {_ASK_THE_CLUSTER}")
        if cuts:
            end = cuts[0].start() + (text[cuts[0].start()] == "'")
            parts = [text[:end], text[end + 2 :]]
    entity: dict[str, str | None] = {}
    for part in parts:
        default, named = _DEFAULT.fullmatch(part), _NAMED.fullmatch(part)
        if default:
            entity[_TYPES[default[1]]] = None
        elif named:
            entity[_TYPES[named[1]]] = named[2]
        else:
            raise InputError(f"{part[:_MOST_SHOWN]!r} is no user-principal or client-id")
    return entity


def _values(text: str) -> dict[str, float]:
    """Numbers as Java prints them, by their names; other settings of entities do not exist.

    >>> _values("producer_byte_rate=1.0E7, request_percentage=12.5")
    {'producer_byte_rate': 10000000.0, 'request_percentage': 12.5}
    """
    found = {}
    for part in filter(None, text.split(", ")):
        number = _NUMBER.fullmatch(part)
        if number is None:
            raise InputError(f"{part[:_MOST_SHOWN]!r} is no quota")
        found[number[1]] = float(number[2])
    return found
