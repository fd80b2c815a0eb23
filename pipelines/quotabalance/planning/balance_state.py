"""The balancer's state between two rounds, and its bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np

from quotabalance.planning.broker_watch import BrokerWatch
from quotabalance.planning.bundle_estimates import BundleEstimates
from quotabalance.planning.bundle_orders import PROPOSED, UNDER_WAY, Order
from quotabalance.planning.load_model import MachineModel
from quotaplane.errors import InputError

FORMAT: Final = "quotaplane-balance-1"


@dataclass(frozen=True)
class BalanceState:
    """The balancer's memory.

    >>> state = BalanceState.empty()
    >>> BalanceState.from_bytes(state.to_bytes()).to_bytes() == state.to_bytes()
    True
    """

    orders: Mapping[str, Order] = field(default_factory=dict)
    """By bundle: moves and splits under way, in their grace period, missed, or proposed."""
    estimates: BundleEstimates = field(default_factory=BundleEstimates.empty)
    absent: BundleEstimates = field(default_factory=BundleEstimates.empty)
    """Estimates of bundles under way that no broker reports at the moment."""
    machines: MachineModel = field(default_factory=MachineModel.empty)
    watch: BrokerWatch = field(default_factory=BrokerWatch.empty)

    @classmethod
    def empty(cls) -> BalanceState:
        """The state before the first round."""
        return cls()

    def as_proposed(self) -> BalanceState:
        """The state if orders under way are proposals only: an administrator approves them first.

        The next round then proposes the same again, until the load changes or the moves are made.
        """
        orders = {
            name: order._replace(status=PROPOSED) if order.status == UNDER_WAY else order
            for name, order in self.orders.items()
        }
        return replace(self, orders=orders)

    def to_bytes(self) -> bytes:
        """The state as bytes: zlib of a line of JSON and the arrays. Equal states, equal bytes."""
        arrays: list[bytes] = []
        head = {
            "format": FORMAT,
            "orders": [list(self.orders[name]) for name in sorted(self.orders)],
            **{name: _head(getattr(self, name), arrays) for name in _PARTS},
        }
        return zlib.compress(b"\n".join([json.dumps(head).encode(), b"".join(arrays)]), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> BalanceState:
        """The state from its bytes.

        Raises:
            InputError: these are not the bytes of a state of this version.
        """
        try:
            line, _, rest = zlib.decompress(data).partition(b"\n")
            head = json.loads(line)
            if head["format"] != FORMAT:
                raise ValueError(head["format"])
            parts: dict[str, Any] = {}
            place = 0
            for name, kind in _PARTS.items():
                parts[name], place = _part(kind, head[name], rest, place)
            orders = [Order._make([*row[:4], tuple(row[4]), *row[5:]]) for row in head["orders"]]
        except (zlib.error, ValueError, KeyError, TypeError, IndexError) as error:
            raise InputError(f"not a state of the balancer ({FORMAT}): {error!r:.200}") from None
        return cls(orders={order.bundle: order for order in orders}, **parts)


_PARTS: Final[Mapping[str, type[Any]]] = {
    "estimates": BundleEstimates,
    "absent": BundleEstimates,
    "machines": MachineModel,
    "watch": BrokerWatch,
}


def _head(part: Any, arrays: list[bytes]) -> dict[str, Any]:
    """Names as they are; of an array its type and shape, its bytes are appended to ``arrays``."""
    head: dict[str, Any] = {}
    for column in fields(part):
        value = getattr(part, column.name)
        if isinstance(value, np.ndarray):
            head[column.name] = [value.dtype.str, *value.shape]
            arrays.append(value.tobytes())
        else:
            head[column.name] = list(value)
    return head


def _part(kind: type[Any], head: Mapping[str, Any], data: bytes, place: int) -> tuple[Any, int]:
    values: dict[str, Any] = {}
    first = fields(kind)[0].name
    for column in fields(kind):
        described = head[column.name]
        if column.name == first:
            values[column.name] = tuple(described)
            continue
        dtype, shape = np.dtype(described[0]), tuple(described[1:])
        size = int(np.prod(shape)) * dtype.itemsize
        values[column.name] = np.frombuffer(data[place : place + size], dtype).reshape(shape)
        place += size
    return kind(**values), place
