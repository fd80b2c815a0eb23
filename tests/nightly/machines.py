"""docs/measured/machines.csv and its page: outages of real parts, from tests that note them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from benchmarks.tables import csv_of
from tests.nightly.record import Record

FILES: Final = tuple(
    f"tests/servers/test_{name}.py"
    for name in ("yarn", "s3", "standalone", "kube_play", "spark_on_kubernetes", "standby")
)
"""The files with tests that note outages, in the page's order."""

_TOP: Final = """\
# Outages of machines

Each row is a real part of the system around the quota job that was lost, on one machine of two
cores. `make machines` runs these tests, and writes this page from [its table](machines.csv); a
file whose tests have passed runs again when the code has changed. Its output is in build/nightly.

Brokers report once a second and want more than their group's quota. The gap is the longest time
without limits at a broker. Each round renews all limits (`limits.refresh_rounds: 1`, with a standby
2), so that a gap is the outage's and not the time until a limit's turn. A broker keeps its limits
for a lease: a gap above the lease would leave it without any.

After each outage reporting stops until the job has recorded what was sent since its start. Counted
are the reports that are in the table `usage`, lost those that are not, doubled are rows too many.
Exact: also `rounds` counts each report once, and the sum of the messages is what brokers have sent.
All that is not as wanted is bold.

| real part | harm | lease (s) | gap (s) | wanted (s) | reports | counted | lost | doubled | exact |
|---|---|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """An outage, and the run that has measured it."""

    test: str
    """File and name."""
    part: str
    harm: str
    lease_s: float
    gap_s: float
    wanted_s: float
    sent: int
    counted: int
    lost: int
    doubled: int
    exact: bool
    """Whether ``rounds`` and the sum of messages agree, too."""
    versions: str
    """The versions of Spark and of the part."""
    commit: str = ""
    date: str = ""

    @property
    def file(self) -> str:
        """The test's file."""
        return self.test.partition("::")[0]


class MachinesRecord:
    """The rows of a repository, which stands in its folder ``root``."""

    def __init__(self, root: Path) -> None:
        self.file = root / "docs/measured/machines.csv"
        self._commit = Record(root).commit_now()

    @property
    def page_file(self) -> Path:
        """The page beside the rows."""
        return self.file.with_suffix(".md")

    def read(self) -> list[Row]:
        """All rows, in the page's order."""
        if not self.file.exists():
            return []
        with self.file.open(encoding="utf-8", newline="") as file:
            return TypeAdapter(list[Row]).validate_python(list(csv.DictReader(file)))

    def replace(self, test: str, rows: Iterable[Row]) -> None:
        """Put a test's rows in the place of those it had; the page is written anew."""
        date = f"{datetime.now(timezone.utc):%Y-%m-%d}"
        new = [replace(row, commit=self._commit, date=date) for row in rows]
        kept = [row for row in self.read() if row.test != test and row.file in FILES]
        together = sorted([*kept, *new], key=lambda row: FILES.index(row.file))
        self.file.write_text(csv_of(map(asdict, together)), "utf-8")
        self.page_file.write_text(page(together), "utf-8")


def page(rows: list[Row]) -> str:
    """The page of these rows."""
    return _TOP + "\n".join([*map(_line, rows), "", *_found(rows), "", *_runs(rows)]) + "\n"


def _line(row: Row) -> str:
    gap = _bold(f"{row.gap_s:.1f}", row.gap_s > row.wanted_s)
    lost, doubled = (_bold(str(count), count > 0) for count in (row.lost, row.doubled))
    exact = "yes" if row.exact else "**no**"
    figures = f"{row.lease_s:.0f} | {gap} | {row.wanted_s:.0f} | {row.sent:,} | {row.counted:,}"
    return f"| {row.part} | {row.harm} | {figures} | {lost} | {doubled} | {exact} |"


def _bold(text: str, is_bold: bool) -> str:
    return f"**{text}**" if is_bold else text


def _found(rows: list[Row]) -> Iterator[str]:
    met = sum(row.gap_s <= row.wanted_s for row in rows)
    lapsed = sum(row.gap_s > row.lease_s for row in rows)
    wrong = sum(row.lost + row.doubled for row in rows)
    yield f"{met} of {len(rows)} gaps are as short as wanted; {lapsed} are above the lease."
    yield f"{wrong} reports were lost or doubled."


def _runs(rows: list[Row]) -> Iterator[str]:
    yield "Run with:"
    yield ""
    runs = dict.fromkeys((row.part, row.versions, row.date, row.commit) for row in rows)
    for part, versions, date, commit in runs:
        yield f"* {part}: {versions}; {date}, commit `{commit}`"
