"""Make a checkpoint with another number of shards, from which the quota job goes on."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from quotaplane.console.option_parser import OptionParser, whole_number
from quotaplane.console.terminal import inform, warn
from quotaplane.settings import load_settings
from quotaplane.streams.quota.reshard import run_reshard
from quotaplane.streams.script import run_job
from quotaplane.streams.session import build_session
from quotaplane.streams.spark_log import SparkLog


def parser() -> OptionParser:
    options = OptionParser(prog="quotaplane reshard", description=__doc__)
    options.add_argument("--conf", metavar="FILE", required=True, help="settings file of the job")
    options.add_argument(
        "--shards", type=whole_number, metavar="N", required=True, help="the new number of shards"
    )
    options.add_argument(
        "--to",
        metavar="FOLDER",
        help="the new checkpoint (default: that of the settings with -N-shards behind its name)",
    )
    return options


def main(argv: Sequence[str]) -> None:
    args = parser().parse_args(argv)
    settings = load_settings(args.conf)

    def session(log: SparkLog) -> SparkSession:
        name = "quotaplane reshard"
        return build_session(name, log_level="error", log=log, security=settings.security)

    to, made = run_reshard(settings, args.shards, args.to, session, warn)
    inform(
        f"checkpoint {to}: {args.shards} shards, epoch {made.epoch}. Set checkpoint: {to} and "
        f"shards: {args.shards} in {args.conf}, and start the job; {settings.checkpoint} can be "
        "deleted once it runs"
    )


if __name__ == "__main__":
    run_job(main)
