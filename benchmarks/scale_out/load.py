"""The reports of a run: all of a broker's groups, or only those of the groups that are active."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.workload import Workload
from quotaplane.model import BASIC, group_id
from quotaplane.wire.report_own import encode_report

_STARTED_AT_MS = 1_700_000_000_000
_NAMED_EVERY = 100
"""A group stays on its broker though the reports leave it out."""


@dataclass(frozen=True)
class Load(Workload):
    """Reports in our own format, with ids: 40 bytes an entry."""

    shares: tuple[float, ...] = ()
    """For each round the share of the groups that are reported; the others did not change."""

    def rounds(self, count: int) -> Iterator[list[tuple[str, bytes]]]:
        """Each broker's report, round by round; nearly every value that is in one has changed."""
        random = np.random.default_rng(2)
        ids = np.fromiter(map(group_id, self.names()), np.int64, self.groups)
        members = self.members()
        for number, share in enumerate(self.shares[:count]):
            reports = []
            for broker, own in enumerate(members):
                reported = own[own < share * self.groups]
                name = f"broker-{broker:04d}"
                # Each has a level for good, which follows from the group and the broker. A group's
                # brokers together want as much as its quota, however many they are.
                level = (40 + (reported * 7919 + broker * 104_729) % 121) * 5 / self.spread
                noise = random.uniform(1 - self.noise, 1 + self.noise, (len(reported), BASIC))
                report = encode_report(
                    broker=name,
                    started_at_ms=_STARTED_AT_MS,
                    sequence=number + 1,
                    window_ms=int(self.interval_s * 1000),
                    usage=level[:, None] * noise,
                    group_ids=ids[reported],
                    named_every=_NAMED_EVERY,
                )
                reports.append((name, report))
            yield reports

    def entries(self, number: int) -> int:
        """Entries of the reports of a round."""
        most = self.shares[number] * self.groups
        return sum(int(np.count_nonzero(own < most)) for own in self.members())
