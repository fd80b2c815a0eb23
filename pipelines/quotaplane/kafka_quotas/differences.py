"""Finds what becomes different where entities of Kafka's overlap; pure.

Kafka looks for a number at eight levels, for each kind of quota by itself. A group is looked for
once, for all kinds: the clients of an entity with a group are in that group, in no other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from quotaplane.groups.scope import DEFAULT, Scope
from quotaplane.kafka_quotas.client_quotas import KEYS, Key, is_usable
from quotaplane.texts import first_few

_MOST_NAMED: Final = 3


class Precedence:
    """The entities with numbers, for questions about one of them."""

    def __init__(self, found: Mapping[Scope, Mapping[str, float]]) -> None:
        self._found = found
        self._levels = {key.name: _Level(found, key) for key in KEYS}

    def differences(self, scope: Scope) -> Iterator[str]:
        """Lines about the group of an entity with names only; a line is for some dimensions."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key in KEYS:
            level = self._levels[key.name]
            if scope not in level.has:
                names = level.left(scope)
                line = f"no longer counted for {names}; each broker applies its number alone"
            else:
                is_limit = is_usable(self._found[scope][key.name])
                names = level.superseded(scope) if is_limit else ""
                line = f"the group's quota holds in place of {names}, which Kafka prefers"
            if names:
                found[line].append(key.dimension)
        return (f"{', '.join(dimensions)}: {line}" for line, dimensions in found.items())


class _Level:
    """The entities with one kind of number; answers are lists in words, empty for none."""

    def __init__(self, found: Mapping[Scope, Mapping[str, float]], key: Key) -> None:
        self.has = {
            scope
            for scope, values in found.items()
            if not math.isnan(values.get(key.name, math.nan))
        }
        self._clients = _few(
            one
            for one in self.has
            if one.user is None
            and one.client != DEFAULT
            and Scope(DEFAULT, one.client) not in self.has
        )
        """Client ids whose number holds for users without one."""
        of_user: defaultdict[str, list[Scope]] = defaultdict(list)
        of_client: defaultdict[str, list[Scope]] = defaultdict(list)
        of_any_client: list[Scope] = []
        for one in self.has:
            if one.user is None or _has_group(one, found[one]):
                continue
            if one.client is not None:
                of_user[one.user].append(one)
            if one.client in (None, DEFAULT):
                of_any_client.append(one)
            else:
                of_client[one.client].append(one)
        self._of_user = {user: _few(scopes) for user, scopes in of_user.items()}
        self._of_client = {client: _few(scopes) for client, scopes in of_client.items()}
        self._of_any_client = _few(of_any_client)
        """Entities with a user but no group, by user and by client."""

    def superseded(self, scope: Scope) -> str:
        """Entities without a group that Kafka looks for before this one."""
        user, client = scope
        if user is None:
            both = (self._of_client.get(str(client), ""), self._of_any_client)
            return " and ".join(filter(None, both))
        return self._of_user.get(user, "") if client is None else ""

    def left(self, scope: Scope) -> str:
        """Entities that today count requests of one without a number, and of others with them."""
        user, client = scope
        if user is None:
            return ""
        if client is None:
            # With these its clients have a bucket each, or the user has one: as before.
            alone = (Scope(user, DEFAULT), Scope(DEFAULT, DEFAULT), Scope(DEFAULT, None))
            return "" if any(one in self.has for one in alone) else self._clients
        for one in (
            Scope(user, DEFAULT),
            Scope(user, None),
            Scope(DEFAULT, client),
            Scope(DEFAULT, DEFAULT),
            Scope(DEFAULT, None),
            Scope(None, client),
            Scope(None, DEFAULT),
        ):
            if one in self.has:
                return str(one) if None in one else ""
        return ""


def _has_group(scope: Scope, values: Mapping[str, float]) -> bool:
    return DEFAULT not in scope and any(map(is_usable, values.values()))


def _few(scopes: Iterable[Scope]) -> str:
    return first_few(sorted(map(str, scopes)), _MOST_NAMED)
