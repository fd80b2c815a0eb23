"""How much may be moved in one round."""

from __future__ import annotations

from dataclasses import dataclass

from quotaplane.balance.options import BalanceOptions


@dataclass
class RoundBudget:
    """What is left of a round's moves and bytes per second."""

    moves: int
    bytes_per_s: float
    refused: int = 0
    """Moves that did not fit any more."""
    begun: bool = False

    @classmethod
    def of(
        cls, options: BalanceOptions, brokers: int, cluster_bytes: float, under_way: int
    ) -> RoundBudget:
        """The budget at the beginning of a round; orders under way count as its moves."""
        most = options.max_bytes_share_per_round * cluster_bytes
        if options.max_bytes_per_s_per_round is not None:
            most = min(most, options.max_bytes_per_s_per_round)
        return cls(max(options.moves_in_a_round(brokers) - under_way, 0), most)

    def allows(self, bytes_per_s: float, moves: int = 1) -> bool:
        """Whether so much more may be moved; of bytes, the round's first move always may."""
        fits = self.moves >= moves and (not self.begun or self.bytes_per_s >= bytes_per_s)
        self.refused += not fits
        return fits

    def spend(self, bytes_per_s: float) -> None:
        """A move was decided."""
        self.moves -= 1
        self.bytes_per_s -= bytes_per_s
        self.begun = True
