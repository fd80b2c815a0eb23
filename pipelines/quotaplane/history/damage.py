"""Errors of damaged rows: one line that names the table and the round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from quotaplane.deltalog.error_text import one_line
from quotaplane.errors import ConfigError, HistoryError, InputError


@contextmanager
def round_of_record(table: str, epoch: object, seq: object) -> Iterator[None]:
    """A context for code that decodes a recorded round and runs it.

    Raises:
        HistoryError: the round can't be run. Damaged bytes decode to anything, so every error
            counts as damage, except those about the caller's changes.
    """
    try:
        yield
    except (ConfigError, InputError):
        raise
    except Exception as error:
        raise HistoryError(
            f"history table {table}: epoch {epoch}, round {seq} is damaged, or was recorded by"
            f" another version: {type(error).__name__}: {one_line(error)[:200]}; choose a period"
            " without it"
        ) from error
