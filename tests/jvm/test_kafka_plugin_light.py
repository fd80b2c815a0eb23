"""The plugin's light reports and those of our Python client name the same groups."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from quotaplane.client.light_reports import NAMED_EVERY, SETTLED
from quotaplane.model import DIMENSIONS
from tests.jvm.kafka_plugin import assert_answers, bits, hexed
from tests.unit.client.test_client import LEASE_MS, update
from tests.unit.client.test_client_agent import Rig

KINDS = ("publish_bytes", "dispatch_bytes", "request_ms", "controller_mutations")
"""The plugin reports these, in this order."""
COLUMNS = [DIMENSIONS.index(name) for name in KINDS]
GROUPS = [f"tenant-{number}" for number in range(40)]


class Broker(Rig):
    """A broker whose groups are idle, steady, drift, jump and are held back, come and go."""

    def __init__(self, random: Random, strict: bool) -> None:
        super().__init__(groups=GROUPS[:30], dimensions=KINDS, strict=strict)
        self._random, self._seq = random, 0
        self._steady = dict.fromkeys(GROUPS, 0.0)
        for group in GROUPS:
            self._send(group, 1000.0)

    def next(self) -> tuple[str, set[str]]:
        """The plugin's line for the next report, and the groups that our client names in it."""
        self._come_and_go()
        self._limit()
        used, refused = self._use()
        client = self.client
        limits = client.limits()[:, COLUMNS]
        seqs = client._received.acknowledged(0, client._received.columns(client._ids))[1]
        number = client._reporter.sequence + 1
        line = [f"named\t{number}"]
        line += [
            ":".join([hexed(group), *map(bits, rates), str(seq)])
            for group, *rates, seq in zip(
                client.groups, used, refused, limits, seqs.tolist(), strict=True
            )
        ]
        named = self.report(after_ms=1000).entries["group"].to_pylist()
        assert len(set(named)) == len(named)
        return "\t".join(line), {*named}

    def _come_and_go(self) -> None:
        random = self._random
        if random.random() < 0.1:
            self.client.detach(random.sample(self.client.groups, 1))
        if random.random() < 0.1:
            self.client.attach(random.sample(GROUPS, 1))

    def _limit(self) -> None:
        """Now and then a new limit, or the same again."""
        random = self._random
        if random.random() < 0.3:
            self._send(random.choice(GROUPS[:10]), random.choice((150.0, 150.0, 150.0, 1000.0)))

    def _send(self, group: str, rate: float) -> None:
        self._seq += 1
        lease = {"issued_at_ms": self.now_ms, "lease_ms": 10_000 * LEASE_MS}
        self.get(update(rate, group=group, seq=self._seq, **lease))

    def _use(self) -> tuple[np.ndarray, np.ndarray]:
        """Count what all groups used and were refused in a second; (n, kinds) each."""
        random = self._random
        shape = len(self.client.groups), len(DIMENSIONS)
        used, refused = np.zeros(shape), np.zeros(shape)
        for at, group in enumerate(self.client.groups):
            if random.random() < 0.01:
                self._steady[group] = random.choice((0.0, 100.0, 140.0, 145.0, 160.0))
            elif random.random() < 0.2:
                self._steady[group] *= random.choice((0.98, 0.951, 1.02, 1.049))
            used[at, COLUMNS[at % 4]] = self._steady[group]
            if random.random() < 0.002:
                refused[at, COLUMNS[at % 4]] = 5.0
        self.client.use_all(used, refused)
        return used[:, COLUMNS], refused[:, COLUMNS]


@pytest.mark.parametrize("strict", [False, True])
def test_the_same_groups_are_named(strict: bool) -> None:
    lines, expected, shares = [], [], []
    for seed in range(4):
        broker = Broker(Random(seed), strict)
        lines.append(f"light\t{int(strict)}")
        expected.append(str(NAMED_EVERY))
        there, named = list[set[str]](), list[set[str]]()
        for _ in range(4 * SETTLED):
            line, names = broker.next()
            lines.append(line)
            expected.append(",".join(sorted(map(hexed, names))))
            there.append({*broker.client.groups})
            named.append(names)
            shares.append(len(names) / len(there[-1]))
        for begin in range(len(named) - NAMED_EVERY + 1):
            reports = slice(begin, begin + NAMED_EVERY)
            assert set.intersection(*there[reports]) <= set.union(*named[reports])
        assert any(names - groups for names, groups in zip(named, there, strict=True)), "left"
    assert_answers(lines, expected)
    assert 0.1 < np.mean(shares) < 0.6
