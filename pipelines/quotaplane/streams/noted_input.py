"""Inputs that the driver reads beside the topics: the same when a micro-batch runs again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from quotaplane.errors import ConfigError

Value = TypeVar("Value")


class NoteFolder(Protocol):
    """A checkpoint folder, in which notes are kept."""

    path: str

    def read(self, name: str) -> str | None:
        """The text of a note; None: there is none."""

    def write(self, name: str, text: str) -> None:
        """Keep a note. On the disk when it returns."""


@dataclass(frozen=True)
class _Note(Generic[Value]):
    """The value from batch ``since`` on, and the one before."""

    since: int
    value: Value
    before: Value


class NotedInput(Generic[Value]):
    """A value by micro-batch.

    A new value is noted in the checkpoint first, and holds from the next batch on. So no batch ever
    sees another value than when it ran before.

    Args:
        folder: the checkpoint.
        name: the file of the note.
        newest: returns the newest value.
        to_json: a value as JSON.
        of_json: a value from JSON.

    Raises:
        ConfigError: the note can't be read.

    >>> class InMemory:
    ...     path, text = "checkpoint", None
    ...     def read(self, name): return self.text
    ...     def write(self, name, text): self.text = text
    >>> values, folder = ["a"], InMemory()
    >>> noted = NotedInput(folder, "note.json", lambda: values[-1], str, str)
    >>> noted.of_batch(7), values.append("b"), noted.of_batch(8), noted.of_batch(9)
    ('a', None, 'a', 'b')
    >>> NotedInput(folder, "note.json", lambda: "c", str, str).of_batch(8)
    'a'
    """

    def __init__(
        self,
        folder: NoteFolder,
        name: str,
        newest: Callable[[], Value],
        to_json: Callable[[Value], Any],
        of_json: Callable[[Any], Value],
    ) -> None:
        self._folder, self._name, self._newest, self._to_json = folder, name, newest, to_json
        text = folder.read(name)
        self._note: _Note[Value] | None = None
        if text is None:
            return
        try:
            note = json.loads(text)
            self._note = _Note(note["since"], of_json(note["value"]), of_json(note["before"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            text = f"checkpoint {folder.path}: {name} can't be read; delete it"
            raise ConfigError(text) from None

    def of_batch(self, seq: int) -> Value:
        """The value for a batch, which runs now."""
        newest, note = self._newest(), self._note
        if note is None:
            note = self._noted(_Note(seq, newest, newest))
        if seq < note.since:
            return note.before
        if newest != note.value:
            self._noted(_Note(seq + 1, newest, note.value))
        return note.value

    def _noted(self, note: _Note[Value]) -> _Note[Value]:
        values = {"value": self._to_json(note.value), "before": self._to_json(note.before)}
        self._folder.write(self._name, json.dumps({"since": note.since, **values}))
        self._note = note
        return note
