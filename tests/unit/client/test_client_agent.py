"""A broker's agent: what it counts is what it reports, and what it was sent is what it may use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quotaplane.client.agent import FORGET_AFTER_MS, BrokerClient
from quotaplane.client.receiver import ReceivedLimits
from quotaplane.client.reporter import LIMITS_EVERY, Reporter
from quotaplane.errors import InputError, TransportError
from quotaplane.model import (
    BASIC,
    COUNTER_COLUMNS,
    DIMENSIONS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    group_id,
)
from quotaplane.settings import Reports
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.reports import Decoded, decode
from tests.unit.client.test_client import HARD, LEASE_MS, T0, FakeLink, removal, update


class Rig:
    """An agent of b1 with a clock of the test's."""

    def __init__(self, **options: Any) -> None:
        self.now_ms, self.link = T0, FakeLink()
        self.client = BrokerClient(self.link, "b1", now_ms=lambda: self.now_ms, **options)

    def report(self, after_ms: int = 1000) -> Decoded:
        """Let so much time pass, and read what is reported then."""
        self.now_ms += after_ms
        self.client.report()
        broker, value, published_at_ms = self.link.sent[-1]
        assert (broker, published_at_ms) == ("b1", self.now_ms)
        return read(value, self.now_ms)

    def get(self, *values: bytes) -> int:
        self.link.waiting += [(decode_limits(value).broker, value) for value in values]
        return self.client.poll()


def read(value: bytes, now_ms: int = T0) -> Decoded:
    found = decode([value], np.array([now_ms]), ["0"], now_ms=now_ms, reports=Reports())
    assert found.rejected.num_rows == 0
    return found


def rates(found: Decoded, group: str = "g", columns: Any = RATE_COLUMNS) -> dict[str, float]:
    """The rates of a group that are no NaN."""
    (row,) = (row for row in found.entries.to_pylist() if row["group_id"] == group_id(group))
    return {name: row[name] for name in columns if name in row and not np.isnan(row[name])}


def test_counts_become_rates_of_the_time_since_the_last_report() -> None:
    rig = Rig(groups=["idle"])
    rig.client.use("g", publish_messages=6, publish_bytes=600)
    rig.client.use("g", publish_messages=4)
    rig.client.refuse("g", publish_messages=5)
    found = rig.report(after_ms=2000)
    assert found.headers["window_s"].to_pylist() == [2.0]
    assert rates(found) == {
        "publish_messages_per_s": 5.0,
        "publish_bytes_per_s": 300.0,
        "dispatch_messages_per_s": 0.0,
        "dispatch_bytes_per_s": 0.0,
    }
    assert rates(found, columns=THROTTLED_COLUMNS)["throttled_publish_messages_per_s"] == 2.5
    assert set(rates(found, "idle").values()) == {0.0}
    assert set(rates(rig.report()).values()) == {0.0}  # counted anew


def test_counters_go_on_over_reports_and_over_a_time_without_the_group() -> None:
    def counted(found: Decoded) -> float:
        counters = rates(found, columns=COUNTER_COLUMNS)
        assert [*counters] == ["counter_publish_bytes"]  # of what the broker counts
        return counters["counter_publish_bytes"]

    rig = Rig(groups=["h", "g"], dimensions=["publish_bytes"])
    rig.client.use("g", publish_bytes=2**39 - 5)
    assert counted(rig.report()) == 2**39 - 5
    assert counted(rig.report()) == 2**39 - 5
    rig.client.use("g", publish_bytes=1)
    rig.link.fails = TransportError("down")
    with pytest.raises(TransportError):
        rig.report()
    rig.link.fails = None
    rig.client.use("g", publish_bytes=1)
    assert counted(rig.report()) == 2**39 - 3
    rig.client.use("g", publish_bytes=1)
    rig.client.detach(["g"])
    rig.report()
    rig.client.use("g", publish_bytes=1)
    assert counted(rig.report()) == 2**39 - 1


def test_many_groups_are_counted_and_limited_at_once() -> None:
    rig = Rig(groups=["g", "h"], dimensions=DIMENSIONS, uses_ids=True)
    used = np.arange(2.0 * len(DIMENSIONS)).reshape(2, -1)
    rig.client.use_all(used, refused=2 * used)
    found = rig.report()
    assert found.headers["uses_ids"].to_pylist() == [True]
    assert list(rates(found, "h").values()) == used[1].tolist()
    assert list(rates(found, "h", THROTTLED_COLUMNS).values()) == (2 * used[1]).tolist()
    rig.get(update(20.0, group="h"))
    assert rig.client.limits()[:, :BASIC].tolist() == [[np.inf] * 4, [20.0] * 4]
    assert rig.client.groups == ("g", "h")


def test_what_a_broker_does_not_count_is_not_reported() -> None:
    rig = Rig(dimensions=["publish_bytes"], counts_refused=False)
    rig.client.use("g", publish_bytes=1)
    found = rig.report()
    assert rates(found) == {"publish_bytes_per_s": 1.0}
    assert rates(found, columns=THROTTLED_COLUMNS) == {}
    with pytest.raises(InputError, match="does not count 'publish_messages'"):
        rig.client.use("g", publish_messages=1)
    with pytest.raises(InputError, match="there is no 'bytes'"):
        Rig(dimensions=["bytes"])


def test_a_detached_group_is_reported_no_more_and_the_others_keep_their_counts() -> None:
    rig = Rig(groups=["g", "h", "i"])
    rig.client.use("h", publish_messages=2)
    rig.client.use("i", publish_messages=3)
    rig.client.detach(["g", "h", "nobody"])
    rig.client.use("i", publish_messages=3)
    rig.client.attach(["i", "g"])
    found = rig.report()
    assert found.entries["group"].to_pylist() == ["i", "g"]
    assert rates(found, "i")["publish_messages_per_s"] == 6.0
    rig.client.detach(["i", "g"])
    assert len(rig.report().entries) == 0  # a heartbeat


def test_a_name_that_can_be_no_groups_is_refused_and_nothing_is_attached() -> None:
    rig = Rig()
    with pytest.raises(InputError, match="can't be the name of a group"):
        rig.client.attach(["g", "a\nb"])
    assert rig.client.groups == ()
    assert rig.client.limits().shape == (0, len(DIMENSIONS))


def test_what_could_not_be_sent_is_in_the_next_report() -> None:
    rig = Rig()
    rig.client.use("g", publish_messages=10)
    rig.link.fails = TransportError("down")
    with pytest.raises(TransportError):
        rig.report()
    rig.link.fails = None
    rig.client.use("g", publish_messages=20)
    found = rig.report()
    assert rates(found)["publish_messages_per_s"] == 15.0
    assert found.headers["sequence"].to_pylist() == [2]


def test_a_clock_that_was_set_back_makes_no_rates() -> None:
    rig = Rig()
    rig.client.use("g", publish_messages=10)
    assert rates(rig.report(after_ms=-5)) == {}  # as reported before
    rig.client.use("g", publish_messages=10)
    assert rates(rig.report())["publish_messages_per_s"] == 10.0


def test_a_report_acknowledges_limits_group_by_group() -> None:
    rig = Rig(groups=["g", "h", "i"])
    rig.get(
        update(20.0, epoch=3, seq=4),
        update(20.0, epoch=2, seq=9, group="h"),
        update(20.0, epoch=3, seq=6, group="elsewhere"),
    )
    found = rig.report()
    (header,) = found.headers.to_pylist()
    assert (header["applied_epoch"], header["applied_seq"]) == (3, 6)
    assert found.entries["applied_seq"].to_pylist() == [4.0, -1.0, -1.0]


def test_the_first_report_and_every_tenth_has_the_limits_in_force() -> None:
    rig = Rig(groups=["g"])
    rig.get(update(20.0, safe=5.0))
    entries = [rig.report().entries for _ in range(2 * LIMITS_EVERY + 1)]
    limits = np.concatenate([one["limit_publish_messages_per_s"].to_numpy() for one in entries])
    expected = np.full(len(limits), np.nan)
    expected[::LIMITS_EVERY] = 20.0, 5.0, 5.0  # from 10 s on the lease is over
    np.testing.assert_equal(limits, expected)


def test_a_poll_reads_all_there_is_and_takes_what_is_for_this_broker() -> None:
    rig = Rig()
    others = [update(1.0, broker=f"b{n}", seq=9) for n in range(2, 7)]
    assert rig.get(*others, update(20.0), update(30.0, seq=2), update(25.0, seq=1)) == 2
    assert rig.client.limit("g")["publish_bytes"] == 30.0
    rig.link.waiting.append(("b1", b"noise"))
    rig.link.waiting.append(("b1", update(1.0, broker="b2", seq=9)))
    assert rig.client.poll() == 0
    assert rig.client.refused == 1


def test_under_strict_a_broker_has_no_safe_limit_of_its_own() -> None:
    rig = Rig(strict=True, safe_limit=5.0)
    assert rig.client.limit("g") == dict.fromkeys(DIMENSIONS, 0.0)
    rig.get(update(20.0))
    rig.now_ms += LEASE_MS + 1
    assert rig.client.limit("g")["publish_messages"] == 0.0


def test_limits_of_groups_that_a_broker_no_longer_has_are_forgotten_in_time() -> None:
    rig = Rig(groups=["g", "h"])
    rig.get(update(20.0, safe=5.0), update(20.0, group="h", safe=5.0), removal(seq=2))
    rig.client.detach(["h"])
    for _ in range(100):
        rig.report(after_ms=(FORGET_AFTER_MS + LEASE_MS) // 100)
    assert rig.client.limit("h")["publish_messages"] == 5.0
    for _ in range(100):
        rig.report(after_ms=1)
    assert rig.client.limit("h")["publish_messages"] == np.inf
    rig.get(update(30.0, seq=3, issued_at_ms=rig.now_ms))
    assert rig.client.limit("g")["publish_messages"] == 30.0


def test_two_groups_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="the same id"):
        ReceivedLimits(["b1"], ["g", "g"])


def test_only_groups_that_are_admitted_have_a_column() -> None:
    received = ReceivedLimits(["b1"], admits=lambda ids: ids == group_id("g"))
    names = [f"g{n}" for n in range(50)]
    message = update(groups=["g", "", *names], limits=np.ones((52, BASIC)))
    assert received.apply(decode_limits(message)).changed == 1
    assert received.columns_of(["g", "g1", ""]).tolist() == [0, -1, -1]
    assert received.apply(decode_limits(update(2.0, seq=2))).changed == 1
    assert received.room == (1, 1)


def test_a_restarted_broker_has_nothing_of_before() -> None:
    received = ReceivedLimits(["b1"], ["g"], started_at_ms=1, unset_safe=7.0)
    reporter = Reporter("b1", started_at_ms=1)
    received.apply(decode_limits(update(20.0, safe=5.0, throttles=[HARD])))
    reporter.report(np.zeros((0, 4)), window_ms=1, groups=[], received=received)
    received.restart(0, started_at_ms=2)
    reporter.restart(started_at_ms=2)
    assert received.throttles(0, np.array([0])) == [""]
    assert received.apply(decode_limits(update(9.0, seq=9, broker_started_at_ms=1))).changed == 0
    value = reporter.report(
        np.zeros((1, 4)), window_ms=1, groups=["g"], received=received, now_ms=T0
    )
    (header,) = read(value).headers.to_pylist()
    assert (header["started_at_ms"], header["sequence"]) == (2, 1)
    assert (header["applied_epoch"], header["applied_seq"]) == (-1, -1)
    received.apply(decode_limits(update(20.0)))
    assert received.all(T0 + LEASE_MS + 1)[0, 0, 0] == 7.0
