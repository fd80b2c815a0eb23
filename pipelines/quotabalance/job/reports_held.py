"""The balance job's state: each broker's newest report, and what the strategy remembers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from quotabalance.planning.decisions import OURS
from quotabalance.planning.reported_loads import ReportedLoads
from quotaplane.arrow import pack, unpack
from quotaplane.errors import ConfigError

_FORMAT: Final = 2
_HEAD: Final = pa.schema(
    [
        pa.field("format", pa.int64(), nullable=False),
        pa.field("next_round_ms", pa.int64()),
        pa.field("full_hour", pa.int64(), nullable=False),
        pa.field("rounds", pa.int64(), nullable=False),
        pa.field("gone", pa.list_(pa.string()), nullable=False),
        pa.field("strategy", pa.binary()),
        pa.field("strategy_name", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class BalanceJobState:
    """The job's state between two micro-batches."""

    latest: ReportedLoads = field(default_factory=ReportedLoads.none)
    """One report per broker, by broker's name."""
    fresh: frozenset[str] = frozenset()
    """Brokers with a new report since the last round."""
    gone: tuple[str, ...] = ()
    """Brokers that were forgotten since the last round."""
    next_round_ms: int | None = None
    """When to decide; None: nothing was ever reported."""
    full_hour: int = -1
    """The hour since 1970 in which the history got all brokers' reports last."""
    rounds: int = 0
    """Rounds so far."""
    strategy: bytes | None = None
    """The strategy's memory; None: there was no round yet."""
    strategy_name: str = OURS
    """The strategy that remembers it; another one begins without memories."""

    def to_bytes(self) -> bytes:
        """The state as bytes."""
        names = self.latest.reports["broker"].to_pylist()
        fresh = pa.array([name in self.fresh for name in names], pa.bool_())
        head = {
            "format": _FORMAT,
            "next_round_ms": self.next_round_ms,
            "full_hour": self.full_hour,
            "rounds": self.rounds,
            "gone": list(self.gone),
            "strategy": self.strategy,
            "strategy_name": self.strategy_name,
        }
        return pack(
            pa.Table.from_pylist([head], schema=_HEAD),
            self.latest.reports.append_column("fresh", fresh),
            self.latest.bundles,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> BalanceJobState:
        """The state from its bytes.

        Raises:
            ConfigError: another version wrote it.
        """
        head, *tables = unpack(data)
        values = head.to_pylist()[0]
        if values.get("format") != _FORMAT:
            raise ConfigError(
                f"the checkpoint has the balance job's state in format {values.get('format')},"
                f" this version reads format {_FORMAT}: start with another checkpoint folder, or"
                " with the version that wrote it"
            )
        reports, bundles = tables
        new = np.flatnonzero(reports["fresh"].to_numpy(zero_copy_only=False))
        names = reports["broker"].take(pa.array(new)).to_pylist()
        return cls(
            latest=ReportedLoads(reports.drop(["fresh"]), bundles),
            fresh=frozenset(names),
            gone=tuple(values["gone"]),
            next_round_ms=values["next_round_ms"],
            full_hour=values["full_hour"],
            rounds=values["rounds"],
            strategy=values["strategy"],
            strategy_name=values["strategy_name"],
        )
