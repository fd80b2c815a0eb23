"""Run the balance job until stopped."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from quotabalance.job.job import BalanceSpec
from quotabalance.settings import load_balance_settings
from quotaplane.console.option_parser import OptionParser
from quotaplane.streams.run_job import run_stream_job
from quotaplane.streams.script import add_skip_batch, conf_parser, run_job
from quotaplane.streams.session import build_session
from quotaplane.streams.spark_log import SparkLog


def parser() -> OptionParser:
    options = conf_parser("balance", __doc__)
    add_skip_batch(options, "load reports")
    return options


def main(argv: Sequence[str]) -> None:
    args = parser().parse_args(argv)
    settings = load_balance_settings(args.conf)

    def session(log: SparkLog) -> SparkSession:
        return build_session("quotaplane balance", log=log, security=settings.security)

    run_stream_job(BalanceSpec(settings), session, args.skip_batch, standby=args.standby)


if __name__ == "__main__":
    run_job(main)
