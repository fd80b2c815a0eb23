"""The memory of a strategy as bytes, for the job's state between two micro-batches."""

from __future__ import annotations

import io
import pickle
from typing import Any, Final, TypeVar

from quotabalance.planning.policies import Policies
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.errors import ConfigError

_OTHERS: Final = frozenset(
    {
        ("quotabalance.planning.cluster_load", "ClusterLoad"),
        ("collections", "Counter"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
    }
)
"""Names that a memory may have besides classes of this package: of data, not of programs."""
_PACKAGE: Final = __name__.rpartition(".")[0]


_UNREADABLE: Final = (
    *(pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError),
    *(KeyError, TypeError, ValueError, OverflowError),
)

Kept = TypeVar("Kept")


def memory_of(kept: object) -> bytes:
    """The memory; settings and policies are not in it."""
    stream = io.BytesIO()
    _Writer(stream).dump(kept)
    return stream.getvalue()


def with_memory(
    kept: type[Kept], memory: bytes, settings: StockSettings, policies: Policies
) -> Kept:
    """An instance of ``kept`` from its memory, with these settings and policies.

    Only data is read: a name in the bytes that is not one of the strategies' classes is refused.

    Raises:
        ConfigError: these bytes are no memory, or of another version.
    """
    try:
        found = _Reader(memory, settings, policies).load()
        if not isinstance(found, kept):
            raise TypeError(f"it has a {type(found).__name__}")
    except _UNREADABLE as error:
        raise ConfigError(
            f"the checkpoint has a memory of Pulsar's strategy that can't be read"
            f" ({str(error)[:200]}): start with another checkpoint folder, or with the version that"
            " wrote it"
        ) from None
    return found


class _Writer(pickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)

    def persistent_id(self, obj: Any) -> str | None:
        return type(obj).__name__ if isinstance(obj, (StockSettings, Policies)) else None


class _Reader(pickle.Unpickler):
    def __init__(self, memory: bytes, settings: StockSettings, policies: Policies) -> None:
        super().__init__(io.BytesIO(memory))
        self._known = {"StockSettings": settings, "Policies": policies}

    def persistent_load(self, pid: Any) -> Any:
        return self._known[pid]

    def find_class(self, module: str, name: str) -> Any:
        package, _, _ = module.rpartition(".")
        found = None
        if package == _PACKAGE or (module, name) in _OTHERS:
            found = super().find_class(module, name)
        if found is None or (package == _PACKAGE and not isinstance(found, type)):
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a memory")
        return found
