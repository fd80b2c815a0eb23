"""Report topics with one per broker: a name with ``{broker}`` stands for all of them.

A cluster's access rules apply to topics. So a topic per broker binds a broker's name to the role
that may write there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from quotaplane.errors import InputError

BROKER: Final = "{broker}"
_IN_A_NAME: Final = "[A-Za-z0-9._-]+"
"""Characters that both Kafka and Pulsar allow in a topic's name."""
_PARTITION: Final = re.compile(r"-partition-\d+$")


def is_per_broker(name: str) -> bool:
    """Whether a name of a topic stands for the topics of all brokers."""
    return BROKER in name


def check_topic_names(names: Iterable[str]) -> None:
    """Check the places of ``{broker}`` in names of report topics.

    Raises:
        ValueError: a place is wrong; says which.
    """
    for name in names:
        rest = name.replace(BROKER, "", 1)
        if "{" in rest or "}" in rest:
            raise ValueError(f"{name!r}: only one {BROKER} may be in a topic's name")
        last = name.rpartition("/")[2]
        if is_per_broker(name) and (not is_per_broker(last) or last.startswith(BROKER)):
            raise ValueError(
                f"{name!r}: {BROKER} must be in the topic's own name, behind some other characters"
            )


def pattern_of(names: Iterable[str]) -> str:
    r"""A regular expression for the names of all these topics; a group for each ``{broker}``.

    Python and Java read it alike.

    >>> print(pattern_of(["reports", "reports-{broker}"]))
    reports|reports\-([A-Za-z0-9._-]+)
    """
    return "|".join(f"({_IN_A_NAME})".join(map(re.escape, name.split(BROKER, 1))) for name in names)


def belongs(name: str, topic: str) -> bool:
    """Whether a topic is the one of this name, or one of those that it stands for.

    >>> belongs("reports-{broker}", "reports-b1"), belongs("reports-{broker}", "reports")
    (True, False)
    """
    return re.fullmatch(pattern_of([name]), topic) is not None


def topic_of(name: str, broker: str) -> str:
    """The topic of a broker.

    >>> topic_of("reports-{broker}", "b1"), topic_of("reports", "b1")
    ('reports-b1', 'reports')

    Raises:
        InputError: the broker's name can't be in a topic's name.
    """
    if not is_per_broker(name):
        return name
    if not re.fullmatch(_IN_A_NAME, broker):
        raise InputError(
            f"broker {broker[:80]!r}: {name} needs names of letters, digits, '.', '_' and '-'"
        )
    return name.replace(BROKER, broker)


def brokers_of(names: Sequence[str], topics: Iterable[str | None]) -> list[bytes | None]:
    """The broker of each topic (or partition of one in Pulsar); None: it belongs to no broker.

    >>> names = ["persistent://a/b/reports-{broker}"]
    >>> brokers_of(names, ["persistent://a/b/reports-b1-partition-0", "persistent://a/b/other"])
    [b'b1', None]
    """
    pattern = re.compile(pattern_of(names))
    found = []
    for topic in topics:
        plain = topic or ""
        if "://" in plain:
            plain = _PARTITION.sub("", plain)
        match = pattern.fullmatch(plain)
        broker = None if match is None or match.lastindex is None else match[match.lastindex]
        found.append(None if broker is None else broker.encode())
    return found
