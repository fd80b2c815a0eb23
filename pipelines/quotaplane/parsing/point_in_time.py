"""Points in time as people write them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Final

from quotaplane.errors import InputError
from quotaplane.texts import utc_text

EARLIEST: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
LATEST: Final = datetime(2200, 1, 1, tzinfo=timezone.utc)
"""No history has other times; far ones would overflow where they are computed with."""

_CLOCKS_DIFFER: Final = timedelta(minutes=5)
"""Another host's clock may be this far ahead."""

_AGE: Final = re.compile(r"([0-9]{1,6})([smhd])")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{3}([0-9]{3})?)?)?(Z|[-+][0-9]{2}:[0-9]{2})?)?"
)
"""Other forms of ISO 8601 are not read by every Python, or with another meaning: some take the zone
in 2026-03-01+05:00 for a time."""


def parse_since(text: str, now: datetime, option: str = "--since") -> datetime:
    """Parse a point in the past: ISO 8601 (UTC by default), or an age.

    ``option`` is named in errors.

    >>> noon = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    >>> parse_since("90m", noon).isoformat()
    '2026-03-01T10:30:00+00:00'
    >>> parse_since("2026-02-28", noon).isoformat()
    '2026-02-28T00:00:00+00:00'

    Raises:
        InputError: it is neither, not between ``EARLIEST`` and ``LATEST``, or in the future, of
            which no history knows: an empty answer would look as if nothing had happened.
    """
    at = parse_until(text, now, option)
    if at > now + _CLOCKS_DIFFER:
        raise InputError(f"{option}: {text!r} is in the future; it is {utc_text(now)} (UTC)")
    return at


def parse_until(text: str, now: datetime, option: str = "--until") -> datetime:
    """Parse the end of a period, which may be in the future.

    Raises:
        InputError: it is neither a time nor an age, or not between ``EARLIEST`` and ``LATEST``.
    """
    try:
        at = _parsed(text, now, option)
    except OverflowError:
        at = None
    if at is None or not EARLIEST <= at <= LATEST:
        raise InputError(f"{option}: {text!r} must be between {EARLIEST.year} and {LATEST.year}")
    return at


def check_order(
    since: datetime | None,
    until: datetime | None,
    options: tuple[str, str] = ("--since", "--until"),
) -> None:
    """Check that a period does not end before it begins; None: it has no such end.

    ``options`` are named in errors.

    Raises:
        InputError: it ends before it begins.
    """
    if since is not None and until is not None and until < since:
        raise InputError(
            f"{options[1]}: {until.isoformat()} is before {options[0]}, {since.isoformat()}"
        )


def _parsed(text: str, now: datetime, option: str) -> datetime:
    ago = _AGE.fullmatch(text)
    if ago:
        unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[ago[2]]
        return now - timedelta(**{unit: int(ago[1])})
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        # Python 3.10 does not parse the Z.
        at = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        raise InputError(
            f"{option}: {text!r} is neither a time (2026-03-01T12:00:00Z) "
            "nor an age (30s, 15m, 2h, 7d)"
        ) from None
    return at.astimezone(timezone.utc) if at.tzinfo else at.replace(tzinfo=timezone.utc)
