"""The memory of a ``StockLeader`` as bytes, for the job's state between two micro-batches."""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

from quotabalance.planning.policies import Policies
from quotabalance.stock.stock_leader import StockLeader
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


def memory_of(leader: StockLeader) -> bytes:
    """The memory; settings and policies are not in it."""
    stream = io.BytesIO()
    _Writer(stream).dump(leader)
    return stream.getvalue()


def with_memory(memory: bytes, settings: StockSettings, policies: Policies) -> StockLeader:
    """A leader that goes on with a memory, with these settings and policies.

    Only data is read: a name in the bytes that is not one of the strategies' classes is refused.

    Raises:
        ConfigError: these bytes are no memory, or of another version.

    >>> leader = StockLeader("ThresholdShedder", StockSettings(), Policies())
    >>> type(with_memory(memory_of(leader), StockSettings(), Policies())).__name__
    'StockLeader'
    """
    try:
        found = _Reader(memory, settings, policies).load()
    except (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError) as error:
        raise _unreadable(str(error)) from None
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _unreadable(str(error)) from None
    if not isinstance(found, StockLeader):
        raise _unreadable(f"it has a {type(found).__name__}")
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


def _unreadable(why: str) -> ConfigError:
    return ConfigError(
        f"the checkpoint has a memory of Pulsar's strategy that can't be read ({why[:200]}): start "
        "with another checkpoint folder, or with the version that wrote it"
    )
