"""``quotaplane demo``: runs the real quota job with simulated brokers, and a report."""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError
from rich.console import Console

from quotaplane.agents.conditions import Conditions
from quotaplane.console.command_output import INTERRUPTED
from quotaplane.console.option_parser import OptionParser, whole_number
from quotaplane.demo.cluster import Director, SimulatedCluster
from quotaplane.demo.live import Screen, print_summary
from quotaplane.demo.record import DemoRecord
from quotaplane.demo.report import AuditAnswer, write_report
from quotaplane.demo.scenarios import DEMO, DURATION_S
from quotaplane.errors import ConfigError
from quotaplane.laws import LAWS
from quotaplane.query.audit import load_audit
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import Settings, parse_settings
from quotaplane.streams.job import StreamJob, prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.session import build_session
from quotaplane.streams.spark_log import SparkLog
from quotaplane.transport import open_broker_link

FOLDER = "data/demo"
_MARK = ".quotaplane-demo"
_REFRESH_S = 0.25
_PATIENCE_S = 5.0
"""How long the current batch may take to end after Ctrl-C."""
_WIDTH = 110
"""Width of the summary in a file or a pipe."""
_AUDIT = "propagation"
_AUDIT_COLUMNS = (
    "resource_group",
    "dimension",
    "from_per_s",
    "to_per_s",
    "state",
    "brokers",
    "seconds",
)


class StopRequest(BaseException):
    """Ctrl-C or SIGTERM: end cleanly, with the exit code that a shell expects."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


def main(argv: Sequence[str]) -> int:
    """Play the demo; returns the exit code."""
    args = parser().parse_args(argv)
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    folder = Path(args.output).absolute()
    signal.signal(signal.SIGTERM, _stop)
    try:
        settings = demo_settings(folder, args.law)
        fresh_folder(folder)
        _play(console, settings, folder, args)
    except (StopRequest, KeyboardInterrupt) as request:
        console.print("\nstopped")
        return request.code if isinstance(request, StopRequest) else INTERRUPTED
    return 0


def demo_settings(folder: Path, law: str = "max_min") -> Settings:
    """Settings as in conf/local.yaml, but with a report every second."""
    return parse_settings(
        {
            "transport": {"kind": "delta", "path": str(folder / "topics")},
            "history": {"path": str(folder / "history")},
            "checkpoint": str(folder / "checkpoint"),
            "trigger": {"interval_s": 0.5},
            # A laptop that is busy starting Spark reads the first reports late.
            "reports": {"interval_s": 1.0},
            "law": {"name": law},
        },
        source="demo",
    )


def parser() -> OptionParser:
    """The options of the demo."""
    options = OptionParser(
        prog="quotaplane demo",
        description="The quota job on a simulated cluster; ends by itself in about a minute.",
    )
    options.add_argument("--law", default="max_min", choices=list(LAWS), help="default: max_min")
    options.add_argument(
        "--seed", type=whole_number, default=0, help="of the noisy traffic; default: 0"
    )
    options.add_argument("--output", metavar="FOLDER", default=FOLDER, help=f"default: {FOLDER}")
    options.add_argument(
        "--seconds",
        type=whole_number,
        default=DURATION_S,
        help=f"how much to play; default: {DURATION_S}",
    )
    return options


def fresh_folder(folder: Path) -> None:
    """Create an empty folder, in place of an earlier demo's.

    Raises:
        ConfigError: the folder has other files in it, or can't be written.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            if not (folder / _MARK).exists():
                raise ConfigError(
                    f"--output: {folder} is neither empty nor the folder of an earlier demo; name "
                    "another one"
                )
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).touch()
    except OSError as error:
        raise ConfigError(f"--output: {folder}: {error.strerror}") from None


def _play(
    console: Console,
    settings: Settings,
    folder: Path,
    args: argparse.Namespace,
) -> None:
    began = time.monotonic()
    record = DemoRecord(DEMO)
    director = Director(
        DEMO,
        record,
        # as ``quotaplane groups put`` and ``delete`` do it
        put=lambda groups, quotas: put_groups(settings.history, groups, quotas, by="demo"),
        delete=lambda groups: delete_groups(settings.history, groups, by="demo"),
        seed=args.seed,
    )
    console.print("demo: creating topics, history tables and resource groups ...")
    transport = prepare(QuotaSpec(settings))
    director.open()
    console.print("demo: starting Spark ...")
    log = SparkLog(folder / "spark.log", Conditions(console.print))
    spark = build_session("quotaplane demo", log_level="error", log=log)
    signal.signal(signal.SIGINT, _stop)  # Spark's own handler would cancel the current batch
    job = StreamJob(spark, QuotaSpec(settings), transport)
    console.print(
        f"demo: the job runs ({time.monotonic() - began:.0f} s); "
        f"{len(DEMO.brokers)} brokers report every second ..."
    )
    cluster = SimulatedCluster(
        director, record, open_broker_link(settings.transport), duration_s=args.seconds
    )
    batches: dict[int, int] = {}
    try:
        cluster.start()
        with Screen(console) as screen:
            while cluster.is_alive():
                cluster.join(_REFRESH_S)
                _note_batches(job, batches)
                screen.show(record, _status(record, batches))
                if not job.query.isActive:
                    job.wait()
        cluster.raise_if_failed()
        console.print("\ndemo: stopping the job and running an audit of the history ...")
        job.stop()
        audit = _run_audit(settings, record)
    finally:
        cluster.stop()
        end_job(job)
    _finish(console, folder, record, cluster, batches, audit)


def end_job(job: StreamJob) -> None:
    """Stop the job if it runs; a signal to the whole process group has stopped Spark, too."""
    with suppress(Py4JError, ConnectionError):
        if job.query.isActive:
            job.stop(patience_s=_PATIENCE_S)


def _stop(number: int, frame: FrameType | None) -> None:
    raise StopRequest(number)


def _note_batches(job: StreamJob, batches: dict[int, int]) -> None:
    """Add the latest micro-batch that had input: its duration in ms by its id."""
    progress: Any = job.query.lastProgress
    if progress is not None and progress.numInputRows:
        batches[progress.batchId] = progress.durationMs.get("triggerExecution", 0)


def _status(record: DemoRecord, batches: dict[int, int]) -> str:
    if not record.intervals:
        return ""
    live = f"{record.intervals[-1].alive.sum()} brokers live   "
    if not batches:
        return live + "Spark is still in its first micro-batch"
    median = statistics.median(batches.values()) / 1000
    return live + f"micro-batch {max(batches)}, median {median:.2f} s"


def _run_audit(settings: Settings, record: DemoRecord) -> AuditAnswer:
    """Audit how long each quota change of the demo took until it was in force."""
    audit = load_audit(_AUDIT)
    start_ms = next((i.now_ms for i in record.intervals if i.t_s >= 0), 0)
    since = datetime.fromtimestamp(start_ms / 1000, tz=timezone.utc)
    sql = f"SELECT {', '.join(_AUDIT_COLUMNS)} FROM ({audit.sql}) AS audit"
    with DuckDBEngine(settings.history) as engine:
        rows = engine.ask(sql, audit.values(), since=since).rows
    return AuditAnswer(audit.name, audit.question, audit.sql, _AUDIT_COLUMNS, tuple(rows))


def _finish(
    console: Console,
    folder: Path,
    record: DemoRecord,
    cluster: SimulatedCluster,
    batches: dict[int, int],
    audit: AuditAnswer,
) -> None:
    """Write the report and print the summary."""
    facts = {
        "reports sent": f"{cluster.reports:,}",
        "micro-batches": f"{len(batches):,}",
        "median micro-batch": f"{statistics.median(batches.values() or [0]) / 1000:.2f} s",
    }
    report = folder / "report.html"
    write_report(report, record, facts, audit)
    print_summary(console, record, facts, audit)
    console.print(f"report:  {report}", soft_wrap=True)
    console.print(f"history: {folder / 'history'}", soft_wrap=True)
    console.print(f"log:     {folder / 'spark.log'}", soft_wrap=True)
