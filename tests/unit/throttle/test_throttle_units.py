"""Quotas as texts: what ZooKeeper's document writes is read, and nothing else."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import InputError
from quotaplane.groups.quota_text import parse_quota
from quotaplane.throttle.bank import LAWS, begin
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.types import Quotas, Requests, ThrottleLaw, ThrottleMode

TYPES = {"": "total", "both ": "total", "read ": "dispatch", "WRITE  ": "publish"}
LETTERS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
SIZES = {
    **{letter + b: power for (letter, power), b in product(LETTERS.items(), ("", "B"))},
    **{f"{letter}b".lower(): power for letter, power in LETTERS.items()},
    "B": 1,
    " bytes": 1,
    "bytes": 1,
    " k bytes": 2**10,
    " MB byte": 2**20,
}
COUNTS = (" requests", "reqs", " Request", " req")
TIMEFRAMES = {
    **dict.fromkeys(("s", "sec", "SECOND"), 1),
    **dict.fromkeys(("min", "minute"), 60),
    **dict.fromkeys(("h", "Hour"), 3600),
    **dict.fromkeys(("d", "day"), 86_400),
}
NUMBERS = st.integers(0, 999).map(str) | st.floats(0, 999).map("{:.3f}".format)


@given(
    st.sampled_from(list(TYPES)),
    NUMBERS,
    st.sampled_from([*SIZES, *COUNTS]),
    st.sampled_from(["/", " / ", " /"]),
    st.sampled_from(list(TIMEFRAMES)),
)
def test_every_way_to_write_a_quota_is_read(
    kind: str, number: str, unit: str, slash: str, timeframe: str
) -> None:
    found = parse_quota(f" {kind}{number}{unit}{slash}{timeframe} ")
    what = "bytes" if unit in SIZES else "messages"
    seconds = TIMEFRAMES[timeframe]
    assert found.dimension == f"{TYPES[kind]}_{what}"
    assert found.timeframe_s == seconds
    assert found.rate_per_s * seconds == pytest.approx(float(number) * SIZES.get(unit, 1))


def test_a_petabyte_is_the_largest_unit() -> None:
    assert parse_quota("read 1PB/d").rate_per_s == 2**50 / 86_400
    with pytest.raises(InputError, match="more than 1e\\+18 per second"):
        parse_quota("read 1000 P/s")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is no quota: must be [read|write|both] NUMBER"),
        ("10MB", "is no quota: must be [read|write|both] NUMBER"),
        ("10MB/", "is no quota: must be [read|write|both] NUMBER"),
        ("MB/s", "is no quota: must be [read|write|both] NUMBER"),
        ("-5 bytes/s", "is no quota: must be [read|write|both] NUMBER"),
        ("1e6 bytes/s", "is no quota: must be [read|write|both] NUMBER"),
        ("٣ bytes/s", "is no quota: must be [read|write|both] NUMBER"),
        ("1,5MB/s", "is no quota: must be [read|write|both] NUMBER"),
        ("unlimited", "is no quota: must be [read|write|both] NUMBER"),
        ("read 5 M B bytes/s", "is no quota: must be [read|write|both] NUMBER"),
        ("10MB/2min", "is no quota: must be [read|write|both] NUMBER"),
        ("publish 10MB/s", "'publish' must be read, write or both"),
        ("10MB/fortnight", "'fortnight' must be one of s, sec, second, min, minute, h, hour, d"),
        ("10MB/m", "'m' must be one of"),
        ("10 XB/s", "'xb' must be B, K, M, G, T or P, or one of bytes, requests"),
        ("10EB/s", "'eb' must be B"),
        ("10 bytes requests/s", "'bytes' must be B"),
        ("1000/s", "does not say of what: bytes, requests, mutations or milliseconds"),
        ("read 1000 / s", "does not say of what"),
        ("10K requests/s", "'k' is for bytes, not for requests"),
        ("5M mutations/s", "'m' is for bytes, not for mutations"),
        ("write 5 mutations/s", "mutations are neither read nor written"),
        ("read 5 ms/s", "milliseconds are neither read nor written"),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_quota(text)
    assert problem in str(refused.value)
    assert repr(text) in str(refused.value)


@given(st.text("readwitbohKMGs/ 0159.", max_size=16) | st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_quota(text)
    except InputError:
        return
    assert 0 <= found.rate_per_s <= 1e18


@given(st.integers(1, 10**7), st.sampled_from(["s", "min", "hour", "day"]))
def test_as_much_as_is_written_may_be_used_in_the_timeframe(number: int, timeframe: str) -> None:
    quota = parse_quota(f"write {number} reqs/{timeframe}")
    assert quota.rate_per_s == pytest.approx(number / quota.timeframe_s, rel=1e-15)
    for law in ThrottleLaw:
        terms = ThrottleTerms(law=law, mode=ThrottleMode.HARD).over(quota.timeframe_s)
        if terms.samples * terms.window_ms != quota.timeframe_s * 1000:
            continue  # Kafka's eleven windows of a second
        quotas = Quotas.of(
            [quota.rate_per_s], samples=terms.samples, window_ms=terms.window_ms, hard=True
        )
        bank = begin(np.array([LAWS.index(law)]), quotas)
        requests = Requests(np.array([0]), np.array([10**12]), np.array([float(number)]))
        _, answers = bank.answer(requests)
        if law is not ThrottleLaw.WINDOWED_RATE:  # which misses the window of now
            assert answers.balance[0] >= 0
        assert answers.admitted[0]


def test_a_long_text_is_not_repeated_in_full() -> None:
    with pytest.raises(InputError) as raised:
        parse_quota("9" * 500 + " bytes/s")
    assert str(raised.value) == (
        "'99999999999999999999'... is no quota: longer than 200 characters"
    )
