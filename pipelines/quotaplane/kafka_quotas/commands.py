"""Kafka's commands that set groups' quotas as Kafka's own: the way back; pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.groups.scope import DEFAULT, SCOPE_KEYS, Scope, decode, is_scope, parse_scope
from quotaplane.kafka_quotas.client_quotas import KEYS, Key
from quotaplane.model import DIMENSIONS, RATE_COLUMNS, SEPARATOR

_LEAST: Final = 1e-6
"""Kafka refuses 0."""
_DIGITS: Final = 15
_TYPES: Final = dict(zip(SCOPE_KEYS, ("users", "clients"), strict=True))
_EXPRESSED: Final = frozenset(key.dimension for key in KEYS)
_MODE: Final = "mode"


def command(scope: Scope, row: Mapping[str, Any], brokers: int, cluster: Sequence[str]) -> str:
    """The command that sets a group's quota, divided by the brokers, as Kafka's own.

    >>> row = {"publish_bytes_per_s": 3000.0, "controller_mutations_per_s": 5.0}
    >>> print(command(Scope("CN%3Da%20b", DEFAULT), row, 3, ["--bootstrap-server", "HOST:9092"]))
    kafka-configs.sh --bootstrap-server HOST:9092 --alter --entity-type users \
--entity-name='CN=a b' --entity-type clients --entity-default \
--add-config producer_byte_rate=1000,controller_mutation_rate=5

    Args:
        scope: the group's; its names are encoded.
        row: of ``list_groups``.
        brokers: of the cluster.
        cluster: the options that name the cluster.
    """
    words = ["kafka-configs.sh", *map(shell_word, cluster), "--alter"]
    for key, name in zip(SCOPE_KEYS, scope, strict=True):
        if name is not None:
            words += ["--entity-type", _TYPES[key]]
            is_default = name == DEFAULT
            # In one word with its option, as a name may begin with a dash.
            words.append(
                "--entity-default" if is_default else f"--entity-name={shell_word(decode(name))}"
            )
    numbers = [f"{key.name}={number}" for key, number in _numbers(row, brokers)]
    return " ".join([*words, "--add-config", ",".join(numbers)])


def export(
    rows: Sequence[Mapping[str, Any]],
    attached: Mapping[str, Sequence[str]],
    brokers: int,
    cluster: Sequence[str],
) -> Iterator[str]:
    """Lines for a shell: a command for each group that Kafka can express, and comments.

    Args:
        rows: of ``list_groups``.
        attached: by group, what is attached to it beside itself.
        brokers: of the cluster.
        cluster: the options that name the cluster.
    """
    for row in rows:
        group = row["group"]
        flaw = _flaw(row, attached.get(group, ()))
        if flaw is not None:
            yield f"# left out: {group}: {flaw}"
            continue
        scope = parse_scope(group)
        yield from (f"# {group}: {note}" for note in _notes(row, attached.get(group, ()), brokers))
        yield command(scope, row, brokers, cluster)


def shell_word(text: str) -> str:
    r"""A text as one word of a shell; bash and ksh read the form with control characters.

    >>> shell_word("app-1"), shell_word("O'Hara"), shell_word("a\x1bb'")
    ('app-1', '\'O\'"\'"\'Hara\'', "$'a\\x1bb\\''")
    """
    if text.isprintable():
        return shlex.quote(text)

    def escaped(character: str) -> str:
        if character in "'\\":
            return f"\\{character}"
        if character.isprintable():
            return character
        return "".join(f"\\x{byte:02x}" for byte in character.encode())

    # A hex digit behind an escape would be read as part of it only if that had a single digit.
    return f"$'{''.join(map(escaped, text))}'"


def _numbers(row: Mapping[str, Any], brokers: int) -> Iterator[tuple[Key, str]]:
    for key in KEYS:
        quota = row.get(RATE_COLUMNS[key.place])
        if quota is None:
            continue
        number = quota / key.times(brokers)
        if key.is_whole:
            yield key, str(max(math.floor(number), 1))
        else:
            yield key, f"{max(number, _LEAST):.{_DIGITS}g}"


def _flaw(row: Mapping[str, Any], attached: Sequence[str]) -> str | None:
    """Why Kafka can't express a group at all, None if it can."""
    group = row["group"]
    if not is_scope(group):
        what = "Kafka has no groups of users and clients"
        if attached:
            return f"{what}; attached: {', '.join(attached)}"
        return f"{what}, and no trees" if SEPARATOR in group else what
    if row[_MODE] not in (None, "hard"):
        return f"its mode is {row[_MODE]}: brokers do not hold it to its quota"
    if not any(row.get(RATE_COLUMNS[key.place]) is not None for key in KEYS):
        return _other_quotas(row) or "it has no quota"
    return None


def _notes(row: Mapping[str, Any], attached: Sequence[str], brokers: int) -> Iterator[str]:
    """Lines about the things that a command leaves out or changes."""
    other = _other_quotas(row)
    if other:
        yield other
    for key, number in _numbers(row, brokers):
        quota = row[RATE_COLUMNS[key.place]]
        allowed = float(number) * key.times(brokers)
        if not math.isclose(allowed, quota, rel_tol=1e-9):
            yield f"{key.name}: all brokers together allow {allowed:.10g}, not {quota:.10g}"
    options = [name for name in POLICY_COLUMNS if name != _MODE and row.get(name) is not None]
    if options:
        yield f"Kafka has no such options: {', '.join(options)}"
    if attached:
        yield f"Kafka has no groups: {', '.join(attached)} would not share it"


def _other_quotas(row: Mapping[str, Any]) -> str:
    others = [
        f"{dimension} {row[column]:.10g}"
        for dimension, column in zip(DIMENSIONS, RATE_COLUMNS, strict=True)
        if dimension not in _EXPRESSED and row[column] is not None
    ]
    return f"Kafka has no such quotas: {', '.join(others)}" if others else ""
