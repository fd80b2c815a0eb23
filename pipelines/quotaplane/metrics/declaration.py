"""The declaration of a metric: name, kind, unit, help text, labels. All else follows from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

PREFIX: Final = "quotaplane_"
OTHER: Final = "other"
"""Stands for label values that are not declared."""

_NAME: Final = re.compile(r"[a-z]+(_[a-z0-9]+)+")
_UNITS: Final = ("seconds", "bytes", "ratio")
_ENDINGS: Final = {"counter": "_total", "info": "_info"}


class Kind(Enum):
    """The kind of a metric, by its name in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Label(NamedTuple):
    """A label, with a list of its values or their greatest number."""

    name: str
    values: tuple[str, ...] = ()
    """All values, each with a time series; others count as ``OTHER``. () = see ``most``."""
    most: int = 0
    """Without a list: greatest number of values at a time."""

    @property
    def bound(self) -> int:
        """Greatest number of values."""
        return len(self.values) + 1 if self.values else self.most


@dataclass(frozen=True)
class Metric:
    """One metric; the name is checked against Prometheus's conventions.

    >>> Metric("quotaplane_rounds_total", Kind.COUNTER, "rounds that ended", source="rounds").unit
    ''
    >>> Metric("quotaplane_lag_s", Kind.GAUGE, "age of the newest report", unit="seconds")
    Traceback (most recent call last):
    ValueError: quotaplane_lag_s: the name of this gauge must end with _seconds
    """

    name: str
    kind: Kind
    help: str
    source: str = ""
    """The name that the number has in ``Readings``; "" = the program counts it by itself."""
    unit: str = ""
    """A base unit; "" = a number of things."""
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending."""

    def __post_init__(self) -> None:
        ending = (f"_{self.unit}" if self.unit else "") + _ENDINGS.get(self.kind.value, "")
        if not (self.name.startswith(PREFIX) and _NAME.fullmatch(self.name)):
            raise ValueError(f"{self.name}: not a name like {PREFIX}things_total")
        if not self.name.endswith(ending):
            raise ValueError(
                f"{self.name}: the name of this {self.kind.value} must end with {ending}"
            )
        if self.unit not in ("", *_UNITS):
            raise ValueError(f"{self.name}: {self.unit} is no base unit")
        if not self.unit and self.name.removesuffix(ending).endswith(
            tuple(f"_{u}" for u in _UNITS)
        ):
            raise ValueError(f"{self.name}: the unit is not declared")
        if (self.kind is Kind.HISTOGRAM) != bool(self.buckets):
            raise ValueError(f"{self.name}: histograms have buckets, and nothing else has")
        if any(label.bound < 1 for label in self.labels):
            raise ValueError(f"{self.name}: a label needs its values, or how many there may be")

    @property
    def series(self) -> int:
        """Greatest number of time series."""
        count = 1
        for label in self.labels:
            count *= label.bound
        return count * (len(self.buckets) + 3 if self.buckets else 1)
