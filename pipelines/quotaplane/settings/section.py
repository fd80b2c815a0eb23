"""Base class of all parts of the settings file, and types of their values."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field

from quotaplane.parsing.decimals import OneSpelling


class Section(OneSpelling):
    """A part of the settings file."""

    # Short commands use few sections: validators are built when they are used.
    model_config = ConfigDict(defer_build=True)


def _no_folder(name: str) -> str:
    # Kafka has no such topics, and the embedded transport would write outside its folder.
    if name in (".", ".."):
        raise ValueError(f"{name!r} can't be the name of a topic")
    return name


TopicName: TypeAlias = Annotated[
    str,
    Field(pattern=r"^((non-)?persistent://[^/\s]+/[^/\s]+/)?[A-Za-z0-9._-]+$"),
    AfterValidator(_no_folder),
]
"""A topic; with Pulsar, a short name is a topic in the namespace of the limits topic."""


FOREVER: Final = -1


class NamedTopic(NamedTuple):
    """A topic that a setting beside those of the transport names."""

    key: str
    """The setting: section and name."""
    name: str
    stored: bool = False
    """It must be persistent, as later readers must find its messages."""
    kept_min: int | None = None
    """Minutes for which its messages are kept; None: somewhat longer than a lease. ``FOREVER``: it
    is compacted."""
