"""Pulsar's shedding strategies by the names of their classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quotabalance.planning.policies import Policies
from quotabalance.stock.average_shedder import AvgShedder
from quotabalance.stock.interface import Shedder
from quotabalance.stock.overload import OverloadShedder
from quotabalance.stock.stock_settings import StockSettings
from quotabalance.stock.threshold import ThresholdShedder
from quotabalance.stock.transfer_shedder import TransferShedder
from quotabalance.stock.uniform import UniformLoadShedder
from quotaplane.errors import InputError

SHEDDERS: Final[dict[str, Callable[[StockSettings], Shedder]]] = {
    "OverloadShedder": OverloadShedder,
    "ThresholdShedder": ThresholdShedder,
    "UniformLoadShedder": UniformLoadShedder,
    "AvgShedder": AvgShedder,
    "TransferShedder": TransferShedder,
}
"""A new instance of each from settings."""

EXTENSIBLE_SHEDDERS: Final = ("TransferShedder",)
"""Those of the extensible load manager."""
MODULAR_SHEDDERS: Final = tuple(name for name in SHEDDERS if name not in EXTENSIBLE_SHEDDERS)
"""Those of the modular load manager."""


def new_shedder(name: str, settings: StockSettings, policies: Policies | None = None) -> Shedder:
    """A new instance of a strategy.

    Args:
        name: its class, with or without the package.
        settings: its settings.
        policies: of the cluster. Of the modular manager not the shedder, but the leader around it
            follows them.

    Raises:
        InputError: there is no such strategy in Pulsar 4.0.8.

    >>> type(new_shedder("AvgShedder", StockSettings())).__name__
    'AvgShedder'
    """
    made = SHEDDERS.get(name.rpartition(".")[2])
    if made is None:
        raise InputError(
            f"Pulsar has no shedder {name[:200]!r}; expected one of {', '.join(SHEDDERS)}"
        )
    return made(settings) if made is not TransferShedder else TransferShedder(settings, policies)
