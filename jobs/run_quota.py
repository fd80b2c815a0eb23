"""Run the quota job until stopped: reads reports, publishes limits, writes the history."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from quotaplane.console.option_parser import OptionParser
from quotaplane.settings import load_settings
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.run_job import run_stream_job
from quotaplane.streams.script import add_skip_batch, conf_parser, run_job
from quotaplane.streams.session import build_session
from quotaplane.streams.spark_log import SparkLog


def parser() -> OptionParser:
    options = conf_parser("quota", __doc__)
    add_skip_batch(options, "reports")
    return options


def main(argv: Sequence[str]) -> None:
    args = parser().parse_args(argv)
    settings = load_settings(args.conf)

    def session(log: SparkLog) -> SparkSession:
        return build_session("quotaplane quota", log=log, security=settings.security)

    run_stream_job(QuotaSpec(settings), session, args.skip_batch, standby=args.standby)


if __name__ == "__main__":
    run_job(main)
