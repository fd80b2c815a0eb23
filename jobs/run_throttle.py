"""Run the throttle job until stopped, or a dry run on recorded requests (--events)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from quotaplane.console.option_parser import OptionParser
from quotaplane.settings import load_settings
from quotaplane.streams.job import run_stream_job
from quotaplane.streams.script import add_skip_batch, conf_parser, run_job
from quotaplane.streams.session import build_session
from quotaplane.streams.spark_log import SparkLog
from quotaplane.streams.throttle.dry_run import add_options, run_dry
from quotaplane.streams.throttle.job import SESSION, ThrottleSpec


def parser() -> OptionParser:
    options = conf_parser("throttle", __doc__)
    add_options(options)
    add_skip_batch(options, "events")
    return options


def main(argv: Sequence[str]) -> None:
    options = parser()
    args = options.parse_args(argv)
    if args.events is None and (args.quotas or args.out):
        options.error("--quotas and --out go with --events")
    if args.events is not None and args.skip_batch is not None:
        options.error("--skip-batch does not go with --events")
    settings = load_settings(args.conf)

    def session(log: SparkLog | None = None) -> SparkSession:
        name = "quotaplane throttle" if args.events is None else "quotaplane dry run"
        return build_session(name, SESSION, log=log, security=settings.security)

    if args.events is None:
        run_stream_job(ThrottleSpec(settings), session, args.skip_batch)
    else:
        run_dry(settings, args, session)


if __name__ == "__main__":
    run_job(main)
