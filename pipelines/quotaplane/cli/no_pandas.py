"""Hides pandas from pyarrow: it imports pandas where it is installed, which takes 0.2 seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Hidden(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("this command does without pandas", name=name)
        return None


def hide_pandas() -> None:
    """Let this process do without pandas, unless it is imported already."""
    sys.meta_path.insert(0, _Hidden())
