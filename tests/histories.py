"""Empty histories for tests, and a query; a copy of a history takes a twentieth of the time."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from quotaplane.history.store import ensure_tables
from quotaplane.settings import History

ENDLESS = "SELECT count(*) FROM range(10000000) a(i), range(10000000) b(i) WHERE a.i + b.i = 5"
"""A query that does not end by itself."""


@cache
def _made() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="quotaplane-history-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    ensure_tables(History(path=str(folder / "history")))
    return folder / "history"


def make_history(history: History) -> None:
    """A history with empty tables, as ``ensure_tables`` makes; what is there already stays."""
    if Path(history.path).exists():
        ensure_tables(history)
    else:
        shutil.copytree(_made(), history.path)
