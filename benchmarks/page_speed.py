"""How long the page's questions take, with 100,000 groups x 5 brokers x 7 days in the history.

Run by ``make bench-page``; writes docs/measured/page-benchmarks.md. It makes the history
(``page_history``), starts ``quotaplane serve`` ten times, and asks each server every question twice
over HTTP.
"""

from __future__ import annotations

import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import duckdb
import httpx
import yaml
from deltalake import DeltaTable

from benchmarks.machine import machine
from benchmarks.page_history import BROKERS, BROKERS_OF_GROUP, DAYS, make_history, ranked
from benchmarks.page_in_chromium import measure_in_chromium
from benchmarks.prose import wrapped
from quotaplane.console.option_parser import OptionParser
from quotaplane.errors import InputError
from quotaplane.history.maintenance import maintain
from quotaplane.settings import History
from quotaplane.streams.script import run_job

PAGE: Final = Path(__file__).resolve().parents[1] / "docs/measured/page-benchmarks.md"
AUDITS: Final = ("top_consumers", "throttled", "exceeded", "changes")
"""Asked once each, of servers of their own: some take long."""
_LONGEST_S: Final = 60.0
GROUPS: Final = 100_000
SERVERS: Final = 10
VISITS: Final = 10
FIRST_S: Final = 0.3
OTHER_S: Final = 1.0
_BIG, _SMALL = 1, 20_000
"""Ranks of the two groups that are asked for."""
_KEPT_S: Final = 1.1
"""The server keeps an answer for a second."""


class Question(NamedTuple):
    """Requests that the page makes at once."""

    about: str
    paths: tuple[str, ...]
    wished_s: float = OTHER_S


class Took(NamedTuple):
    """Seconds of a question, in each server."""

    cold: list[float]
    warm: list[float]


def questions(big: str, small: str, now: datetime) -> list[Question]:
    """The questions of the page; ``big`` and ``small`` are groups."""
    then = (now - timedelta(days=3)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def of(path: str, group: str, more: str = "") -> tuple[str, ...]:
        return (f"/api/v1/{path}?group={quote(group, safe='')}{more}",)

    first = ("/api/v1/status?limit=100", "/api/v1/heat-map", "/")
    return [
        Question("first data: status, heat map, page", first, FIRST_S),
        *(
            Question(f"series of a {size} group, {period}", of("series", group, f"&since={period}"))
            for size, group in (("big", big), ("small", small))
            for period in ("15m", "24h", "7d")
        ),
        Question("why, 3 days ago", of("why", big, f"&at={then}")),
        Question("why, now", of("why", big)),
        Question("limits of a group", of("limits", big)),
        Question("changes of a group", of("changes", big)),
        Question("refused reports of 7 days", ("/api/v1/rejected/summary?since=7d",)),
        Question("brokers", ("/api/v1/brokers",)),
    ]


@contextmanager
def server(conf: Path) -> Iterator[str]:
    """A new server that is ready; its URL."""
    command = [sys.executable, "-m", "quotaplane", "serve", "--conf", str(conf)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"serves (\S+);", line)
        assert found, line + process.stderr.read()
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def measure(conf: Path, asked: list[Question], servers: int) -> dict[str, Took]:
    """Ask each server everything twice, each time beginning with another question."""
    found = {question.about: Took([], []) for question in asked}
    missing: set[str] = set()
    for number in range(servers):
        order = asked[number % len(asked) :] + asked[: number % len(asked)]
        with server(conf) as url, httpx.Client(base_url=url, timeout=60) as client:
            client.get("/healthz")
            for turn in ("cold", "warm"):
                for question in order:
                    begun = time.perf_counter()
                    for path in question.paths:
                        answer = client.get(path)
                        if answer.status_code == 404:
                            missing.add(path)
                        elif answer.status_code != 200:
                            raise InputError(f"{path}: {answer.status_code} {answer.text}")
                    getattr(found[question.about], turn).append(time.perf_counter() - begun)
                time.sleep(_KEPT_S)
    for path in sorted(missing):
        print(f"there is no {path} yet", file=sys.stderr)
    return found


def measure_audits(conf: Path) -> dict[str, float | None]:
    """Seconds of each audit of the last hour; None: there was no answer within ``_LONGEST_S``."""
    found: dict[str, float | None] = {}
    for name in AUDITS:
        with server(conf) as url, httpx.Client(base_url=url, timeout=2 * _LONGEST_S) as client:
            begun = time.perf_counter()
            answer = client.get(f"/api/v1/audits/{name}?since=1h")
            took = time.perf_counter() - begun
            found[name] = took if answer.status_code == 200 else None
    return found


def facts(history: Path) -> dict[str, tuple[int, int, int]]:
    """Rows, files and bytes of the large tables."""
    found = {}
    for name in ("usage", "limits"):
        files = DeltaTable(history / name).file_uris()
        ((rows, size),) = duckdb.execute(
            "SELECT sum(num_rows), sum(file_size_bytes) FROM parquet_file_metadata($files)",
            {"files": files},
        ).fetchall()
        found[name] = (int(rows), len(files), int(size))
    return found


def page(
    took: dict[str, Took],
    asked: list[Question],
    audits: dict[str, float | None],
    before: dict[str, tuple[int, int, int]],
    in_chromium: dict[str, list[float]],
    kept_s: float,
) -> str:
    """The text of the page."""
    wished = {question.about: question.wished_s for question in asked}
    tables = "; ".join(
        f"`{name}` {rows / 1e6:.0f} million rows in {files} files, {size / 1e9:.1f} GB"
        for name, (rows, files, size) in before.items()
    )
    lines = [
        "# Benchmarks of the page",
        "",
        *wrapped(
            f"How long the page's questions take with {GROUPS:,} groups and {DAYS} days of "
            "history. [Benchmarks](benchmarks.md) has the quota job's rounds. `make bench-page` "
            "writes this page; do not edit it."
        ),
        "## Answers of the server",
        "",
        *wrapped(
            f"Seconds, of {SERVERS} servers. *Cold*: the first time that a new server is asked "
            "this; each begins with another question, so that *most* is about the very first "
            "request of a server. *Warm*: the second time. Bold: above what is wished."
        ),
        "| question | wished | cold: median | most | warm: median | most |",
        "|---|---|---|---|---|---|",
    ]
    for about, times in took.items():
        figures = [
            f"{'**' if value > wished[about] else ''}{value:.2f}"
            f"{'**' if value > wished[about] else ''}"
            for each in times
            for value in (statistics.median(each), max(each))
        ]
        lines.append(f"| {about} | {wished[about]:g} | {' | '.join(figures)} |")
    lines += [
        "",
        "## The page in a browser",
        "",
        *wrapped(
            f"Headless Chromium, {VISITS} visits to a server that has answered before: seconds "
            "from the click until it is shown."
        ),
        "| what is done | seconds: median | most |",
        "|---|---|---|",
        *(
            f"| {about} | {statistics.median(seconds):.2f} | {max(seconds):.2f} |"
            for about, seconds in in_chromium.items()
        ),
        "",
        "## Audits",
        "",
        "Of the last hour, asked once of a new server (wished: 1 s):",
        "",
        "| audit | seconds |",
        "|---|---|",
        *(
            f"| {name} | {f'more than {_LONGEST_S:g}' if seconds is None else f'{seconds:.1f}'} |"
            for name, seconds in audits.items()
        ),
        "",
        *wrapped(
            "Why they are slow: an audit that compares usage with limits needs the newest limit "
            "from before the hour, of each broker and group that reports. That may be of any day, "
            "so it looks at all limits."
        ),
        "## Method",
        "",
        *wrapped(
            f"{GROUPS:,} groups, each on {BROKERS_OF_GROUP} of {BROKERS} brokers, {DAYS} days. The "
            "group of rank r wants 50,000 / r^0.8 messages a second and is active in an hour with "
            "probability min(1, 700 / r): 4,200 groups at a time. While it is active, its brokers "
            "report it once a minute, but for the 45 % that Pulsar's rule leaves out. A third of "
            f"the reports change a limit. {tables}; maintained as by `quotaplane maintain`, but "
            "for the last 30 minutes, which are as the job appended them. `quotaplane maintain` "
            f"then takes {kept_s:.1f} s. The files are in the system's cache."
        ),
        machine(),
        "",
        *wrapped(
            "`benchmarks/page_history.py` makes the history and `benchmarks/page_speed.py` asks; "
            "`make bench-page` runs both again."
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def main(argv: Sequence[str]) -> None:
    """Measure, and write the page."""
    parser = OptionParser(description=__doc__)
    parser.add_argument("--folder", help="keeps the history here, and uses the one that is there")
    parser.add_argument("--servers", type=int, default=SERVERS)
    args = parser.parse_args(argv)
    folder = Path(args.folder or tempfile.mkdtemp(prefix="quotaplane-page-"))
    try:
        history = folder / "history"
        now = datetime.now(timezone.utc)
        if not history.exists():
            folder.mkdir(parents=True, exist_ok=True)
            print(f"making the history in {history}: some ten minutes", file=sys.stderr)
            make_history(history, now, GROUPS, threads=2)
        conf = folder / "conf.yaml"
        raw: dict[str, Any] = {
            "transport": {"kind": "delta", "path": str(folder / "topics")},
            "history": {"path": str(history)},
            "checkpoint": str(folder / "checkpoint"),
            "server": {"anonymous": "viewer", "port": 0, "request_timeout_s": _LONGEST_S},
        }
        conf.write_text(yaml.safe_dump(raw))
        big, small = ranked(GROUPS, _BIG, _SMALL)
        asked = questions(big, small, now)
        before = facts(history)
        took = measure(conf, asked, args.servers)
        with server(conf) as url:
            in_chromium = measure_in_chromium(url, big, small, VISITS)
        audits = measure_audits(conf)
        begun = time.perf_counter()
        maintain(History(path=str(history)), datetime.now(timezone.utc))
        kept_s = time.perf_counter() - begun
        PAGE.write_text(page(took, asked, audits, before, in_chromium, kept_s), encoding="utf-8")
    finally:
        if args.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    run_job(main)
