"""Pulsar's shedding strategies by the names of their classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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


def new_shedder(name: str, settings: StockSettings) -> Shedder:
    """A new instance of a strategy.

    Args:
        name: its class, with or without the package.
        settings: its settings.

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
    return made(settings)
