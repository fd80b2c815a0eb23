"""The comparison of reports sent and recorded, and the brokers that send them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.transport import open_transport
from quotaplane.transport.base import Message
from quotaplane.wire.limits import encode_limits
from tests.job import settings_in
from tests.servers.reporting_brokers import ReportingBrokers
from tests.servers.tally import Tally, tally
from tests.waiting import wait_until

SENT = {(broker, number): 30.0 for broker in "ab" for number in range(1, 6)}


def usage() -> list[dict[str, Any]]:
    return [
        {
            "broker": broker,
            "publish_messages_per_s": 30.0,
            "publish_bytes_per_s": float(number),
            "window_ms": 1000,
        }
        for broker, number in SENT
    ]


def rounds() -> list[dict[str, Any]]:
    return [{"epoch": 1, "seq": seq, "reports": 4, "uncounted": 1} for seq in range(2)]


def test_each_report_once_is_exact() -> None:
    found = tally(SENT, usage(), rounds())
    assert found == Tally(10, 10, 0, 0, 10, 0, 300.0, 300.0)
    assert found.exact


def test_a_lost_report_is_seen_even_beside_one_that_is_doubled() -> None:
    rows = usage()
    rows[3] = rows[2]
    found = tally(SENT, rows, rounds())
    assert (found.counted, found.lost, found.doubled) == (9, 1, 1)
    assert found.messages_counted == found.messages_sent
    assert not found.complete
    assert not found.exact


def test_a_doubled_report_is_seen_and_one_that_nobody_sent() -> None:
    for more in (usage()[0], {**usage()[0], "broker": "c"}):
        found = tally(SENT, [*usage(), more], rounds())
        assert (found.lost, found.doubled, found.exact) == (0, 1, False)
        assert found.complete


def test_another_amount_is_seen() -> None:
    rows = usage()
    rows[0]["publish_messages_per_s"] = 31.0
    found = tally(SENT, rows, rounds())
    assert (found.lost, found.doubled, found.exact) == (0, 0, False)


@pytest.mark.parametrize(
    ("more", "doubled"), [(rounds()[0], 1), ({**rounds()[0], "seq": 2, "reports": 0}, 0)]
)
def test_rounds_that_are_there_twice_or_count_too_much_are_seen(
    more: dict[str, Any], doubled: int
) -> None:
    found = tally(SENT, usage(), [*rounds(), more])
    assert (found.rounds_doubled, found.exact) == (doubled, False)
    assert not tally(SENT, usage(), rounds()[:1]).complete


def test_brokers_note_gaps_and_rounds_with_two_contents(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    out = open_transport(settings.transport)

    def publish(seq: int, limit: float, *names: str) -> None:
        at_s = time.monotonic()
        values = {
            name: encode_limits(
                broker=name,
                shard=0,
                epoch=1,
                seq=seq,
                issued_at_ms=1,
                lease_ms=1000,
                groups=["g"],
                limits=np.array([[limit, np.inf, np.inf, np.inf]]),
            )
            for name in names
        }
        out.publish([Message(name, value) for name, value in values.items()])
        for name in names:
            wait_until(
                lambda name=name: any(  # type: ignore[misc]
                    each.at_s > at_s and each.broker == name for each in brokers.arrivals
                ),
                20.0,
            )

    with ReportingBrokers(settings, a=80.0, b=80.0) as brokers:
        publish(1, 30.0, "a", "b")
        since_s = time.monotonic()
        assert brokers.share(30.0)
        assert not brokers.heard_since(since_s)
        publish(2, 30.0, "a")
        assert not brokers.heard_since(since_s)
        publish(2, 30.0, "b")
        assert brokers.heard_since(since_s)
        by_broker = [[x.at_s for x in brokers.arrivals if x.broker == name] for name in "ab"]
        expected_s = max(later - earlier for earlier, later in by_broker)
        assert brokers.longest_gap_s(since_s) == pytest.approx(expected_s, abs=0.05)
        brokers.assert_consistent()
        publish(2, 40.0, "b")
        with pytest.raises(AssertionError):
            brokers.assert_consistent()
